//! The budget of model calls. There is only one writer, so two calls never reserve the same tokens.

use ken_types::config::dollars_problem;
use ken_types::ops::Nothing;
use ken_types::ops::budget::*;
use ken_types::{Code, Error, Timestamp};

use crate::engine::change::Change;
use crate::ops::{Read, Write};
use crate::rules::budget::{Exceeded, billionths, day_scope, dollars, output, session_scope};
use crate::tables::{Amount, ReservationRow, Tables};

/// How long the usage of a session is kept after its last call, in milliseconds.
const RETENTION_MS: i64 = 90 * 24 * 3_600 * 1_000;
/// The age in milliseconds after which a reservation no longer counts as that of a running call. No call takes that long, so a crash must
/// have interrupted it. What it reserved still counts as used.
const MAX_CALL_MS: i64 = 3_600 * 1_000;
/// How long a reservation is kept if it is never settled, in milliseconds.
const MAX_UNSETTLED_MS: i64 = 24 * 3_600 * 1_000;
/// The time after which a caller can try again if running calls have reserved everything that is left, in milliseconds. It is part of the
/// error.
const RETRY_MS: u64 = 1_000;

impl std::ops::Sub for Amount {
    type Output = Amount;

    fn sub(self, other: Amount) -> Amount {
        Amount { tokens: self.tokens - other.tokens, cost: self.cost - other.cost }
    }
}

/// Adds an amount to the usage of the day of a call and to that of its session.
fn count(tables: &dyn Tables, row: &ReservationRow, amount: Amount, change: &Change) -> Result<(), Error> {
    for scope in std::iter::once(&row.day).chain(&row.session) {
        tables.add_to_budget(scope, amount, change.now)?;
    }
    Ok(())
}

impl Write for BudgetReserve {
    fn check(args: &Reserve) -> Result<(), Error> {
        let prices = [("input_price", args.input_price), ("output_price", args.output_price)];
        let prices = prices.into_iter().filter_map(|(name, price)| {
            let problem = dollars_problem(price)?;
            Some((format!("/{name}"), problem))
        });
        let caps = args.caps.problems().into_iter();
        let mut problems = prices.chain(caps.map(|(name, problem)| (format!("/caps/{name}"), problem)));
        match problems.next() {
            Some((at, problem)) => Err(Error::invalid(at, problem)),
            None => Ok(()),
        }
    }

    fn run(tables: &dyn Tables, args: &Reserve, change: &mut Change) -> Result<Reserved, Error> {
        if let Some(known) = tables.reservation(&args.id)? {
            return Ok(Reserved { output_tokens: known.output_tokens.cast_unsigned() });
        }
        tables.prune_reservations(change.now.plus_millis(-MAX_UNSETTLED_MS))?;
        let day = day_scope(&change.now.day());
        let session = args.session.as_deref().map(session_scope);
        let of_day = tables.budget(&day)?;
        let of_session = match &session {
            Some(session) => tables.budget(session)?,
            None => Amount::default(),
        };
        if of_day == Amount::default() {
            tables.prune_budgets(change.now, RETENTION_MS)?;
        }
        let granted = match output(args, of_day, of_session) {
            Ok(granted) => granted,
            Err(Exceeded(why)) => {
                let since = change.now.plus_millis(-MAX_CALL_MS);
                let settled = |scope: &str, used: Amount| Ok::<_, Error>(used - tables.reserved(scope, since)?);
                let of_session = match &session {
                    Some(session) => settled(session, of_session)?,
                    None => of_session,
                };
                return Err(match output(args, settled(&day, of_day)?, of_session) {
                    Ok(_) => Error::busy(format!("calls under way have reserved the rest: {why}"), RETRY_MS),
                    Err(Exceeded(_)) => Error::new(Code::Forbidden, why)
                        .at("/caps")
                        .hint("`ken usage` shows it, [model.budget] of ken.toml sets it; a day ends at 00:00 UTC"),
                });
            }
        };
        let input = i64::try_from(args.input_tokens).unwrap_or(i64::MAX);
        let cost = args.input_price * args.input_tokens as f64 + args.output_price * granted as f64;
        let row = ReservationRow {
            id: args.id.clone(),
            day,
            session,
            amount: Amount { tokens: input.saturating_add(granted), cost: billionths(cost) },
            output_tokens: granted,
        };
        tables.insert_reservation(&row, change.now)?;
        count(tables, &row, row.amount, change)?;
        Ok(Reserved { output_tokens: granted.cast_unsigned() })
    }
}

impl Write for BudgetSettle {
    fn run(tables: &dyn Tables, args: &Settle, change: &mut Change) -> Result<Nothing, Error> {
        if let Some(row) = tables.reservation(&args.id)? {
            let used = Amount { tokens: i64::try_from(args.tokens).unwrap_or(i64::MAX), cost: billionths(args.cost) };
            count(tables, &row, used - row.amount, change)?;
            tables.delete_reservation(&row.id)?;
        }
        Ok(Nothing {})
    }
}

impl Read for BudgetSpent {
    fn run(tables: &dyn Tables, args: &OfBudget) -> Result<Spent, Error> {
        let since = Timestamp::now().plus_millis(-MAX_CALL_MS);
        let sum = |scope: String| -> Result<Sum, Error> {
            let used = tables.budget(&scope)?;
            Ok(Sum {
                tokens: u64::try_from(used.tokens).unwrap_or_default(),
                cost: dollars(used.cost),
                reserved_tokens: u64::try_from(tables.reserved(&scope, since)?.tokens).unwrap_or_default(),
            })
        };
        Ok(Spent {
            day: sum(day_scope(&args.day))?,
            session: match &args.session {
                Some(session) => sum(session_scope(session))?,
                None => Sum::default(),
            },
        })
    }
}
