//! Records that are stored as JSON text.

use ken_types::Error;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Parses a stored record. A record that cannot be parsed is a defect: the details go to the log, and the error is `internal`.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(defect)
}

pub(crate) fn write(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(defect)
}

pub(crate) fn defect(error: serde_json::Error) -> Error {
    tracing::error!(%error, "a record cannot be read or written");
    Error::internal("the store could not do this: a record cannot be read or written (see the store's log)")
}
