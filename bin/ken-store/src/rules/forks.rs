//! Rules for forks: where in its source a fork begins.

use ken_types::ops::streams::Fork;
use ken_types::{Error, Offset};

use crate::tables::PublicRow;

/// The part of its source with which a fork begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Begin {
    /// The number of entries that the fork shares with its source.
    pub(crate) base: u64,
    /// If the fork begins inside an append, the first part of that append. The fork stores it as an entry of its own.
    pub(crate) part: Option<Vec<u8>>,
}

/// Returns the number of the entry at which a fork begins, without regard to its sub-offset.
pub(crate) fn begin_entry(source: &PublicRow, fork: &Fork) -> Result<u64, Error> {
    match fork.offset {
        None | Some(Offset::Now) => Ok(source.entries),
        Some(Offset::Start) => Ok(0),
        Some(Offset::After(entries)) if entries <= source.entries => Ok(entries),
        Some(Offset::After(_)) => {
            let message = format!("the offset is beyond the end of {}", source.name);
            Err(Error::invalid("/fork/offset", message))
        }
    }
}

/// Applies the sub-offset of a fork of a JSON stream. It counts messages, which are whole entries.
pub(crate) fn json_sub_offset(source: &PublicRow, place: u64, fork: &Fork) -> Result<Begin, Error> {
    let base = place.checked_add(fork.sub_offset).filter(|base| *base <= source.entries);
    Ok(Begin { base: base.ok_or_else(|| too_far(source))?, part: None })
}

/// Applies the sub-offset of a fork of a byte stream. It counts bytes of the append `next`.
pub(crate) fn byte_sub_offset(
    source: &PublicRow,
    place: u64,
    next: Option<&[u8]>,
    fork: &Fork,
) -> Result<Begin, Error> {
    let length = usize::try_from(fork.sub_offset).unwrap_or(usize::MAX);
    let next = next.unwrap_or_default();
    match next.get(..length).ok_or_else(|| too_far(source))? {
        whole if whole.len() == next.len() => Ok(Begin { base: place + 1, part: None }),
        part => Ok(Begin { base: place, part: Some(part.to_vec()) }),
    }
}

fn too_far(source: &PublicRow) -> Error {
    let message = format!("there is less than that after the offset in {}", source.name);
    Error::invalid("/fork/sub_offset", message)
}

#[cfg(test)]
mod tests {
    use ken_types::Timestamp;

    use super::*;
    use crate::rules::public;

    fn source() -> PublicRow {
        let args = serde_json::from_value(serde_json::json!({"stream": "streams/a"})).unwrap();
        PublicRow { entries: 7, ..public::plain(&args, Timestamp::default()) }
    }

    fn fork(offset: Option<Offset>, sub_offset: u64) -> Fork {
        Fork { from: "streams/a".to_owned(), offset, sub_offset }
    }

    /// A fork begins anywhere in its source, and not beyond its end.
    #[test]
    fn a_fork_begins_in_its_source() {
        for (offset, expected) in [
            (None, Some(7)),
            (Some(Offset::Now), Some(7)),
            (Some(Offset::Start), Some(0)),
            (Some(Offset::After(6)), Some(6)),
            (Some(Offset::After(7)), Some(7)),
            (Some(Offset::After(8)), None),
        ] {
            assert_eq!(begin_entry(&source(), &fork(offset, 0)).ok(), expected, "{offset:?}");
        }
        for (place, more, expected) in [(5, 1, Some(6)), (5, 2, Some(7)), (5, 3, None), (1, u64::MAX, None)] {
            let begin = json_sub_offset(&source(), place, &fork(None, more)).ok();
            assert_eq!(begin, expected.map(|base| Begin { base, part: None }), "{place} {more}");
        }
        for (next, more, expected) in [
            (Some(&b"abc"[..]), 0, Some((5, Some(b"".to_vec())))),
            (Some(b"abc"), 2, Some((5, Some(b"ab".to_vec())))),
            (Some(b"abc"), 3, Some((6, None))),
            (Some(b"abc"), 4, None),
            (None, 1, None),
        ] {
            let begin = byte_sub_offset(&source(), 5, next, &fork(None, more)).ok();
            assert_eq!(begin, expected.map(|(base, part)| Begin { base, part }), "{next:?} {more}");
        }
    }
}
