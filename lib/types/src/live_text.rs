//! The text of a turn, for printing as it arrives.

use std::borrow::Cow;

use crate::event::CitedSource;
use serde_json::Value;

/// Converts the events of one turn to the text to print. If a message of the agent does not end with a line feed, one
/// is added. After a crash, the next message repeats the text of the one that was cut off, in one or more deltas. That
/// text is printed only once.
#[derive(Debug, Default)]
pub struct LiveText {
    /// The printed text of the message that was cut off. `None` as soon as the next message has repeated all of it or
    /// differs from it.
    cut_off: Option<String>,
    /// The number of bytes of `cut_off` that the next message has repeated so far.
    repeated: usize,
    is_in_line: bool,
}

impl LiveText {
    /// Returns the text that an event adds. It is empty for most events, and for all events of workers.
    pub fn add<'a>(&mut self, event: &'a Value) -> Cow<'a, str> {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if event.get("parentSession").is_some() {
            return Cow::Borrowed("");
        }
        match text("/type") {
            "text_delta" => self.delta(text("/text")),
            "message_end" if text("/message/role") == "assistant" => {
                self.repeated = 0;
                if text("/message/stopReason") == "interrupted" {
                    // If a message is cut off while it repeats another, its text is shorter than the printed text.
                    // Therefore the earlier text is kept.
                    self.cut_off.get_or_insert_with(|| message_text(event).to_owned());
                    return Cow::Borrowed("");
                }
                self.cut_off = None;
                Cow::Borrowed(self.end_line())
            }
            "operation" => Cow::Owned(self.sources(event)),
            "submission_settled" => Cow::Borrowed(self.end_line()),
            _ => Cow::Borrowed(""),
        }
    }

    /// Returns the sources that the answer names, in lines below it.
    fn sources(&mut self, event: &Value) -> String {
        let lines = source_lines(event.get("result").unwrap_or(&Value::Null));
        match lines.as_str() {
            "" => lines,
            lines => format!("{}\n{lines}\n", self.end_line()),
        }
    }

    fn delta<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let expected = self.cut_off.as_deref().and_then(|cut_off| cut_off.get(self.repeated..)).unwrap_or_default();
        if !expected.is_empty() && expected.starts_with(text) {
            self.repeated += text.len();
            return Cow::Borrowed("");
        }
        let added = match text.strip_prefix(expected) {
            Some(rest) => Cow::Borrowed(rest),
            None => Cow::Owned(self.other_answer(text)),
        };
        self.cut_off = None;
        if !added.is_empty() {
            self.is_in_line = !added.ends_with('\n');
        }
        added
    }

    /// Returns the text to print if the new answer differs from the one that was cut off: everything received so far,
    /// on a new line.
    fn other_answer(&self, text: &str) -> String {
        let begun = self.cut_off.as_deref().and_then(|cut_off| cut_off.get(..self.repeated)).unwrap_or_default();
        let line_end = if self.is_in_line { "\n" } else { "" };
        format!("{line_end}{begun}{text}")
    }

    /// Returns a line feed if the printed text does not end with one. Call it before printing anything else.
    pub fn end_line(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_in_line) { "\n" } else { "" }
    }

    /// Whether the printed text ends within a line.
    pub fn is_in_line(&self) -> bool {
        self.is_in_line
    }
}

/// Returns the prompt of an exchange, with a line for its images, which a transcript counts and does not hold.
pub fn prompt_text(exchange: &Value) -> String {
    let text = exchange.pointer("/prompt/text").and_then(Value::as_str).unwrap_or_default();
    let images = exchange.pointer("/prompt/images").and_then(Value::as_u64).unwrap_or_default();
    let line = images_line(images);
    let space = if text.is_empty() || line.is_empty() { "" } else { "\n\n" };
    format!("{text}{space}{line}")
}

/// Returns the line that stands for the images of a prompt.
pub fn images_line(images: u64) -> String {
    match images {
        0 => String::new(),
        1 => "[image]".to_owned(),
        more => format!("[{more} images]"),
    }
}

