//! Tests of the engine with a real database file. `postgres.rs` runs the same tests with a server. The tests control its clock.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod blobs;
mod budget;
mod files;
mod governing;
mod keys;
mod kit;
mod knowledge;
mod leases;
mod limits;
mod messenger;
mod model;
mod public;
mod purges;
mod runs;
mod schedules;
mod sessions;
mod streams;
mod submissions;
mod transcript;

/// This program runs the tests with a file.
fn remote() -> Option<kit::Remote> {
    None
}
