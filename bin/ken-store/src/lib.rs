//! The engine of `ken-store`: all durable state of ken behind one writer with group commit and a few readers.
//!
//! An operation is a type of `ken_types::ops` with an implementation in [`ops`], over the domain in `rules` and the row verbs
//! in [`tables`]. SQL stands below [`tables::sqlite`] only, and nothing above it knows a database.

mod engine;
pub mod ops;
mod rules;
pub mod store;
pub mod tables;

pub use engine::{change, clock};
pub use rules::exchange;
pub use store::Store;

/// A connection of the wire, unique for the life of the process. Leases belong to one.
pub type ConnectionId = u64;
