//! Copies the write-ahead log (the WAL) into the database, beside the writer. All of it that is older than the last few
//! commits is copied and synced by a thread of its own while the writer goes on. The little that came meanwhile the
//! writer then copies itself, between two commits: only so is there a moment at which nothing is left, and the log begins
//! anew instead of growing for ever.
//!
//! When nothing has been written for a while, and when the store stops, the log is copied whole and cut to nothing, and the
//! marker is told what the database file holds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ken_types::Error;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault;
use super::files::Files;
use super::open;
use crate::engine::thread::spawn;

/// Pages in the log from which on it is worth it: 16 MiB. The same pages are written again and again, and each is copied
/// only once.
const BEGIN: i32 = 4_096;
/// Pages from which on the writer waits for the thread: 64 MiB.
const MOST: i32 = 16_384;
/// Pages that the writer may be left with.
const FEW: i64 = 128;
/// How often the thread follows the writer before it leaves the rest to it.
const ROUNDS: usize = 8;
/// How long cutting the log waits for whoever reads it: while idle, and at the end.
const IDLE_PATIENCE: Duration = Duration::from_millis(100);
const LAST_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy)]
enum Task {
    /// Copy what there is while the writer goes on.
    Follow,
    /// Copy everything, cut the log, and bring the marker up to date.
    Cut,
    Stop,
}

/// The thread and what it is asked for.
#[derive(Debug)]
pub(super) struct Checkpoints {
    begin: SyncSender<Task>,
    /// Whether the thread follows the writer, or the writer has not finished that yet.
    following: Arc<AtomicBool>,
    thread: Option<JoinHandle<Files>>,
}

impl Checkpoints {
    /// Takes over all checkpoints of the database at `path`, of which `writer` is the writer.
    pub(super) fn start(path: &Path, files: Files, writer: &mut Connection) -> Result<Checkpoints, Error> {
        let connection = open::beside_writer(path)?;
        let ((begin, begun), (end, ended)) = (sync_channel(1), sync_channel(1));
        let following = Arc::new(AtomicBool::new(false));
        let (at_work, ask) = (following.clone(), begin.clone());
        let after_commit = move |wal: &mut Wal, pages: i32| {
            let busy = at_work.load(Ordering::Relaxed);
            if busy && is_over(&ended, pages) {
                finish(wal);
                at_work.store(false, Ordering::Relaxed);
            } else if pages >= BEGIN && !busy {
                match ask.try_send(Task::Follow) {
                    Ok(()) => at_work.store(true, Ordering::Relaxed),
                    Err(TrySendError::Full(_)) => {} // the thread is cutting the log
                    Err(TrySendError::Disconnected(_)) => finish(wal),
                }
            }
            Ok(()) // what was committed is committed
        };
        let hooked = writer.wal_hook(Some(after_commit));
        hooked.map_err(fault::error)?;
        let thread = spawn("checkpoints", move || run(&connection, files, &begun, &end))?;
        Ok(Checkpoints { begin, following, thread: Some(thread) })
    }

    /// The writer is idle. False when it has to be told again later.
    pub(super) fn cut(&self) -> bool {
        let is_free = !self.following.load(Ordering::Relaxed);
        is_free && self.begin.try_send(Task::Cut).is_ok()
    }

    /// Ends the thread and cuts the log a last time. Call when nothing is written any more.
    pub(super) fn stop(&mut self, writer: &Connection) {
        _ = self.begin.send(Task::Stop);
        let Some(Ok(mut files)) = self.thread.take().map(JoinHandle::join) else {
            return;
        };
        match cut(writer, LAST_PATIENCE) {
            Ok(Some(change)) => {
                mark(&mut files, change, false);
                _ = open::set_checkpoint_on_close(writer, true);
            }
            Ok(None) => tracing::warn!("the write-ahead log is still read by another program: it is kept"),
            Err(error) => {
                tracing::warn!("the write-ahead log could not be copied into the database: {error}")
            }
        }
    }
}

fn mark(files: &mut Files, change: u64, running: bool) {
    if let Err(error) = files.mark_copied(change, running) {
        tracing::warn!("the marker of the database could not be written: {error}");
    }
}

/// In the writer: whether the thread has done its part, or is gone. It is waited for when the log is too long.
fn is_over(ended: &Receiver<()>, pages: i32) -> bool {
    if pages >= MOST {
        _ = ended.recv();
        return true;
    }
    ended.try_recv() != Err(TryRecvError::Empty)
}

/// In the writer, after a commit.
fn finish(wal: &mut Wal) {
    if let Err(error) = wal.checkpoint() {
        tracing::warn!("a checkpoint was not finished: {error}");
    }
}

fn run(connection: &Connection, mut files: Files, begun: &Receiver<Task>, end: &SyncSender<()>) -> Files {
    while let Ok(task) = begun.recv() {
        match task {
            Task::Follow => {
                report(files.forget_sum().and_then(|()| follow(connection)));
                _ = end.send(());
            }
            Task::Cut if files.is_cut() => {}
            Task::Cut => {
                report(files.forget_sum().and_then(|()| follow(connection)));
                match cut(connection, IDLE_PATIENCE) {
                    Ok(Some(change)) => mark(&mut files, change, true),
                    Ok(None) => {} // somebody writes or reads: the next idle moment is as good
                    Err(error) => tracing::warn!("the write-ahead log could not be cut: {error}"),
                }
            }
            Task::Stop => break,
        }
    }
    files
}

fn report(done: Result<(), Error>) {
    if let Err(error) = done {
        tracing::warn!("a checkpoint failed and will be tried again: {error}");
    }
}

/// Copies the whole log and cuts it to nothing. The newest change that is certainly in the database file then; `None` when
/// somebody was in the way.
fn cut(connection: &Connection, patience: Duration) -> rusqlite::Result<Option<u64>> {
    let change = open::newest_change(connection)?;
    connection.busy_timeout(patience)?;
    let mut checkpoint = connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
    let busy: bool = checkpoint.query_row([], |row| row.get(0))?;
    Ok((!busy).then_some(change))
}

/// Copies what is there until little comes meanwhile.
fn follow(connection: &Connection) -> Result<(), Error> {
    let copy = || -> rusqlite::Result<(i64, i64)> {
        let mut checkpoint = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        checkpoint.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
    };
    let mut done_before = 0;
    for _ in 0..ROUNDS {
        let (pages, done) = copy().map_err(fault::error)?;
        if pages - done_before < FEW {
            break;
        }
        done_before = done;
    }
    Ok(())
}
