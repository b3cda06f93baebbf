//! The entries of a stream below `streams/`. If the stream is a fork, the first ones are stored with its sources.

use ken_types::Error;

use crate::tables::{PublicRow, Tables};

/// Calls `see` with each entry from number `from` (inclusive) to `to` (exclusive), until it returns false.
pub(super) fn scan(
    tables: &dyn Tables,
    stream: &PublicRow,
    from: u64,
    to: u64,
    see: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), Error> {
    let mut place = from;
    while place < to {
        let (owner, until) = owner(tables, stream, place, to)?;
        if !tables.appends(owner, place, until, see)? {
            return Ok(());
        }
        place = until;
    }
    Ok(())
}

/// Returns the key of the stream that stores the entry with number `place`, and the number up to which this stream stores the following
/// entries.
fn owner(tables: &dyn Tables, stream: &PublicRow, place: u64, to: u64) -> Result<(i64, u64), Error> {
    let (mut key, mut base, mut source, mut until) = (stream.key, stream.base, stream.source, to);
    while place < base {
        until = until.min(base);
        let Some(next) = source else { break };
        let found = tables.public_by_key(next)?;
        (key, base, source) = (found.key, found.base, found.source);
    }
    Ok((key, until))
}

/// Returns the entry with this number; `None` if it is beyond the end.
pub(super) fn one(tables: &dyn Tables, stream: &PublicRow, number: u64) -> Result<Option<Vec<u8>>, Error> {
    let mut found = None;
    scan(tables, stream, number, stream.entries.min(number + 1), &mut |body| {
        found = Some(body.to_vec());
        false
    })?;
    Ok(found)
}
