//! What the columns of both databases contain.

use ken_types::Error;
use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::Scope;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::sql::{Content, Row, log_mark};
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

/// Returns the key of an entry, which combines its stream and its number. The entries of a stream are therefore stored together and in
/// order, and the cost of reading a page depends only on its own length.
pub(super) fn place(stream: i64, number: u64) -> i64 {
    (stream << 32) | number.min(MAX_ENTRIES).cast_signed()
}

/// Reads a value from a column that contains JSON or NULL.
pub(super) fn stored<T: DeserializeOwned>(row: &dyn Row, column: &str) -> Result<Option<T>, Error> {
    let Content::Null = row.content(column.into())? else {
        let value = serde_json::from_str(row.text(column)?);
        return value.map(Some).map_err(|error| row.unreadable(column, &error));
    };
    Ok(None)
}

/// Returns a value from a column, or an error if it is NULL.
pub(super) fn present<T>(row: &dyn Row, value: Option<T>, column: &str) -> Result<T, Error> {
    value.ok_or_else(|| row.unreadable(column, &"it is NULL"))
}

/// Reads a word from a column. `place` is the table and the column, with a dot between them.
///
/// A word that this release does not know is an error: a newer release or another program has written it, or it is damaged. To take it for
/// some other word would act on something that nobody has decided.
pub(super) fn word<T>(row: &dyn Row, place: &'static str, named: impl FnOnce(&str) -> Option<T>) -> Result<T, Error> {
    let (table, column) = place.split_once('.').unwrap_or(("", place));
    let word = row.text(column)?;
    named(word).ok_or_else(|| {
        let (line, detail) = (log_mark(), format!("table {table}, column {column}: {word:?} is not known"));
        tracing::error!(line, detail, "a row cannot be read");
        Error::internal(format!("the database cannot be read: {detail} (log line {line})"))
            .hint(format!("start the ken-store that wrote it, or restore a backup: {}", row.manual()))
    })
}

/// Reads a word from a column that may be NULL.
pub(super) fn optional_word<T>(
    row: &dyn Row,
    place: &'static str,
    named: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let column = place.rsplit('.').next().unwrap_or(place);
    let is_null = matches!(row.content(column.into())?, Content::Null);
    if is_null { Ok(None) } else { word(row, place, named).map(Some) }
}

/// Reads a scope from a row that contains its columns.
pub(super) fn scope(row: &dyn Row) -> Result<Scope, Error> {
    Ok(Scope {
        connector: row.get("connector")?,
        actor_id: row.get("actor")?,
        conversation_id: row.get("conversation")?,
        thread_id: row.get("thread")?,
    })
}

/// Reads a scope from a row that has none if its key is NULL.
pub(super) fn optional_scope(row: &dyn Row) -> Result<Option<Scope>, Error> {
    row.get::<Option<i64>>("scope")?.map(|_| scope(row)).transpose()
}
