//! The store as a daemon: its table of operations.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ken_service::{Program, Start};
use ken_store::Store;
use ken_store::clock::SystemClock;
use ken_store::sqlite::{FilesFound, Sqlite};
use ken_types::Error;
use ken_types::ops::runs::*;
use ken_types::ops::store::*;
use ken_types::ops::streams::{StreamsAppend, StreamsCreate, StreamsDelete};
use ken_wire::{ConnectionId, Daemon, Table};
use serde_json::{Map, Value};

use crate::cli::Own;

const PROGRAM: Program = Program {
    name: "ken-store",
    version: env!("CARGO_PKG_VERSION"),
    about: "Holds all durable state of ken in one SQLite database",
    drain: Duration::from_secs(2),
};

/// A running store and where it keeps its file.
struct Part {
    store: Store,
    database: PathBuf,
    /// What was wrong with its files.
    found: FilesFound,
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
        stats.insert("journal_frames_lost".into(), self.found.frames_lost.into());
        stats.insert("database_changed".into(), u8::from(self.found.changed).into());
        stats
    }

    fn disconnected(&self, connection: ConnectionId) {
        self.store.disconnected(connection);
    }
}

pub(crate) fn run() -> ExitCode {
    ken_service::run::<Own, _, _>(PROGRAM, async |start| {
        let part = Arc::new(open(start)?);
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
        return Err(Error::invalid("--check", "--check FILE stands first and alone"));
    }
    let directory = start.places.state.join("store");
    make_directory(&directory)?;
    let database = directory.join("ken.db");
    let sqlite = Sqlite::open(&database)?;
    let found = sqlite.found().clone();
    let store = Store::start(sqlite, Arc::new(SystemClock::default()))?;
    Ok(Part {
        store,
        database,
        found,
    })
}

fn make_directory(directory: &Path) -> Result<(), Error> {
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(|error| {
        Error::new(
            ken_types::Code::Invalid,
            format!("{}: cannot be made: {error}", directory.display()),
        )
    })
}

/// Operations that need their arguments alone.
macro_rules! plain {
    ($table:expr, $($op:ident => $method:ident,)+) => {
        $table$(.op::<$op, _, _>(|part: Arc<Part>, _, args| async move { part.store.$method(args).await }))+
    };
}

fn table() -> Table<Part> {
    let table = Table::new(PROGRAM.part(), PROGRAM.version);
    let table = plain!(table,
        SessionsCreate => create_session,
        SessionsResume => resume_session,
        SessionsList => list_sessions,
        SessionsTranscript => transcript,
        SessionsCancel => cancel_session,
        SessionsArchive => archive_session,
        ChatAccept => accept,
        SubmissionsAdmit => admit,
        SubmissionsWait => wait_submission,
        SubmissionsAppend => append,
        SubmissionsSettle => settle,
        SubmissionsAbort => abort,
        SubmissionsHistory => history,
        RunsAdmit => admit_run,
        RunsEnd => end_run,
        RunsAbort => abort_run,
        RunsGet => get_run,
        RunsList => list_runs,
        StreamsRead => read_stream,
        StreamsCreate => create_stream,
        StreamsAppend => append_stream,
        StreamsDelete => delete_stream,
        KnowledgePut => put_knowledge,
        KnowledgeGet => get_knowledge,
        KnowledgeDelete => delete_knowledge,
        KnowledgeList => list_knowledge,
        KnowledgeSearch => search_knowledge,
        KnowledgeReindex => reindex,
        KnowledgeJob => knowledge_job,
        MemorySearch => search_memory,
        KeysBegin => begin_key,
        KeysFinish => finish_key,
    );
    // Leases belong to the connection that these are called on.
    table
        .op::<SubmissionsClaim, _, _>(|part: Arc<Part>, call, args| async move {
            part.store.claim(call.connection, args).await
        })
        .op::<SubmissionsRenew, _, _>(|part: Arc<Part>, call, args| async move {
            part.store.renew(call.connection, args).await
        })
}
