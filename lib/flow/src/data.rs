//! The input of a workflow.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::OnceLock;

use ken_tool::MAX_DEPTH;
use ken_types::Error;
use ken_types::json::{self, escape_pointer};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The input of a workflow: a JSON value, mostly an object. The fields of an object are kept as they were written: steps
/// receive copies of these bytes, which are parsed only if a condition, a template or a schema needs the value.
pub struct Data {
    fields: Vec<(String, Box<RawValue>)>,
    tree: OnceLock<Value>,
}

impl Data {
    /// Reads a JSON value. Returns `invalid` for malformed JSON, for duplicate fields and for nesting deeper than
    /// [`ken_tool::MAX_DEPTH`]; `at` points into the value. Values other than objects are accepted here;
    /// [`crate::Definition::check`] refuses them where the workflow requires an object.
    pub fn read(text: &str) -> Result<Data, Error> {
        if !text.trim_start().starts_with('{') {
            return Ok(Data { fields: Vec::new(), tree: OnceLock::from(json::parse(text.as_bytes(), MAX_DEPTH - 2)?) });
        }
        json::check_depth(text.as_bytes(), MAX_DEPTH - 2)?;
        let mut reader = serde_json::Deserializer::from_str(text);
        reader.disable_recursion_limit(); // check_depth has checked the nesting
        let fields = reader.deserialize_map(Fields).map_err(|error| refuse(&error))?;
        reader.end().map_err(|error| refuse(&error))?;
        Ok(Data { fields, tree: OnceLock::new() })
    }

    /// Like [`Data::read`], for a value that has been parsed already.
    pub fn from_value(value: &Value) -> Result<Data, Error> {
        Data::read(&value.to_string())
    }

    /// A field as it was written.
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        let field = self.fields.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| value.as_ref())
    }

    /// The first of these fields that is present.
    pub(crate) fn first(&self, names: &[&str]) -> Option<&RawValue> {
        names.iter().find_map(|name| self.get(name))
    }

    /// Field names, as they were written.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn is_object(&self) -> bool {
        self.tree.get().is_none_or(Value::is_object)
    }

    /// The whole input as a value, parsed on first use.
    pub(crate) fn tree(&self) -> &Value {
        self.tree.get_or_init(|| {
            let read = |(name, raw): &(String, Box<RawValue>)| (name.clone(), value_of(raw.get()));
            Value::Object(self.fields.iter().map(read).collect())
        })
    }

    /// Refuses field names that steps or the engine use, because a later step would take the field for a result.
    pub(crate) fn check_names(&self, reserved: &BTreeSet<&str>) -> Result<(), Error> {
        let planted = self.names().find(|name| RESERVED.contains(name) || reserved.contains(name));
        match planted {
            None => Ok(()),
            Some(name) => Err(Error::invalid(
                format!("/{}", escape_pointer(name)),
                format!("the input may not have a field `{name}`: that is a result's name"),
            )),
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({})", self.names().collect::<Vec<_>>().join(", "))
    }
}

/// Names that the engine itself writes.
const RESERVED: [&str; 6] =
    ["results", "governance", "governance_summary", "quality_scores", "coherence", "is_coherent"];

/// Parses raw JSON, which is known to be valid. Returns null if it is nested too deeply.
pub(crate) fn value_of(raw: &str) -> Value {
    if json::check_depth(raw.as_bytes(), MAX_DEPTH).is_err() {
        return Value::Null;
    }
    let mut reader = serde_json::Deserializer::from_str(raw);
    reader.disable_recursion_limit();
    serde::Deserialize::deserialize(&mut reader).unwrap_or_default()
}

fn refuse(error: &serde_json::Error) -> Error {
    let message = error.to_string();
    let duplicate = message.strip_prefix(DUPLICATE);
    match duplicate.and_then(|rest| rest.split('`').next()) {
        Some(name) => Error::invalid(format!("/{}", escape_pointer(name)), message.clone()),
        None => Error::invalid("", format!("malformed JSON: {message}")),
    }
}

const DUPLICATE: &str = "duplicate key `";

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields: Self::Value = Vec::new();
        while let Some((name, value)) = map.next_entry::<Cow<'de, str>, Box<RawValue>>()? {
            if fields.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("{DUPLICATE}{name}`")));
            }
            fields.push((name.into_owned(), value));
        }
        Ok(fields)
    }
}

/// Appends a raw value on one line, by removing line feeds. They occur only in the white space between the parts of JSON,
/// never in strings.
pub(crate) fn push_flat(to: &mut String, raw: &str) {
    if raw.as_bytes().contains(&b'\n') || raw.as_bytes().contains(&b'\r') {
        to.extend(raw.chars().map(|char| if matches!(char, '\n' | '\r') { ' ' } else { char }));
    } else {
        to.push_str(raw);
    }
}

/// Appends text as a JSON string.
pub(crate) fn push_text(to: &mut String, text: &str) {
    to.push_str(&Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Code;

    #[test]
    fn fields_stay_as_they_were_written() {
        let data = Data::read("{\"a\": [1,\n 2.50], \"b\":\"x\\n\"}").unwrap();
        assert_eq!(data.get("a").unwrap().get(), "[1,\n 2.50]");
        let mut line = String::new();
        push_flat(&mut line, data.get("a").unwrap().get());
        assert_eq!(line, "[1,  2.50]");
        assert_eq!(data.tree()["b"], "x\n");
    }

    #[test]
    fn any_json_value_is_data() {
        for text in ["[1,\"a\"]", " 7", "null", "\"text\""] {
            let data = Data::read(text).unwrap();
            assert_eq!(data.tree(), &serde_json::from_str::<Value>(text).unwrap());
            assert_eq!((data.is_object(), data.names().count()), (false, 0), "{text}");
        }
        assert!(Data::read(" {}").unwrap().is_object());
    }

    #[test]
    fn malformed_json_and_duplicate_fields_are_refused() {
        for (text, at) in
            [("", ""), ("[1", ""), ("7 7", ""), ("{\"a\":1", ""), (r#"{"a":1,"a":2}"#, "/a"), ("{} x", "")]
        {
            let error = Data::read(text).unwrap_err();
            assert_eq!((error.code, error.at.as_deref()), (Code::Invalid, Some(at)), "{text}: {error}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        assert_eq!(Data::read(&deep).unwrap_err().code, Code::Invalid);
    }

    #[test]
    fn planted_names_are_refused() {
        let own = BTreeSet::from(["ESL"]);
        for (text, at) in
            [(r#"{"governance":{}}"#, Some("/governance")), (r#"{"ESL":1}"#, Some("/ESL")), (r#"{"text":""}"#, None)]
        {
            let refused = Data::read(text).unwrap().check_names(&own).err();
            assert_eq!(refused.and_then(|error| error.at).as_deref(), at, "{text}");
        }
    }
}
