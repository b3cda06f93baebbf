//! The engine of `ken-store`: all durable state of ken behind one writer with group commit and a few readers.
//!
//! [`Store`] is what the daemon calls, one method for each operation of `ken_types::ops::store`. Below it everything is
//! plain threads; the database is reached through [`backend::Backend`] alone, and SQL stands in [`sqlite`] alone.

pub mod backend;
mod check;
pub mod clock;
mod cursor;
mod digest;
pub mod exchange;
mod leases;
mod queue;
mod readers;
pub mod sqlite;
pub mod store;
mod terms;
mod title;
mod watch;
mod writer;

pub use store::Store;

/// A connection of the wire, unique for the life of the process. Leases belong to one.
pub type ConnectionId = u64;
