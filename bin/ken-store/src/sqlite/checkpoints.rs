//! Taking what is in the journal (the WAL) over into the database, beside the writer. All of it that is older than the
//! last few commits is copied and synced by a thread of its own while the writer goes on. The little that came
//! meanwhile the writer then does itself, between two commits: only so is there a moment at which nothing is left, and
//! the journal begins anew instead of growing for ever.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use ken_types::Error;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault::Fault;
use super::open;
use crate::writer::spawn;

/// Pages in the journal from which on it is worth it: 16 MiB. The same pages are written again and again, and each is
/// taken over only once.
const BEGIN: i32 = 4_096;
/// Pages from which on the writer waits for the thread: 64 MiB.
const MOST: i32 = 16_384;
/// Pages that the writer may be left with.
const FEW: i64 = 128;
/// How often the thread follows the writer before it leaves the rest to it.
const ROUNDS: usize = 8;

/// The thread. It ends with the writer's connection, and is waited for when this is dropped, which has to be later.
#[derive(Debug)]
pub(super) struct Checkpoints(Option<JoinHandle<()>>);

impl Checkpoints {
    /// Takes over all checkpoints of the database at `path`, of which `writer` is the writer.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Checkpoints, Error> {
        let connection = open::beside_writer(path)?;
        let ((begin, begun), (end, ended)) = (sync_channel(1), sync_channel(1));
        let mut at_work = false;
        let after_commit = move |wal: &mut Wal, pages: i32| {
            if at_work && is_over(&ended, pages) {
                at_work = false;
                finish(wal);
            } else if pages >= BEGIN && !at_work {
                at_work = begin.try_send(()).is_ok();
                if !at_work {
                    finish(wal); // there is no thread any more
                }
            }
            Ok(()) // what was committed is committed
        };
        let hooked = writer.wal_hook(Some(after_commit));
        hooked.map_err(|error| Error::from(Fault::from(error)))?;
        let thread = spawn("checkpoints", move || run(&connection, &begun, &end))?;
        Ok(Checkpoints(Some(thread)))
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            _ = thread.join();
        }
    }
}

/// In the writer: whether the thread has done its part, or is gone. It is waited for when the journal is too long.
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

fn run(connection: &Connection, begun: &Receiver<()>, end: &SyncSender<()>) {
    while begun.recv().is_ok() {
        if let Err(error) = follow(connection) {
            tracing::warn!("a checkpoint failed and will be tried again: {error}");
        }
        _ = end.send(());
    }
}

/// Takes over what is there until little comes meanwhile.
fn follow(connection: &Connection) -> rusqlite::Result<()> {
    let mut done_before = 0;
    for _ in 0..ROUNDS {
        let mut checkpoint = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        let (pages, done) = checkpoint.query_row([], |row| Ok((row.get::<_, i64>(1)?, row.get(2)?)))?;
        if pages - done_before < FEW {
            break;
        }
        done_before = done;
    }
    Ok(())
}
