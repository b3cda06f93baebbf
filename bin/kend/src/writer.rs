//! Writes the logs in a thread of its own. A disk that stands still would otherwise hold up the event loop, and with it every restart.
//!
//! What waits for the disk is in memory, with a limit for each log. A part that prints faster than the disk takes it has to wait, so
//! that no line is lost. Only if the disk takes nothing at all, what exceeds the limit is dropped, counted, and said in one line when
//! the disk goes on: a part must not stand still with the disk.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use parking_lot::{Condvar, Mutex};

use crate::rotating::{LogFiles, Rotating};

/// The number of bytes of one log that wait for the disk. Parts print some kilobytes per second, so this is enough for minutes.
const MAX_WAITING: u64 = 1024 * 1024;
/// A disk that takes longer for a single write stands still. A busy one is not that slow, because it takes at most 64 KiB at a time.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// The thread only writes and renames files.
const STACK_BYTES: usize = 128 * 1024;

/// The thread, and what it has to do.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    /// Readable when something has been written.
    written: UnixStream,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    wake: UnixStream,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// When the thread began what it is doing now.
    begun: Option<Instant>,
    closed: bool,
}

struct Job {
    target: Arc<Target>,
    work: Work,
}

enum Work {
    Write(Vec<u8>),
    /// Bytes have been dropped here.
    Gap,
    RemoveSurplus,
}

/// A log as both threads know it.
struct Target {
    files: Arc<LogFiles>,
    /// Locked by the thread alone.
    log: Mutex<Rotating>,
    written: AtomicU64,
    /// While there are any, a job that says so is in the queue.
    dropped: AtomicU64,
}

impl Writer {
    pub(crate) fn start() -> Result<Writer, String> {
        let failed = |error: std::io::Error| format!("cannot start the thread that writes the logs: {error}");
        let (wake, written) = UnixStream::pair().map_err(failed)?;
        wake.set_nonblocking(true).and_then(|()| written.set_nonblocking(true)).map_err(failed)?;
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), wake });
        let run = {
            let shared = shared.clone();
            move || shared.run()
        };
        std::thread::Builder::new().name("logs".into()).stack_size(STACK_BYTES).spawn(run).map_err(failed)?;
        Ok(Writer { shared, written })
    }

    /// Returns the way into a log. `midline` says that its file does not end with a line end.
    pub(crate) fn outlet(&self, files: Arc<LogFiles>, midline: bool) -> Outlet {
        let log = Mutex::new(Rotating::new(files.clone(), midline));
        let target = Target { files, log, written: AtomicU64::new(0), dropped: AtomicU64::new(0) };
        let outlet = Outlet { target: Arc::new(target), shared: self.shared.clone(), accepted: 0 };
        // An earlier kend may have kept more.
        outlet.add(Work::RemoveSurplus);
        outlet
    }

    /// Forgets that something has been written.
    pub(crate) fn acknowledge(&self) {
        let mut wakes = [0; 64];
        while (&self.written).read(&mut wakes).is_ok_and(|count| count > 0) {}
    }

    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        self.shared.queue.lock().is_stalled(now)
    }

    /// Returns when the disk will count as standing still, if it goes on with nothing until then.
    pub(crate) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.shared.queue.lock().begun.map(|begun| begun + STALLED_AFTER).filter(|at| *at > now)
    }

    /// Waits until everything has been written, but not longer than this. Returns whether it has been.
    pub(crate) fn flush(&self, limit: Duration) -> bool {
        let waits = |queue: &mut Queue| queue.begun.is_some() || !queue.jobs.is_empty();
        let mut queue = self.shared.queue.lock();
        !self.shared.changed.wait_while_for(&mut queue, waits, limit).timed_out()
    }
}

impl AsFd for Writer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.written.as_fd()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Queue {
    fn is_stalled(&self, now: Instant) -> bool {
        self.begun.is_some_and(|begun| begun + STALLED_AFTER <= now)
    }
}

impl Shared {
    fn run(&self) {
        // Signals are for the event loop, which a thread that waits for the disk would keep from them.
        let _ = SigSet::all().thread_block();
        while let Some(job) = self.next() {
            job.target.perform(&job.work);
            self.queue.lock().begun = None;
            self.changed.notify_all();
            // If this fails, the loop has not read the earlier ones yet.
            let _ = (&self.wake).write(&[0]);
        }
    }

    fn next(&self) -> Option<Job> {
        let idle = |queue: &mut Queue| queue.jobs.is_empty() && !queue.closed;
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, idle);
        let job = queue.jobs.pop_front()?;
        queue.begun = Some(Instant::now());
        Some(job)
    }
}

impl Target {
    fn perform(&self, work: &Work) {
        let mut log = self.log.lock();
        match work {
            Work::Write(bytes) => {
                log.write(bytes);
                self.written.fetch_add(bytes.len() as u64, Ordering::Release);
            }
            Work::Gap => log.lose(self.dropped.swap(0, Ordering::Relaxed)),
            Work::RemoveSurplus => self.files.remove_surplus(),
        }
    }
}

/// The way into one log, for the event loop. Nothing here waits for the disk.
pub(crate) struct Outlet {
    target: Arc<Target>,
    shared: Arc<Shared>,
    /// The number of bytes that have been put into the queue.
    accepted: u64,
}

