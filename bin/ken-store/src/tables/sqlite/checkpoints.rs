//! Copies the write-ahead log (the WAL) into the database while the writer continues. A separate thread copies and syncs all of it except
//! the last few commits. The writer then copies the rest itself between two commits. Only at that moment is nothing left in the log, so
//! that it can be restarted and does not grow without limit.
//!
//! When nothing has been written for a while, and when the store stops, the log is copied completely and truncated.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ken_types::Error;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault;
use super::files::{length, log_path};
use super::open;
use crate::engine::thread::spawn;

/// The number of pages in the log at which copying begins: 16 MiB. Waiting for this many saves work, because often the same pages are
/// written repeatedly, and each of them is copied only once.
const BEGIN_PAGES: i32 = 4_096;
/// The number of pages in the log at which the writer waits for the thread: 64 MiB.
const MAX_PAGES: i32 = 16_384;
/// The maximum number of pages that the thread leaves for the writer.
const MAX_PAGES_LEFT: i64 = 128;
/// The number of times that the thread copies what the writer has added meanwhile, before it leaves the rest to the writer.
const MAX_ROUNDS: usize = 8;
/// How long truncating the log waits for readers: while the store is idle, and when it stops.
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
enum Task {
    /// Copy the log while the writer continues.
    Copy,
    /// Copy the whole log and truncate it.
    Truncate,
    Stop,
}

/// The thread that copies, and the channel that gives it tasks.
#[derive(Debug)]
pub(super) struct Checkpoints {
    begin: SyncSender<Task>,
    log: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Takes over all checkpoints of the database at `path`; `writer` is the connection that writes to it.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Checkpoints, Error> {
        let connection = open::checkpointer(path)?;
        let ((begin, begun), (end, ended)) = (sync_channel(1), sync_channel(1));
        let ask = begin.clone();
        // Whether a copy is in progress: the thread is copying, or the writer still has to copy the rest.
        let mut is_copying = false;
        let after_commit = move |wal: &mut Wal, pages: i32| {
            if is_copying && is_copy_done(&ended, pages) {
                finish(wal);
                is_copying = false;
            } else if pages >= BEGIN_PAGES && !is_copying {
                match ask.try_send(Task::Copy) {
                    Ok(()) => is_copying = true,
                    Err(TrySendError::Full(_)) => {} // the thread is truncating the log
                    Err(TrySendError::Disconnected(_)) => finish(wal),
                }
            }
            Ok(()) // the commit is durable even if the thread gets no task
        };
        let hooked = writer.wal_hook(Some(after_commit));
        hooked.map_err(fault::error)?;
        let thread = spawn("checkpoints", move || run(&connection, &begun, &end))?;
        Ok(Checkpoints { begin, log: log_path(path), thread: Some(thread) })
    }

    /// Tells the thread to truncate the log, because the writer is idle. Returns false if this has to be called again later, to see whether
    /// it is truncated: another program may have been reading. A copy whose end no commit has seen yet does not matter, because the thread
    /// does one task after the other.
    pub(super) fn request_truncation(&self) -> bool {
        let is_truncated = length(&self.log) == 0;
        if !is_truncated {
            _ = self.begin.try_send(Task::Truncate); // if it is full, the thread has this task already
        }
        is_truncated
    }

    /// Ends the thread and truncates the log a last time. Nothing can be written after this.
    pub(super) fn stop(&mut self, writer: &Connection) {
        _ = self.begin.send(Task::Stop);
        _ = self.thread.take().map(JoinHandle::join);
        match truncate(writer, STOP_TIMEOUT) {
            Ok(true) => _ = open::set_checkpoint_on_close(writer, true),
            Ok(false) => tracing::warn!("the write-ahead log is still read by another program: it is kept"),
            Err(error) => {
                tracing::warn!("the write-ahead log could not be copied into the database: {error}")
            }
        }
    }
}

/// Returns whether the thread has done its part or has ended. If the log is too long, waits until it has. Runs in the writer.
fn is_copy_done(ended: &Receiver<()>, pages: i32) -> bool {
    if pages >= MAX_PAGES {
        _ = ended.recv();
        return true;
    }
    ended.try_recv() != Err(TryRecvError::Empty)
}

/// Copies the rest of the log. Runs in the writer, after a commit.
fn finish(wal: &mut Wal) {
    if let Err(error) = wal.checkpoint() {
        tracing::warn!("a checkpoint was not finished: {error}");
    }
}

fn run(connection: &Connection, begun: &Receiver<Task>, end: &SyncSender<()>) {
    while let Ok(task) = begun.recv() {
        match task {
            Task::Copy => {
                report(copy_until_few_left(connection));
                _ = end.send(());
            }
            Task::Truncate => {
                report(copy_until_few_left(connection));
                if let Err(error) = truncate(connection, IDLE_TIMEOUT) {
                    tracing::warn!("the write-ahead log could not be cut: {error}");
                }
            }
            Task::Stop => return,
        }
    }
}

fn report(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::warn!("a checkpoint failed and will be tried again: {error}");
    }
}

/// Copies the whole log and truncates it. Returns false if another connection prevented that.
fn truncate(connection: &Connection, timeout: Duration) -> rusqlite::Result<bool> {
    connection.busy_timeout(timeout)?;
    let mut checkpoint = connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
    let busy: bool = checkpoint.query_row([], |row| row.get(0))?;
    Ok(!busy)
}

/// Copies the log repeatedly, until only a few pages have been added meanwhile.
fn copy_until_few_left(connection: &Connection) -> Result<(), Error> {
    let copy = || -> rusqlite::Result<(i64, i64)> {
        let mut checkpoint = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        checkpoint.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    };
    let mut done_before = 0;
    for _ in 0..MAX_ROUNDS {
        let (pages, done) = copy().map_err(fault::error)?;
        if pages - done_before < MAX_PAGES_LEFT {
            break;
        }
        done_before = done;
    }
    Ok(())
}
