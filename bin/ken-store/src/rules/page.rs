//! Pages of streams: where a page begins, and how many entries it contains.

use ken_types::limits::PAGE_BYTES;
use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::{Payload, PublicPage};
use ken_types::{Error, Octets, Offset};
use serde_json::value::RawValue;

use crate::engine::change::NewEntries;
use crate::rules::record;

pub(crate) fn check(args: &ReadStream) -> Result<(), Error> {
    if args.limit == 0 {
        return Err(Error::invalid("/limit", "limit is at least 1"));
    }
    match args.tail {
        Some(0) => Err(Error::invalid("/tail", "tail is at least 1")),
        Some(_) if args.offset != Offset::Start => Err(Error::invalid("/tail", "tail goes only with offset -1")),
        _ => Ok(()),
    }
}

/// Returns the number of the first entry of a page in a stream with this many entries.
pub(crate) fn first_entry(args: &ReadStream, entries: u64) -> u64 {
    match (args.tail, args.offset) {
        (Some(tail), Offset::Start) => entries.saturating_sub(tail),
        _ => args.offset.before(entries),
    }
}

/// A page to which entries are added, or to which their bytes are appended.
pub(crate) struct PageBuilder {
    limit: u64,
    max_bytes: usize,
    pub(crate) count: u64,
    bytes: usize,
    entries: Vec<Box<RawValue>>,
    joined: Option<Vec<u8>>,
    failed: Option<Error>,
}

impl PageBuilder {
    /// Creates an empty page. `joined` means that the entries are bytes to be concatenated, and not JSON.
    pub(crate) fn new(args: &ReadStream, joined: bool) -> PageBuilder {
        PageBuilder {
            limit: args.limit.into(),
            max_bytes: PAGE_BYTES.min(args.max_bytes as usize),
            count: 0,
            bytes: 0,
            entries: Vec::new(),
            joined: joined.then(Vec::new),
            failed: None,
        }
    }

    /// Adds an entry if it fits. Returns false if no further entry fits.
    pub(crate) fn take(&mut self, body: &[u8]) -> bool {
        self.bytes += body.len();
        if self.count > 0 && self.bytes > self.max_bytes {
            return false;
        }
        match &mut self.joined {
            Some(joined) => joined.extend_from_slice(body),
            None => match serde_json::from_slice(body) {
                Ok(entry) => self.entries.push(entry),
                Err(error) => {
                    self.failed = Some(record::defect(error));
                    return false;
                }
            },
        }
        self.count += 1;
        self.count < self.limit
    }

    /// Returns the entries or, if the entries are bytes, the concatenated bytes.
    pub(crate) fn end(self) -> Result<(Vec<Box<RawValue>>, Option<Octets>), Error> {
        match self.failed {
            Some(error) => Err(error),
            None => Ok((self.entries, self.joined.map(Octets))),
        }
    }
}

/// Returns a page of new entries for a reader that waits at the end of the stream. `last` is the empty page that it has read.
pub(crate) fn of_new(new: &NewEntries, limit: usize, last: StreamPage) -> StreamPage {
    let mut page = StreamPage { start: new.first, ..last };
    match &new.payload {
        Payload::Bytes(bytes) => {
            page.end = new.first + 1;
            page.next = page.end;
            page.public = page.public.map(|public| PublicPage { bytes: Some(bytes.clone()), ..public });
        }
        Payload::Messages(messages) => {
            page.end = new.first + messages.len() as u64;
            page.entries = first_page(messages, limit);
            page.next = new.first + page.entries.len() as u64;
        }
    }
    page
}

/// Returns as many messages as fit into a page, but at least one.
fn first_page(messages: &[Box<RawValue>], limit: usize) -> Vec<Box<RawValue>> {
    let mut page: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    for message in messages.iter().take(limit) {
        bytes += message.get().len();
        if !page.is_empty() && bytes > PAGE_BYTES {
            break;
        }
        page.push(message.clone());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What fits into a page is in it, and the first message in any case.
    #[test]
    fn the_first_page_has_an_end() {
        let half = PAGE_BYTES / 2;
        for (sizes, limit, count) in [
            (&[10, 10, 10][..], 2, 2),
            (&[10, 10], 2, 2),
            (&[half, PAGE_BYTES - half, 10], 9, 2),
            (&[half, PAGE_BYTES - half + 1], 9, 1),
            (&[PAGE_BYTES + 1, 10], 9, 1),
            (&[], 9, 0),
        ] {
            let message = |size: &usize| RawValue::from_string(format!("\"{}\"", "x".repeat(size - 2))).unwrap();
            let messages: Vec<_> = sizes.iter().map(message).collect();
            assert_eq!(first_page(&messages, limit).len(), count, "{sizes:?} {limit}");
        }
    }
}
