//! The envelope of a request, and the lines of its reply.

use std::borrow::Cow;
use std::time::Duration;

use ken_types::json::check_depth;
use ken_types::limits::{WIRE_DEADLINE_MAX_MS, WIRE_DEADLINE_MS, WIRE_LINE_BYTES};
use ken_types::ops::{self, Json};
use ken_types::{Error, json};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A parsed line.
#[derive(Debug)]
pub enum Request<'a> {
    Call {
        id: u64,
        op: Cow<'a, str>,
        /// The text of a JSON object, for [`Op::read_args`](ken_types::ops::Op::read_args).
        args: &'a str,
        deadline: Duration,
    },
    Cancel {
        id: u64,
    },
}

/// Why a line is not a request, and its id if that could be read.
#[derive(Debug)]
pub struct Malformed {
    pub id: Option<u64>,
    pub error: Error,
}

/// Returns the id of a line that is nested too deeply to be parsed. Works only if the id is the first field, where
/// callers usually write it.
fn first_id(line: &[u8]) -> Option<u64> {
    let digits = line.strip_prefix(b"{\"id\":")?.split(|byte| !byte.is_ascii_digit()).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const FORM: &str = r#"a request is {"id":1,"op":"service.info","args":{}}"#;

fn is_object(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'{')
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    id: u64,
    #[serde(borrow, default)]
    op: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    args: Option<&'a RawValue>,
    #[serde(default)]
    deadline_ms: Option<u64>,
    /// A traceparent (W3C Trace Context). It is accepted, but not passed on yet.
    #[serde(default, rename = "trace")]
    _trace: Option<Cow<'a, str>>,
    #[serde(default)]
    cancel: Option<bool>,
}

/// Reads only the id of a line that has an error elsewhere.
#[derive(Deserialize)]
struct IdOnly {
    id: u64,
}

impl<'a> Request<'a> {
    /// Parses a line without its LF.
    pub fn parse(line: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let no_id = |error| Malformed { id: None, error };
        check_depth(line, json::MAX_DEPTH).map_err(|error| Malformed { id: first_id(line), error })?;
        // serde would also read the struct from an array, field by field.
        if !is_object(line) {
            return Err(no_id(Error::invalid("", "a request is a JSON object").hint(FORM)));
        }
        let envelope: Envelope<'a> = serde_json::from_slice(line).map_err(|error| Malformed {
            id: serde_json::from_slice::<IdOnly>(line).ok().map(|line| line.id),
            error: Error::invalid("", format!("malformed request: {error}")).hint(FORM),
        })?;
        envelope.check()
    }
}

impl<'a> Envelope<'a> {
    fn check(self) -> Result<Request<'a>, Malformed> {
        let id = self.id;
        let wrong = |error| Malformed { id: Some(id), error };
        match (self.op, self.cancel) {
            (Some(op), None) => {
                let args = self.args.map_or("{}", RawValue::get);
                if !is_object(args.as_bytes()) {
                    return Err(wrong(Error::invalid("/args", "args is not an object")));
                }
                let deadline = deadline(self.deadline_ms).map_err(wrong)?;
                Ok(Request::Call { id, op, args, deadline })
            }
            (None, Some(true)) => Ok(Request::Cancel { id }),
            _ => Err(wrong(Error::invalid("/op", "a request has either `op` or `cancel`: true"))),
        }
    }
}

fn deadline(deadline_ms: Option<u64>) -> Result<Duration, Error> {
    match deadline_ms.unwrap_or(WIRE_DEADLINE_MS) {
        ms if ms <= WIRE_DEADLINE_MAX_MS => Ok(Duration::from_millis(ms)),
        ms => {
            let message = format!("deadline_ms is {ms}; the longest is {WIRE_DEADLINE_MAX_MS}");
            Err(Error::invalid("/deadline_ms", message))
        }
    }
}

/// Returns a line of a reply, including its LF: `{"id":…,"<key>":<value>}`, where the key is `item`, `ok` or `error`.
/// Fails if the line is too long.
pub fn answer(id: Option<u64>, key: &str, value: &impl Serialize) -> Result<Vec<u8>, Error> {
    answer_with(id, key, &|line| ops::write(value, line))
}

