//! Reads JSON bodies into types. Errors name the field.

use ken_http::Failure;
use ken_types::{Error, json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a body as `T`. An empty body is `{}`. `T` decides whether unknown fields are refused.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let value = value(bytes)?;
    if !value.is_object() {
        return Err(Error::invalid("", format!("the body is {}, not an object", kind(&value))).into());
    }
    Ok(json::from_value(value)?)
}

/// Reads a body as any JSON value. An empty or blank body is `{}`.
pub(crate) fn value(bytes: &[u8]) -> Result<Value, Failure> {
    let bytes = if bytes.trim_ascii().is_empty() {
        b"{}"
    } else {
        bytes
    };
    let malformed = |error| Failure::from(error).kind("invalid_json");
    json::parse(bytes, json::MAX_DEPTH).map_err(malformed)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// For `deserialize_with`: an optional field may be left out, but must not be null.
pub(crate) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The value of a required field.
pub(crate) fn required<T>(name: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::invalid(format!("/{name}"), format!("{name} is missing")))
}

/// Checks the length of a text, counted in Unicode scalar values.
pub(crate) fn check_length(at: &str, text: &str, least: usize, most: usize) -> Result<(), Error> {
    let name = at.trim_start_matches(['/', '?']);
    // There are never more characters than bytes, so most texts need no counting.
    let length = if text.len() <= most && least == 0 {
        0
    } else {
        text.chars().count()
    };
    if length < least {
        return Err(Error::invalid(at, format!("{name} is empty")));
    }
    if length > most {
        return Err(Error::invalid(
            at,
            format!("{name} has {length} characters, at most {most} are allowed"),
        ));
    }
    Ok(())
}

/// The JSON pointer to a top-level field.
pub(crate) fn pointer(name: &str) -> String {
    format!("/{name}")
}
