//! The tests of the engine over PostgreSQL: one server for this program, and a database for each test. With `KEN_POOLER=1` the stores reach
//! it through pgbouncer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod blobs;
mod budget;
mod governing;
mod hosts;
mod keys;
mod kit;
mod knowledge;
mod leases;
mod limits;
mod messenger;
mod model;
mod pipeline;
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

use ken_tests::{NO_POSTGRES, Pooler, Postgres};

/// Returns a new database. Without a server, this ends the program, since none of its tests can run.
#[allow(clippy::exit)]
fn remote() -> Option<kit::Remote> {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    let Some(server) = SERVER.get_or_init(|| Postgres::start(&["full_page_writes=off"])) else {
        _ = writeln!(std::io::stderr(), "skipped: {NO_POSTGRES}: the engine is not tested over PostgreSQL");
        std::process::exit(0)
    };
    let database = server.database();
    let url = match pooler(server) {
        Some(pooler) => pooler.url(&database),
        None => server.url(&database),
    };
    Some(kit::Remote { server, database, url })
}

/// Returns a pooler before the server, if the stores have to use one.
fn pooler(server: &Postgres) -> Option<&'static Pooler> {
    static POOLER: OnceLock<Option<Pooler>> = OnceLock::new();
    std::env::var_os("KEN_POOLER")?;
    POOLER.get_or_init(|| Some(Pooler::start(server).expect("pgbouncer is installed"))).as_ref()
}
