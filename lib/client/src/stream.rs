//! Reads a stream page by page, by long polls. Each page begins where the last one ended, also after a restart of the gateway.

use ken_types::{Error, json};
use serde_json::Value;

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

/// Some entries, and the offset after them.
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
    /// Whether nothing can follow it.
    pub fn is_last(&self) -> bool {
        self.closed && self.up_to_date
    }

    /// The entries of a JSON page.
    ///
    /// # Errors
    /// `internal` for what is not an array, `invalid` for what is not JSON.
    pub fn messages(&self) -> Result<Vec<Value>, Error> {
        if self.body.is_empty() {
            return Ok(Vec::new());
        }
        match json::parse(&self.body, json::MAX_DEPTH + 2)? {
            Value::Array(messages) => Ok(messages),
            _ => Err(Error::internal("a page of a stream is not an array")),
        }
    }
}

impl Reader {
    /// `target` is the stream's path. `tail` starts that many entries before the end, and needs offset `-1`.
    pub fn new(gateway: Gateway, target: &str, offset: &str, tail: Option<u64>) -> Reader {
        Reader { gateway, target: target.to_owned(), offset: offset.to_owned(), tail, cursor: None }
    }

    /// The next page. With `live`, waits for entries; the page is empty when none have come for a while.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn page(&mut self, live: bool) -> Result<Page, Error> {
        let mut target = format!("{}?offset={}", self.target, self.offset);
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

/// Whether a content type is JSON.
pub fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}
