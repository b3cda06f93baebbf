//! What an instance has been through, for the model.

use ken_types::id::SubmissionId;
use ken_types::ops::store::{History, PastExchange, ReadHistory};
use rusqlite::{Connection, Row, params};

use super::fault::Done;
use super::streams::{self, AGENT};
use super::{all, count, first, knowledge, memory, time};

pub(super) const PAST: &str =
    "SELECT s.id, streams.name AS stream_name, e.text AS prompt, x.answer, e.received_at
    FROM exchanges AS x JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
    JOIN streams ON streams.stream = x.stream";

pub(super) fn read_past(row: &Row<'_>) -> rusqlite::Result<PastExchange> {
    let stream: String = row.get("stream_name")?;
    Ok(PastExchange {
        id: SubmissionId(row.get("id")?),
        instance: stream.strip_prefix(AGENT).unwrap_or(&stream).to_owned(),
        prompt: row.get("prompt")?,
        answer: row.get("answer")?,
        at: time(row, "received_at")?,
    })
}

/// The history, and what is found about the search: all of one state.
pub(super) fn read_about(connection: &Connection, args: &ReadHistory) -> Done<History> {
    let mut history = read(connection, args)?;
    if let Some(search) = &args.search {
        history.known = knowledge::search(connection, search)?.found;
        history.remembered = memory::search(connection, search)?.found;
    }
    Ok(history)
}

/// One submission of an instance runs at a time, so "before it" is all that is settled while it is not.
fn read(connection: &Connection, args: &ReadHistory) -> Done<History> {
    let Some(stream) = streams::find(connection, &[AGENT, &args.instance].concat())? else {
        return Ok(History::default());
    };
    let sql = "SELECT turns, compactions, summary, summary_after FROM instances WHERE stream = ?1";
    let found = first(connection, sql, [stream.id], |row| {
        let after: i64 = row.get("summary_after")?;
        Ok((
            count(row, "turns")?,
            count(row, "compactions")?,
            row.get("summary")?,
            after,
        ))
    })?;
    let Some((turns, compactions, summary, after)) = found else {
        return Ok(History::default());
    };
    let sql = "SELECT turn FROM exchanges JOIN submissions USING (submission) WHERE id = ?1";
    let before: Option<Option<i64>> = first(connection, sql, [args.before.as_str()], |row| row.get(0))?;
    let sql = [
        PAST,
        " WHERE x.stream = ?1 AND x.turn > ?2 AND x.turn < ?3 ORDER BY x.turn DESC LIMIT ?4",
    ]
    .concat();
    let values = params![stream.id, after, before.flatten().unwrap_or(i64::MAX), args.limit];
    let mut exchanges = all(connection, &sql, values, read_past)?;
    exchanges.reverse();
    Ok(History {
        summary,
        exchanges,
        turns,
        compactions,
        ..History::default()
    })
}
