//! The engine of `ken-store`: all durable state of ken behind one writer with group commit and a few readers.
//!
//! An operation is a type of `ken_types::ops` with an implementation in [`ops`], which uses the domain rules in `rules` and the row verbs
//! in [`tables`]. SQL appears only below [`tables::sqlite`], and nothing above it knows a database.

mod engine;
pub mod ops;
mod rules;
pub mod store;
pub mod tables;

pub use engine::{change, clock};
pub use rules::exchange;
pub use store::Store;

/// The id of a connection of the wire, unique within the life of the process. A lease belongs to one connection.
pub type ConnectionId = u64;
