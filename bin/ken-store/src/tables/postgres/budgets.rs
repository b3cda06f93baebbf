//! The usage of model calls, and the reservations of running ones.

use ken_types::{Error, Timestamp};

use super::{Database, Row, first, params, run};
use crate::tables::{Amount, Budgets, ReservationRow};

fn amount(row: &Row) -> Result<Amount, Error> {
    Ok(Amount { tokens: row.get("tokens")?, cost: row.get("cost")? })
}

impl Budgets for Database {
    fn budget(&self, scope: &str) -> Result<Amount, Error> {
        let sql = "SELECT tokens, cost FROM budgets WHERE scope = $1";
        Ok(first(self, sql, params![scope], amount)?.unwrap_or_default())
    }

    fn add_to_budget(&self, scope: &str, amount: Amount, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO budgets (scope, tokens, cost, updated_at) VALUES ($1, $2, $3, $4)
            ON CONFLICT (scope) DO UPDATE SET tokens = budgets.tokens + $2, cost = budgets.cost + $3, updated_at = $4";
        run(self, sql, params![scope, amount.tokens, amount.cost, now.millis()]).map(drop)
    }

    fn reservation(&self, id: &str) -> Result<Option<ReservationRow>, Error> {
        first(self, "SELECT * FROM reservations WHERE id = $1", params![id], |row| {
            Ok(ReservationRow {
                id: row.get("id")?,
                day: row.get("day")?,
                session: row.get("session")?,
                amount: amount(row)?,
                output_tokens: row.get("output_tokens")?,
            })
        })
    }

    fn insert_reservation(&self, row: &ReservationRow, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO reservations (id, day, session, tokens, cost, output_tokens, made_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7)";
        let Amount { tokens, cost } = row.amount;
        let values = params![row.id, row.day, row.session, tokens, cost, row.output_tokens, now.millis()];
        run(self, sql, values).map(drop)
    }

    fn delete_reservation(&self, id: &str) -> Result<(), Error> {
        run(self, "DELETE FROM reservations WHERE id = $1", params![id]).map(drop)
    }

    fn reserved(&self, scope: &str, after: Timestamp) -> Result<Amount, Error> {
        // The table contains only the reservations of running calls and of calls that a crash interrupted within the last day, so it needs
        // no index.
        let sql = "SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost), 0)::bigint AS cost
            FROM reservations WHERE (day = $1 OR session = $1) AND made_at > $2";
        Ok(first(self, sql, params![scope, after.millis()], amount)?.unwrap_or_default())
    }

    fn prune_reservations(&self, before: Timestamp) -> Result<(), Error> {
        let sql = "DELETE FROM reservations WHERE made_at < $1";
        run(self, sql, params![before.millis()]).map(drop)
    }

    fn prune_budgets(&self, before: Timestamp) -> Result<(), Error> {
        let sql = "DELETE FROM budgets WHERE updated_at < $1";
        run(self, sql, params![before.millis()]).map(drop)
    }
}
