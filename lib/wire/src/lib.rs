//! The wire of ken: one JSON object per line over a Unix socket, documented in ken-wire(5). This is its only
//! implementation in ken's daemons; anything that can write a line can speak it.
//!
//! A daemon declares its operations in a [`Table`] and hands it to [`serve`]. A caller uses a [`Pool`], or a
//! [`Connection`] of its own where the callee ties something to it (leases).

mod client;
#[cfg(feature = "conformance")]
pub mod conformance;
mod gate;
mod halves;
mod line;
mod request;
mod server;
mod table;

pub use client::{CachedReply, Connection, Items, Pool};
pub use gate::Gate;
pub use line::{Line, LineReader};
pub use server::{Server, serve};
pub use table::{ConnectionId, Context, Daemon, Table};
