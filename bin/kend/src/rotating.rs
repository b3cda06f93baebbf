//! A log file that is renamed to `.1`, `.2` and so on when it is full. One thread writes it, and others find it by its names.

use std::fs::{DirEntry, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// The names of a log's files, and how many there are.
pub(crate) struct LogFiles {
    path: PathBuf,
    max: AtomicU64,
    keep: AtomicU64,
    /// The number of rotations, by which a reader finds its file again. It is locked while files are renamed.
    rotations: Mutex<u64>,
}

impl LogFiles {
    pub(crate) fn new(path: PathBuf, max: u64, keep: u32) -> Arc<LogFiles> {
        let (max, keep) = (AtomicU64::new(max), AtomicU64::new(keep.into()));
        Arc::new(LogFiles { path, max, keep, rotations: Mutex::new(0) })
    }

    /// Sets new limits. Returns whether fewer old files are kept than before.
    pub(crate) fn limit(&self, max: u64, keep: u32) -> bool {
        self.max.store(max, Ordering::Relaxed);
        self.keep.swap(keep.into(), Ordering::Relaxed) > keep.into()
    }

    /// Returns the number of old files that are kept.
    pub(crate) fn keep(&self) -> u64 {
        self.keep.load(Ordering::Relaxed)
    }

    /// Returns the path of the current file for `0`, and of older files for `1` and up.
    pub(crate) fn path(&self, age: u64) -> PathBuf {
        if age == 0 {
            return self.path.clone();
        }
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{age}"));
        name.into()
    }

    /// Removes the old files that are not kept any more. They are searched for, because a kill between two renames leaves a gap in
    /// their numbers.
    pub(crate) fn remove_surplus(&self) {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return;
        };
        let _rotations = self.rotations.lock();
        let age = |found: &DirEntry| {
            let found = found.file_name();
            let digits = found.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b".")?;
            std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
        };
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| age(entry).is_some_and(|age| age > self.keep())) {
            let _ = std::fs::remove_file(entry.path());
        }
    }

    /// Keeps the files from being renamed, and returns the number of rotations. `None` while they are being renamed, which takes as
    /// long as the disk stands still.
    pub(crate) fn hold(&self) -> Option<MutexGuard<'_, u64>> {
        self.rotations.try_lock()
    }
}

/// What the thread that writes needs to know of a log.
pub(crate) struct Rotating {
    files: Arc<LogFiles>,
    file: Option<File>,
    size: u64,
    /// Bytes that could not be written since the last successful write.
    lost: u64,
    /// True if the file does not end with a line end.
    midline: bool,
}

impl Rotating {
    pub(crate) fn new(files: Arc<LogFiles>, midline: bool) -> Rotating {
        Rotating { files, file: None, size: 0, lost: 0, midline }
    }

