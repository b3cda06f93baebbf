//! The text that a turn has written, computed from some of its events.

use std::borrow::Cow;

use ken_types::id::SubmissionId;
use serde::Deserialize;

use crate::rules::check::event_type;

/// The text of the newest message that contains any.
#[derive(Debug)]
pub(crate) struct Written {
    id: SubmissionId,
    pub(crate) text: String,
    /// Whether the message with `text` begins in these events, and not before them.
    pub(crate) begins: bool,
    /// Whether a message has begun that has no text yet.
    pub(crate) is_new: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventFields<'a> {
    #[serde(borrow)]
    submission_id: Cow<'a, str>,
    #[serde(borrow)]
    parent_session: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

impl Written {
    /// Begins to read events of a submission. `is_new` must be that of the previous call, if there was one; otherwise false.
    pub(crate) fn of(id: SubmissionId, is_new: bool) -> Written {
        Written { id, text: String::new(), begins: false, is_new }
    }

    pub(crate) fn add_event(&mut self, event: &str) {
        let kind = event_type(event);
        if !matches!(kind, "message_start" | "text_delta") {
            return;
        }
        let Ok(seen) = serde_json::from_str::<EventFields<'_>>(event) else {
            return;
        };
        // Text of a worker is not part of the answer.
        if seen.submission_id != self.id.as_str() || seen.parent_session.is_some() {
            return;
        }
        if kind == "message_start" {
            self.is_new = true;
        } else if !self.is_new {
            self.text.push_str(&seen.text);
        } else if !seen.text.trim().is_empty() {
            self.text = seen.text.into_owned();
            (self.begins, self.is_new) = (true, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_with_a_text_counts() {
        let id = SubmissionId("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11".to_owned());
        let mut written = Written::of(id.clone(), false);
        let mut see = |kind: &str, fields: &str, of: &str| {
            written.add_event(&format!(r#"{{"v":1,"type":"{kind}"{fields},"eventIndex":1,"submissionId":"{of}"}}"#));
            (written.text.clone(), written.begins, written.is_new)
        };
        let own = id.as_str();
        let mut shows = |kind, fields, of, text: &str, begins, is_new| {
            assert_eq!(see(kind, fields, of), (text.to_owned(), begins, is_new), "{kind} {fields}");
        };
        shows("text_delta", r#","text":"Go""#, own, "Go", false, false);
        shows("message_start", r#","message":{"role":"assistant"}"#, own, "Go", false, true);
        shows("text_delta", r#","text":"Let me \"look\"""#, own, "Let me \"look\"", true, false);
        shows("text_delta", r#","text":".""#, own, "Let me \"look\".", true, false);
        shows("text_delta", r#","text":"no","parentSession":"default""#, own, "Let me \"look\".", true, false);
        shows("text_delta", r#","text":"no""#, "other", "Let me \"look\".", true, false);
        shows("tool_start", r#","toolName":"x""#, own, "Let me \"look\".", true, false);
        shows("message_start", r#","message":{"role":"toolResult"}"#, own, "Let me \"look\".", true, true);
        shows("message_start", r#","message":{"role":"assistant"}"#, own, "Let me \"look\".", true, true);
        shows("text_delta", r#","text":"\n""#, own, "Let me \"look\".", true, true);
        shows("text_delta", r#","text":"Found.""#, own, "Found.", true, false);
    }
}