/// Returns the sources that a result or the answer of a transcript names, one per line, or an empty text if there are none.
pub fn source_lines(result: &Value) -> String {
    let sources = result.get("sources").and_then(Value::as_array).into_iter().flatten();
    let sources: Vec<CitedSource> = sources.filter_map(|source| serde_json::from_value(source.clone()).ok()).collect();
    CitedSource::lines(&sources)
}

/// Returns how far a tool has come, from its event, as in `mcp__x__y: 3 of 10, reading`.
pub fn progress_line(event: &Value) -> String {
    let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| event.get(name).and_then(Value::as_f64);
    let mut line = format!("{}: {}", text("toolName"), number("progress").unwrap_or_default());
    if let Some(total) = number("total") {
        line.push_str(&format!(" of {total}"));
    }
    match text("message") {
        "" => line,
        message => format!("{line}, {message}"),
    }
}

/// Returns the text of the assistant's message in an event: that of its one block of text, before which thoughts can stand.
pub fn message_text(event: &Value) -> &str {
    let blocks = event.pointer("/message/content").and_then(Value::as_array);
    let mut texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
    texts.next().unwrap_or_default()
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

    #[test]
    fn sources_stand_below_the_answer() {
        let source =
            json!({"number": 1, "id": "kb-876f7403acc0e0feb64fcb5bfacbde3", "title": "The\nrouter", "score": 0.5});
        let ended = json!({"type": "operation", "result": {"text": "Kepler [1].", "sources": [source]}});
        let shown = printed(&[delta("Kepler [1]."), end("Kepler [1].", "stop"), ended]);
        assert_eq!(shown, "Kepler [1].\n\n[1] The router (kb-876f7403acc0)\n");
        assert_eq!(printed(&[json!({"type": "operation", "result": {"text": "Hi."}})]), "");
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
            (vec![delta("Ha"), delta("lf "), delta("of it.")], "Half of it.\n"),
            (vec![delta("Ha"), delta("lf of"), delta(" it.")], "Half of it.\n"),
            (vec![delta("Another.")], "Half \nAnother.\n"),
            (vec![delta("Ha"), delta("ppy.")], "Half \nHappy.\n"),
        ] {
            let events = [cut.to_vec(), next, vec![end("", "stop")]].concat();
            assert_eq!(printed(&events), wanted);
        }
    }

    #[test]
    fn a_message_that_is_cut_off_again_before_it_has_repeated_the_first_is_followed_by_another() {
        let cut = [delta("Half "), end("Half ", "interrupted")];
        let none = vec![end("", "interrupted")];
        let some = vec![delta("Ha"), end("Ha", "interrupted")];
        for (again, next, wanted) in [
            (none.clone(), vec![delta("Another.")], "Half \nAnother.\n"),
            (none, vec![delta("Half of it.")], "Half of it.\n"),
            (some.clone(), vec![delta("Ha"), delta("ppy.")], "Half \nHappy.\n"),
            (some, vec![delta("Ha"), delta("lf of it.")], "Half of it.\n"),
        ] {
            let events = [cut.to_vec(), again, next, vec![end("", "stop")]].concat();
            assert_eq!(printed(&events), wanted);
        }
        // After the first text has been repeated, the longer text counts as the one that was cut off.
        let more = [delta("Half "), delta("of "), end("Half of ", "interrupted"), delta("Half of "), delta("it.")];
        assert_eq!(printed(&[cut.to_vec(), more.to_vec()].concat()), "Half of it.");
    }

    #[test]
    fn a_prompt_on_the_stream_is_not_printed_and_thoughts_may_stand_before_a_text() {
        let prompt = json!({"role": "user", "content": [{"type": "text", "text": "Tell me."}]});
        let mut cut = end("Half ", "interrupted");
        let thought = json!({"type": "thinking", "thinking": "Hm."});
        cut["message"]["content"].as_array_mut().unwrap().insert(0, thought);
        assert_eq!(message_text(&cut), "Half ");
        let events = [
            json!({"type": "message_start", "message": prompt}),
            json!({"type": "message_end", "message": prompt}),
            delta("Half "),
            cut,
            delta("Half "),
            delta("of it."),
            end("Half of it.", "stop"),
        ];
        assert_eq!(printed(&events), "Half of it.\n");
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
