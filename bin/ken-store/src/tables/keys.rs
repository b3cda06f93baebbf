//! Idempotency keys and the calls of slots.

use ken_types::ops::store::{BeginKey, KeptAnswer, KeyState};
use ken_types::{Error, Timestamp};

use super::Tables;
use super::columns::{stored, to_json};
use super::sql::{Row, first, params};

#[derive(Debug, Clone)]
pub struct KeyRow {
    /// The digest of the request's body.
    pub body: String,
    /// Whether the last request with this key has not reached the store. A request with another body can then use the key.
    pub is_free: bool,
    pub state: KeyState,
}

impl dyn Tables + '_ {
    /// Returns a key, unless it is older than `oldest`. Fails with `gone` if its answer was about a session that was deleted for good.
    pub fn key(&self, name: &str, oldest: Timestamp) -> Result<Option<KeyRow>, Error> {
        let sql = "SELECT body, seed, at, status, answer, headers FROM keys WHERE key = ?1 AND at >= ?2";
        let found = first(self, sql, params![name, oldest], |row| Ok((key(row)?, row.get::<Option<u16>>("status")?)))?;
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

    pub fn put_key(&self, key: &BeginKey) -> Result<(), Error> {
        let sql = "INSERT INTO keys (key, body, seed, at) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (key) DO UPDATE SET body = ?2, seed = ?3, at = ?4, status = NULL, answer = NULL, headers = NULL";
        self.execute(sql, params![key.key, key.body, key.seed, key.at])
    }

    /// Marks a key without an answer as free or as in use.
    pub fn set_key_free(&self, key: &str, is_free: bool) -> Result<(), Error> {
        let sql = "UPDATE keys SET status = ?2 WHERE key = ?1 AND answer IS NULL";
        self.execute(sql, params![key, is_free.then_some(NOT_REACHED)])
    }

    /// Marks a key without an answer as one whose answer was about a session that was deleted for good.
    pub fn purge_key(&self, key: &str) -> Result<(), Error> {
        self.execute("UPDATE keys SET status = ?2 WHERE key = ?1 AND answer IS NULL", params![key, GONE])
    }

    /// Stores the answer of a key, unless it has one.
    pub fn answer_key(&self, key: &str, answer: &KeptAnswer) -> Result<(), Error> {
        let sql = "UPDATE keys SET status = ?2, answer = ?3, headers = ?4 WHERE key = ?1 AND answer IS NULL AND status IS DISTINCT FROM 410";
        let values = params![key, answer.status, answer.body, to_json(&answer.headers)?];
        self.execute(sql, values)
    }

    /// Deletes a key, unless it has an answer.
    pub fn forget_key(&self, key: &str) -> Result<(), Error> {
        self.execute("DELETE FROM keys WHERE key = ?1 AND answer IS NULL", params![key])
    }

    /// Deletes at most `max` keys that are older than `oldest`. Returns how many were deleted.
    pub fn prune_keys(&self, oldest: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE at < ?1 ORDER BY at LIMIT ?2)";
        self.changed_rows(sql, params![oldest, max])
    }

    /// Returns the number and the answer of the last call of a slot.
    pub fn call(&self, slot: &str) -> Result<Option<(u64, String)>, Error> {
        let sql = "SELECT number, answer FROM calls WHERE slot = ?1";
        first(self, sql, params![slot], |row| Ok((row.get("number")?, row.get("answer")?)))
    }

    pub fn put_call(&self, slot: &str, number: u64, answer: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO calls (slot, number, answer, at) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (slot) DO UPDATE SET number = excluded.number, answer = excluded.answer, at = excluded.at";
        self.execute(sql, params![slot, number, answer, now])
    }

    pub fn prune_calls(&self, oldest: Timestamp) -> Result<(), Error> {
        self.execute("DELETE FROM calls WHERE at < ?1", params![oldest])
    }
}

/// The stored status of a key whose answer was about a session that was deleted for good. Such a key has no answer.
const GONE: u16 = 410;

/// The stored status of a key whose last request did not reach the store. Such a key has no answer.
const NOT_REACHED: u16 = 503;

fn key(row: &dyn Row) -> Result<KeyRow, Error> {
    let state = KeyState { seed: row.get("seed")?, at: row.get("at")?, answer: answer(row)? };
    Ok(KeyRow {
        body: row.get("body")?,
        is_free: state.answer.is_none() && row.get::<Option<u16>>("status")? == Some(NOT_REACHED),
        state,
    })
}

fn answer(row: &dyn Row) -> Result<Option<KeptAnswer>, Error> {
    let Some(body) = row.get("answer")? else {
        return Ok(None);
    };
    Ok(Some(KeptAnswer { status: row.get("status")?, body, headers: stored(row, "headers")?.unwrap_or_default() }))
}

fn gone() -> Error {
    Error::gone("the request with this idempotency key was about a session that was deleted for good")
}
