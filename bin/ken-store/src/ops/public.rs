//! The streams below `streams/`: creating, writing and removing them.
//!
//! A fork refers to its source, which counts its forks. The first `base` entries of the fork are those of the source. A stream that is
//! deleted while it has forks is `gone`: it keeps its name and its entries until its last fork is deleted. A stream without forks loses its
//! name at once, and its entries are deleted later, a slice at a time.

use std::sync::Arc;

use ken_types::ops::Nothing;
use ken_types::ops::streams::*;
use ken_types::{Error, Octets, Timestamp};

use crate::engine::change::{Change, Effect, NewEntries};
use crate::ops::{Read, Write, calls, entries};
use crate::rules::cursor::List;
use crate::rules::public::{self, Liveness};
use crate::rules::stream_names::MAX_ENTRIES;
use crate::rules::{check, forks, producers};
use crate::tables::{PublicRow, Tables};

/// The maximum number of expired streams that one change, or one slice of background work, removes.
const SWEEP: usize = 64;
/// The maximum number of streams in a page of a list.
const MAX_LISTED: u32 = 1_000;
/// The maximum number of entries or producers that one slice deletes, and the maximum size of the entries in bytes.
const SLICE: usize = 500;
const SLICE_BYTES: u64 = 1024 * 1024;

impl Write for StreamsCreate {
    fn check(args: &CreateStream) -> Result<(), Error> {
        check::stream(&args.stream)?;
        args.fork.as_ref().map_or(Ok(()), |fork| check::stream(&fork.from))
    }

    fn run(tables: &dyn Tables, args: &CreateStream, change: &mut Change) -> Result<Creation, Error> {
        if let Some(answer) = calls::stored_answer(tables, args.call.as_ref())? {
            return Ok(answer);
        }
        // Expired streams are removed first, so that their names are free, and sources that were only kept for them are removed too.
        sweep(tables, change)?;
        if let Some(there) = tables.public(&args.stream)? {
            match there.liveness(change.now) {
                Liveness::Live => return Ok(public::compare(&there, args)),
                Liveness::Gone => return Ok(Creation::Exists(public::kept_for_forks(&args.stream))),
                Liveness::Expired => remove(tables, &there, change)?,
            }
        }
        let made = match &args.fork {
            None => insert(tables, public::plain(args, change.now), args, None)?,
            Some(fork) => match make_fork(tables, fork, args, change.now)? {
                Ok(stream) => stream,
                Err(differs) => return Ok(Creation::Exists(differs)),
            },
        };
        let answer = Creation::Made(made.made());
        schedule_removal(&made, change);
        calls::keep(tables, args.call.as_ref(), &answer, change.now)?;
        Ok(answer)
    }
}

impl Read for StreamsList {
    fn check(args: &ListStreams) -> Result<(), Error> {
        check::limit(args.limit, MAX_LISTED)
    }

    fn run(tables: &dyn Tables, args: &ListStreams) -> Result<StreamList, Error> {
        let list = List::named("streams", &[Some(&args.prefix)]);
        let before = list.newest_or(args.after.as_ref(), "?after")?;
        let mut found = tables.list_public(&public::name_of(&args.prefix), before, args.limit + 1)?;
        let page = list.page(&mut found, args.limit, |stream| [stream.key]);
        let streams = found.into_iter().map(PublicRow::into_item).collect();
        Ok(StreamList { streams, page })
    }
}

/// Creates a fork. If the request conflicts with the source, returns the reason.
fn make_fork(
    tables: &dyn Tables,
    fork: &Fork,
    args: &CreateStream,
    now: Timestamp,
) -> Result<Result<PublicRow, String>, Error> {
    let source = match tables.public(&fork.from)?.map(|source| (source.liveness(now), source)) {
        Some((Liveness::Live, source)) => source,
        Some((Liveness::Gone, _)) => return Ok(Err(public::kept_for_forks(&fork.from))),
        _ => return Err(public::unknown(&fork.from, "/fork/from")),
    };
    if !public::has_type_of(&source, args) {
        return Ok(Err(format!("{} has another content type", source.name)));
    }
    let place = forks::begin_entry(&source, fork)?;
    let begin = if fork.sub_offset == 0 || source.is_json() {
        forks::json_sub_offset(&source, place, fork)?
    } else {
        let next = entries::one(tables, &source, place)?;
        forks::byte_sub_offset(&source, place, next.as_deref(), fork)?
    };
    tables.count_fork(source.key, 1)?;
    let stream = public::forked(&source, begin.base, args, now);
    insert(tables, stream, args, begin.part).map(Ok)
}

/// Stores a new stream and its first entries.
fn insert(
    tables: &dyn Tables,
    mut stream: PublicRow,
    args: &CreateStream,
    part: Option<Vec<u8>>,
) -> Result<PublicRow, Error> {
    stream.key = tables.insert_public(&stream)?;
    if let Some(part) = part {
        insert_entries(tables, &mut stream, &Payload::Bytes(Octets(part)))?;
    }
    if let Some(body) = args.body.as_ref().filter(|body| !body.0.is_empty()) {
        let payload =
            if stream.is_json() { Payload::Messages(messages(&body.0)?) } else { Payload::Bytes(body.clone()) };
        insert_entries(tables, &mut stream, &payload)?;
    }
    tables.update_public(&stream)?;
    Ok(stream)
}

