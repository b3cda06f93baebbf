//! The threads that read the database.

use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use ken_types::Error;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::engine::queue::Queue;
use crate::engine::thread;
use crate::engine::watch::stopping;
use crate::tables::{Backend, Reader, Tables};

/// The maximum number of queued reads.
const QUEUE: usize = 1_024;

/// The time between two attempts of a reader to connect.
const RETRY_AFTER: Duration = Duration::from_millis(500);

type Job = Box<dyn FnOnce(&mut dyn Reader) + Send>;

/// A few reader threads that share one queue.
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queue: Queue<Job>,
    /// For each reader why it has no connection, if it tried and failed.
    failures: Mutex<Vec<Option<Error>>>,
}

impl Readers {
    pub(crate) fn start(backend: &mut dyn Backend, count: usize) -> Result<Readers, Error> {
        let shared = Arc::new(Shared { queue: Queue::new("read", QUEUE), failures: Mutex::new(vec![None; count]) });
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let (shared, mut reader) = (shared.clone(), backend.reader()?);
            let run = move || shared.serve(number, &mut *reader);
            threads.push(thread::spawn(&format!("reader-{number}"), run)?);
        }
        Ok(Readers { shared, threads })
    }

    /// Runs a read on one of the threads, before all others if it `comes_first`, and with `on_standby` also while this host does not work. A read
    /// that has not begun is skipped if its caller no longer waits.
    pub(crate) async fn read<T, F>(&self, comes_first: bool, on_standby: bool, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Tables) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job: Job = Box::new(move |reader| {
            if !reply.is_closed() {
                _ = reply.send(run(reader, on_standby, read));
            }
        });
        self.shared.queue.push(job, comes_first)?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Returns how many readers have no connection, and why, if it is some of them.
    pub(crate) fn failure(&self) -> Option<String> {
        let failures = self.shared.failures.lock();
        let missing: Vec<&Error> = failures.iter().flatten().collect();
        let first = missing.first()?;
        Some(format!("{} of {} connections for reading are missing: {}", missing.len(), failures.len(), first.message))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.shared.queue.len()
    }
}

impl Shared {
    /// Runs reads until the queue is closed. A read that fails for want of a connection takes no time, so a reader without one would take most
    /// of the queue. It leaves the reads to the others, unless these have none either.
    fn serve(&self, number: usize, reader: &mut dyn Reader) {
        let (mut is_failing, mut leaves_reads) = (false, false);
        loop {
            let mut jobs = Vec::new();
            if leaves_reads {
                sleep(RETRY_AFTER);
            } else {
                // While no reader has a connection, this one tries again although there is nothing to read.
                let Some(taken) = self.queue.pop_many(1, is_failing.then_some(RETRY_AFTER)) else { return };
                jobs = taken;
            }
            (is_failing, leaves_reads) = self.connect(number, reader, is_failing);
            for job in jobs {
                if leaves_reads { self.queue.give_back(job) } else { job(reader) }
            }
            if leaves_reads && self.queue.is_closed() {
                return;
            }
        }
    }

    /// Returns whether a reader cannot connect, and whether another one may.
    fn connect(&self, number: usize, reader: &mut dyn Reader, was_failing: bool) -> (bool, bool) {
        let failure = reader.connect().err();
        let is_failing = failure.is_some();
        if !is_failing && !was_failing {
            return (false, false);
        }
        let mut failures = self.failures.lock();
        if let (Some(error), false) = (&failure, was_failing) {
            tracing::warn!("a connection for reading is missing: {}", error.message);
        }
        if let Some(own) = failures.get_mut(number) {
            *own = failure;
        }
        (is_failing, is_failing && failures.iter().any(Option::is_none))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.queue.close();
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

fn run<T>(
    reader: &mut dyn Reader,
    on_standby: bool,
    read: impl FnOnce(&dyn Tables) -> Result<T, Error>,
) -> Result<T, Error> {
    let (mut read, mut found) = (Some(read), None);
    reader.read(on_standby, &mut |tables| {
        found = read.take().map(|read| read(tables)).transpose()?;
        Ok(())
    })?;
    found.ok_or_else(|| Error::internal("a reader did not read"))
}
