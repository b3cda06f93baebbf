//! The store as a daemon: the location of its file, and its operations (listed in `ken_store::ops`).

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{Program, Start};
use ken_store::clock::SystemClock;
use ken_store::tables::sqlite::Sqlite;
use ken_store::{Store, ops};
use ken_types::Error;
use ken_wire::{ConnectionId, Daemon, Table};
use serde_json::{Map, Value};

use crate::cli::Own;

const PROGRAM: Program = Program {
    name: "ken-store",
    version: env!("CARGO_PKG_VERSION"),
    about: "Holds all durable state of ken in one SQLite database",
    drain: Duration::from_secs(2),
};

/// A running store and the path of its database.
struct Part {
    store: Store,
    database: PathBuf,
}

impl AsRef<Store> for Part {
    fn as_ref(&self) -> &Store {
        &self.store
    }
}

impl Daemon for Part {
    fn stats(&self) -> Map<String, Value> {
        let mut stats = self.store.stats();
        for (name, suffix) in [("database_bytes", ""), ("wal_bytes", "-wal")] {
            let mut path = self.database.clone().into_os_string();
            path.push(suffix);
            let size = std::fs::metadata(path).map_or(0, |meta| meta.len());
            stats.insert(name.into(), size.into());
        }
        stats
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.store.disconnected(connection);
    }
}

pub(crate) fn run() -> ExitCode {
    ken_service::run::<Own, _, _>(PROGRAM, async |start| {
        let part = Arc::new(open(start)?);
        part.store.set_memory(start.config.chat.memory).await?;
        part.store.set_retention(start.config.retention).await?;
        let (mut stop, stopping) = (start.stop.clone(), part.clone());
        start.tasks.spawn(async move {
            stop.stopped().await;
            stopping.store.stop();
        });
        Ok((table(), part))
    })
}

fn open(start: &Start<Own>) -> Result<Part, Error> {
    if start.options.check.is_some() {
        return Err(Error::invalid("--check", "--check FILE must be the first and only option"));
    }
    let directory = start.places.state.join("store");
    make_directory(&directory)?;
    let database = directory.join("ken.db");
    let sqlite = Sqlite::open(&database)?;
    let store = Store::start(sqlite, Arc::new(SystemClock::default()))?;
    Ok(Part { store, database })
}

fn make_directory(directory: &Path) -> Result<(), Error> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| {
        Error::new(ken_types::Code::Invalid, format!("{}: cannot be created: {error}", directory.display()))
    })
}

fn table() -> Table<Part> {
    ops::add_all(Table::new(PROGRAM.part(), PROGRAM.version))
}
