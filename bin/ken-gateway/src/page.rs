//! Query parameters that several routes have.

use ken_http::Query;
use ken_types::Error;
use ken_types::limits::IDENTITY_CHARACTERS;

use crate::body::check_length;

/// Reads `limit`, a number from 1 to `max`.
pub(crate) fn limit(query: &Query, max: u32, default: u32) -> Result<u32, Error> {
    let limit = query.number("limit", 1..=u64::from(max), u64::from(default))?;
    Ok(u32::try_from(limit).unwrap_or(max))
}

/// Reads an opaque cursor. An empty one is refused, because none is ever issued.
pub(crate) fn cursor(query: &Query, name: &str) -> Result<Option<String>, Error> {
    match query.one(name)? {
        Some("") => Err(Error::invalid(format!("?{name}"), format!("{name} is empty"))),
        cursor => Ok(cursor.map(str::to_owned)),
    }
}

/// Reads a filter: the value that the field of this name must have in the listed records.
pub(crate) fn filter(query: &Query, name: &str) -> Result<Option<String>, Error> {
    let Some(value) = query.one(name)? else {
        return Ok(None);
    };
    check_length(&format!("?{name}"), value, 1, IDENTITY_CHARACTERS)?;
    Ok(Some(value.to_owned()))
}

/// Reads a flag, which is false if it is absent.
pub(crate) fn flag(query: &Query, name: &str) -> Result<bool, Error> {
    Ok(flag_if_given(query, name)?.unwrap_or(false))
}

/// Reads a flag: `1` or `true`, `0` or `false`.
pub(crate) fn flag_if_given(query: &Query, name: &str) -> Result<Option<bool>, Error> {
    let read = |text: &str| match text {
        "0" | "false" => Some(false),
        "1" | "true" => Some(true),
        _ => None,
    };
    choice(query, name, read, "1 or 0")
}

/// Reads a parameter with a few possible values, which `choices` names for the error.
pub(crate) fn choice<T>(
    query: &Query,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
    choices: &str,
) -> Result<Option<T>, Error> {
    let Some(text) = query.one(name)? else { return Ok(None) };
    let message = || format!("{name} is {text:?}, it must be {choices}");
    read(text).map(Some).ok_or_else(|| Error::invalid(format!("?{name}"), message()))
}
