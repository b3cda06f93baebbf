//! Reads JSON bodies into types. Errors name the field.

use ken_http::Failure;
use ken_types::limits::IDENTITY_CHARACTERS;
use ken_types::{Error, json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Reads a body as `T`. An empty body is `{}`. `T` decides whether unknown fields are refused.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let value = value(bytes)?;
    if !value.is_object() {
        let kind = json::kind_of(&value);
        return Err(Error::invalid("", format!("the body is {kind}, not an object")).into());
    }
    Ok(json::from_value(value)?)
}

/// Reads a body as any JSON value. An empty or blank body is `{}`.
pub(crate) fn value(bytes: &[u8]) -> Result<Value, Failure> {
    let bytes = match bytes.trim_ascii() {
        b"" => b"{}",
        _ => bytes,
    };
    let malformed = |error| Failure::from(error).kind("invalid_json");
    json::parse(bytes, json::MAX_DEPTH).map_err(malformed)
}

/// For `deserialize_with`: an optional field can be missing, but must not be null.
pub(crate) fn given<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Returns the value of a required field. Fails if it is missing.
pub(crate) fn required<T>(name: &str, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::invalid(format!("/{name}"), format!("{name} is missing")))
}

/// Checks the length of a text, counted in Unicode scalar values.
pub(crate) fn check_length(at: &str, text: &str, min: usize, max: usize) -> Result<(), Error> {
    let name = at.trim_start_matches(['/', '?']);
    let length = text.chars().count();
    if length < min {
        return Err(Error::invalid(at, format!("{name} is empty")));
    }
    if length > max {
        let message = format!("{name} has {length} characters, at most {max} are allowed");
        return Err(Error::invalid(at, message));
    }
    Ok(())
}

/// Fails if a field of an identity is blank or too long.
pub(crate) fn check_identity(at: &str, text: &str) -> Result<(), Error> {
    check_length(at, text.trim(), 1, usize::MAX)?;
    check_length(at, text, 1, IDENTITY_CHARACTERS)
}

/// Returns an error if the text of a field has more than `max` bytes.
pub(crate) fn check_size(name: &str, text: &str, max: usize) -> Result<(), Error> {
    let length = text.len();
    if length > max {
        let message = format!("{name} has {length} bytes, at most {max} are allowed");
        return Err(Error::too_large(message).at(pointer(name)));
    }
    Ok(())
}

/// Returns a field of a body that is a string; `None` if it is absent.
pub(crate) fn text<'a>(body: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Error> {
    let wrong = || Error::invalid(pointer(name), format!("{name} is not a string"));
    body.get(name).map(|value| value.as_str().ok_or_else(wrong)).transpose()
}

/// Returns a field of a body that is true or false; false if it is absent.
pub(crate) fn switch(body: &Map<String, Value>, name: &str) -> Result<bool, Error> {
    let wrong = || Error::invalid(pointer(name), format!("{name} is neither true nor false"));
    Ok(body.get(name).map(|value| value.as_bool().ok_or_else(wrong)).transpose()?.unwrap_or(false))
}

/// Returns the JSON pointer to a top-level field.
pub(crate) fn pointer(name: &str) -> String {
    format!("/{}", json::escape_pointer(name))
}
