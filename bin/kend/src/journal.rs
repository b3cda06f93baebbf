//! kend's own log: JSON lines in `kend.log`, as every part writes them. Warnings also go to standard error.

use std::io::Write;
use std::os::fd::AsFd;

use ken_types::Timestamp;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::writer::Outlet;

pub(crate) struct Journal {
    pub(crate) out: Outlet,
}

#[derive(Serialize)]
struct Record<'a> {
    timestamp: Timestamp,
    level: &'static str,
    target: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'a str>,
    message: &'a str,
}

impl Journal {
    /// Logs an event.
    pub(crate) fn note(&mut self, part: Option<&str>, message: &str) {
        self.write("INFO", part, message);
    }

    /// Logs a warning, and prints it on standard error.
    pub(crate) fn warn(&mut self, part: Option<&str>, message: &str) {
        self.write("WARN", part, message);
        let name = part.map(|part| format!("{part} ")).unwrap_or_default();
        write_or_drop(std::io::stderr(), &format!("kend: {name}{message}"));
    }

    fn write(&mut self, level: &'static str, part: Option<&str>, message: &str) {
        let record = Record { timestamp: Timestamp::now(), level, target: "kend", part, message };
        if let Ok(mut line) = serde_json::to_vec(&record) {
            line.push(b'\n');
            self.out.write(line);
        }
    }
}

/// pipe(7): if `poll` reports a pipe as writable, a write of at most this many bytes does not block.
const PIPE_BUF: usize = 4_096;

/// Writes a line, or drops it if the write would block, because a full pipe or a terminal stopped with Ctrl+S must not
/// stop the supervisor. The line is in `kend.log` in any case.
fn write_or_drop(mut to: impl Write + AsFd, line: &str) {
    let is_writable = {
        let mut polled = [PollFd::new(to.as_fd(), PollFlags::POLLOUT)];
        let ready = poll(&mut polled, PollTimeout::ZERO);
        let mut events = polled.iter().filter_map(PollFd::revents);
        ready.is_ok() && events.any(|events| events.contains(PollFlags::POLLOUT))
    };
    if is_writable {
        let end = (0..PIPE_BUF.min(line.len() + 1)).rev().find(|end| line.is_char_boundary(*end));
        let line = line.get(..end.unwrap_or_default()).unwrap_or_default();
        // A single write keeps output of other processes from appearing within the line.
        let _ = to.write_all(format!("{line}\n").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up() {
        let (from, to) = nix::unistd::pipe().unwrap();
        let mut to = File::from(to);
        let line = "é".repeat(PIPE_BUF);
        for _ in 0..100 {
            write_or_drop(&mut to, &line);
            write_or_drop(&mut to, "short");
        }
        drop(to);
        let mut text = String::new();
        File::from(from).read_to_string(&mut text).unwrap();
        assert!(text.ends_with('\n') && text.lines().count() >= 10);
        let is_whole = |line: &str| line == "short" || line.len() == PIPE_BUF - 2;
        assert!(text.lines().all(is_whole), "{}", text.len());
    }
}
