//! The kinds of submissions. A new kind needs an entry in this table and a value of `SubmissionKind`.

use ken_types::Error;
use ken_types::ops::store::{EndReason, SubmissionKind, Work};

use crate::engine::change::Change;
use crate::ops::{runs, turns};
use crate::tables::{LogRow, SubmissionRow, Tables};

type Permits = fn(&dyn Tables) -> Result<usize, Error>;
type HandOut = fn(&dyn Tables, &SubmissionRow, &mut LogRow, &mut Change) -> Result<(Option<String>, u64), Error>;
type Close = fn(&dyn Tables, &SubmissionRow, LogRow, EndReason, &mut Change) -> Result<(), Error>;

pub(super) struct Kind {
    kind: SubmissionKind,
    /// The kind of work under which these submissions are claimed.
    pub(super) work: Work,
    /// Whether the store itself ends a submission that has to end. If not, a holder has to do so, because a message of the model may have
    /// to be cut short.
    pub(super) closed_by_store: bool,
    /// Whether the events of the submission begin where its stream ends at the first claim. This claim is then also reported to consoles.
    pub(super) recorded_from_claim: bool,
    /// Returns the workflow and the next event index for the holder of a claim.
    pub(super) hand_out: HandOut,
    /// Ends a submission that nobody holds.
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

/// The kinds of work that have a limit for the number of held submissions, each with a function that returns how many more can be claimed.
static PERMITS: [(Work, Permits); 1] = [(Work::Runs, runs::permits)];

pub(super) fn permits(tables: &dyn Tables, work: Work) -> Result<usize, Error> {
    let limited = PERMITS.iter().find(|(limited, _)| *limited == work);
    limited.map_or(Ok(usize::MAX), |(_, permits)| permits(tables))
}

fn next_index(
    _: &dyn Tables,
    found: &SubmissionRow,
    _: &mut LogRow,
    _: &mut Change,
) -> Result<(Option<String>, u64), Error> {
    Ok((None, found.next_index))
}
