//! The tests of the engine over PostgreSQL: one server for this program, and a database for each test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod blobs;
mod budget;
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
mod schema;
mod servers;
mod sessions;
mod streams;
mod submissions;
mod transcript;
mod transfer;

use std::io::Write;
use std::sync::OnceLock;

use ken_tests::{NO_POSTGRES, Postgres};

/// Returns a new database. Without a server, this ends the program, since none of its tests can run.
#[allow(clippy::exit)]
fn remote() -> Option<kit::Remote> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let Some(server) = SERVER.get_or_init(|| Postgres::start(&["full_page_writes = off"])) else {
        _ = writeln!(std::io::stderr(), "skipped: {NO_POSTGRES}: the engine is not tested over PostgreSQL");
        ken_tests::skip(NO_POSTGRES);
        std::process::exit(0)
    };
    Some(kit::Remote { server, database: server.database() })
}
