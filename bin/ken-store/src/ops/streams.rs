//! Reads pages of streams of all kinds.

use ken_types::ops::store::{ReadStream, StreamPage};
use ken_types::ops::streams::PublicPage;
use ken_types::{Error, Timestamp};

use crate::ops::{entries, system};
use crate::rules::page::{self, PageBuilder};
use crate::rules::public;
use crate::rules::stream_names::{PUBLIC, SYSTEM};
use crate::tables::Tables;

/// Returns a page of a stream without waiting for entries.
pub(crate) fn read(tables: &dyn Tables, args: &ReadStream, now: Timestamp) -> Result<StreamPage, Error> {
    if args.stream == SYSTEM {
        system::read(tables, args)
    } else if args.stream.starts_with(PUBLIC) {
        read_public(tables, args, now)
    } else {
        read_log(tables, args)
    }
}

fn read_log(tables: &dyn Tables, args: &ReadStream) -> Result<StreamPage, Error> {
    let log = tables.log(&args.stream)?;
    let log = log.ok_or_else(|| public::unknown(&args.stream, "/stream"))?;
    let start = page::first_entry(args, log.entries);
    let mut filling = PageBuilder::new(args, false);
    if start < log.entries {
        tables.entries(log.key, start, log.entries, &mut |entry| filling.take(entry.as_bytes()))?;
    }
    Ok(StreamPage {
        start,
        next: start + filling.count,
        end: log.entries,
        closed: log.closed,
        entries: filling.end()?.0,
        id: log.key.cast_unsigned(),
        public: None,
    })
}

fn read_public(tables: &dyn Tables, args: &ReadStream, now: Timestamp) -> Result<StreamPage, Error> {
    let stream = public::live(tables.public(&args.stream)?, &args.stream, now)?;
    let id = stream.key.cast_unsigned();
    if args.id.is_some_and(|wanted| wanted != id) {
        return Err(public::unknown(&args.stream, "/stream"));
    }
    let start = page::first_entry(args, stream.entries);
    let mut filling = PageBuilder::new(args, !stream.is_json());
    entries::scan(tables, &stream, start, stream.entries, &mut |body| filling.take(body))?;
    let next = start + filling.count;
    let lifetime = stream.lifetime();
    let (entries, bytes) = filling.end()?;
    Ok(StreamPage {
        start,
        next,
        end: stream.entries,
        closed: stream.closed,
        entries,
        id,
        public: Some(PublicPage { content_type: stream.content_type, lifetime, bytes }),
    })
}
