//! The kinds of submissions. A new kind is a row here and a value of `SubmissionKind`.

use ken_types::Error;
use ken_types::ops::store::{SubmissionKind, Verdict, Work};

use crate::engine::change::Change;
use crate::ops::{runs, turns};
use crate::tables::{LogRow, SubmissionRow, Tables};

type Room = fn(&dyn Tables) -> Result<usize, Error>;
type HandOut = fn(&dyn Tables, &SubmissionRow, &mut LogRow, &mut Change) -> Result<(Option<String>, u64), Error>;
type Close = fn(&dyn Tables, &SubmissionRow, LogRow, Verdict, &mut Change) -> Result<(), Error>;

/// What differs between kinds.
pub(super) struct Kind {
    kind: SubmissionKind,
    /// What it is claimed as.
    pub(super) work: Work,
    /// When it has to end, its store ends it: there is no message of a model that a holder could cut short.
    pub(super) closed_by_store: bool,
    /// Whether the first claim begins its events, and is told to consoles.
    pub(super) recorded_from_claim: bool,
    /// The workflow and the next index, as a holder is given them.
    pub(super) hand_out: HandOut,
    /// Ends one that nobody holds.
    pub(super) close: Close,
}

static KINDS: [Kind; 3] = [
    Kind {
        kind: SubmissionKind::Prompt,
        work: Work::Turns,
        closed_by_store: false,
        recorded_from_claim: true,
        hand_out: next_index,
        close: turns::close,
    },
    Kind {
        kind: SubmissionKind::Compact,
        work: Work::Turns,
        closed_by_store: false,
        recorded_from_claim: true,
        hand_out: next_index,
        close: turns::close,
    },
    Kind {
        kind: SubmissionKind::Workflow,
        work: Work::Runs,
        closed_by_store: true,
        recorded_from_claim: false,
        hand_out: runs::hand_out,
        close: runs::close,
    },
];

pub(super) fn of(kind: SubmissionKind) -> Result<&'static Kind, Error> {
    let found = KINDS.iter().find(|row| row.kind == kind);
    found.ok_or_else(|| Error::internal(format!("the kind {kind:?} of submissions has no row")))
}

/// How many of each work may be held at once, where that is limited.
static ROOMS: [(Work, Room); 1] = [(Work::Runs, runs::room)];

pub(super) fn room(tables: &dyn Tables, work: Work) -> Result<usize, Error> {
    let limited = ROOMS.iter().find(|(limited, _)| *limited == work);
    limited.map_or(Ok(usize::MAX), |(_, room)| room(tables))
}

fn next_index(
    _: &dyn Tables,
    found: &SubmissionRow,
    _: &mut LogRow,
    _: &mut Change,
) -> Result<(Option<String>, u64), Error> {
    Ok((None, found.next_index))
}
