//! Ends a bench that prints no figure any more, because what it waits for does not come.

use std::sync::Once;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

/// The maximum time between two figures. The slowest figure, the training of a table, takes a few minutes.
const MAX_SILENCE: Duration = Duration::from_secs(20 * 60);

static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Notes that the bench goes on. The first call starts the thread that watches it.
pub(crate) fn progress() {
    static WATCHED: Once = Once::new();
    *LAST.lock() = Some(Instant::now());
    WATCHED.call_once(|| drop(std::thread::spawn(watch)));
}

#[allow(clippy::exit, clippy::print_stderr, reason = "the thread that waits cannot be told to return")]
fn watch() {
    loop {
        let silence = LAST.lock().map(|last| last.elapsed());
        match MAX_SILENCE.checked_sub(silence.unwrap_or_default()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left),
            _ => break,
        }
    }
    eprintln!("no figure for {} minutes: the bench waits for something that does not come", MAX_SILENCE.as_secs() / 60);
    // Nothing is dropped any more, so the systems and programs that were started are ended here.
    let children = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let children = children.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    for child in children.collect::<Vec<_>>().iter().flat_map(|pids| pids.split_whitespace()) {
        _ = child.parse().map(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM));
    }
    std::process::exit(1);
}
