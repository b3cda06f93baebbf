//! Where a fork begins, and whose entries are read through it.

use ken_types::ops::streams::Fork;
use ken_types::{Error, Offset};
use rusqlite::Connection;

use super::fault::Done;
use super::public::{Public, by_id};
use super::{appends, streams};

/// What a fork has of its source.
pub(super) struct Begin {
    /// Entries that are the source's.
    pub(super) base: u64,
    /// The beginning of the source's next append, to be the fork's own.
    pub(super) part: Option<Vec<u8>>,
}

pub(super) fn begin(connection: &Connection, source: &Public, fork: &Fork) -> Done<Begin> {
    let place = match fork.offset {
        None | Some(Offset::Now) => source.entries,
        Some(Offset::Start) => 0,
        Some(Offset::After(entries)) if entries <= source.entries => entries,
        Some(Offset::After(_)) => {
            return Err(Error::invalid(
                "/fork/offset",
                format!("the offset is beyond the end of {}", source.name),
            )
            .into());
        }
    };
    if fork.sub_offset == 0 {
        return Ok(Begin {
            base: place,
            part: None,
        });
    }
    let beyond = || {
        Error::invalid(
            "/fork/sub_offset",
            format!("there is less than that after the offset in {}", source.name),
        )
    };
    if source.is_json() {
        let base = place
            .checked_add(fork.sub_offset)
            .filter(|base| *base <= source.entries);
        return Ok(Begin {
            base: base.ok_or_else(beyond)?,
            part: None,
        });
    }
    let next = appends::one(connection, source, place)?.ok_or_else(beyond)?;
    let length = usize::try_from(fork.sub_offset).unwrap_or(usize::MAX);
    match next.get(..length).ok_or_else(beyond)? {
        whole if whole.len() == next.len() => Ok(Begin {
            base: place + 1,
            part: None,
        }),
        part => Ok(Begin {
            base: place,
            part: Some(part.to_vec()),
        }),
    }
}

/// Calls `see` with each entry of a stream from `from` to before `to`, its own and those it has of its sources, until
/// it says that it has enough.
pub(super) fn scan(
    connection: &Connection,
    stream: &Public,
    from: u64,
    to: u64,
    mut see: impl FnMut(&[u8]) -> Done<bool>,
) -> Done<()> {
    let mut place = from;
    while place < to {
        let (owner, until) = owner(connection, stream, place, to)?;
        if !streams::scan_table(connection, streams::APPENDS, owner, place, until, &mut see)? {
            return Ok(());
        }
        place = until;
    }
    Ok(())
}

/// Whose the entry at `place` is, and before which place that ends.
fn owner(connection: &Connection, stream: &Public, place: u64, to: u64) -> Done<(i64, u64)> {
    let (mut id, mut base, mut source, mut until) = (stream.id, stream.base, stream.source, to);
    while place < base {
        until = until.min(base);
        let Some(next) = source else { break };
        let found = by_id(connection, next)?;
        (id, base, source) = (found.id, found.base, found.source);
    }
    Ok((id, until))
}
