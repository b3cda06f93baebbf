//! The engine: one writer with group commit, a few readers, the queue before each, leases, and who waits for what. It
//! knows transactions and changes, and leaves what they do to `ops`.

pub mod change;
pub mod clock;
pub(crate) mod leases;
pub(crate) mod queue;
pub(crate) mod readers;
pub(crate) mod thread;
pub(crate) mod watch;
pub(crate) mod writer;
