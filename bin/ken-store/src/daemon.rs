//! Starts the store as a daemon, on its file or on a server.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{Program, Start, Stop, report_status};
use ken_store::Store;
use ken_store::clock::SystemClock;
use ken_store::tables::postgres::Postgres;
use ken_store::tables::sqlite::Sqlite;
use ken_types::config::{Config, STORE_URL};
use ken_types::{Code, Error};
use tokio::time::{sleep, timeout};

use crate::cli::Own;
use crate::operations::{Part, table};
use crate::settings::server_url;

const PROGRAM: Program = Program {
    name: "ken-store",
    version: env!("CARGO_PKG_VERSION"),
    about: "Holds all durable state of ken in one database",
    drain: Duration::from_secs(2),
};

/// How long the store waits for its server before it is ready and answers that the server does not. Within kend's time for the start.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval at which the settings are offered again to a server that is not there.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How often the store looks for connections for reading that are missing.
const READERS_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) fn run() -> ExitCode {
    ken_service::run::<Own, _, _>(PROGRAM, async |start| {
        let part = Arc::new(open(start)?);
        match part.database {
            Some(_) => configure(&part.store, &start.config).await?,
            None => begin_with_server(&part, start).await?,
        }
        let reporting = part.clone();
        start.tasks.spawn(until_stopped(start.stop.clone(), async move { report_failures(&reporting.store).await }));
        let (mut stop, stopping) = (start.stop.clone(), part.clone());
        start.tasks.spawn(async move {
            stop.stopped().await;
            stopping.store.stop();
        });
        Ok((table(PROGRAM.part(), PROGRAM.version), part))
    })
}

async fn configure(store: &Store, config: &Config) -> Result<(), Error> {
    store.set_memory(config.chat.memory).await?;
    store.set_retention(config.retention).await
}

/// Waits a moment for the server. If it is not there, the store begins without it, and says so until it is.
async fn begin_with_server(part: &Arc<Part>, start: &mut Start<Own>) -> Result<(), Error> {
    match timeout(SERVER_TIMEOUT, configure(&part.store, &start.config)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.code != Code::Unavailable => return Err(error),
        _ => {
            let (part, config) = (part.clone(), start.config.clone());
            start.tasks.spawn(until_stopped(start.stop.clone(), async move {
                while let Err(error) = configure(&part.store, &config).await {
                    if error.code != Code::Unavailable {
                        tracing::error!("the settings could not be stored: {error}");
                        return;
                    }
                    sleep(LOOK_INTERVAL).await;
                }
            }));
        }
    }
    Ok(())
}

async fn until_stopped(mut stop: Stop, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = stop.stopped() => {}
    }
}

/// Tells kend what keeps the store from working, and that it works again.
async fn report_failures(store: &Store) {
    let (mut failure, mut reported) = (String::new(), String::new());
    loop {
        let now = match timeout(READERS_INTERVAL, store.failure_other_than(&failure)).await {
            Ok(changed) => {
                failure.clone_from(&changed);
                changed
            }
            // Nobody tells that connections for reading are missing, which counts while nothing worse is the matter.
            Err(_) if failure.is_empty() => store.read_failure().unwrap_or_default(),
            Err(_) => continue,
        };
        if now != reported {
            report_status(&now);
            reported = now;
        }
    }
}

fn open(start: &Start<Own>) -> Result<Part, Error> {
    if start.options.check.is_some() {
        return Err(Error::invalid("--check", "--check must be the first option, with at most a FILE and --home DIR"));
    }
    let directory = start.places.state.join("store");
    make_directory(&directory)?;
    let file = directory.join("ken.db");
    match server_url(&start.config, ken_service::secret(STORE_URL))? {
        None => {
            let store = Store::start(Sqlite::open(&file)?, Arc::new(SystemClock::default()))?;
            Ok(Part { store, database: Some(file) })
        }
        Some(url) => {
            let mut postgres = Postgres::open(&url, &directory)?;
            postgres.require_sync(start.config.store.require_sync);
            check_no_file(&file, postgres.name())?;
            postgres.has_notices = start.config.store.notify;
            postgres.shares_folders = start.config.store.shared_workspace;
            let clock = postgres.clock();
            Ok(Part { store: Store::start(postgres, clock)?, database: None })
        }
    }
}

/// Fails if a file of SQLite is there: its data would be missing, and nobody would be told.
fn check_no_file(file: &Path, server: &str) -> Result<(), Error> {
    if !file.exists() {
        return Ok(());
    }
    let message =
        format!("{}: this home has its data in SQLite, but the URL of a server is set ({server})", file.display());
    Err(Error::new(Code::Invalid, message)
        .hint("copy it: ken-store migrate --to-postgres; or remove the URL; or move ken.db away to go on with what the server has"))
}

fn make_directory(directory: &Path) -> Result<(), Error> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| Error::new(Code::Invalid, format!("{}: cannot be created: {error}", directory.display())))
}
