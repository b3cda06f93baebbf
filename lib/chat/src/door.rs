//! Conversations whose messages the caller sends each time, as in the protocol of OpenAI. Such a caller names no session: it is
//! found by a digest of what was said before. The gateway computes that digest from a request, and the store from the answer of a
//! turn, so both use what is here.

use ken_types::event::{CitedSource, TurnResult};
use ken_types::hex;
use ken_types::id::SubmissionId;
use ken_types::live_text::LiveText;
use ken_types::ops::store::{Scope, SubmissionStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use unicode_normalization::UnicodeNormalization;

/// The digest of the messages of a conversation up to one of them. It covers who sends them, so that nobody finds the session of
/// somebody else by guessing what was said there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prefix(String);

impl Prefix {
    /// The digest before the first message of a caller. No session has it.
    pub fn start(caller: &str, scope: &Scope) -> Prefix {
        Prefix(String::new()).add(caller, &scope.actor_id)
    }

    /// Returns the digest after one more message. Texts that differ only in line ends, in outer white space or in how their
    /// characters are composed are equal, because clients store them so.
    pub fn add(&self, role: &str, text: &str) -> Prefix {
        let mut hash = Sha256::new();
        let text: String = text.trim().replace("\r\n", "\n").replace('\r', "\n").nfc().collect();
        for part in [self.0.as_str(), role, &text] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Prefix(hex::encode(&hash.finalize()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What the context of an event holds of the conversation that its caller has sent, under [`DOOR`].
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The digest before the new messages; absent if there were none before.
    pub before: Option<Prefix>,
    /// The digest after the new messages.
    pub after: Prefix,
}

/// The name of [`Conversation`] in the context of an event.
pub const DOOR: &str = "door";
/// The name of the turns in the context of an event of which the caller was sent a notice in place of the answer.
pub const OWED: &str = "owed";
/// The name of the instructions of the caller in the context of an event.
pub const INSTRUCTIONS: &str = "instructions";

impl Conversation {
    pub fn of_context(context: Option<&Value>) -> Option<Conversation> {
        Conversation::deserialize(context?.get(DOOR)?).ok()
    }

    /// Returns the digests with which the next request of the caller can begin, if the answer is complete: an answer that was streamed
    /// contains all texts of the turn, and one that was not only the last.
    ///
    /// `owed` are the answers that stand before it.
    pub fn tips_after(&self, owed: &[String], streamed: &str, result: &TurnResult) -> Vec<Prefix> {
        let tip = |text: &str| self.after.add("assistant", &behind(owed, text));
        let mut tips = vec![tip(streamed), tip(&whole_text(result))];
        tips.dedup();
        tips
    }
}

/// The text of a turn as it is sent while it is made.
#[derive(Debug, Default)]
pub struct StreamedText {
    live: LiveText,
    /// Line feeds that are sent only if more text follows.
    held: String,
}

impl StreamedText {
    /// Returns what an event adds to the text.
    pub fn add(&mut self, event: &Value) -> String {
        let added = match event.get("type").and_then(Value::as_str) {
            Some("approval_requested") => self.notice(event),
            _ => self.live.add(event).into_owned(),
        };
        let mut text = std::mem::take(&mut self.held) + &added;
        self.held = text.split_off(text.trim_end_matches('\n').len());
        text
    }

    /// Returns the notice that a turn waits for a decision, as a paragraph of its own.
    fn notice(&mut self, event: &Value) -> String {
        format!("{}\n{}\n\n", self.live.end_line(), notice(event))
    }
}

/// Returns the sentence that tells the user of a program what to do about a request for an approval.
pub fn notice(event: &Value) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    format!(
        "*ken waits for a decision: {} (risk {}), request {}. Decide with `ken approvals`, or in ken's console; no message here is a \
         decision.*",
        text("actionType"),
        text("risk"),
        text("requestId")
    )
}

/// Returns the sentence that is sent in place of an answer whose turn waits for decisions on these requests.
pub fn waiting(requests: &[String]) -> String {
    format!(
        "*ken waits for a decision on {}. Decide with `ken approvals`, or in ken's console; no message here is a decision. The turn goes on \
         then, and the next answer here begins with its answer.*",
        requests.join(", ")
    )
}

/// Returns the turns whose answers stand before that of a prompt with this context.
pub fn owed(context: Option<&Value>) -> Vec<SubmissionId> {
    let given = context.and_then(|context| context.get(OWED));
    given.and_then(|owed| Vec::deserialize(owed).ok()).unwrap_or_default()
}

/// Returns the text of an earlier turn, which stands before an answer.
pub fn owed_text(status: &SubmissionStatus) -> String {
    match (&status.result, &status.error) {
        (Some(result), _) => whole_text(result),
        (None, Some(error)) => format!("*The turn that waited for a decision failed: {}*", error.message),
        (None, None) => String::new(),
    }
}

/// Returns a text with the answers before it that the caller was owed.
pub fn behind(owed: &[String], text: &str) -> String {
    let texts = owed.iter().map(String::as_str).chain([text]);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Returns the text of an answer that is sent as a whole: the last text of the turn, and the sources that it names.
pub fn whole_text(result: &TurnResult) -> String {
    match CitedSource::lines(&result.sources).as_str() {
        "" => result.text.clone(),
        lines => format!("{}\n\n{lines}", result.text.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scope(actor: &str) -> Scope {
        Scope { connector: "openai".into(), actor_id: actor.into(), conversation_id: actor.into(), thread_id: None }
    }

    #[test]
    fn a_prefix_is_of_its_caller_and_of_every_message() {
        let start = Prefix::start("local", &scope("a"));
        let one = start.add("user", "Hello");
        for other in [
            Prefix::start("operator", &scope("a")).add("user", "Hello"),
            Prefix::start("local", &scope("b")).add("user", "Hello"),
            start.add("assistant", "Hello"),
            start.add("user", "hello"),
            start.add("user", "Hel").add("user", "lo"),
            one.add("user", ""),
        ] {
            assert_ne!(one, other);
        }
        for same in [" Hello\r\n", "\nHello ", "Hello"] {
            assert_eq!(one, start.add("user", same));
        }
        assert_eq!(start.add("user", "a\r\nb\u{e9}"), start.add("user", "a\nbe\u{301}"));
    }

    #[test]
    fn streamed_text_has_all_texts_of_a_turn_and_no_blank_lines_at_its_end() {
        let end = |text: &str| {
            json!({"type": "message_end",
            "message": {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": "toolUse"}})
        };
        let delta = |text: &str| json!({"type": "text_delta", "text": text});
        let asked =
            json!({"type": "approval_requested", "actionType": "file.edit", "risk": "low", "requestId": "apr_1"});
        let mut text = StreamedText::default();
        let pieces: Vec<String> =
            [delta("I "), delta("look.\n"), end("I look.\n"), asked.clone(), delta("Done."), end("Done.")]
                .iter()
                .map(|event| text.add(event))
                .collect();
        assert_eq!(pieces[..3], ["I ", "look.", ""]);
        assert_eq!(pieces[3], format!("\n\n{}", notice(&asked)));
        assert_eq!(pieces[4..], ["\n\nDone.", ""]);
    }

    #[test]
    fn a_conversation_goes_on_from_both_forms_of_an_answer() {
        let after = Prefix::start("local", &scope("a")).add("user", "Hi");
        let conversation = Conversation { before: None, after: after.clone() };
        let mut result: TurnResult =
            serde_json::from_value(json!({"text": "Done.", "usage": {}, "model": {"provider": "p", "id": "m"}}))
                .unwrap();
        assert_eq!(conversation.tips_after(&[], "Done.", &result), [after.add("assistant", "Done.")]);
        result.sources = vec![CitedSource { number: 1, id: "kb-1".into(), title: "T".into(), score: 1.0 }];
        let tips = conversation.tips_after(&[], "I look.\nDone.", &result);
        assert_eq!(tips, [after.add("assistant", "I look.\nDone."), after.add("assistant", "Done.\n\n[1] T (kb-1)")]);
        let context = json!({"door": serde_json::to_value(&conversation).unwrap()});
        assert_eq!(Conversation::of_context(Some(&context)), Some(conversation));
        assert_eq!(Conversation::of_context(Some(&json!({"door": 1}))), None);
    }
}
