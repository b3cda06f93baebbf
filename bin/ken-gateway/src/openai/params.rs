//! The parameters of a request: which ones are used, ignored, refused, or unknown.

use ken_http::Failure;
use ken_types::Error;
use serde_json::{Map, Value};

use super::error::unsupported;
use crate::body::pointer;

/// The names of the parameters of one kind of request, separated by single spaces.
pub(super) struct Known {
    pub(super) used: &'static str,
    /// They have no effect, and the response names them.
    pub(super) ignored: &'static str,
    /// They are refused, unless they have the value that changes nothing.
    pub(super) refused: &'static [Refused],
}

/// A parameter that cannot be done: its name, whether a value changes nothing, and why it cannot be done.
pub(super) type Refused = (&'static str, fn(&Value) -> bool, &'static str);

/// Whether a value says that something is not wanted.
pub(super) fn is_off(value: &Value) -> bool {
    *value == false || *value == 0
}

pub(super) fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

pub(super) fn is_one(value: &Value) -> bool {
    *value == 1
}

pub(super) fn never(_: &Value) -> bool {
    false
}

/// Whether a list of modalities asks for text alone.
pub(super) fn is_text(value: &Value) -> bool {
    value.as_array().is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

/// Checks the names of all parameters. Returns the given ones that are ignored. A parameter that is null counts as absent, as in the
/// original.
pub(super) fn sort(fields: &mut Map<String, Value>, known: &Known) -> Result<Vec<String>, Failure> {
    fields.retain(|_, value| !value.is_null());
    let mut ignored = Vec::new();
    for (name, value) in fields.iter() {
        let is_in = |names: &str| names.split(' ').any(|known| known == name);
        if let Some((_, is_nothing, why)) = known.refused.iter().find(|(refused, ..)| refused == name) {
            if !is_nothing(value) {
                return Err(unsupported(pointer(name), format!("{name}: {why}")));
            }
        } else if is_in(known.ignored) {
            ignored.push(name.clone());
        } else if !is_in(known.used) {
            let message = format!("Unrecognized request argument supplied: {name}");
            return Err(Failure::from(Error::invalid(pointer(name), message)).code("unknown_parameter"));
        }
    }
    Ok(ignored)
}
