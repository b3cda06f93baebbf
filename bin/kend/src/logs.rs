//! The logs of the parts. Each part writes to a pipe that stays open across restarts. kend writes the data to a file
//! that is rotated by size, and keeps a limited number of old files.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ken_types::Error;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;

use crate::writer::Outlet;

/// Bytes per read. This is the capacity of a pipe, so a single read after a process has ended gets everything that was
/// left in it.
pub(crate) const CHUNK: usize = 64 * 1024;
/// The maximum number of bytes of the last line that are kept for messages.
const MAX_LAST_LINE_BYTES: usize = 1024;

/// The pipe of one part, and the way into its log.
pub(crate) struct Log {
    pub(crate) out: Outlet,
    read: File,
    write: OwnedFd,
    /// True if the last byte from the pipe is not a line end.
    is_in_a_line: bool,
    last: Vec<u8>,
}

impl Log {
    pub(crate) fn new(out: Outlet) -> std::io::Result<Log> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        // Only kend's end does not block. A part that prints faster than kend reads must wait and not get an error.
        fcntl(&read, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Log::over([read, write], false, out))
    }

    /// The log over a pipe that exists already.
    pub(crate) fn over(ends: [OwnedFd; 2], is_in_a_line: bool, out: Outlet) -> Log {
        let [read, write] = ends;
        Log { out, read: File::from(read), write, is_in_a_line, last: Vec::new() }
    }

    pub(crate) fn is_in_a_line(&self) -> bool {
        self.is_in_a_line
    }

    /// Returns the write end of the pipe, for standard output and error of the part. kend keeps it open, so that the
    /// read end does not reach end of file between two processes.
    pub(crate) fn writer(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// Moves at most one chunk from the pipe towards the file. Returns whether there was anything.
    pub(crate) fn pump(&mut self, chunk: &mut [u8]) -> bool {
        let count = match self.read.read(chunk) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(_) => return false,
        };
        let bytes = chunk.get(..count).unwrap_or_default();
        self.is_in_a_line = bytes.last().map_or(self.is_in_a_line, |last| *last != b'\n');
        self.keep_last_line(bytes);
        self.out.write(bytes.to_vec());
        count > 0
    }

    /// Reads what a process that has ended left in the pipe, and ends its last line.
    pub(crate) fn drain(&mut self, chunk: &mut [u8]) {
        self.pump(chunk);
        if std::mem::take(&mut self.is_in_a_line) {
            self.out.write(vec![b'\n']);
        }
    }

    fn keep_last_line(&mut self, bytes: &[u8]) {
        let mut lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        if let Some(line) = lines.next_back() {
            self.last.clear();
            self.last.extend_from_slice(line.get(..MAX_LAST_LINE_BYTES).unwrap_or(line));
        }
    }

    /// Returns the last line for a message to a person: an error as a sentence, and of another JSON record only the message.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.last).trim().to_owned();
        if let Ok(error) = serde_json::from_str::<Error>(&text) {
            return Some(error.to_string());
        }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rotating::LogFiles;
    use crate::writer::Writer;

    #[test]
    fn a_part_that_dies_within_a_line_does_not_spoil_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::start().unwrap();
        let mut log = Log::new(writer.outlet(LogFiles::new(dir.path().join("a.log"), 1000, 1), false)).unwrap();
        let mut chunk = vec![0; CHUNK];
        nix::unistd::write(log.writer(), b"{\"fields\":{\"message\":\"no disk\"}}\nhalf").unwrap();
        log.drain(&mut chunk);
        nix::unistd::write(log.writer(), b"next\n{\"level\":\"E\",\"message\":\"no disk\"}\n").unwrap();
        assert!(log.pump(&mut chunk));
        assert!(!log.pump(&mut chunk));
        assert!(writer.flush(Duration::from_secs(10)));
        let text = std::fs::read_to_string(log.out.files().path(0)).unwrap();
        assert!(text.contains("\nhalf\nnext\n"), "{text}");
        assert_eq!(log.last_line().as_deref(), Some("no disk"));
        nix::unistd::write(log.writer(), b"{\"level\":\"ERROR\",\"message\":\"no key\",\"code\":\"invalid\",\"at\":\"/x.toml:2\",\"hint\":\"add it\"}\n").unwrap();
        assert!(log.pump(&mut chunk));
        assert_eq!(log.last_line().as_deref(), Some("no key (at /x.toml:2); add it"));
    }
}
