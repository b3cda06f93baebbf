//! The operations of `ken-store` on the budget of model calls. A call reserves what it may use before it starts, and replaces that
//! by what it used when it has ended, so that simultaneous calls never exceed a cap together. The reservation of a call that a
//! crash interrupted stays counted; after an hour the call no longer counts as running.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::config::Budget;

crate::operations! {
    /// Reserves what a call may use. `forbidden` at `/caps` if a cap is spent; `busy` if running calls have reserved what is left of
    /// it. A known `id` gets its first answer again.
    BudgetReserve, "budget.reserve": Reserve => Reserved;
    /// Replaces a reservation by what was used. An unknown reservation is not an error.
    BudgetSettle, "budget.settle": Settle => Nothing;
    /// What was used and reserved on a day, and by a session if one is named.
    BudgetSpent, "budget.spent": OfBudget => Spent;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// Minted by the caller for this call.
    pub id: String,
    /// The instance that the call is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Tokens of the request, estimated too high rather than too low.
    pub input_tokens: u64,
    /// The most tokens of the answer, and the fewest with which the call is still worth making.
    pub output_tokens: u64,
    pub least_output_tokens: u64,
    /// The price of one token in US dollars; 0 for a free model, to which caps on cost do not apply.
    pub input_price: f64,
    pub output_price: f64,
    pub caps: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// Tokens that the answer may have.
    pub output_tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settle {
    pub id: String,
    pub tokens: u64,
    /// US dollars.
    pub cost: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfBudget {
    /// `YYYY-MM-DD`, in UTC.
    pub day: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub day: Sum,
    /// Zero if no session is named.
    pub session: Sum,
}

/// What is counted against a cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    pub tokens: u64,
    /// US dollars.
    pub cost: f64,
    /// The part of the tokens that is reserved by running calls, or by calls that a crash interrupted within the last hour.
    pub reserved_tokens: u64,
}
