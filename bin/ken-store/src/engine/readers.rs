//! The threads that read the database.

use std::sync::Arc;
use std::thread::JoinHandle;

use ken_types::Error;
use tokio::sync::oneshot;

use crate::engine::queue::Queue;
use crate::engine::thread;
use crate::engine::watch::stopping;
use crate::tables::{Backend, Reader, Tables};

/// The maximum number of queued reads.
const QUEUE: usize = 1_024;

type Job = Box<dyn FnOnce(&mut dyn Reader) + Send>;

/// A few reader threads that share one queue.
pub(crate) struct Readers {
    queue: Arc<Queue<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(backend: &mut dyn Backend, count: usize) -> Result<Readers, Error> {
        let queue: Arc<Queue<Job>> = Arc::new(Queue::new("read", QUEUE));
        let mut threads = Vec::with_capacity(count);
        for number in 0..count {
            let (queue, mut reader) = (queue.clone(), backend.reader()?);
            let run = move || {
                while let Some(job) = queue.pop() {
                    job(&mut *reader);
                }
            };
            threads.push(thread::spawn(&format!("reader-{number}"), run)?);
        }
        Ok(Readers { queue, threads })
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
        self.queue.push(job, comes_first)?;
        answer.await.unwrap_or_else(|_| Err(stopping()))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
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
