//! The wire protocol of ken: one JSON object per line over a Unix socket, documented in ken-wire(5). This is its only
//! implementation in ken's daemons; any program that can write a line can use it.
//!
//! A daemon declares its operations in a [`Table`] and passes it to [`serve`]. A caller uses a [`Pool`], or a [`Connection`] of its own if
//! the callee ties something to the connection (leases).
//!
//! Programs without a runtime use [`blocking::Client`] to make calls, and [`Request`], [`answer`] and [`refusal`] to answer them. They
//! disable the feature `async`.

pub mod blocking;
#[cfg(feature = "async")]
mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "async")]
mod gate;
#[cfg(feature = "async")]
mod halves;
#[cfg(feature = "async")]
mod line;
mod request;
#[cfg(feature = "async")]
mod server;
#[cfg(feature = "async")]
mod table;

#[cfg(feature = "async")]
pub use client::{CachedReply, Connection, Items, Pool};
#[cfg(feature = "async")]
pub use gate::ChangeGate;
#[cfg(feature = "async")]
pub use line::{Line, LineReader};
pub use request::{Malformed, Request, answer, refusal};
#[cfg(feature = "async")]
pub use server::{Server, serve};
#[cfg(feature = "async")]
pub use table::{ConnectionId, Context, Daemon, Table};
