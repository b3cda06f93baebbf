//! Locks that allow only one kend per state directory, and only one process of each part.
//!
//! `kend.lock` is held by kend alone, so a second kend notices at once that another one runs. `parts.lock` is held
//! through a descriptor that every part inherits. While processes of a dead kend still run, they hold this lock and
//! must be killed first. The locks use flock(2) rather than pid files, because the kernel always releases them when
//! their holders end.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ken_types::ops::kend::Listener;
use ken_types::places::Places;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::reap;

/// How long processes of a dead kend get to end: first without a signal, then after SIGKILL.
const TAKEOVER_STEPS: [(Option<Signal>, Duration); 2] =
    [(None, Duration::from_millis(50)), (Some(Signal::SIGKILL), Duration::from_secs(2))];
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Both locks, held by this process.
pub(crate) struct Locks {
    kend: File,
    parts: File,
    paths: [PathBuf; 2],
}

impl Locks {
    /// Takes both locks. Fails at once if another kend holds the first one; the error describes that kend.
    pub(crate) fn take(places: &Places) -> Result<Locks, String> {
        let paths = places.locks();
        let [kend_path, parts_path] = &paths;
        let mut kend = open(kend_path)?;
        if !try_lock(&mut kend, kend_path)? {
            return Err(format!("{} is in use: {}", places.state.display(), first(&mut kend, places)));
        }
        let _ = kend.set_len(0);
        let parts = take_over(parts_path)?;
        Ok(Locks { kend, parts, paths })
    }

    /// The locks that an earlier program of this process has taken.
    pub(crate) fn over(places: &Places, [kend, parts]: [OwnedFd; 2]) -> Locks {
        Locks { kend: File::from(kend), parts: File::from(parts), paths: places.locks() }
    }

    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.kend.as_fd(), self.parts.as_fd()]
    }

    /// Writes the pid and the addresses of this kend into the lock file, so that a second kend can report them.
    pub(crate) fn describe(&mut self, listeners: &[Listener]) {
        let mut text = format!("kend already runs there, pid {}", std::process::id());
        for listener in listeners {
            text.push_str(&format!(", {}={}", listener.name, listener.url));
        }
        let _ = self.kend.set_len(0);
        let _ = self.kend.rewind();
        let _ = self.kend.write_all(text.as_bytes());
    }

    /// Returns the descriptor of `parts.lock`, which each part inherits.
    pub(crate) fn parts_fd(&self) -> RawFd {
        self.parts.as_raw_fd()
    }

    /// Removes the lock files while the locks are still held.
    pub(crate) fn remove(&self) {
        for path in &self.paths {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Describes the kend that holds the lock. Its sockets are there before it describes itself.
fn first(lock: &mut File, places: &Places) -> String {
    let mut text = String::new();
    match lock.read_to_string(&mut text) {
        Ok(length) if length > 0 && !places.socket("kend").exists() => {
            let run = places.run.display();
            format!(
                "{text}, and cannot be reached, because its sockets in {run} are gone; end it with kill(1), and start again"
            )
        }
        Ok(length) if length > 0 => text,
        _ => String::from("another kend, which is just starting"),
    }
}

fn open(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|error| format!("cannot open {}: {error}", path.display()))
}

/// Locks the file at `path`. The file that was opened may have been removed since, so it is opened again if the path
/// names another file. Returns false if another process holds the lock.
fn try_lock(file: &mut File, path: &Path) -> Result<bool, String> {
    let wrong = |error: std::io::Error| format!("cannot lock {}: {error}", path.display());
    loop {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(wrong(error)),
        }
        let mine = file.metadata().map_err(wrong)?;
        match std::fs::metadata(path) {
            Ok(named) if (named.dev(), named.ino()) == (mine.dev(), mine.ino()) => return Ok(true),
            _ => *file = open(path)?,
        }
    }
}

/// Takes `parts.lock`. Waits for the processes of a dead kend that hold it, and kills them if they do not end.
fn take_over(path: &Path) -> Result<File, String> {
    let mut lock = open(path)?;
    for (signal, timeout) in TAKEOVER_STEPS {
        for pid in signal.iter().flat_map(|_| holders(&lock)) {
            let _ = kill(pid, signal);
        }
        let end = Instant::now() + timeout;
        while Instant::now() < end {
            if try_lock(&mut lock, path)? {
                return Ok(lock);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    let pids: Vec<String> = holders(&lock).iter().map(Pid::to_string).collect();
    Err(format!("processes of an earlier kend still live and cannot be killed: {}", pids.join(", ")))
}

/// Returns the processes that have this file open.
fn holders(lock: &File) -> Vec<Pid> {
    let Ok(mine) = lock.metadata() else {
        return Vec::new();
    };
    let own = Pid::this();
    let is_mine =
        |link: PathBuf| std::fs::metadata(link).is_ok_and(|meta| (meta.dev(), meta.ino()) == (mine.dev(), mine.ino()));
    let holds = |pid: Pid| {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        links.flatten().any(|link| is_mine(link.path()))
    };
    reap::all().filter(|pid| *pid != own && holds(*pid)).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named_as_soon_as_it_has_said_who_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::resolve(Some(folder.path()), 0, |_| None).unwrap();
        for folder in [&places.run, &places.state] {
            std::fs::create_dir(folder).unwrap();
        }
        let mut locks = Locks::take(&places).unwrap();
        let refused = || Locks::take(&places).err().unwrap();
        assert!(refused().ends_with("another kend, which is just starting"));
        locks.describe(&[]);
        assert!(refused().ends_with("start again"));
        File::create(places.socket("kend")).unwrap();
        assert!(refused().ends_with(&format!("kend already runs there, pid {}", std::process::id())));
        drop(locks);
        // A process that another test starts has a copy of the locks until it runs its program.
        let is_free = |_| {
            std::thread::sleep(POLL_INTERVAL);
            Locks::take(&places).is_ok()
        };
        assert!((0..500).any(is_free));
    }

    /// Whoever ends removes the file while it still holds the lock. A lock on a file without a name keeps nobody out.
    #[test]
    fn a_file_that_was_removed_meanwhile_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut opened = open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(try_lock(&mut opened, &path), Ok(true));
        assert_eq!(opened.metadata().unwrap().ino(), std::fs::metadata(&path).unwrap().ino());
        let mut other = open(&path).unwrap();
        assert_eq!(try_lock(&mut other, &path), Ok(false));
    }

    /// The processes of a dead kend are ended, and no others, before the lock is taken.
    #[test]
    fn only_the_processes_that_hold_the_lock_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = open(&path).unwrap();
        held.lock().unwrap();
        let sleep = |input: File| Command::new("/bin/sleep").arg("1000").stdin(input).spawn().unwrap();
        let (mut holder, mut other) = (sleep(held), sleep(File::open("/dev/null").unwrap()));
        let mine = open(&path).unwrap();
        assert_eq!(holders(&mine), [Pid::from_raw(holder.id() as i32)]);
        let taken = take_over(&path);
        assert!(taken.is_ok() && holder.wait().unwrap().code().is_none());
        assert_eq!(other.try_wait().unwrap(), None);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
