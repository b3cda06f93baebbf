//! Reading a stream page by page, from where the last one ended, whatever happens to the gateway in between.

use ken_types::Error;

use crate::remote::Remote;

pub(crate) struct Reader<'a> {
    remote: Remote<'a>,
    target: String,
    offset: String,
    tail: Option<u64>,
    cursor: Option<String>,
}

/// Some entries, and where they end.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    pub(crate) is_json: bool,
    /// Where to read on.
    pub(crate) next: String,
    pub(crate) up_to_date: bool,
    closed: bool,
}

impl Page {
    /// Nothing can follow it.
    pub(crate) fn is_last(&self) -> bool {
        self.closed && self.up_to_date
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(remote: Remote<'a>, target: &str, offset: &str, tail: Option<u64>) -> Reader<'a> {
        Reader {
            remote,
            target: target.to_owned(),
            offset: offset.to_owned(),
            tail,
            cursor: None,
        }
    }

    /// The next page; with `live` it is waited for, and comes empty after a while without entries.
    pub(crate) fn page(&mut self, live: bool) -> Result<Page, Error> {
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
        let answer = self.remote.get(&target)?;
        let is = |name: &str| answer.header(name) == Some("true");
        let next = answer.header("stream-next-offset");
        let next = next.ok_or_else(|| Error::internal("the gateway does not say where to read on"))?;
        let page = Page {
            is_json: answer.header("content-type").is_some_and(is_json),
            next: next.to_owned(),
            up_to_date: is("stream-up-to-date"),
            closed: is("stream-closed"),
            body: Vec::new(),
        };
        self.offset = next.to_owned();
        self.tail = None;
        self.cursor = answer.header("stream-cursor").map(str::to_owned);
        Ok(Page {
            body: answer.body,
            ..page
        })
    }
}

pub(crate) fn is_json(content_type: &str) -> bool {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}
