//! Statements and rules: normal form, negation, derivation, proofs and contradictions. There is no I/O, clock or hidden
//! state, so equal theories give equal closures, step by step.
//!
//! A [`Theory`] contains rules over statements. [`Theory::derive`] computes everything that follows from a set of given
//! statements by modus ponens (`p1 … pn -> c`) and modus tollens (`not c` and all premises but `pi` give `not pi`).
//! Without variables, this takes time linear in the size of the rules (Dowling and Gallier, "Linear-time algorithms for
//! testing the satisfiability of propositional Horn formulae", 1984). Rules with variables (`?x`) are evaluated as joins
//! with indexes, semi-naively. The closure is computed in rounds, so the first derivation of a statement has the least
//! depth. If each step reduces the confidence, this derivation has the highest one.

mod closure;
mod engine;
mod error;
mod grouped;
mod interner;
mod join;
mod literal;
mod opposite;
mod past;
mod pattern;
mod statement;
mod theory;

pub use closure::{Closure, Contradiction, Inference, Step};
pub use error::{Exhausted, Invalid};
pub use grouped::Grouped;
pub use interner::Interner;
pub use join::MAX_VARIABLE_PREMISES;
pub use literal::{Literal, RuleId};
pub use pattern::MAX_VARIABLES;
pub use statement::{Statement, normalise};
pub use theory::{Theory, check_rule, check_statement};

/// The maximum number of statements that [`Theory::derive`] derives if there are rules with variables.
pub const MAX_DERIVED: usize = 1_000_000;

/// The maximum number of premises in all steps together. It equals the number of bytes in the largest input. Only a
/// contradicted rule with very many premises comes close to it, because each premise is then refuted by all the others.
pub const MAX_PREMISES: usize = 8 * 1024 * 1024;

/// The maximum work of all joins. The unit is the visit of a tuple. Other operations count by the time that they take
/// compared with it.
pub const MAX_WORK: usize = 30_000_000;
