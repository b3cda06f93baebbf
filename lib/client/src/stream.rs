//! Reads a stream page by page, with long polls. Each page starts where the previous one ended, even after a restart of
//! the gateway.

use ken_types::uri::encode_query;
use ken_types::{Error, json};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::gateway::{Gateway, Method};

/// A reader of one stream.
#[derive(Debug)]
pub struct Reader {
    gateway: Gateway,
    target: String,
    offset: String,
    tail: Option<u64>,
    cursor: Option<String>,
}

/// Some entries of a stream, and the offset after them.
#[derive(Debug)]
pub struct Page {
    pub body: Vec<u8>,
    pub is_json: bool,
    /// The offset after these entries.
    pub next: String,
    pub up_to_date: bool,
    closed: bool,
}

impl Page {
    /// Whether this is the last page, because the stream is closed.
    pub fn is_last(&self) -> bool {
        self.closed && self.up_to_date
    }

    /// Returns the entries of a JSON page.
    ///
    /// # Errors
    /// `invalid` if the page is not JSON, `internal` if it is not an array.
    pub fn messages(&self) -> Result<Vec<Value>, Error> {
        if self.body.is_empty() {
            return Ok(Vec::new());
        }
        match json::parse_own(&self.body)? {
            Value::Array(messages) => Ok(messages),
            _ => Err(Error::internal("a page of a stream is not an array")),
        }
    }

    /// Returns the entries of a JSON page as they are written. Any program may have appended them, and a parser that is
    /// stricter than the gateway, or that rounds numbers, would not return what is stored.
    ///
    /// # Errors
    /// `internal` if the page is not an array of JSON.
    pub fn documents(&self) -> Result<Vec<&RawValue>, Error> {
        if self.body.is_empty() {
            return Ok(Vec::new());
        }
        let wrong = |error| Error::internal(format!("a page of a stream is not an array of JSON: {error}"));
        serde_json::from_slice(&self.body).map_err(wrong)
    }
}

impl Reader {
    /// Creates a reader. `target` is the path of the stream. `tail` starts that many entries before the end; it
    /// requires offset `-1`.
    pub fn new(gateway: Gateway, target: &str, offset: &str, tail: Option<u64>) -> Reader {
        Reader { gateway, target: target.to_owned(), offset: offset.to_owned(), tail, cursor: None }
    }

    /// Returns the next page. With `live`, it waits for entries. The page is empty if none arrived for a while.
    pub fn page(&mut self, live: bool) -> Result<Page, Error> {
        let mut target = format!("{}?offset={}", self.target, encode_query(&self.offset));
        if let Some(tail) = self.tail {
            target += &format!("&tail={tail}");
        }
        if live {
            target += "&live=long-poll";
            if let Some(cursor) = &self.cursor {
                target += &format!("&cursor={cursor}");
            }
        }
        let answer = self.gateway.call(&Method::GET, &target, &[], &[])?;
        let is = |name: &str| answer.header(name) == Some("true");
        let (up_to_date, closed) = (is("stream-up-to-date"), is("stream-closed"));
        let next = answer.header("stream-next-offset");
        let next = next.ok_or_else(|| Error::internal("the gateway's answer has no Stream-Next-Offset"))?;
        next.clone_into(&mut self.offset);
        self.tail = None;
        self.cursor = answer.header("stream-cursor").map(str::to_owned);
        Ok(Page {
            is_json: answer.header("content-type").is_some_and(is_json),
            next: self.offset.clone(),
            up_to_date,
            closed,
            body: answer.body,
        })
    }
}

/// Whether a content type is that of JSON.
pub fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}
