//! A record and the line that is written for it.

use ken_types::{Error, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::chain::Link;

/// An event that is not part of the chain yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub time: Timestamp,
    /// The name of the event, from the list in ken-audit(5).
    pub event: &'static str,
    /// The `X-Request-Id` of the request; empty if there is none.
    pub request_id: String,
    /// The user who made the request; empty if unknown.
    pub user_id: String,
    /// Further facts about the event. They must not contain text that a user wrote, or keys.
    pub details: Map<String, Value>,
}

/// The event of the first record of every file. If records at the beginning of a file are removed, it is missing.
pub(crate) const OPENED: &str = "audit_opened";

impl Record {
    pub fn new(event: &'static str, request_id: &str, user_id: &str) -> Record {
        Record {
            time: Timestamp::now(),
            event,
            request_id: request_id.to_owned(),
            user_id: user_id.to_owned(),
            details: Map::new(),
        }
    }

    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Record {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// Appends the line of this record to `out`, with its line feed, as the record after `link`. Returns the state of
    /// the chain after it. The hash covers all bytes of the line before the hash, including the hash of the previous
    /// record.
    pub(crate) fn write(&self, link: &Link, out: &mut Vec<u8>) -> Result<Link, Error> {
        let begin = out.len();
        let line = Line {
            seq: link.seq + 1,
            prev: link.hash_text(),
            time: self.time,
            event: self.event,
            request_id: &self.request_id,
            user_id: &self.user_id,
            details: &self.details,
        };
        serde_json::to_writer(&mut *out, &line)
            .map_err(|error| Error::internal(format!("an audit record could not be written: {error}")))?;
        out.pop(); // removes the closing brace, because the hash is inserted before it
        let next = Link::after(link, out.get(begin..).unwrap_or_default());
        out.extend_from_slice(b",\"hash\":\"");
        out.extend_from_slice(next.hash_text().as_bytes());
        out.extend_from_slice(b"\"}\n");
        Ok(next)
    }
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    prev: &'a str,
    time: Timestamp,
    event: &'a str,
    request_id: &'a str,
    user_id: &'a str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    details: &'a Map<String, Value>,
}
