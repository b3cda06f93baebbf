//! The threads that compute a model.

use std::sync::Arc;

use parking_lot::Mutex;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

/// A pool of threads whose number can be changed. To compute a token, it does about sixty jobs of 20 to 2000 microseconds.
pub struct ThreadPool(Mutex<Option<Arc<rayon::ThreadPool>>>);

impl ThreadPool {
    pub fn new(threads: usize) -> ThreadPool {
        let pool = ThreadPool(Mutex::default());
        pool.resize(threads);
        pool
    }

    /// The number of threads that compute.
    pub fn size(&self) -> usize {
        self.pool().map_or(1, |pool| pool.current_num_threads())
    }

    /// Sets the number of threads for later jobs. The caller computes alone if it is 1, or if they cannot be started.
    pub fn resize(&self, threads: usize) {
        if threads != self.size() {
            let builder = ThreadPoolBuilder::new().num_threads(threads).thread_name(|_| "textgen".to_owned());
            let pool = if threads > 1 { builder.build().ok() } else { None };
            *self.0.lock() = pool.map(Arc::new);
        }
    }

    /// Runs `work` on a thread of the pool. Its jobs then begin there, without waking another thread first.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self.pool() {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Calls `job` once for each part with its index, on several threads.
    pub fn each<P: Send>(&self, parts: impl Iterator<Item = P>, job: impl Fn(usize, &mut P) + Sync) {
        let mut parts: Vec<P> = parts.collect();
        match self.pool().filter(|_| parts.len() > 1) {
            Some(pool) => pool.install(|| {
                let parts = parts.par_iter_mut().with_max_len(1).enumerate();
                parts.for_each(|(index, part)| job(index, part));
            }),
            None => parts.iter_mut().enumerate().for_each(|(index, part)| job(index, part)),
        }
    }

    fn pool(&self) -> Option<Arc<rayon::ThreadPool>> {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_part_is_done_once_by_any_number_of_threads() {
        let pool = ThreadPool::new(3);
        for threads in [3, 2, 1, 3] {
            pool.resize(threads);
            assert_eq!(pool.size(), threads);
            for count in [0, 1, 2, 100] {
                let done: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                pool.install(|| {
                    pool.each(done.iter(), |index, part| {
                        assert!(std::ptr::eq(*part, &done[index]));
                        part.fetch_add(1, Ordering::Relaxed);
                    });
                });
                assert!(done.iter().all(|done| done.load(Ordering::Relaxed) == 1));
            }
        }
    }
}
