//! Writes the audit log through a queue and one thread. Records that arrive during a write are written together by the
//! next one, so many requests share one sync.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ken_audit::{Record, Trail, files, verify};
use ken_types::Error;
use ken_types::ops::cognitive::AuditState;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::spawn_blocking;

/// Records that are written together, and the channel to the caller that waits for them.
struct Batch {
    records: Vec<Record>,
    done: oneshot::Sender<Result<(), Error>>,
}

/// A handle to the writer thread.
pub(crate) struct Audit {
    queue: mpsc::Sender<Batch>,
    is_failing: Arc<AtomicBool>,
    dir: PathBuf,
    /// Held while the log is checked: to read all of it once at a time is enough.
    checking: Mutex<()>,
}

/// The capacity of the queue. While it is full, callers wait.
const QUEUE: usize = 1_024;
/// The maximum number of batches in one write.
const MAX_BATCHES: usize = 256;

impl Audit {
    /// Starts the thread. While the log cannot be opened, every write fails, so the actions are refused.
    pub(crate) fn start(dir: PathBuf) -> Result<Audit, Error> {
        let (queue, batches) = mpsc::channel(QUEUE);
        let is_failing = Arc::new(AtomicBool::new(false));
        let mut writer = Writer { dir: dir.clone(), trail: None, is_failing: is_failing.clone() };
        writer.open();
        let thread = std::thread::Builder::new().name("audit".to_owned());
        thread
            .spawn(move || writer.run(batches))
            .map_err(|error| Error::internal(format!("no thread for the audit log: {error}")))?;
        Ok(Audit { queue, is_failing, dir, checking: Mutex::new(()) })
    }

    /// Checks the chain of all records.
    pub(crate) async fn verify(&self) -> Result<AuditState, Error> {
        let _checking = self.checking.lock().await;
        let dir = self.dir.clone();
        let checked = spawn_blocking(move || {
            let files = files(&dir).map_err(|error| Error::unavailable(format!("{}: {error}", dir.display())))?;
            // A record that is just being written looks like one that was cut off, so a bad end is looked at twice.
            let found = verify(&files, "")?;
            if found.is_ok() { Ok(found) } else { verify(&files, "") }
        });
        let checked = checked.await.map_err(|_| Error::internal("the check of the audit log has ended"))??;
        Ok(match checked {
            Ok(verified) => AuditState {
                good: true,
                records: Some(verified.records),
                first: Some(verified.first),
                last: Some(verified.last.seq),
                last_hash: Some(verified.last.hash_text().to_owned()),
                fault: None,
            },
            Err(bad) => {
                let fault = Some(bad.to_string());
                AuditState { good: false, records: None, first: None, last: None, last_hash: None, fault }
            }
        })
    }

    /// Returns when the records are on disk. After `unavailable` they are not, and the actions must not be taken.
    pub(crate) async fn write(&self, records: Vec<Record>) -> Result<(), Error> {
        let gone = || Error::unavailable("the audit thread has ended");
        let (done, written) = oneshot::channel();
        self.queue.send(Batch { records, done }).await.map_err(|_| gone())?;
        written.await.unwrap_or_else(|_| Err(gone()))
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    /// Returns the number of waiting batches.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

struct Writer {
    dir: PathBuf,
    trail: Option<Trail>,
    is_failing: Arc<AtomicBool>,
}

impl Writer {
    fn run(mut self, mut batches: mpsc::Receiver<Batch>) {
        let mut waiting = Vec::new();
        while let Some(first) = batches.blocking_recv() {
            waiting.push(first);
            while waiting.len() < MAX_BATCHES
                && let Ok(next) = batches.try_recv()
            {
                waiting.push(next);
            }
            self.write(&mut waiting);
        }
    }

    fn write(&mut self, waiting: &mut Vec<Batch>) {
        let records: Vec<Record> = waiting.iter_mut().flat_map(|batch| std::mem::take(&mut batch.records)).collect();
        let written = self.append(&records);
        for batch in waiting.drain(..) {
            // An error means that the caller no longer waits.
            _ = batch.done.send(written.clone());
        }
    }

    fn append(&mut self, records: &[Record]) -> Result<(), Error> {
        if self.trail.is_none() {
            self.open();
        }
        let written = match &mut self.trail {
            Some(trail) => trail.append(records).map(drop),
            None => Err(Error::unavailable("the audit log cannot be opened")
                .hint("see `ken logs cognitive`; acts that must be recorded are refused meanwhile")),
        };
        self.note(written.as_ref().err());
        written
    }

    fn open(&mut self) {
        match Trail::open(&self.dir) {
            Ok(trail) => {
                // The log of this process may be kept elsewhere, and then shows what the files contained.
                let last = trail.link();
                tracing::info!(record = last.seq, hash = last.hash_text(), "the audit log goes on after this record");
                self.trail = Some(trail);
            }
            Err(error) => self.note(Some(&error)),
        }
    }

    /// Logs the first of several failures, and the recovery.
    fn note(&self, error: Option<&Error>) {
        let was_failing = self.is_failing.swap(error.is_some(), Relaxed);
        match error {
            Some(error) if !was_failing => {
                tracing::error!(%error, "acts are refused: they cannot be recorded")
            }
            None if was_failing => tracing::info!("the audit log can be written again"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &'static str) -> Vec<Record> {
        vec![Record::new(name, "req", "anna")]
    }

    #[tokio::test]
    async fn records_are_stored_and_a_failure_is_temporary() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("audit");
        std::fs::write(&dir, "in the way").unwrap();
        let audit = Audit::start(dir.clone()).unwrap();
        assert!(audit.is_failing());
        assert!(audit.write(event("key_created")).await.is_err());
        std::fs::remove_file(&dir).unwrap();
        let all = (0..100).map(|_| audit.write(event("execute_completed")));
        for write in all.collect::<Vec<_>>() {
            write.await.unwrap();
        }
        assert!(!audit.is_failing());
        let verified = ken_audit::verify(&ken_audit::files(&dir).unwrap(), "").unwrap().unwrap();
        assert_eq!(verified.records, 101);
    }
}
