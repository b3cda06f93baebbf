//! Idempotency keys: the first answer, kept for a day.

use ken_types::limits::KEY_MS;
use ken_types::ops::store::{BeginKey, FinishKey, KeptAnswer, KeyEnd, KeyState};
use ken_types::{Error, Timestamp};
use rusqlite::{Connection, Row, params};

use super::fault::Done;
use super::{first, rows, run, time};

/// Keys that one slice of background work forgets.
const SLICE: usize = 200;

/// The status of a key whose last request has not reached the store. It has no answer.
const NOT_REACHED: u16 = 503;

struct Known {
    body: String,
    /// Whether another body may take the key over.
    is_free: bool,
    state: KeyState,
}

fn read_known(row: &Row<'_>) -> rusqlite::Result<Known> {
    let state = KeyState {
        seed: row.get("seed")?,
        at: time(row, "at")?,
        answer: read_answer(row)?,
    };
    Ok(Known {
        body: row.get("body")?,
        is_free: state.answer.is_none() && row.get::<_, Option<u16>>("status")? == Some(NOT_REACHED),
        state,
    })
}

fn read_answer(row: &Row<'_>) -> rusqlite::Result<Option<KeptAnswer>> {
    let Some(body) = row.get("answer")? else {
        return Ok(None);
    };
    let headers: Option<String> = row.get("headers")?;
    let headers = headers.map(|headers| serde_json::from_str(&headers));
    Ok(Some(KeptAnswer {
        status: row.get("status")?,
        body,
        headers: headers.and_then(Result::ok).unwrap_or_default(),
    }))
}

fn oldest(now: Timestamp) -> i64 {
    now.plus_millis(-KEY_MS).millis()
}

pub(super) fn begin(connection: &Connection, args: &BeginKey, now: Timestamp) -> Done<KeyState> {
    let sql = "SELECT body, seed, at, status, answer, headers FROM keys WHERE key = ?1 AND at >= ?2";
    match first(connection, sql, params![args.key, oldest(now)], read_known)? {
        Some(known) if known.body == args.body => {
            if known.is_free {
                let sql = "UPDATE keys SET status = NULL WHERE key = ?1";
                run(connection, sql, [&args.key])?;
            }
            return Ok(known.state);
        }
        Some(known) if !known.is_free => {
            return Err(Error::conflict("the idempotency key stands for another request").into());
        }
        _ => {}
    }
    let sql = "INSERT OR REPLACE INTO keys (key, body, seed, at) VALUES (?1, ?2, ?3, ?4)";
    run(
        connection,
        sql,
        params![args.key, args.body, args.seed, args.at.millis()],
    )?;
    Ok(KeyState {
        seed: args.seed.clone(),
        at: args.at,
        answer: None,
    })
}

/// The first answer stays.
pub(super) fn finish(connection: &Connection, args: &FinishKey) -> Done<()> {
    match &args.end {
        KeyEnd::Answered(answer) => {
            let sql =
                "UPDATE keys SET status = ?2, answer = ?3, headers = ?4 WHERE key = ?1 AND answer IS NULL";
            let headers = serde_json::to_string(&answer.headers)?;
            run(
                connection,
                sql,
                params![args.key, answer.status, answer.body, headers],
            )?;
        }
        KeyEnd::Refused => {
            run(
                connection,
                "DELETE FROM keys WHERE key = ?1 AND answer IS NULL",
                [&args.key],
            )?;
        }
        KeyEnd::NotReached => {
            let sql = "UPDATE keys SET status = ?2 WHERE key = ?1 AND answer IS NULL";
            run(connection, sql, params![args.key, NOT_REACHED])?;
        }
    }
    Ok(())
}

/// Forgets some of the keys that are too old. True when there may be more.
pub(super) fn prune(connection: &Connection, now: Timestamp) -> Done<bool> {
    let sql = "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE at < ?1 ORDER BY at LIMIT ?2)";
    Ok(run(connection, sql, params![oldest(now), rows(SLICE)])? == SLICE)
}
