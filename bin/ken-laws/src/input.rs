//! The text to judge: plain text, or the texts in another tool's answer.

use std::borrow::Cow;

use ken_tool::{Error, MAX_DEPTH};
use serde_json::Value;

use crate::context::Context;
use crate::sources::{self, Source};

/// The text to judge, and its places in the input.
#[derive(Default)]
pub(crate) struct Subject<'a> {
    pub(crate) text: Cow<'a, str>,
    /// The JSON pointer and the first byte of each part, if the input is a document.
    parts: Vec<(String, usize)>,
    /// The context and the sources in the document itself.
    pub(crate) context: Context,
    pub(crate) sources: Vec<Source>,
}

/// Fields with the text of a document. If a document has one of them, only the first one present is judged.
const WHOLE: [&str; 2] = ["text", "response"];
/// Fields with sentences in a tool's answer. All of them are judged.
const PARTS: [&str; 4] = ["explanation", "reason", "summary", "issues"];
/// A field that is judged only if the answer has no issues, because tools repeat their warnings among the issues.
const WARNINGS: &str = "warnings";
const CONTEXT: [&str; 2] = ["context", "facts"];
/// The field with the sources of the document's text.
const SOURCES: &str = "sources";

/// Whether the input is a JSON document rather than text: it is enclosed in braces, or begins like an object, so that a
/// truncated document is not taken for text.
pub(crate) fn is_document(input: &str) -> bool {
    let input = input.trim();
    let inside = input.strip_prefix('{').map(str::trim_start);
    inside.is_some_and(|inside| inside.starts_with('"') || inside.ends_with('}'))
}

impl<'a> Subject<'a> {
    pub(crate) fn of_text(text: &'a str) -> Subject<'a> {
        Subject { text: Cow::Borrowed(text), ..Subject::default() }
    }

    /// Reads a document. Returns an error if it contains nothing to judge.
    pub(crate) fn of_document(input: &str) -> Result<Subject<'static>, Error> {
        let value = ken_types::json::parse(input.trim().as_bytes(), MAX_DEPTH)
            .map_err(|error| error.hint("text between braces is read as JSON; --text takes it as it is"))?;
        let mut subject = Subject::default();
        let whole = WHOLE.iter().find(|name| value.get(**name).is_some());
        match whole {
            Some(name) => match value.get(*name) {
                Some(Value::String(text)) => subject.add(format!("/{name}"), text),
                _ => return Err(Error::invalid(format!("/{name}"), format!("{name} is not text"))),
            },
            None => {
                PARTS.iter().for_each(|name| subject.add_part(name, &value));
                if value.get("issues").is_none() {
                    subject.add_part(WARNINGS, &value);
                }
            }
        }
        if subject.text.trim().is_empty() {
            return Err(Error::invalid("", "no text to judge in the document").hint(format!(
                "{} or one of {}",
                WHOLE.join(", "),
                PARTS.join(", ")
            )));
        }
        subject.read_context(&value);
        if let Some(value) = value.get(SOURCES) {
            subject.sources = sources::read(value, "/sources")?;
        }
        Ok(subject)
    }

    /// Adds a field: a text, or a list of texts or of objects with a `message`.
    fn add_part(&mut self, name: &str, document: &Value) {
        match document.get(name) {
            Some(Value::String(text)) => self.add(format!("/{name}"), text),
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    match (item, item.get("message")) {
                        (Value::String(text), _) => self.add(format!("/{name}/{index}"), text),
                        (_, Some(Value::String(text))) => self.add(format!("/{name}/{index}/message"), text),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds a part, as a paragraph of the text.
    fn add(&mut self, pointer: String, text: &str) {
        if !self.text.is_empty() {
            self.text.to_mut().push_str("\n\n");
        }
        self.parts.push((pointer, self.text.len()));
        self.text.to_mut().push_str(text);
    }

    fn read_context(&mut self, document: &Value) {
        let known = CONTEXT.iter().filter_map(|name| document.get(*name));
        for value in known.filter(|value| !value.is_null()) {
            self.context.add(value);
        }
    }

    /// The JSON pointer of the part that contains a byte of the text, and where that part starts. Plain text has no parts.
    pub(crate) fn part_at(&self, byte: usize) -> (Option<&str>, usize) {
        let after = self.parts.partition_point(|(_, start)| *start <= byte);
        let part = after.checked_sub(1).and_then(|part| self.parts.get(part));
        part.map_or((None, 0), |(pointer, start)| (Some(pointer.as_str()), *start))
    }
}