impl Outlet {
    pub(crate) fn files(&self) -> &LogFiles {
        &self.target.files
    }

    /// The position in the log up to which everything has been accepted, for `is_written`.
    pub(crate) fn position(&self) -> u64 {
        self.accepted
    }

    pub(crate) fn is_written(&self, position: u64) -> bool {
        self.target.written.load(Ordering::Acquire) >= position
    }

    fn waiting(&self) -> u64 {
        self.accepted - self.target.written.load(Ordering::Acquire)
    }

    /// Whether more may be written now. While the disk stands still it may, because the rest is dropped.
    pub(crate) fn has_room(&self, now: Instant) -> bool {
        self.waiting() < MAX_WAITING || self.shared.queue.lock().is_stalled(now)
    }

    /// Changes the maximum size and number of the files.
    pub(crate) fn limit(&self, max: u64, keep: u32) {
        if self.target.files.limit(max, keep) {
            self.add(Work::RemoveSurplus);
        }
    }

    fn add(&self, work: Work) {
        self.shared.queue.lock().jobs.push_back(Job { target: self.target.clone(), work });
        self.shared.changed.notify_all();
    }

    pub(crate) fn write(&mut self, bytes: Vec<u8>) {
        let length = bytes.len() as u64;
        if length == 0 {
            return;
        }
        let queue = self.shared.queue.lock();
        // The last words of a process that has ended are taken even if there is no room, as they would otherwise be mixed with the
        // first ones of the next.
        let max = if queue.is_stalled(Instant::now()) { MAX_WAITING } else { 2 * MAX_WAITING };
        let has_gap = self.target.dropped.load(Ordering::Relaxed) > 0;
        let work = if has_gap || self.waiting() + length > max {
            let is_first = self.target.dropped.fetch_add(length, Ordering::Relaxed) == 0;
            is_first.then_some(Work::Gap)
        } else {
            self.accepted += length;
            Some(Work::Write(bytes))
        };
        drop(queue);
        work.into_iter().for_each(|work| self.add(work));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    /// A FIFO that nobody reads is a disk that stands still: the first write waits until somebody opens it.
    #[test]
    fn a_disk_that_stands_still_holds_nobody_up_and_what_is_missing_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let writer = Writer::start().unwrap();
        let mut log = writer.outlet(LogFiles::new(path.clone(), u64::MAX, 1), false);
        let chunk = |number: usize| format!("{number:063}\n").repeat(1024).into_bytes();
        let begun = Instant::now();
        log.write(chunk(0));
        while !writer.is_stalled(Instant::now()) {
            assert!(log.has_room(Instant::now()), "64 KiB of 1 MiB");
            std::thread::sleep(Duration::from_millis(10));
        }
        (1..40).for_each(|number| log.write(chunk(number)));
        assert!(begun.elapsed() < 2 * STALLED_AFTER && !writer.flush(Duration::from_millis(1)));
        assert!(log.has_room(Instant::now()) && !log.is_written(log.position()));
        assert_eq!(log.position(), MAX_WAITING);
        let reader = std::thread::spawn(move || std::fs::read_to_string(path).unwrap());
        assert!(writer.flush(Duration::from_secs(10)));
        log.write(b"after\n".to_vec());
        assert!(writer.flush(Duration::from_secs(10)) && log.is_written(log.position()));
        drop((log, writer));
        let text = reader.join().unwrap();
        let whole: String = (0..16).map(|number| String::from_utf8(chunk(number)).unwrap()).collect();
        let note = format!("kend: {} bytes could not be written here\n", 24 * 65_536);
        assert!(text == format!("{whole}{note}after\n"), "{} bytes", text.len());
    }

    /// The stack of the thread is small, and each line begins a file.
    #[test]
    fn a_burst_takes_any_number_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::start().unwrap();
        let mut log = writer.outlet(LogFiles::new(dir.path().join("a.log"), 0, 1), false);
        log.write("l\n".repeat(2_048).into_bytes());
        assert!(writer.flush(Duration::from_secs(60)));
        assert_eq!(log.files().hold().as_deref(), Some(&2_047));
    }

    /// A part that prints faster than the disk takes it waits, and no line is lost.
    #[test]
    fn a_disk_that_is_only_slow_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let mut slow = options.read(true).custom_flags(nix::libc::O_NONBLOCK).open(&path).unwrap();
        let writer = Writer::start().unwrap();
        let mut log = writer.outlet(LogFiles::new(path, u64::MAX, 1), false);
        let (mut read, mut block, mut waits, mut given) = (0, vec![0; 32 * 1024], 0, 0);
        while read < 4 * MAX_WAITING {
            if given < 4 * MAX_WAITING && log.has_room(Instant::now()) {
                log.write(vec![b'x'; 65_536]);
                given += 65_536;
                continue;
            }
            waits += u32::from(given < 4 * MAX_WAITING);
            read += slow.read(&mut block).map_or(0, |count| count as u64);
        }
        assert!(waits > 10 && !writer.is_stalled(Instant::now()));
        assert!(writer.flush(Duration::from_secs(10)) && log.is_written(given));
    }
}
