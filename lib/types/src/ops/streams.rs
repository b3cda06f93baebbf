//! The operations of `ken-store` on the streams below `streams/`: logs of bytes or JSON for any program, after the
//! public Durable Streams protocol. They are read as every stream is ([`super::store::StreamsRead`]).
//!
//! What the protocol refuses is told as an outcome, not as an error, because each has its own answer there. Errors are
//! `not_found` (no such stream), `conflict` (deleted, and kept for its forks only) and `invalid` (a fork's place, a
//! body that is not JSON).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Page;
use crate::{Error, Octets, Offset};

crate::operations! {
    /// Makes a stream, with a first append if there is one.
    StreamsCreate, "streams.create": CreateStream => Creation;
    /// Appends, closes, or both in one step.
    StreamsAppend, "streams.append": AppendStream => Appending;
    StreamsDelete, "streams.delete": DeleteStream => super::Nothing;
    /// The streams there are, newest first.
    StreamsList, "streams.list": ListStreams => StreamList;
}

/// Marks a call, so that it is done once although it may come twice (a lost connection, a store that was killed).
/// A caller numbers the calls of a slot and has at most one of them open; the store keeps the last answer of each slot
/// for a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallMark {
    /// Unique to the caller: a ULID and a number.
    pub slot: String,
    /// Higher than that of the slot's last call.
    pub number: u64,
}

/// What is appended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// One message each, in a stream of JSON. Without line ends.
    Messages(Vec<Box<RawValue>>),
    /// One append, in a stream of another type.
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

/// When a stream ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// So many seconds after it was last read, appended to or closed.
    Ttl(u64),
    /// At this instant.
    ExpiresAt(crate::Timestamp),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateStream {
    /// `streams/<path>`.
    pub stream: String,
    /// As it was given. Absent: the source's, else `application/octet-stream`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Absent: the source's, else for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    #[serde(default)]
    pub closed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Octets>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallMark>,
}

/// The place in another stream that a new one begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// `streams/<path>`.
    pub from: String,
    /// Absent: the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// Beyond the offset: bytes of the next append, or messages.
    #[serde(default)]
    pub sub_offset: u64,
}

/// What became of a creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Creation {
    /// It was made.
    Made(Made),
    /// It was there, as asked for.
    Known(Made),
    /// It cannot be: what is there already is another; the text says in what.
    Exists(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub content_type: String,
    /// Entries in it.
    pub end: u64,
    pub closed: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendStream {
    /// `streams/<path>`.
    pub stream: String,
    /// Absent: nothing to append, close only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// The media type of `payload`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    /// Must be greater than the last, byte by byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    #[serde(default)]
    pub close: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallMark>,
}

/// Who appends, so that a repeat is known as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    pub id: String,
    /// A higher one fences those of lower ones off.
    pub epoch: u64,
    /// From 0 in each epoch, without gaps.
    pub seq: u64,
}

/// What became of an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Appending {
    /// It was done. `end`: entries in the stream now.
    Done { end: u64, closed: bool },
    /// The producer's sequence was accepted before, up to `seq`. Nothing was written.
    Known {
        end: u64,
        closed: bool,
        epoch: u64,
        seq: u64,
    },
    /// The stream is closed.
    Closed { end: u64 },
    /// The stream holds another type.
    OtherType { content_type: String },
    /// `Stream-Seq` is not greater than this, the last one.
    Behind { seq: String },
    /// A producer of a higher epoch has come.
    Fenced { epoch: u64 },
    /// Sequences between are missing.
    Gap { expected: u64 },
    /// A new epoch begins with 0.
    BadStart,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteStream {
    /// `streams/<path>`.
    pub stream: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallMark>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListStreams {
    /// What their paths begin with; empty: all.
    #[serde(default)]
    pub prefix: String,
    /// 1 to 1000.
    pub limit: u32,
    /// `page.after` of the list's last page.
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
    /// What stands below `/streams/`.
    pub path: String,
    pub content_type: String,
    /// Appends, or JSON messages.
    pub entries: u64,
    pub closed: bool,
    /// When it is deleted unless it is used before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<crate::Timestamp>,
}

/// What a page of a stream below `streams/` says beyond its entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicPage {
    /// As it was given.
    pub content_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Lifetime>,
    /// The appends of the page joined, unless the stream is one of JSON; then they are the page's entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Octets>,
}

/// A media type without its parameters, in lower case.
pub fn media_type(content_type: &str) -> String {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim_ascii().to_ascii_lowercase()
}

/// Whether a stream of this type is one of JSON messages.
pub fn is_json(content_type: &str) -> bool {
    media_type(content_type) == "application/json"
}

/// How deep a message may nest: less than a line of the wire by what stands around it there.
const MESSAGE_DEPTH: usize = crate::json::MAX_DEPTH - 4;

/// The messages of a JSON body: an array is flattened one level, any other value is one. Numbers and texts stay as they
/// were written; line ends between them go. `invalid` for anything but one JSON value.
pub fn messages(body: &[u8]) -> Result<Vec<Box<RawValue>>, Error> {
    let malformed = |error: serde_json::Error| Error::invalid("", format!("malformed JSON: {error}"));
    let text = std::str::from_utf8(body)
        .map_err(|error| Error::invalid("", format!("not UTF-8 at byte {}", error.valid_up_to())))?;
    crate::json::check_depth(body, MESSAGE_DEPTH)?;
    let messages: Vec<Box<RawValue>> = match text.trim_ascii_start().starts_with('[') {
        true => serde_json::from_str(text).map_err(malformed)?,
        false => vec![serde_json::from_str(text).map_err(malformed)?],
    };
    match text.contains(['\n', '\r']) {
        true => messages.iter().map(|message| in_one_line(message)).collect(),
        false => Ok(messages),
    }
}

/// Line ends stand only between the tokens of JSON, never inside of one.
fn in_one_line(message: &RawValue) -> Result<Box<RawValue>, Error> {
    let text = message.get().replace(['\n', '\r'], "");
    RawValue::from_string(text).map_err(|error| Error::invalid("", format!("malformed JSON: {error}")))
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
        assert_eq!(
            flattened(" [1, [2,3],\r\n {\"a\":\n\"b\\nc\"} ]\n"),
            ["1", "[2,3]", "{\"a\":\"b\\nc\"}"]
        );
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
