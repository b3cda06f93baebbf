//! The output: the generated text, or JSON with details.

use ken_textgen::generate::{Reason, Run};
use serde::Serialize;
use serde_json::Value;

/// A finished text.
#[derive(Serialize)]
pub(crate) struct Answer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    /// Trimmed, for text output.
    text: &'a str,
    /// The text exactly as the tokens spell it.
    raw_text: &'a str,
    stop_reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_sequence: Option<&'a str>,
    prompt_tokens: usize,
    completion_tokens: usize,
    token_ids: &'a [u32],
    prompt_token_ids: &'a [u32],
    /// The speed after the first token; null if there was only one.
    tokens_per_second: Option<f64>,
}

/// A piece of an unfinished text.
#[derive(Serialize)]
pub(crate) struct Piece<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    delta: &'a str,
}

/// The number and the id of the input line that an answer belongs to.
#[derive(Default)]
pub(crate) struct Tag {
    pub(crate) line: Option<usize>,
    pub(crate) id: Option<Value>,
}

impl Tag {
    pub(crate) fn answer<'a>(&'a self, run: &'a Run) -> Answer<'a> {
        let raw_text = run.text.as_str();
        Answer {
            line: self.line,
            id: self.id.as_ref(),
            text: raw_text.trim(),
            raw_text,
            stop_reason: run.reason,
            stop_sequence: run.text.stopped_by(),
            prompt_tokens: run.prompt().len(),
            completion_tokens: run.generated().len(),
            token_ids: run.generated(),
            prompt_token_ids: run.prompt(),
            tokens_per_second: run.speed().map(|speed| (speed * 100.0).round() / 100.0),
        }
    }

    pub(crate) fn piece<'a>(&'a self, delta: &'a str) -> Piece<'a> {
        Piece { line: self.line, id: self.id.as_ref(), delta }
    }

    /// An error in the format of all tools, with the tag.
    pub(crate) fn error(&self, error: &ken_types::Error) -> String {
        let text = ken_tool::error_line(error);
        let mut tag = serde_json::Map::new();
        if let Some(line) = self.line {
            tag.insert("line".to_owned(), line.into());
        }
        if let Some(id) = &self.id {
            tag.insert("id".to_owned(), id.clone());
        }
        if let Ok(Value::Object(error)) = serde_json::from_str(&text) {
            tag.extend(error);
        }
        line(&tag)
    }
}

pub(crate) fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n" // texts and numbers always serialise
}

pub(crate) fn indented(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// Forwards text as it arrives, and removes white space at both ends.
#[derive(Default)]
pub(crate) struct Trim {
    begun: bool,
    blanks: String,
}

impl Trim {
    /// Returns the text that can be written now. White space is written only when other text follows it.
    pub(crate) fn pass(&mut self, text: &str) -> String {
        let text = if self.begun { text } else { text.trim_start() };
        let solid = text.trim_end();
        if solid.is_empty() {
            if self.begun {
                self.blanks.push_str(text);
            }
            return String::new();
        }
        self.begun = true;
        let shown = std::mem::take(&mut self.blanks) + solid;
        self.blanks.push_str(&text[solid.len()..]);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_trimmed_to_what_the_whole_is_trimmed_to() {
        for pieces in [&[" ", " a", " ", "b", "\n", " "][..], &["\n"], &["a", "\n", "\n", "b c "], &[]] {
            let mut trim = Trim::default();
            let shown: String = pieces.iter().map(|piece| trim.pass(piece)).collect();
            assert_eq!(shown, pieces.concat().trim());
        }
    }
}
