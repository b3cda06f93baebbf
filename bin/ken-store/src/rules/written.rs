//! The text that a turn has written so far, folded from its events.

use std::borrow::Cow;

use ken_types::id::SubmissionId;
use serde::Deserialize;

use crate::rules::check::event_type;

/// The text of the newest message of a turn that contains text.
#[derive(Debug)]
pub(crate) struct Written {
    id: SubmissionId,
    text: String,
    /// The text of the previous message, used until the current one has text.
    before: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen<'a> {
    #[serde(borrow)]
    submission_id: Cow<'a, str>,
    #[serde(borrow)]
    parent_session: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    text: Cow<'a, str>,
}

impl Written {
    pub(crate) fn of(id: SubmissionId) -> Written {
        Written { id, text: String::new(), before: String::new() }
    }

    pub(crate) fn see(&mut self, event: &str) {
        let kind = event_type(event);
        if !matches!(kind, "message_start" | "text_delta") {
            return;
        }
        let Ok(seen) = serde_json::from_str::<Seen<'_>>(event) else {
            return;
        };
        // Text of a worker is not part of the answer.
        if seen.submission_id != self.id.as_str() || seen.parent_session.is_some() {
            return;
        }
        if kind == "message_start" {
            let text = std::mem::take(&mut self.text);
            if !text.trim().is_empty() {
                self.before = text;
            }
        }
        self.text.push_str(&seen.text);
    }

    pub(crate) fn text(&self) -> &str {
        match self.text.trim().is_empty() {
            true => &self.before,
            false => &self.text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_with_a_text_counts() {
        let id = SubmissionId("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11".to_owned());
        let mut written = Written::of(id.clone());
        let mut see = |kind: &str, fields: &str, of: &str| {
            written.see(&format!(r#"{{"v":1,"type":"{kind}"{fields},"eventIndex":1,"submissionId":"{of}"}}"#));
            written.text().to_owned()
        };
        let own = id.as_str();
        assert_eq!(see("message_start", r#","message":{"role":"assistant"}"#, own), "");
        assert_eq!(see("text_delta", r#","text":"Let me \"look\"""#, own), "Let me \"look\"");
        assert_eq!(see("text_delta", r#","text":".""#, own), "Let me \"look\".");
        assert_eq!(see("text_delta", r#","text":"no","parentSession":"default""#, own), "Let me \"look\".");
        assert_eq!(see("text_delta", r#","text":"no""#, "other"), "Let me \"look\".");
        assert_eq!(see("tool_start", r#","toolName":"x""#, own), "Let me \"look\".");
        assert_eq!(see("message_start", r#","message":{"role":"toolResult"}"#, own), "Let me \"look\".");
        assert_eq!(see("message_start", r#","message":{"role":"assistant"}"#, own), "Let me \"look\".");
        assert_eq!(see("text_delta", r#","text":"\n""#, own), "Let me \"look\".");
        assert_eq!(see("text_delta", r#","text":"Found.""#, own), "\nFound.");
    }
}
