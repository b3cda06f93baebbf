//! The threads that read.

use std::sync::Arc;
use std::thread::JoinHandle;

use ken_types::Error;
use tokio::sync::oneshot;

use crate::backend::{Backend, Reads};
use crate::queue::Queue;

/// Reads that may wait.
const QUEUE: usize = 1_024;

type Job = Box<dyn FnOnce(&mut dyn Reads) + Send>;

/// A few readers over one queue.
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
            threads.push(crate::writer::spawn(&format!("reader-{number}"), run)?);
        }
        Ok(Readers { queue, threads })
    }

    /// Runs a read on one of the threads. One whose caller has gone is not begun.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Reads) -> Result<T, Error> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.queue.push(Box::new(move |reads| {
            if !reply.is_closed() {
                _ = reply.send(read(reads));
            }
        }))?;
        answer
            .await
            .unwrap_or_else(|_| Err(Error::unavailable("the store is stopping")))
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
