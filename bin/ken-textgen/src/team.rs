//! A team of threads that work together on one job at a time.
//!
//! A decode step consists of about sixty jobs of 20 to 2000 microseconds, so threads must start at once: they spin briefly, then
//! yield, then park. Each task of a job is claimed from an atomic counter, and the caller works too, so a thread that the
//! kernel has descheduled delays only its own task.

#![allow(unsafe_code)] // the job is borrowed from the caller's stack while other threads work on it

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// How long a thread spins for the next job before it yields.
const SPIN_TIME: Duration = Duration::from_micros(50);
const YIELD_TIME: Duration = Duration::from_millis(2);

/// A team of the calling thread and `threads - 1` others.
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// How many of the threads take part; the others stay parked.
    active: AtomicUsize,
}

/// The number of the job (32 bits), the number of its tasks (16), and how many of them are claimed (16).
#[derive(Clone, Copy)]
struct Claim(u64);

impl Claim {
    fn job(self) -> u64 {
        self.0 >> 32
    }

    fn task(self) -> Option<usize> {
        let (tasks, claimed) = (self.0 >> 16 & 0xffff, self.0 & 0xffff);
        (claimed < tasks).then_some(claimed as usize)
    }
}

/// Maximum number of tasks of a job.
pub const MAX_TASKS: usize = 0xffff;

struct Shared {
    /// A `Claim`. It is a single word, so that a late thread can never claim a task of a job that it has not seen.
    next: AtomicU64,
    job: AtomicPtr<Job<'static>>,
    unfinished: AtomicUsize,
    active: AtomicUsize,
    asleep: AtomicUsize,
    closing: AtomicBool,
}

impl ThreadPool {
    pub fn new(threads: usize) -> ThreadPool {
        let shared = Arc::new(Shared {
            next: AtomicU64::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            unfinished: AtomicUsize::new(0),
            active: AtomicUsize::new(threads),
            asleep: AtomicUsize::new(0),
            closing: AtomicBool::new(false),
        });
        let spawn = |number| {
            let shared = Arc::clone(&shared);
            // If the thread cannot be started, the others do its share.
            std::thread::Builder::new().name("textgen".into()).spawn(move || shared.work(number)).ok()
        };
        let threads: Vec<_> = (1..threads).filter_map(spawn).collect();
        let active = AtomicUsize::new(threads.len() + 1);
        ThreadPool { shared, threads, active }
    }

    /// The number of threads that take part, including the caller.
    pub fn size(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Sets the number of threads that take part in later jobs, including the caller.
    pub fn resize(&self, size: usize) {
        let size = size.clamp(1, self.threads.len() + 1);
        self.active.store(size, Ordering::Relaxed);
        self.shared.active.store(size, Ordering::Relaxed);
    }

    /// Calls `job` once for each number below `tasks`, on any thread, and returns when all calls have returned. Only one thread at a
    /// time is allowed to call this. The caller alone does a job of more than `MAX_TASKS` tasks.
    pub fn run(&self, tasks: usize, job: impl Fn(usize) + Sync) {
        if self.size() == 1 || !(2..=MAX_TASKS).contains(&tasks) {
            (0..tasks).for_each(job);
            return;
        }
        let mut job: Job<'_> = &job;
        let place: *mut Job<'_> = &raw mut job;
        let number = self.shared.publish(place.cast(), tasks);
        self.wake();
        while self.shared.claim_and_call(number) {}
        self.shared.wait();
    }

    /// Calls `job` once for each part with its index, on several threads.
    pub fn each<P: Send>(&self, parts: impl Iterator<Item = P>, job: impl Fn(usize, &mut P) + Sync) {
        let parts: Vec<Mutex<P>> = parts.map(Mutex::new).collect();
        self.run(parts.len(), |index| {
            // Never contended, because each part is locked once.
            let mut part = parts[index].lock().unwrap_or_else(PoisonError::into_inner);
            job(index, &mut part);
        });
    }

    fn wake(&self) {
        if self.shared.asleep.load(Ordering::SeqCst) > 0 {
            let threads = self.threads.iter().take(self.size() - 1);
            threads.map(JoinHandle::thread).for_each(Thread::unpark);
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let _ = thread.join(); // its result does not matter
        }
    }
}

impl Shared {
    fn publish(&self, job: *mut Job<'static>, tasks: usize) -> u64 {
        self.job.store(job, Ordering::Relaxed);
        self.unfinished.store(tasks, Ordering::Relaxed);
        let last = Claim(self.next.load(Ordering::Relaxed)).job();
        let number = (last + 1) & u64::from(u32::MAX);
        self.next.store(number << 32 | (tasks as u64) << 16, Ordering::SeqCst);
        number
    }

    /// Does one task of this job, or returns false if none is left.
    fn claim_and_call(&self, number: u64) -> bool {
        let mut next = self.next.load(Ordering::Acquire);
        loop {
            let Some(task) = Claim(next).task().filter(|_| Claim(next).job() == number) else {
                return false;
            };
            let job = self.job.load(Ordering::Relaxed);
            match self.next.compare_exchange_weak(next, next + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    // SAFETY: the word was unchanged, so this job still had an unclaimed task when `job` was read, and the pointer is
                    // this job's. The job stays valid, because `run` does not return until `unfinished` is 0.
                    unsafe { (*job)(task) };
                    self.unfinished.fetch_sub(1, Ordering::Release);
                    return true;
                }
                Err(now) => next = now,
            }
        }
    }

    /// Waits for the tasks that other threads are still working on.
    fn wait(&self) {
        let mut spins = 0u32;
        while self.unfinished.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < 10_000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    fn work(&self, place: usize) {
        let mut done = 0;
        while !self.closing.load(Ordering::SeqCst) {
            let number = self.next_job(done, place);
            while self.claim_and_call(number) {}
            done = number;
        }
    }

    /// Waits for a job other than `done`. It can also return `done`, so that the caller checks whether the team is closing.
    fn next_job(&self, done: u64, place: usize) -> u64 {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                let number = Claim(self.next.load(Ordering::Acquire)).job();
                if number != done && place < self.active.load(Ordering::Relaxed) {
                    return number;
                }
                std::hint::spin_loop();
            }
            match start.elapsed() {
                waited if waited < SPIN_TIME => {}
                waited if waited < YIELD_TIME => std::thread::yield_now(),
                _ => {
                    self.sleep(done, place);
                    return done;
                }
            }
        }
    }

    /// Parks unless a job has arrived. The `SeqCst` accesses here and in `publish` and `wake` ensure that either this thread
    /// sees the job, or the caller sees that this thread sleeps.
    fn sleep(&self, done: u64, place: usize) {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let number = Claim(self.next.load(Ordering::SeqCst)).job();
        let wanted = number != done && place < self.active.load(Ordering::Relaxed);
        if !wanted && !self.closing.load(Ordering::SeqCst) {
            std::thread::park();
        }
        self.asleep.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_of_every_job_runs_exactly_once() {
        let team = ThreadPool::new(4);
        for tasks in (0..400).map(|job| job % 37) {
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            team.run(tasks, |task| {
                counts[task].fetch_add(1, Ordering::Relaxed);
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_sleeping_team_wakes_and_a_smaller_team_does_all_tasks() {
        let team = ThreadPool::new(3);
        let sum = AtomicUsize::new(0);
        for size in [3, 2, 1, 3] {
            team.resize(size);
            std::thread::sleep(YIELD_TIME * 3);
            team.run(100, |task| {
                sum.fetch_add(task, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.load(Ordering::Relaxed), 4 * 4950);
    }
}
