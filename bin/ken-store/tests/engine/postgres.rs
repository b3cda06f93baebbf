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

/// The server. Without one, this ends the program, since none of its tests can run.
#[allow(clippy::exit)]
fn server() -> &'static Postgres {
    static SERVER: OnceLock<Option<Postgres>> = OnceLock::new();
    SERVER.get_or_init(|| Postgres::start(&["full_page_writes=off"])).as_ref().unwrap_or_else(|| {
        _ = writeln!(std::io::stderr(), "skipped: {NO_POSTGRES}: the engine is not tested over PostgreSQL");
        std::process::exit(0)
    })
}

/// Returns a new database with the tables of ken.
fn remote() -> Option<kit::Remote> {
    Some(remote_on(server().copy_of(with_tables())))
}

/// Returns a new database with nothing in it.
fn empty() -> kit::Remote {
    remote_on(server().database())
}

fn remote_on(database: String) -> kit::Remote {
    let server = server();
    let url = match pooler(server) {
        Some(pooler) => pooler.url(&database),
        None => server.url(&database),
    };
    kit::Remote { server, database, url }
}

/// Returns the name of a database in which a store has made its tables. To copy them takes a fraction of the time.
fn with_tables() -> &'static str {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let remote = empty();
        let (database, server) = (remote.database.clone(), remote.server);
        drop(kit::Kit::in_place(kit::at(kit::START), Some(remote)));
        server.sql(&database, "DELETE FROM ken.hosts");
        let connected = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
        ken_tests::until("nobody is connected", || server.sql("postgres", &connected) == "0");
        database
    })
}

/// Returns a pooler before the server, if the stores have to use one.
fn pooler(server: &Postgres) -> Option<&'static Pooler> {
    static POOLER: OnceLock<Option<Pooler>> = OnceLock::new();
    std::env::var_os("KEN_POOLER")?;
    POOLER.get_or_init(|| Some(Pooler::start(server).expect("pgbouncer is installed"))).as_ref()
}
