//! The engine: one writer with group commit, a few readers, the queues in front of them, the leases, and the calls that wait. It runs
//! transactions and changes; `ops` decides what they contain.

pub mod change;
pub mod clock;
mod elsewhere;
pub(crate) mod leases;
pub(crate) mod queue;
pub(crate) mod readers;
mod silence;
pub(crate) mod thread;
pub(crate) mod watch;
pub(crate) mod writer;
