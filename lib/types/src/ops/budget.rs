//! The operations of `ken-store` on the budget of model calls. Before a call starts, it reserves the most that it may
//! use. When it has ended, its actual use replaces the reservation. In this way, simultaneous calls never exceed a
//! limit together. If a crash interrupts a call, its reservation continues to count as used; after an hour the call no
//! longer counts as running.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::config::Budget;

crate::operations! {
    /// Reserves what a call may use. `forbidden` at `/caps` if a limit is used up; `busy` if running calls have
    /// reserved the rest of it. If `id` is known, the first reply is repeated.
    BudgetReserve, "budget.reserve": Reserve => Reserved;
    /// Replaces a reservation by what the call really used. An unknown reservation is not an error.
    BudgetSettle, "budget.settle": Settle => Nothing;
    /// Returns what was used and reserved on a day, and by a session if one is given.
    BudgetSpent, "budget.spent": OfBudget => Spent;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// The id of the reservation, created by the caller.
    pub id: String,
    /// The instance that the call is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The tokens of the request. The estimate should be too high rather than too low.
    pub input_tokens: u64,
    /// The maximum number of tokens of the answer, and the minimum with which the call is still worth making.
    pub output_tokens: u64,
    pub least_output_tokens: u64,
    /// The price of one token in US dollars. 0 for a free model, to which limits on cost do not apply.
    pub input_price: f64,
    pub output_price: f64,
    pub caps: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// The number of tokens that the answer may have.
    pub output_tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    pub id: String,
    pub tokens: u64,
    /// The cost in US dollars.
    pub cost: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfBudget {
    /// The day, `YYYY-MM-DD`, in UTC.
    pub day: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub day: Sum,
    /// The use by the session. Zero if the request names no session.
    pub session: Sum,
}

/// An amount of use that counts against a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    pub tokens: u64,
    /// The cost in US dollars.
    pub cost: f64,
    /// The part of the tokens that is reserved by running calls, or by calls that a crash interrupted within the last hour.
    pub reserved_tokens: u64,
}
