//! The usage of model calls, and the reservations of running ones.

use ken_types::{Error, Timestamp};

use super::Tables;
use super::sql::{Row, first, params};

/// The usage of model calls in a scope, which is a day or a session.
impl dyn Tables + '_ {
    /// Returns everything that counts against the limits of a scope, including reservations.
    pub fn budget(&self, scope: &str) -> Result<Amount, Error> {
        let sql = "SELECT tokens, cost FROM budgets WHERE scope = ?1";
        Ok(first(self, sql, params![scope], amount)?.unwrap_or_default())
    }

    pub fn add_to_budget(&self, scope: &str, amount: Amount, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO budgets (scope, tokens, cost, updated_at) VALUES (?1, ?2, ?3, ?4)
            ON CONFLICT (scope) DO UPDATE SET tokens = budgets.tokens + ?2, cost = budgets.cost + ?3, updated_at = ?4";
        self.execute(sql, params![scope, amount.tokens, amount.cost, now])
    }

    pub fn reservation(&self, id: &str) -> Result<Option<ReservationRow>, Error> {
        first(self, "SELECT * FROM reservations WHERE id = ?1", params![id], |row| {
            Ok(ReservationRow {
                id: row.get("id")?,
                day: row.get("day")?,
                session: row.get("session")?,
                amount: amount(row)?,
                output_tokens: row.get("output_tokens")?,
            })
        })
    }

    pub fn insert_reservation(&self, row: &ReservationRow, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO reservations (id, day, session, tokens, cost, output_tokens, made_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let Amount { tokens, cost } = row.amount;
        let values = params![row.id, row.day, row.session, tokens, cost, row.output_tokens, now];
        self.execute(sql, values)
    }

    pub fn delete_reservation(&self, id: &str) -> Result<(), Error> {
        self.execute("DELETE FROM reservations WHERE id = ?1", params![id])
    }

    /// Returns the sum of the reservations of a scope that were made after a time.
    pub fn reserved(&self, scope: &str, after: Timestamp) -> Result<Amount, Error> {
        // The table contains only the reservations of running calls and of calls that a crash interrupted within the last day, so it needs
        // no index.
        let sql =
            "SELECT CAST(coalesce(sum(tokens), 0) AS bigint) AS tokens, CAST(coalesce(sum(cost), 0) AS bigint) AS cost
            FROM reservations WHERE (day = ?1 OR session = ?1) AND made_at > ?2";
        Ok(first(self, sql, params![scope, after], amount)?.unwrap_or_default())
    }

    pub fn prune_reservations(&self, before: Timestamp) -> Result<(), Error> {
        let sql = "DELETE FROM reservations WHERE made_at < ?1";
        self.execute(sql, params![before])
    }

    /// Removes usage that has not changed for this long, both before now and before the newest change of any usage: a clock that is wrong once
    /// must not remove everything.
    pub fn prune_budgets(&self, now: Timestamp, age_ms: i64) -> Result<(), Error> {
        let sql = "DELETE FROM budgets WHERE updated_at < ?1
                   AND updated_at < (SELECT max(newest.updated_at) FROM budgets AS newest) - ?2";
        self.execute(sql, params![now.plus_millis(-age_ms), age_ms])
    }
}

/// A number of tokens, and a cost in billionths of a US dollar. It is negative if it corrects a reservation that was too high.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    pub tokens: i64,
    pub cost: i64,
}

/// The reservation for a model call: the maximum that the call can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRow {
    pub id: String,
    pub day: String,
    pub session: Option<String>,
    pub amount: Amount,
    /// The part of the tokens that is reserved for the answer.
    pub output_tokens: i64,
}

fn amount(row: &dyn Row) -> Result<Amount, Error> {
    Ok(Amount { tokens: row.get("tokens")?, cost: row.get("cost")? })
}
