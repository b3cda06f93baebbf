//! The text of a turn, printed as it arrives.

use std::borrow::Cow;

use serde_json::Value;

/// Turns the events of one turn into the text to print. Each message of the agent ends its line. After a crash the next message
/// repeats the text of the one that was cut off; that text is printed once.
#[derive(Debug, Default)]
pub struct LiveText {
    /// The text of the message that was cut off, until the next one begins.
    cut_off: Option<String>,
    is_in_line: bool,
}

impl LiveText {
    /// The text that an event adds; empty for most events, and for all events of workers.
    pub fn add<'a>(&mut self, event: &'a Value) -> Cow<'a, str> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if event.get("parentSession").is_some() {
            return Cow::Borrowed("");
        }
        match text("/type") {
            "text_delta" => self.delta(text("/text")),
            "message_end" if text("/message/role") == "assistant" => {
                if text("/message/stopReason") == "interrupted" {
                    self.cut_off = Some(text("/message/content/0/text").to_owned());
                    return Cow::Borrowed("");
                }
                Cow::Borrowed(self.end_line())
            }
            "submission_settled" => Cow::Borrowed(self.end_line()),
            _ => Cow::Borrowed(""),
        }
    }

    fn delta<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let was_in_line = self.is_in_line;
        let added = match self.cut_off.take() {
            None => Cow::Borrowed(text),
            Some(cut_off) => match text.strip_prefix(cut_off.as_str()) {
                Some(rest) => Cow::Borrowed(rest),
                None if was_in_line => Cow::Owned(format!("\n{text}")),
                None => Cow::Borrowed(text),
            },
        };
        if !added.is_empty() {
            self.is_in_line = !added.ends_with('\n');
        }
        added
    }

    /// A line feed if the last thing printed was a part of a line. Call it before printing anything else.
    pub fn end_line(&mut self) -> &'static str {
        match std::mem::take(&mut self.is_in_line) {
            true => "\n",
            false => "",
        }
    }

    /// Whether the last thing printed was a part of a line.
    pub fn is_in_line(&self) -> bool {
        self.is_in_line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn delta(text: &str) -> Value {
        json!({"type": "text_delta", "text": text})
    }

    fn end(text: &str, reason: &str) -> Value {
        json!({"type": "message_end",
            "message": {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": reason}})
    }

    fn printed(events: &[Value]) -> String {
        let mut live = LiveText::default();
        events.iter().map(|event| live.add(event).into_owned()).collect()
    }

    #[test]
    fn a_message_that_was_cut_off_is_printed_once() {
        let cut = [delta("Half "), end("Half ", "interrupted")];
        for (next, wanted) in [
            (vec![delta("Half "), delta("of it.")], "Half of it.\n"),
            (vec![delta("Half of it.")], "Half of it.\n"),
            (vec![delta("Another.")], "Half \nAnother.\n"),
        ] {
            let events = [cut.to_vec(), next, vec![end("", "stop")]].concat();
            assert_eq!(printed(&events), wanted);
        }
    }

    #[test]
    fn each_message_has_lines_of_its_own_and_workers_have_none() {
        let mut worker = delta("dig");
        worker["parentSession"] = json!("default");
        let settled = json!({"type": "submission_settled"});
        let events = [
            delta("I look."),
            end("I look.", "toolUse"),
            end("", "toolUse"),
            worker,
            delta("Broken"),
            end("Broken", "error"),
            delta("Done.\n"),
            end("Done.\n", "stop"),
            settled,
        ];
        assert_eq!(printed(&events), "I look.\nBroken\nDone.\n");
    }
}