/// Adds entries to the end. The caller must store the row of the stream afterwards.
fn insert_entries(tables: &dyn Tables, stream: &mut PublicRow, payload: &Payload) -> Result<(), Error> {
    let mut write = |body: &[u8]| -> Result<(), Error> {
        if stream.entries >= MAX_ENTRIES {
            return Err(Error::too_large(format!("the stream {} is full", stream.name)));
        }
        tables.insert_append(stream.key, stream.entries, body)?;
        stream.entries += 1;
        Ok(())
    };
    match payload {
        Payload::Messages(messages) => messages.iter().try_for_each(|message| write(message.get().as_bytes())),
        Payload::Bytes(bytes) => write(&bytes.0),
    }
}

impl Write for StreamsAppend {
    fn check(args: &AppendStream) -> Result<(), Error> {
        check::append(args)
    }

    fn run(tables: &dyn Tables, args: &AppendStream, change: &mut Change) -> Result<Appending, Error> {
        if let Some(answer) = calls::stored_answer(tables, args.call.as_ref())? {
            return Ok(answer);
        }
        let found = tables.public(&args.stream)?;
        let mut stream = public::live(found, &args.stream, change.now)?;
        let known = match &args.producer {
            Some(producer) => tables.producer(stream.key, &producer.id)?,
            None => None,
        };
        if let Some(refused) = producers::refusal(&stream, known.as_ref(), args) {
            return Ok(refused);
        }
        if let Some(producer) = &args.producer {
            tables.put_producer(stream.key, producer)?;
        }
        let first = stream.entries;
        if let Some(payload) = &args.payload {
            insert_entries(tables, &mut stream, payload)?;
        }
        stream.closed |= args.close;
        stream.last_seq = args.seq.clone().or(stream.last_seq);
        stream.expires_at = stream.next_expiry(change.now);
        tables.update_public(&stream)?;
        let answer = Appending::Done { end: stream.entries, closed: stream.closed };
        calls::keep(tables, args.call.as_ref(), &answer, change.now)?;
        schedule_removal(&stream, change);
        if let Some(payload) = &args.payload {
            change.push(Effect::Appended(Arc::new(NewEntries {
                stream: stream.name.clone(),
                first,
                payload: payload.clone(),
            })));
        }
        if args.close {
            change.push(Effect::Changed(stream.name));
        }
        Ok(answer)
    }
}

impl Write for StreamsDelete {
    fn run(tables: &dyn Tables, args: &DeleteStream, change: &mut Change) -> Result<Nothing, Error> {
        if let Some(answer) = calls::stored_answer(tables, args.call.as_ref())? {
            return Ok(answer);
        }
        sweep(tables, change)?;
        let stream = public::live(tables.public(&args.stream)?, &args.stream, change.now)?;
        remove(tables, &stream, change)?;
        calls::keep(tables, args.call.as_ref(), &Nothing {}, change.now)?;
        Ok(Nothing {})
    }
}

/// Schedules the removal of the stream at the time when it expires.
fn schedule_removal(stream: &PublicRow, change: &mut Change) {
    if let Some(at) = stream.expires_at {
        change.push(Effect::Expires(at));
    }
}

/// Restarts the time to live of the stream with this name and key, unless it has expired or was deleted meanwhile.
pub(crate) fn touch(tables: &dyn Tables, name: &str, key: i64, change: &mut Change) -> Result<(), Error> {
    // The row of a deleted stream stays without its name until its entries are deleted. With a time at which it expires, it would be removed
    // a second time, and its source would count a fork too few.
    let Some(mut stream) = tables.public(name)?.filter(|stream| stream.key == key) else {
        return Ok(());
    };
    if stream.liveness(change.now) == Liveness::Live && stream.ttl.is_some() {
        stream.expires_at = stream.next_expiry(change.now);
        tables.update_public(&stream)?;
        schedule_removal(&stream, change);
    }
    Ok(())
}

fn remove(tables: &dyn Tables, stream: &PublicRow, change: &mut Change) -> Result<(), Error> {
    change.push(Effect::Changed(stream.name.clone()));
    if stream.forks > 0 {
        return tables.set_public_gone(stream.key);
    }
    change.push(Effect::Background);
    let mut leaving = Some(stream.key);
    // If the source was only kept for this fork, it is removed as well, and the same applies to its own source.
    while let Some(key) = leaving.take() {
        let Some(source) = tables.unname_public(key)? else {
            break;
        };
        tables.count_fork(source, -1)?;
        let source = tables.public_by_key(source)?;
        leaving = (source.gone && source.forks == 0).then_some(source.key);
    }
    Ok(())
}

/// Removes expired streams. Returns true if there may be more.
pub(super) fn sweep(tables: &dyn Tables, change: &mut Change) -> Result<bool, Error> {
    let over = tables.expired(change.now, SWEEP)?;
    for key in &over {
        // The row is read again, because removing the previous stream may have removed the last fork of this one.
        remove(tables, &tables.public_by_key(*key)?, change)?;
    }
    Ok(over.len() == SWEEP)
}

/// Deletes a slice of the data of removed streams. Returns true if there may be more.
pub(super) fn clean(tables: &dyn Tables) -> Result<bool, Error> {
    let Some(key) = tables.unnamed_public()? else {
        return Ok(false);
    };
    let mut bytes = 0;
    let mut last = None;
    for (number, size) in tables.append_sizes(key, SLICE)? {
        if bytes >= SLICE_BYTES {
            break;
        }
        bytes += size;
        last = Some(number);
    }
    if let Some(last) = last {
        tables.delete_appends(key, last)?;
    } else if tables.delete_producers(key, SLICE)? < SLICE {
        tables.delete_public(key)?;
    }
    Ok(true)
}
