//! The answer of a tool.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use ken_types::Error;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::data::value_of;

/// One JSON document, kept as the tool wrote it. Its top-level fields can be read without parsing the rest.
pub struct Answer {
    line: Box<RawValue>,
    /// The ranges of the names and the values of the fields; empty when the document is not an object.
    fields: Vec<(Range<usize>, Range<usize>)>,
    tree: OnceLock<Value>,
}

impl Answer {
    /// Checks that a line is one JSON document. Returns `invalid`, with the place of the syntax error, if it is not.
    pub fn read(line: String) -> Result<Answer, Error> {
        let malformed = |error: serde_json::Error| Error::invalid("", format!("malformed JSON: {error}"));
        let line = RawValue::from_string(line).map_err(malformed)?;
        let fields = fields_of(line.get());
        Ok(Answer { line, fields, tree: OnceLock::new() })
    }

    /// The document on one line, as it was written.
    pub fn text(&self) -> &str {
        self.line.get()
    }

    /// A top-level field, as it was written.
    pub fn field(&self, name: &str) -> Option<&str> {
        let text = self.text();
        let found = self.fields.iter().find(|(field, _)| text.get(field.clone()) == Some(name));
        found.and_then(|(_, value)| text.get(value.clone()))
    }

    /// A top-level field, parsed as `T`; `None` if it is missing or is not a `T`.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.field(name)?).ok()
    }

    /// The document as a value, parsed on first use.
    pub(crate) fn tree(&self) -> &Value {
        self.tree.get_or_init(|| value_of(self.text()))
    }

    /// The error that a tool returns instead of a result: `{"error":{"code","message","at"}}`.
    pub fn error(&self) -> Option<Error> {
        match self.fields.len() {
            1..=3 => self.parse("error"), // some tools add the number and the id of the line
            _ => None,
        }
    }
}

impl Serialize for Answer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.line.serialize(serializer)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

fn fields_of(text: &str) -> Vec<(Range<usize>, Range<usize>)> {
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    reader.deserialize_any(FieldRanges(text)).unwrap_or_default()
}

/// Finds the ranges of an object's fields. Names with escapes are skipped, because no tool's answer has one.
struct FieldRanges<'de>(&'de str);

impl<'de> Visitor<'de> for FieldRanges<'de> {
    type Value = Vec<(Range<usize>, Range<usize>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut ranges = Vec::with_capacity(12);
        while let Some(name) = map.next_key::<Text<'de>>()? {
            let value: &'de RawValue = map.next_value()?;
            if let Text(Cow::Borrowed(name)) = name {
                ranges.push((range_of(self.0, name), range_of(self.0, value.get())));
            }
        }
        Ok(ranges)
    }
}

/// A string that is borrowed if it has no escapes. Without this wrapper serde always copies a `Cow<str>`
/// (serde-rs/serde#1852).
#[derive(Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The byte range of `part` within `whole`. `part` must be a slice of `whole`.
fn range_of(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_where_they_stand() {
        let answer = Answer::read(r#"{"a": [1, {"b":2}], "c":"x","d\n":0}"#.to_owned()).unwrap();
        assert_eq!(answer.field("a"), Some(r#"[1, {"b":2}]"#));
        assert_eq!(answer.parse::<&str>("c"), Some("x"));
        assert_eq!(answer.field("b"), None);
        assert!(answer.error().is_none());
        assert_eq!(answer.tree()["a"][1]["b"], 2);
    }

    #[test]
    fn other_documents_have_no_fields_and_others_are_refused() {
        assert_eq!(Answer::read("[1]".to_owned()).unwrap().field("a"), None);
        for line in ["", "{", "{} {}", "nonsense", &"[".repeat(100_000)] {
            assert!(Answer::read(line.to_owned()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_deep_document_is_handed_on_and_not_looked_into() {
        let line = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        let answer = Answer::read(line.clone()).unwrap();
        assert_eq!(answer.text(), line);
        assert_eq!(*answer.tree(), Value::Null);
    }

    #[test]
    fn a_tools_error_is_one() {
        let line = r#"{"error":{"code":"invalid","message":"no","at":"/rules"}}"#;
        let error = Answer::read(line.to_owned()).unwrap().error().unwrap();
        assert_eq!((error.message.as_str(), error.at.as_deref()), ("no", Some("/rules")));
        let result = r#"{"error":null,"text":"x"}"#;
        assert!(Answer::read(result.to_owned()).unwrap().error().is_none());
    }
}
