//! Streams: those of agents and runs, the stream of changes in the system, and those of other programs below /streams.

mod cursor;
pub(crate) mod follow;
mod frame;
mod live_readers;
pub(crate) mod page;
mod piece;
pub(crate) mod public;
pub(crate) mod read;
mod reading;
mod sse;
pub(crate) mod subject;
