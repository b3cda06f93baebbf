//! The operations of `ken-store` on the streams below `streams/`: logs of bytes or JSON for any program, as the public
//! Durable Streams protocol defines them. They are read like every other stream ([`super::store::StreamsRead`]).
//!
//! A request that the protocol refuses has an outcome, not an error, because the protocol defines a response for each
//! case. Errors are `not_found` (no such stream), `conflict` (the stream is deleted and kept only for its forks) and
//! `invalid` (the position of a fork, or a body that is not JSON).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Page;
use crate::json::malformed;
use crate::{Error, Octets, Offset, Timestamp};

crate::operations! {
    /// Creates a stream, optionally with a first append.
    StreamsCreate, "streams.create": CreateStream => Creation;
    /// Appends, closes, or both in one step.
    StreamsAppend, "streams.append": AppendStream => Appending;
    StreamsDelete, "streams.delete": DeleteStream => super::Nothing;
    /// Lists the streams, newest first.
    StreamsList, "streams.list": ListStreams => StreamList;
}

/// Identifies a call, so that it takes effect only once even if it is repeated after a lost connection or a restart of
/// the store. A caller numbers the calls of a slot and has at most one of them open. The store keeps the last reply of
/// each slot for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallMark {
    /// A ULID that is unique to the caller, and a number.
    pub slot: String,
    /// Must be higher than the number of the slot's previous call.
    pub number: u64,
}

/// The content of an append.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// JSON messages without line ends, for a stream of JSON.
    Messages(Vec<Box<RawValue>>),
    /// Bytes for a stream of any other type.
    Bytes(Octets),
}

impl Payload {
    pub fn is_empty(&self) -> bool {
        match self {
            Payload::Messages(messages) => messages.is_empty(),
            Payload::Bytes(bytes) => bytes.0.is_empty(),
        }
    }
}

/// When a stream is deleted automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// This many seconds after it was last read, appended to or closed.
    Ttl(u64),
    /// At this time.
    ExpiresAt(Timestamp),
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateStream {
    /// The name of the new stream: `streams/<path>`.
    pub stream: String,
    /// The content type that the client gave. If absent, that of the fork's source, else `application/octet-stream`.
    pub content_type: Option<String>,
    /// If absent, the lifetime of the fork's source, else unlimited.
    pub lifetime: Option<Lifetime>,
    #[serde(default)]
    pub closed: bool,
    pub fork: Option<Fork>,
    pub body: Option<Octets>,
    pub call: Option<CallMark>,
}

