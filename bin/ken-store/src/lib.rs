//! The engine of `ken-store`: it keeps all durable state of ken in one database, with one writer, which uses group commit, and a few
//! readers.
//!
//! An operation is a type in `ken_types::ops` with an implementation in [`ops`]. The implementation uses the domain rules in `rules` and
//! the functions on rows in [`tables`], where all SQL is.

mod engine;
pub mod ops;
mod rules;
pub mod store;
pub mod tables;
pub mod transfer;

pub use engine::{change, clock};
pub use rules::exchange;
pub use store::Store;

/// The id of a connection to the store, unique while the process runs. A lease belongs to one connection.
pub type ConnectionId = u64;
