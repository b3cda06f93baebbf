//! What the columns of both databases contain.

use ken_types::Error;
use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::Scope;
use serde::Serialize;

use crate::rules::record;
use crate::rules::stream_names::MAX_ENTRIES;

/// Converts a value to JSON for a column.
pub(super) fn to_json(value: &impl Serialize) -> Result<String, Error> {
    record::write(value)
}

/// Converts an optional value to JSON for a column.
pub(super) fn json(value: Option<&(impl Serialize + ?Sized)>) -> Result<Option<String>, Error> {
    value.map(|value| record::write(&value)).transpose()
}

/// Converts origins of outside text to JSON for a column, which is NULL if there are none.
pub(super) fn outside(origins: &Outside) -> Result<Option<String>, Error> {
    json(Some(origins).filter(|origins| !origins.is_empty()))
}

/// Returns the content of the unique column of a scope.
pub(super) fn scope_text(scope: &Scope) -> Result<String, Error> {
    to_json(&(&scope.connector, &scope.actor_id, &scope.conversation_id, &scope.thread_id))
}

/// Returns the turn in which an agent wrote an entry: the end of its author, `AGENT:TURN`.
pub(super) fn turn_of(created_by: &str) -> Option<SubmissionId> {
    created_by.rsplit_once(':').map(|(_, turn)| SubmissionId(turn.to_owned()))
}

/// Converts a number of rows to a parameter.
pub(super) fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns the key of an entry, which combines its stream and its number. The entries of a stream are therefore stored together and in
/// order, and the cost of reading a page depends only on its own length.
pub(super) fn place(stream: i64, number: u64) -> i64 {
    (stream << 32) | number.min(MAX_ENTRIES).cast_signed()
}

/// A word in a column that this release does not know: a newer release or another program has written it, or it is damaged. To take it for
/// some other word would act on something that nobody has decided.
#[derive(Debug)]
pub(super) struct UnknownWord {
    /// The table and the column, with a dot between them.
    pub(super) place: &'static str,
    pub(super) word: String,
}

impl std::fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (table, column) = self.place.split_once('.').unwrap_or(("", self.place));
        write!(f, "table {table}, column {column}: {:?} is not known", self.word)
    }
}

impl std::error::Error for UnknownWord {}

/// Returns a random mark for both the log and the message of an error.
pub(super) fn log_mark() -> String {
    let mark: Result<[u8; 4], _> = ken_types::id::random();
    mark.map_or_else(|_| "?".into(), |bytes| format!("{:08x}", u32::from_be_bytes(bytes)))
}