/// A position in another stream. The new stream shares the content before this position.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// The name of the other stream: `streams/<path>`.
    pub from: String,
    /// If absent, the end of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// How many bytes (or, for JSON, messages) of the append after the offset are included.
    #[serde(default)]
    pub sub_offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Creation {
    /// The stream was created.
    Made(Made),
    /// The stream existed already, with the same properties.
    Known(Made),
    /// The stream existed already, with other properties. The text names the difference.
    Exists(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub content_type: String,
    /// The number of entries.
    pub end: u64,
    pub closed: bool,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendStream {
    /// The name of the stream: `streams/<path>`.
    pub stream: String,
    /// If absent, the stream is closed and nothing is appended.
    pub payload: Option<Payload>,
    /// The media type of `payload`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// Must be greater than the last `seq` of the stream, compared byte by byte.
    pub seq: Option<String>,
    pub producer: Option<Producer>,
    #[serde(default)]
    pub close: bool,
    pub call: Option<CallMark>,
}

/// Identifies the writer of an append and its sequence number, so that a repetition is recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    pub id: String,
    /// A producer with a higher epoch locks out those with a lower one.
    pub epoch: u64,
    /// Starts at 0 in each epoch and has no gaps.
    pub seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Appending {
    /// The payload was appended. `end` is the number of entries in the stream now.
    Done { end: u64, closed: bool },
    /// A repetition. The producer's sequences up to `seq` were accepted before, and nothing was written.
    Known { end: u64, closed: bool, epoch: u64, seq: u64 },
    /// The stream is closed, with `end` entries.
    Closed { end: u64 },
    /// The stream has another content type.
    OtherType { content_type: String },
    /// `Stream-Seq` is not greater than the stream's last one, given here.
    Behind { seq: String },
    /// There is a producer with a higher epoch, given here.
    Fenced { epoch: u64 },
    /// The sequences from `expected` on are missing.
    Gap { expected: u64 },
    /// A new epoch must start with sequence 0.
    BadStart,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteStream {
    /// The name of the stream: `streams/<path>`.
    pub stream: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallMark>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListStreams {
    /// The prefix of the paths to list. If empty, all are listed.
    #[serde(default)]
    pub prefix: String,
    /// The maximum number of streams, 1 to 1000.
    pub limit: u32,
    /// The `page.after` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamList {
    pub streams: Vec<StreamItem>,
    pub page: Page,
}

/// A stream below `streams/` in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamItem {
    /// The path below `/streams/`.
    pub path: String,
    pub content_type: String,
    /// The number of appends or JSON messages.
    pub entries: u64,
    pub closed: bool,
    /// The time at which the stream is deleted if it is not used before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The additional content of a page of a stream below `streams/`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicPage {
    /// The content type that the client gave.
    pub content_type: String,
    pub lifetime: Option<Lifetime>,
    /// The appends of the page, joined. Absent for a stream of JSON, where `entries` of the page contains the messages.
    pub bytes: Option<Octets>,
}

/// Returns a media type without its parameters, in lower case.
pub fn media_type(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim_ascii().to_ascii_lowercase()
}

/// Whether a stream of this type holds JSON messages.
pub fn is_json(content_type: &str) -> bool {
    media_type(content_type) == "application/json"
}

/// The maximum nesting depth of a message. It is lower than the limit for a line of the wire, which contains the
/// message.
const MAX_MESSAGE_DEPTH: usize = crate::json::MAX_DEPTH - 4;

/// Returns the messages of a JSON body: the elements of an array, or any other value as one message. Numbers and texts
/// are not changed; line ends between tokens are removed. Fails with `invalid` if the body is not exactly one JSON
/// value.
pub fn messages(body: &[u8]) -> Result<Vec<Box<RawValue>>, Error> {
    let text = crate::json::text(body)?;
    crate::json::check_depth(body, MAX_MESSAGE_DEPTH)?;
    let messages: Vec<Box<RawValue>> = if text.trim_ascii_start().starts_with('[') {
        serde_json::from_str(text).map_err(malformed)?
    } else {
        vec![serde_json::from_str(text).map_err(malformed)?]
    };
    if text.contains(['\n', '\r']) {
        messages.iter().map(|message| in_one_line(message)).collect()
    } else {
        Ok(messages)
    }
}

/// Removes line ends, which JSON allows only between tokens.
fn in_one_line(message: &RawValue) -> Result<Box<RawValue>, Error> {
    let text = message.get().replace(['\n', '\r'], "");
    RawValue::from_string(text).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flattened(body: &str) -> Vec<String> {
        let messages = messages(body.as_bytes()).unwrap();
        messages.iter().map(|message| message.get().to_owned()).collect()
    }

    #[test]
    fn arrays_are_flattened_one_level() {
        assert_eq!(flattened(" [1, [2,3],\r\n {\"a\":\n\"b\\nc\"} ]\n"), ["1", "[2,3]", "{\"a\":\"b\\nc\"}"]);
        assert_eq!(flattened("1.50e3"), ["1.50e3"]);
        assert_eq!(flattened("[]"), [""; 0]);
        for bad in ["", " ", "{", "[1,]", "1 2", "[1]2", "\u{feff}1", "nul"] {
            assert!(messages(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(messages(b"\"\xff\"").is_err());
        let deep = "[".repeat(61) + &"]".repeat(61);
        assert!(messages(deep.as_bytes()).is_err());
    }

    #[test]
    fn media_types_are_compared_without_case_and_parameters() {
        assert!(is_json("Application/JSON ; charset=utf-8"));
        assert!(!is_json("application/json5"));
    }
}
