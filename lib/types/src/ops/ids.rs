//! The operation of `ken-store` that finds what a person means by an id, or by a piece of one.

use serde::{Deserialize, Serialize};

use super::store::Scope;
use crate::{Offset, Timestamp};

crate::operations! {
    /// Returns what a word can mean, newest first: the things whose id it is, or else those whose id begins or ends with
    /// it, and sessions of this name. A word of fewer than 4 characters is only compared with whole ids and names.
    IdsFind, "ids.find": FindIds => FoundIds;
}

/// The maximum number of things in a reply.
pub const MAX_FOUND: u32 = 100;
/// The maximum length of a word, in bytes. No id is longer.
pub const WORD_BYTES: usize = 512;

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindIds {
    /// A whole id, a piece of one, or the name of a session. Absent for the newest things, whatever their ids.
    pub word: Option<String>,
    /// The kinds to look at. None is all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<IdKind>,
    /// The maximum number of things, 1 to 100.
    pub limit: u32,
}

crate::named! {
    pub enum IdKind {
        Session = "session",
        /// A submission to an agent: a turn.
        Turn = "turn",
        /// A run of a workflow.
        Run = "run",
        Approval = "approval",
        Knowledge = "knowledge",
        ScheduleRun = "schedule-run",
        /// What came in: a message of a person or a program.
        Event = "event",
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundIds {
    pub ids: Vec<FoundId>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FoundId {
    pub kind: IdKind,
    pub id: String,
    /// When it was made, or changed last.
    pub at: Timestamp,
    /// What a person recognizes it by: the name or title of a session or an entry, the prompt of a turn, the action of
    /// an approval, the workflow of a run, the slug of a schedule. At most 80 characters.
    pub label: Option<String>,
    /// The session of a turn or an approval. The instance of an agent, if no session has this id.
    pub session_id: Option<String>,
    /// The turn of an approval, an event or a run of a schedule.
    pub submission_id: Option<String>,
    /// The offset before the events of a turn in its stream.
    pub offset: Option<Offset>,
    /// To whom a session belongs.
    pub scope: Option<Scope>,
}

/// Whether a word names an id: the whole of it, or at least 4 characters of its beginning or its end, or of the
/// beginning of its last part. A shorter piece could match by mistake.
pub fn is_meant(id: &str, word: &str) -> bool {
    let begins_last_part = || id.rsplit(['_', '-']).next().is_some_and(|part| part.starts_with(word));
    id == word || word.len() >= 4 && (id.starts_with(word) || id.ends_with(word) || begins_last_part())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_an_end_and_the_beginning_of_the_last_part_are_enough() {
        let session = "tui-2027-02-03T04-05-06-789Z-0f3c9a1e";
        for word in [session, "tui-2027-02", "0f3c9a1e", "0f3c", "9a1e", "Z-0f3c9a1e"] {
            assert!(is_meant(session, word), "{word}");
        }
        for word in ["", "a1e", "2027", "0f3d", "tui-2027-02-03T04-05-06-789Z-0f3c9a1e1"] {
            assert!(!is_meant(session, word), "{word}");
        }
        for word in ["run_", "run_01K2", "01K2AB", "01K2", "K2AB"] {
            assert!(is_meant("run_01K2AB", word), "{word}");
        }
        assert!(is_meant("ab", "ab") && is_meant("kb-876fa7403acc", "876f"));
    }
}
