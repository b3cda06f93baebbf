//! The rules of the domain. They use neither tables nor I/O: each function decides from its arguments alone.

pub(crate) mod admission;
pub(crate) mod approvals;
pub(crate) mod budget;
pub(crate) mod check;
pub(crate) mod cursor;
pub(crate) mod digest;
pub mod exchange;
pub(crate) mod forks;
pub(crate) mod named_sessions;
pub(crate) mod page;
pub(crate) mod producers;
pub(crate) mod public;
pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod schedules;
pub(crate) mod scope_words;
pub(crate) mod search;
pub(crate) mod stream_names;
pub(crate) mod telemetry;
pub(crate) mod terms;
pub(crate) mod title;
pub(crate) mod transcript;
pub(crate) mod vectors;