/// Like [`answer`], with a function that appends the value.
pub(crate) fn answer_with(
    id: Option<u64>,
    key: &str,
    value: &dyn Fn(&mut Vec<u8>) -> Json<()>,
) -> Result<Vec<u8>, Error> {
    let mut line = Vec::with_capacity(256);
    line.extend_from_slice(b"{\"id\":");
    match id {
        Some(id) => line.extend_from_slice(id.to_string().as_bytes()),
        None => line.extend_from_slice(b"null"),
    }
    line.extend_from_slice(b",\"");
    line.extend_from_slice(key.as_bytes());
    line.extend_from_slice(b"\":");
    value(&mut line).map_err(|error| Error::internal(format!("an answer could not be written as JSON: {error}")))?;
    line.extend_from_slice(b"}\n");
    match line.len() {
        length if length <= WIRE_LINE_BYTES => Ok(line),
        length => Err(Error::too_large(format!("the answer has {length} bytes, a line at most {WIRE_LINE_BYTES}"))),
    }
}

/// Returns the line of an error. One that is too long for a line, because it repeats what the caller has sent, is replaced by one that
/// says so: without a last line the caller would wait for ever.
pub fn refusal(id: Option<u64>, error: &Error) -> Vec<u8> {
    // The second one is short, and plain text can always be serialised.
    answer(id, "error", error).or_else(|long| answer(id, "error", &long)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::Code;

    #[test]
    fn invalid_requests_are_refused_with_their_id_if_any() {
        for (line, id) in [
            ("", None),
            ("{}", None),
            ("[1]", None),
            ("nonsense", None),
            (r#"{"id":"a","op":"x"}"#, None),
            (r#"{"id":3}"#, Some(3)),
            (r#"{"id":3,"op":"x","cancel":true}"#, Some(3)),
            (r#"{"id":3,"cancel":false}"#, Some(3)),
            (r#"{"id":3,"op":"x","more":1}"#, Some(3)),
            (r#"{"id":3,"op":7}"#, Some(3)),
            (r#"{"id":3,"op":"x","args":[1]}"#, Some(3)),
            (r#"{"id":3,"op":"x","deadline_ms":600001}"#, Some(3)),
        ] {
            let malformed = Request::parse(line.as_bytes()).unwrap_err();
            assert_eq!(malformed.id, id, "{line}");
            assert_eq!(malformed.error.code, Code::Invalid, "{line}");
        }
        let deep = format!(r#"{{"id":3,"op":"x","args":{}{}}}"#, "[".repeat(64), "]".repeat(64));
        assert_eq!(Request::parse(deep.as_bytes()).unwrap_err().id, Some(3));
    }

    #[test]
    fn an_answer_over_the_limit_of_a_line_is_an_error() {
        let error = answer(Some(1), "ok", &"x".repeat(WIRE_LINE_BYTES)).unwrap_err();
        assert_eq!(error.code, Code::TooLarge);
    }

    #[test]
    fn an_error_over_the_limit_of_a_line_is_replaced_by_a_short_one() {
        let length = |size: usize| refusal(Some(1), &Error::invalid("", "x".repeat(size))).len();
        let room = WIRE_LINE_BYTES - length(0);
        assert_eq!(length(room), WIRE_LINE_BYTES);
        let name = "x".repeat(WIRE_LINE_BYTES - 100);
        let malformed = Request::parse(format!(r#"{{"id":1,"{name}":1}}"#).as_bytes()).unwrap_err();
        for error in [Error::invalid("", "x".repeat(room + 1)), malformed.error] {
            let line = refusal(malformed.id, &error);
            assert!(line.starts_with(br#"{"id":1,"error":{"code":"too_large","#) && line.len() < 200, "{}", line.len());
        }
    }

    #[test]
    fn the_limits_of_a_request_and_of_a_reply() {
        assert_eq!(deadline(Some(WIRE_DEADLINE_MAX_MS)).unwrap(), Duration::from_millis(WIRE_DEADLINE_MAX_MS));
        assert!(deadline(Some(WIRE_DEADLINE_MAX_MS + 1)).is_err());
        let reply = |length: usize| answer(Some(1), "ok", &"x".repeat(length));
        let room = WIRE_LINE_BYTES - reply(0).unwrap().len();
        assert_eq!(reply(room).unwrap().len(), WIRE_LINE_BYTES);
        assert_eq!(reply(room + 1).unwrap_err().code, Code::TooLarge);
    }
}
