//! The selected parts of a bench, and loads of many clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::figures::Samples;

/// Whether the command line selects this part of the bench; without arguments, all parts are selected.
#[allow(dead_code, reason = "a bench of one part does not ask")]
pub(crate) fn wants(part: &str) -> bool {
    let named = || std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    named().next().is_none() || named().any(|word| word == part)
}

/// The length of each load: `KEN_BENCH_SECONDS`, or 3.
pub(crate) fn seconds() -> Duration {
    let seconds = std::env::var("KEN_BENCH_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(3))
}

/// Repeats the function of each client until the time is over. Returns the calls per second and the latencies.
/// Each client is created from its number, in its own thread.
pub(crate) fn load<M, W>(clients: usize, make: M) -> (f64, Samples)
where
    M: Fn(usize) -> W + Send + Sync + 'static,
    W: FnMut(),
{
    let (make, over) = (Arc::new(make), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..clients).map(|number| worker(number, make.clone(), over.clone())).collect();
    let begun = Instant::now();
    std::thread::sleep(seconds());
    over.store(true, Ordering::Relaxed);
    let samples: Vec<Duration> = workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect();
    let rate = samples.len() as f64 / begun.elapsed().as_secs_f64();
    (rate, Samples::of(samples))
}

fn worker<M, W>(number: usize, make: Arc<M>, over: Arc<AtomicBool>) -> JoinHandle<Vec<Duration>>
where
    M: Fn(usize) -> W + Send + Sync + 'static,
    W: FnMut(),
{
    std::thread::spawn(move || {
        let mut work = make(number);
        let mut samples = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            work();
            samples.push(begun.elapsed());
        }
        samples
    })
}
