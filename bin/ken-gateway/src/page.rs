//! Query parameters of lists.

use ken_http::Query;
use ken_types::Error;

/// Reads `limit`, a number from 1 to `most`.
pub(crate) fn limit(query: &Query, most: u32, default: u32) -> Result<u32, Error> {
    let limit = query.number("limit", 1..=u64::from(most), u64::from(default))?;
    Ok(u32::try_from(limit).unwrap_or(most))
}

/// Reads an opaque cursor. Empty cursors are never issued.
pub(crate) fn cursor(query: &Query, name: &str) -> Result<Option<String>, Error> {
    match query.one(name)? {
        Some("") => Err(Error::invalid(format!("?{name}"), format!("{name} is empty"))),
        cursor => Ok(cursor.map(str::to_owned)),
    }
}

/// Reads a flag: `1` sets it.
pub(crate) fn flag(query: &Query, name: &str) -> Result<bool, Error> {
    match query.one(name)? {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(Error::invalid(
            format!("?{name}"),
            format!("{name} is {other:?}, it must be 1"),
        )),
    }
}
