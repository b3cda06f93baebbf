//! Idempotency keys and the calls of slots.

use ken_types::ops::store::{BeginKey, KeptAnswer, KeyState};
use ken_types::{Error, Timestamp};

use super::{Database, Row, count, first, params, rows, run, stored, time, to_json};
use crate::tables::{KeyRow, Keys, Purges};

/// The stored status of a key whose answer was about a session that was deleted for good. Such a key has no answer.
const GONE: u16 = 410;
/// The stored status of a key whose last request did not reach the store. Such a key has no answer.
const NOT_REACHED: u16 = 503;

fn key(row: &Row) -> Result<KeyRow, Error> {
    let state = KeyState { seed: row.get("seed")?, at: time(row, "at")?, answer: answer(row)? };
    Ok(KeyRow {
        body: row.get("body")?,
        is_free: state.answer.is_none() && row.get::<Option<u16>>("status")? == Some(NOT_REACHED),
        state,
    })
}

fn answer(row: &Row) -> Result<Option<KeptAnswer>, Error> {
    let Some(body) = row.get("answer")? else {
        return Ok(None);
    };
    Ok(Some(KeptAnswer { status: row.get("status")?, body, headers: stored(row, "headers")?.unwrap_or_default() }))
}

fn gone() -> Error {
    Error::gone("the request with this idempotency key was about a session that was deleted for good")
}

impl Keys for Database {
    fn key(&self, name: &str, oldest: Timestamp) -> Result<Option<KeyRow>, Error> {
        let sql = "SELECT body, seed, at, status, answer, headers FROM keys WHERE key = $1 AND at >= $2";
        let found =
            first(self, sql, params![name, oldest.millis()], |row| Ok((key(row)?, row.get::<Option<u16>>("status")?)))?;
        match found {
            Some((key, Some(GONE))) if key.state.answer.is_none() => Err(gone()),
            // The pass that removes such answers has not come so far.
            Some((KeyRow { state: KeyState { answer: Some(answer), .. }, .. }, _))
                if self.names_purged(&answer.body, oldest)? =>
            {
                Err(gone())
            }
            found => Ok(found.map(|(key, _)| key)),
        }
    }

    fn put_key(&self, key: &BeginKey) -> Result<(), Error> {
        let sql = "INSERT INTO keys (key, body, seed, at) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (key) DO UPDATE SET body = $2, seed = $3, at = $4, status = NULL, answer = NULL, headers = NULL";
        run(self, sql, params![key.key, key.body, key.seed, key.at.millis()]).map(drop)
    }

    fn set_key_free(&self, key: &str, is_free: bool) -> Result<(), Error> {
        let sql = "UPDATE keys SET status = $2 WHERE key = $1 AND answer IS NULL";
        run(self, sql, params![key, is_free.then_some(NOT_REACHED)]).map(drop)
    }

    fn purge_key(&self, key: &str) -> Result<(), Error> {
        run(self, "UPDATE keys SET status = $2 WHERE key = $1 AND answer IS NULL", params![key, GONE]).map(drop)
    }

    fn answer_key(&self, key: &str, answer: &KeptAnswer) -> Result<(), Error> {
        let sql = "UPDATE keys SET status = $2, answer = $3, headers = $4 WHERE key = $1 AND answer IS NULL AND status IS DISTINCT FROM 410";
        let values = params![key, answer.status, answer.body, to_json(&answer.headers)?];
        run(self, sql, values).map(drop)
    }

    fn forget_key(&self, key: &str) -> Result<(), Error> {
        run(self, "DELETE FROM keys WHERE key = $1 AND answer IS NULL", params![key]).map(drop)
    }

    fn prune_keys(&self, oldest: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE at < $1 ORDER BY at LIMIT $2)";
        run(self, sql, params![oldest.millis(), rows(max)])
    }

    fn call(&self, slot: &str) -> Result<Option<(u64, String)>, Error> {
        let sql = "SELECT number, answer FROM calls WHERE slot = $1";
        first(self, sql, params![slot], |row| Ok((count(row, "number")?, row.get("answer")?)))
    }

    fn put_call(&self, slot: &str, number: u64, answer: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO calls (slot, number, answer, at) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (slot) DO UPDATE SET number = excluded.number, answer = excluded.answer, at = excluded.at";
        run(self, sql, params![slot, number.cast_signed(), answer, now.millis()]).map(drop)
    }

    fn prune_calls(&self, oldest: Timestamp) -> Result<(), Error> {
        run(self, "DELETE FROM calls WHERE at < $1", params![oldest.millis()]).map(drop)
    }
}
