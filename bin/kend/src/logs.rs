//! The logs of the parts. Each part writes to a pipe that stays open across restarts. kend writes the data to a file
//! that is rotated by size, and keeps a limited number of old files.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

/// Bytes per read. This is the capacity of a pipe, so a single read after a process has ended gets everything that was
/// left in it.
pub(crate) const CHUNK: usize = 64 * 1024;
/// The maximum number of bytes of the last line that are kept for messages.
const MAX_LAST_LINE_BYTES: usize = 1024;

/// A log file that is renamed to `.1`, `.2` and so on when it is full.
pub(crate) struct Rotating {
    path: PathBuf,
    file: Option<File>,
    size: u64,
    max: u64,
    keep: u32,
    /// The number of rotations, by which a reader finds its file again.
    rotations: u64,
    /// Bytes that could not be written since the last successful write.
    lost: u64,
    /// True if the file does not end with a line end.
    midline: bool,
}

impl Rotating {
    pub(crate) fn new(path: PathBuf, max: u64, keep: u32) -> Rotating {
        Rotating { path, file: None, size: 0, max, keep, rotations: 0, lost: 0, midline: false }
    }

    pub(crate) fn limit(&mut self, max: u64, keep: u32) {
        (self.max, self.keep) = (max, keep);
    }

    pub(crate) fn rotations(&self) -> u64 {
        self.rotations
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

    pub(crate) fn keep(&self) -> u32 {
        self.keep
    }

    /// Writes all bytes. A line is split between two files only if it is too long for one. If the disk is full, log
    /// lines are lost, but the part is not blocked.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.max.saturating_sub(self.size)).unwrap_or(usize::MAX);
        if bytes.len() <= room {
            return self.append(bytes);
        }
        let fitting = bytes.get(..room).unwrap_or_default();
        let cut = match fitting.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if self.size > 0 && !self.midline => 0,
            // The line has begun in this file, or is too long for any file: write it to its end here.
            None => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
        };
        let (here, next) = bytes.split_at(cut);
        self.append(here);
        if !next.is_empty() {
            self.rotate();
            self.write(next);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let Some(last) = bytes.last() else {
            return;
        };
        self.midline = *last != b'\n';
        if self.file.is_none() {
            self.open();
        }
        let written = self.file.as_mut().map(|file| file.write_all(bytes));
        match written {
            Some(Ok(())) => {
                self.size += bytes.len() as u64;
                if self.lost > 0 {
                    let note = format!("kend: {} bytes could not be written here\n", self.lost);
                    self.lost = 0;
                    self.append(note.as_bytes());
                }
            }
            _ => self.lost += bytes.len() as u64,
        }
    }

    fn open(&mut self) {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(&self.path);
        self.size = file.as_ref().ok().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        self.file = file.ok();
    }

    fn rotate(&mut self) {
        for age in (0..u64::from(self.keep)).rev() {
            let _ = std::fs::rename(self.path(age), self.path(age + 1));
        }
        if self.keep == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
        self.file = None;
        self.size = 0;
        self.rotations += 1;
    }
}

/// The pipe and the log file of one part.
pub(crate) struct Log {
    pub(crate) out: Rotating,
    read: File,
    write: OwnedFd,
    last: Vec<u8>,
}

impl Log {
    pub(crate) fn new(path: PathBuf, max: u64, keep: u32) -> std::io::Result<Log> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        // Only kend's end does not block. A part that prints faster than kend reads must wait and not get an error.
        fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Log { out: Rotating::new(path, max, keep), read: File::from(read), write, last: Vec::new() })
    }

    /// The log over a pipe that exists already.
    pub(crate) fn over(ends: [OwnedFd; 2], is_in_a_line: bool, path: PathBuf, max: u64, keep: u32) -> Log {
        let [read, write] = ends;
        let mut out = Rotating::new(path, max, keep);
        out.midline = is_in_a_line;
        Log { out, read: File::from(read), write, last: Vec::new() }
    }

    pub(crate) fn is_in_a_line(&self) -> bool {
        self.out.midline
    }

    /// Returns the write end of the pipe, for standard output and error of the part. kend keeps it open, so that the
    /// read end does not reach end of file between two processes.
    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// Moves at most one chunk from the pipe to the file. Returns whether there was anything.
    pub(crate) fn pump(&mut self, chunk: &mut [u8]) -> bool {
        let count = match self.read.read(chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(_) => return false,
        };
        let bytes = chunk.get(..count).unwrap_or_default();
        self.out.write(bytes);
        self.keep_last_line(bytes);
        count > 0
    }

    /// Reads what a process that has ended left in the pipe, and ends its last line.
    pub(crate) fn drain(&mut self, chunk: &mut [u8]) {
        self.pump(chunk);
        if self.out.midline {
            self.out.write(b"\n");
        }
    }

    fn keep_last_line(&mut self, bytes: &[u8]) {
        let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        if let Some(line) = lines.next_back() {
            self.last.clear();
            self.last.extend_from_slice(line.get(..MAX_LAST_LINE_BYTES).unwrap_or(line));
        }
    }

    /// Returns the last line for a message to a person. Of a JSON record it is only the message.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.last).trim().to_owned();
        let record: Option<serde_json::Value> = serde_json::from_str(&text).ok();
        let message = record.as_ref().and_then(|record| {
            let inner = record.get("fields").unwrap_or(record);
            inner.get("message")?.as_str()
        });
        let shown = message.unwrap_or(&text);
        (!shown.is_empty()).then(|| shown.to_owned())
    }
}

impl AsFd for Log {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

/// Opens a log for reading. Returns `None` if that is not possible.
pub(crate) fn open_to_read(path: &Path) -> Option<File> {
    File::open(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &Rotating) -> Vec<String> {
        let ages = (0..=u64::from(log.keep())).rev();
        ages.filter_map(|age| std::fs::read_to_string(log.path(age)).ok()).collect()
    }

    #[test]
    fn lines_stay_whole_and_only_the_oldest_are_lost() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Rotating::new(dir.path().join("a.log"), 10, 2);
        for line in 0..6 {
            log.write(format!("line {line}\n").as_bytes());
        }
        assert_eq!(all(&log), ["line 3\n", "line 4\n", "line 5\n"]);
        assert_eq!(log.rotations(), 5);
        log.write(b"x\ny");
        log.write(b"yyyyyyyyyyyy\nz\n");
        assert_eq!(all(&log), ["line 4\n", "line 5\nx\nyyyyyyyyyyyyy\n", "z\n"]);
        log.write(b"a\nb\nlong enough to fill a file\nc\n");
        assert_eq!(all(&log), ["z\na\nb\n", "long enough to fill a file\n", "c\n"]);
    }

    #[test]
    fn a_part_that_dies_within_a_line_does_not_spoil_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::new(dir.path().join("a.log"), 1000, 1).unwrap();
        let mut chunk = vec![0; CHUNK];
        nix::unistd::write(log.writer(), b"{\"fields\":{\"message\":\"no disk\"}}\nhalf").unwrap();
        log.drain(&mut chunk);
        nix::unistd::write(log.writer(), b"next\n{\"level\":\"E\",\"message\":\"no disk\"}\n").unwrap();
        assert!(log.pump(&mut chunk));
        assert!(!log.pump(&mut chunk));
        let text = std::fs::read_to_string(log.out.path(0)).unwrap();
        assert!(text.contains("\nhalf\nnext\n"), "{text}");
        assert_eq!(log.last_line().as_deref(), Some("no disk"));
    }
}
