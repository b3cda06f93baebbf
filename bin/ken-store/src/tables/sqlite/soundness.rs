//! Checks the pages of the database in the background after an unclean stop. A power failure or a failing disk can damage a page that
//! nobody reads for a long time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use ken_types::Error;
use rusqlite::{Connection, ErrorCode};

use super::open;
use crate::engine::thread::spawn;

/// The number of steps of SQLite's virtual machine after which a check looks whether it has to stop.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

/// A check in the background. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Soundness {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Soundness {
    pub(super) fn start(path: &Path) -> Result<Soundness, Error> {
        let (mut connection, stop) = (open::reader(path)?, Arc::new(AtomicBool::new(false)));
        let stopping = stop.clone();
        let handler = move || stopping.load(Ordering::Relaxed);
        connection.progress_handler(STEPS_BETWEEN_LOOKS, Some(handler)).map_err(super::fault::error)?;
        let path = path.to_owned();
        let thread = spawn("soundness", move || report(&path, check(&connection)))?;
        Ok(Soundness { stop, thread: Some(thread) })
    }
}

impl Drop for Soundness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Checks one table after another, because a check is one long read, and the log cannot be restarted while one runs. Returns the first
/// defect.
fn check(connection: &Connection) -> rusqlite::Result<Option<String>> {
    for table in open::table_names(connection)? {
        let sql = format!("PRAGMA quick_check(\"{table}\")");
        let found: String = connection.query_row(&sql, [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Some(format!("table {table}: {found}")));
        }
    }
    Ok(None)
}

fn report(path: &Path, checked: rusqlite::Result<Option<String>>) {
    let defect = match checked {
        Ok(None) => return tracing::info!("the database is sound after an unclean stop"),
        Ok(Some(defect)) => defect,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => return,
        Err(error) => error.to_string(),
    };
    tracing::error!("{}: damaged: {defect}; restore a backup: ken-store(8), Restoring", path.display());
}
