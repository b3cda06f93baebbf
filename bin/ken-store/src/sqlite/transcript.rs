//! Transcript pages. A settled exchange is stored as it is shown; only one that runs is made up while reading.

use ken_types::Offset;
use ken_types::ops::store::{ReadTranscript, State};
use rusqlite::{Connection, params};
use serde_json::value::RawValue;

use super::fault::{Done, Fault};
use super::streams::{self, Stream};
use super::submissions::{self, Submission};
use super::{first, sessions, time};
use crate::cursor::List;
use crate::exchange::{Exchange, Fold, Prompt};

/// A settled exchange.
pub(super) struct Settled {
    pub(super) body: String,
    pub(super) answer: Option<String>,
}

/// What a submission that has just been settled looks like from now on.
pub(super) fn settled(
    connection: &Connection,
    found: &Submission,
    stream: &Stream,
    state: State,
) -> Done<Settled> {
    let mut exchange = fold(connection, found, stream)?;
    exchange.status = state;
    exchange.close();
    Ok(Settled {
        body: serde_json::to_string(&exchange)?,
        answer: exchange.assistant.map(|assistant| assistant.text),
    })
}

fn fold(connection: &Connection, found: &Submission, stream: &Stream) -> Done<Exchange> {
    let sql = "SELECT id, text, received_at FROM events WHERE event = ?1";
    let prompt = first(connection, sql, [found.event], |row| {
        Ok(Prompt::visible(
            row.get("id")?,
            row.get("text")?,
            time(row, "received_at")?,
        ))
    })?;
    let mut fold = Fold::of(found.id.clone());
    // What was never claimed has no events but its end.
    if found.lease > 0 {
        streams::scan(
            connection,
            stream.id,
            found.recorded_from,
            stream.entries,
            |event| {
                fold.see(event);
                Ok(true)
            },
        )?;
    }
    Ok(fold.exchange(found.state, prompt.filter(|_| !found.hidden)))
}

pub(super) fn page(connection: &Connection, args: &ReadTranscript) -> Done<Box<RawValue>> {
    let session = sessions::owned(connection, &args.id, &args.scope)?;
    let stream = streams::by_id(connection, session.stream)?;
    let list = List::named("transcript", &[Some(args.id.as_str())]);
    let [before] = match &args.before {
        Some(cursor) => list.position(cursor, "?before")?,
        None => [i64::MAX],
    };
    let mut found = exchanges(connection, &stream, before, args.limit + 1)?;
    let has_older = found.len() > args.limit as usize;
    found.truncate(args.limit as usize);
    let cursor = found
        .last()
        .filter(|_| has_older)
        .map(|(oldest, _)| list.cursor([*oldest]));
    found.reverse();
    let next = next_offset(connection, &stream)?;
    let up_to_date = next == stream.end();
    let text = render(
        &session,
        (next, up_to_date),
        &found,
        args.limit,
        cursor.as_deref(),
    )?;
    Ok(RawValue::from_string(text)?)
}

/// The newest exchanges before a place, newest first, each with its place.
fn exchanges(connection: &Connection, stream: &Stream, before: i64, limit: u32) -> Done<Vec<(i64, String)>> {
    let sql = "SELECT submission, body FROM submissions AS s LEFT JOIN exchanges AS e USING (submission)
               WHERE s.kind = 'prompt' AND s.stream = ?1 AND submission < ?2 ORDER BY submission DESC LIMIT ?3";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(params![stream.id, before, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let submission: i64 = row.get("submission")?;
        let body = match row.get("body")? {
            Some(body) => body,
            None => running(connection, submission, stream)?,
        };
        found.push((submission, body));
    }
    Ok(found)
}

/// An exchange that is not settled, with those activities that are.
fn running(connection: &Connection, submission: i64, stream: &Stream) -> Done<String> {
    let sql = "SELECT * FROM submissions WHERE submission = ?1";
    let found = first(connection, sql, [submission], submissions::read)?;
    let found = found.ok_or(Fault::Sql(rusqlite::Error::QueryReturnedNoRows))?;
    let mut exchange = fold(connection, &found, stream)?;
    exchange.drop_running();
    Ok(serde_json::to_string(&exchange)?)
}

/// Where a reader of the transcript goes on in the stream: at its end, or before the first event of a turn in flight, so
/// that the reader sees that turn from its beginning.
fn next_offset(connection: &Connection, stream: &Stream) -> Done<Offset> {
    let sql = "SELECT min(recorded_from) AS least FROM submissions
               WHERE live = 1 AND stream = ?1 AND kind = 'prompt' AND lease > 0";
    let least = first(connection, sql, [stream.id], |row| {
        row.get::<_, Option<i64>>("least")
    })?;
    let in_flight = least.flatten().map(i64::cast_unsigned);
    Ok(in_flight.map_or_else(|| stream.end(), Offset::end))
}

/// The page as it is sent, put together from what is JSON already.
fn render(
    session: &sessions::Found,
    (next, up_to_date): (Offset, bool),
    exchanges: &[(i64, String)],
    limit: u32,
    cursor: Option<&str>,
) -> Done<String> {
    let length: usize = exchanges.iter().map(|(_, body)| body.len() + 1).sum();
    let mut text = String::with_capacity(length + 512);
    text.push_str("{\"session\":{\"id\":");
    text.push_str(&serde_json::to_string(&session.id)?);
    if let Some(name) = &session.name {
        text.push_str(",\"title\":");
        text.push_str(&serde_json::to_string(name)?);
    }
    text.push_str("},\"exchanges\":[");
    for (number, (_, body)) in exchanges.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push_str(body);
    }
    let has_older = cursor.is_some();
    text.push_str(&format!(
        "],\"stream\":{{\"nextOffset\":\"{next}\",\"upToDate\":{up_to_date}}},\"page\":{{\"limit\":{limit},\"hasOlder\":{has_older}"
    ));
    if let Some(cursor) = cursor {
        text.push_str(",\"before\":");
        text.push_str(&serde_json::to_string(cursor)?);
    }
    text.push_str("}}");
    Ok(text)
}
