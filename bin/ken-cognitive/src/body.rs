//! The body of `/v1/execute`. Each field has an old and a new name.

use std::sync::Arc;

use ken_flow::{Catalog, Data, Definition, Mode, Protocols};
use ken_http::Failure;
use ken_types::{Code, Error, json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::failure::unprocessable;

/// The body. `data` is not parsed, because it is passed to the tools unchanged.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body<'a> {
    workflow: Option<String>,
    template_name: Option<String>,
    protocol_names: Option<Vec<String>>,
    coordination_mode: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    initial_data: Option<&'a RawValue>,
    session_id: Option<String>,
}

/// The same fields with owned values, to find out which one is wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "only its errors are of interest")]
struct Fields {
    workflow: Option<String>,
    template_name: Option<String>,
    protocol_names: Option<Vec<String>>,
    coordination_mode: Option<String>,
    data: Option<Value>,
    initial_data: Option<Value>,
    session_id: Option<String>,
}

impl<'a> Body<'a> {
    /// Parses a body. The error is 400 for malformed JSON, and 422 with `at` for a wrong field.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Body<'a>, Failure> {
        let bytes = if bytes.is_empty() { b"{}" } else { bytes };
        let read: Option<Body<'_>> = serde_json::from_slice(bytes).ok();
        // Without this check, serde would accept an array as the values of the fields in order.
        let is_object = bytes.trim_ascii_start().starts_with(b"{");
        read.filter(|_| is_object).ok_or_else(|| wrong(bytes))
    }

    /// Returns the workflow that the body names, or one that is built from the protocols that it lists.
    pub(crate) fn definition(&self, catalog: &Catalog, protocols: &Protocols) -> Result<Arc<Definition>, Failure> {
        let name = one_of(("/template_name", self.template_name.as_deref()), ("/workflow", self.workflow.as_deref()))?;
        match (name, &self.protocol_names) {
            (Some(_), Some(_)) => Err(unprocessable(Error::invalid(
                "/protocol_names",
                "both a workflow and protocols are given; give one of them",
            ))),
            (Some((at, name)), None) => named(catalog, name).map_err(|failure| failure.at(at)),
            (None, Some(names)) => self.of_protocols(names, protocols),
            (None, None) => Err(unprocessable(
                Error::invalid("/workflow", "workflow is missing")
                    .hint("give workflow, template_name or protocol_names; GET /v1/templates lists them"),
            )),
        }
    }

    fn of_protocols(&self, names: &[String], protocols: &Protocols) -> Result<Arc<Definition>, Failure> {
        let mode = self.coordination_mode.as_deref();
        let mode = match mode.map(str::to_ascii_lowercase).as_deref() {
            None | Some("sequential") => Mode::Sequential,
            Some("parallel") => Mode::Parallel,
            Some(_) => {
                let message = "coordination_mode must be sequential or parallel";
                return Err(unprocessable(Error::invalid("/coordination_mode", message)));
            }
        };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let made = Definition::of_protocols(&names, mode, protocols);
        made.map(Arc::new).map_err(|error| {
            let at = format!("/protocol_names{}", error.at.as_deref().unwrap_or_default());
            unprocessable(error.at(at))
        })
    }

    /// Returns the input of the workflow. The error is 400 for names that are reserved for results, and 422 for input
    /// that the workflow does not accept.
    pub(crate) fn data(&self, definition: &Definition) -> Result<Data, Failure> {
        let given =
            one_of(("/initial_data", self.initial_data.map(RawValue::get)), ("/data", self.data.map(RawValue::get)))?;
        let (at, text) = given.unwrap_or(("/data", "{}"));
        let below = |error: Error| {
            let inner = error.at.clone().unwrap_or_default();
            error.at(format!("{at}{inner}"))
        };
        let data = Data::read(text).map_err(|error| unprocessable(below(error)))?;
        definition.check_names(&data).map_err(below)?;
        definition.check(&data).map_err(|error| unprocessable(below(error)))?;
        Ok(data)
    }

    /// Returns the session id, if there is one. The error is 422 for an id that cannot be part of a path.
    pub(crate) fn session(&self) -> Result<Option<&str>, Failure> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte);
        match self.session_id.as_deref() {
            Some(id) if !(1..=128).contains(&id.len()) || !id.bytes().all(is_plain) => {
                let message = "a session_id has 1 to 128 letters, digits and . _ : @ -";
                Err(unprocessable(Error::invalid("/session_id", message)))
            }
            id => Ok(id),
        }
    }
}

/// Returns the value of a field that has two names, with its JSON pointer. It is an error to give both.
fn one_of<'a>(
    older: (&'static str, Option<&'a str>),
    newer: (&'static str, Option<&'a str>),
) -> Result<Option<(&'static str, &'a str)>, Failure> {
    match (older, newer) {
        ((at, Some(_)), (_, Some(_))) => {
            let message = format!("{} and {} are the same field; give one of them", &older.0[1..], &newer.0[1..]);
            Err(unprocessable(Error::invalid(at, message)))
        }
        ((at, Some(text)), _) | (_, (at, Some(text))) => Ok(Some((at, text))),
        _ => Ok(None),
    }
}

/// Returns a workflow of the catalog. The error is 503 if its file is invalid.
fn named(catalog: &Catalog, name: &str) -> Result<Arc<Definition>, Failure> {
    catalog.find(name).map_err(|error| match error.code {
        Code::NotFound => {
            Error { hint: error.hint.or_else(|| Some("GET /v1/templates lists the workflows".to_owned())), ..error }
                .into()
        }
        _ => Failure::from(Error::unavailable(format!("the workflow {name} cannot be read: {error}"))),
    })
}

/// Converts an object to a struct. The error is 422 for a wrong field.
pub(crate) fn fields<T: DeserializeOwned>(value: Value) -> Result<T, Failure> {
    if value.is_object() {
        json::from_value(value).map_err(unprocessable)
    } else {
        Err(unprocessable(Error::invalid("", "the body is not an object")))
    }
}

fn wrong(bytes: &[u8]) -> Failure {
    let value = json::parse(bytes, json::MAX_DEPTH).map_err(Failure::from);
    match value.and_then(fields::<Fields>) {
        Err(failure) => failure,
        // Only the borrowing parser refuses this text, so the JSON is malformed.
        Ok(_) => Error::invalid("", "malformed JSON").into(),
    }
}