    /// Writes all bytes. A line is split between two files only if it is too long for one. If the disk is full, log
    /// lines are lost, but the part is not blocked.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        loop {
            let (here, next) = rest.split_at(self.end_of_file(rest));
            self.append(here);
            if next.is_empty() {
                return;
            }
            self.rotate();
            rest = next;
        }
    }

    /// Returns how many of the bytes belong into the current file.
    fn end_of_file(&self, bytes: &[u8]) -> usize {
        let max = self.files.max.load(Ordering::Relaxed);
        let room = usize::try_from(max.saturating_sub(self.size)).unwrap_or(usize::MAX);
        let Some(fitting) = bytes.get(..room).filter(|fitting| fitting.len() < bytes.len()) else {
            return bytes.len();
        };
        match fitting.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if self.size > 0 && !self.midline => 0,
            // The line has begun in this file, or is too long for any file: write it to its end here.
            None => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
        }
    }

    /// Notes that bytes are missing here, and says it in one line, now or when something can be written again.
    pub(crate) fn lose(&mut self, bytes: u64) {
        self.lost += bytes;
        self.report_lost();
    }

    fn append(&mut self, bytes: &[u8]) {
        self.report_lost();
        self.lost += (bytes.len() - self.put(bytes)) as u64;
    }

    fn report_lost(&mut self) {
        if self.lost == 0 {
            return;
        }
        let start = if self.midline { "\n" } else { "" };
        let note = format!("{start}kend: {} bytes could not be written here\n", self.lost);
        if self.put(note.as_bytes()) == note.len() {
            self.lost = 0;
        }
    }

    /// Writes as much as the disk takes. Returns how much that is.
    fn put(&mut self, bytes: &[u8]) -> usize {
        if self.file.is_none() && !bytes.is_empty() {
            self.open();
        }
        let mut written = 0;
        while let (Some(file), rest @ [_, ..]) = (&mut self.file, bytes.get(written..).unwrap_or_default()) {
            match file.write(rest) {
                Ok(count @ 1..) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        self.size += written as u64;
        if let Some(last) = bytes.get(..written).and_then(<[u8]>::last) {
            self.midline = *last != b'\n';
        }
        written
    }

    fn open(&mut self) {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(&self.files.path);
        self.size = file.as_ref().ok().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        self.file = file.ok();
    }

    fn rotate(&mut self) {
        let mut rotations = self.files.rotations.lock();
        let keep = self.files.keep();
        for age in (0..keep).rev() {
            let _ = std::fs::rename(self.files.path(age), self.files.path(age + 1));
        }
        if keep == 0 {
            let _ = std::fs::remove_file(&self.files.path);
        }
        self.file = None;
        self.size = 0;
        *rotations += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(files: &LogFiles) -> Vec<String> {
        let ages = (0..=files.keep()).rev();
        ages.filter_map(|age| std::fs::read_to_string(files.path(age)).ok()).collect()
    }

    #[test]
    fn lines_stay_whole_and_only_the_oldest_are_lost() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogFiles::new(dir.path().join("a.log"), 10, 2);
        let mut log = Rotating::new(files.clone(), false);
        for line in 0..6 {
            log.write(format!("line {line}\n").as_bytes());
        }
        assert_eq!(all(&files), ["line 3\n", "line 4\n", "line 5\n"]);
        assert_eq!(files.hold().as_deref(), Some(&5));
        log.write(b"x\ny");
        log.write(b"yyyyyyyyyyyy\nz\n");
        assert_eq!(all(&files), ["line 4\n", "line 5\nx\nyyyyyyyyyyyyy\n", "z\n"]);
        log.write(b"a\nb\nlong enough to fill a file\nc\n");
        assert_eq!(all(&files), ["z\na\nb\n", "long enough to fill a file\n", "c\n"]);
    }

    #[test]
    fn a_file_holds_a_line_at_least() {
        for (max, rotations) in [(0, 9), (1, 9), (4, 4), (u64::MAX, 0)] {
            let dir = tempfile::tempdir().unwrap();
            let files = LogFiles::new(dir.path().join("a.log"), max, 20);
            let mut log = Rotating::new(files.clone(), false);
            log.write("l\n".repeat(10).as_bytes());
            assert_eq!((all(&files).concat(), files.hold().as_deref()), ("l\n".repeat(10), Some(&rotations)), "{max}");
        }
    }

    #[test]
    fn only_old_files_of_this_log_that_are_not_kept_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names =
            ["a.log", "a.log.1", "a.log.2", "a.log.3", "a.log.5", "a.log.99", "a.log.x", "b.log.5", "a.log.5.gz"];
        for (keep, kept) in [(3, 7), (1, 5), (0, 4)] {
            names.iter().for_each(|name| std::fs::write(dir.path().join(name), "").unwrap());
            LogFiles::new(dir.path().join("a.log"), 10, keep).remove_surplus();
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), kept, "{keep}");
        }
    }

    #[test]
    fn what_is_missing_is_said_in_a_line_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogFiles::new(dir.path().join("folder/a.log"), 1_000, 1);
        let mut log = Rotating::new(files.clone(), false);
        log.write(b"no folder\n");
        log.lose(2);
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        log.write(b"half of a");
        log.lose(3);
        log.lose(4);
        log.write(b"next\n");
        let note = |count: u32| format!("kend: {count} bytes could not be written here\n");
        assert_eq!(all(&files), [format!("{}half of a\n{}{}next\n", note(12), note(3), note(4))]);
    }
}
