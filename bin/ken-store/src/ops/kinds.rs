//! The kinds of submissions: how each is handed out and ended.

use ken_types::Error;
use ken_types::ops::store::{EndReason, SubmissionKind, Work};

use crate::engine::change::Change;
use crate::ops::{runs, turns};
use crate::tables::{LogRow, SubmissionRow, Tables};

type HandOut = fn(&dyn Tables, &SubmissionRow, &mut LogRow, &mut Change) -> Result<(Option<String>, u64), Error>;
type Close = fn(&dyn Tables, &SubmissionRow, LogRow, EndReason, &mut Change) -> Result<(), Error>;

pub(super) struct Kind {
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

static TURN: Kind = Kind {
    work: Work::Turns,
    closed_by_store: false,
    recorded_from_claim: true,
    hand_out: |_, found, _, _| Ok((None, found.next_index)),
    close: turns::close,
};

static RUN: Kind = Kind {
    work: Work::Runs,
    closed_by_store: true,
    recorded_from_claim: false,
    hand_out: runs::hand_out,
    close: runs::close,
};

pub(super) fn of(kind: SubmissionKind) -> &'static Kind {
    match kind {
        SubmissionKind::Prompt | SubmissionKind::Compact => &TURN,
        SubmissionKind::Workflow => &RUN,
    }
}

/// Returns how many more submissions of a kind of work can be claimed.
pub(super) fn permits(tables: &dyn Tables, work: Work) -> Result<usize, Error> {
    match work {
        Work::Turns => Ok(usize::MAX),
        Work::Runs => runs::permits(tables),
    }
}
