//! One connection to the control socket. It reads and writes lines (ken-wire(5)) without blocking, and limits the
//! memory it uses. The server of lib/wire needs an async runtime; kend has none, because it has to collect its children itself
//! and to start them from the one thread whose end kills them.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::limits::{WIRE_LINE_BYTES, WIRE_OPEN_REQUESTS};
use ken_wire::{answer, refusal};
use nix::poll::PollFlags;
use serde::Serialize;
use serde_json::Value;

use crate::pending::Pending;

/// The maximum time between the first byte of a line and its end.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// A caller that reads no output for this long is disconnected.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// While this many bytes are unsent, no further requests are read and no further output is prepared.
const MAX_UNSENT: usize = 1024 * 1024;
const CHUNK: usize = 64 * 1024;

pub(crate) struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    /// When the first byte of an incomplete line arrived.
    begun: Option<Instant>,
    output: Vec<u8>,
    /// Since when output cannot be sent because the caller does not read it.
    stalled: Option<Instant>,
    pub(crate) open: Vec<Open>,
    /// True if nothing more is read, because the caller has shut down its write half or sent an invalid line. Its
    /// replies are still sent.
    no_input: bool,
    /// True if the connection is closed or broken.
    lost: bool,
}

/// A request whose final line has not been sent yet.
pub(crate) struct Open {
    pub(crate) id: u64,
    pub(crate) deadline: Option<Instant>,
    pub(crate) pending: Pending,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Connection {
        Connection {
            stream,
            input: Vec::new(),
            begun: None,
            output: Vec::new(),
            stalled: None,
            open: Vec::new(),
            no_input: false,
            lost: false,
        }
    }

    pub(crate) fn wants(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, !self.no_input && self.has_room());
        flags.set(PollFlags::POLLOUT, !self.output.is_empty());
        flags
    }

    /// Whether more output may be prepared.
    pub(crate) fn has_room(&self) -> bool {
        self.output.len() < MAX_UNSENT
    }

    /// Whether the connection can be dropped: it is lost, or nothing is left to read, to reply or to send.
    pub(crate) fn is_over(&self) -> bool {
        self.lost || self.no_input && self.open.is_empty() && self.output.is_empty()
    }

    /// Reads available input, at most one chunk.
    pub(crate) fn read(&mut self, now: Instant) {
        let mut chunk = [0; CHUNK];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.no_input = true,
            Ok(count) => {
                self.input.extend_from_slice(chunk.get(..count).unwrap_or_default());
                self.begun.get_or_insert(now);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.lost = true,
        }
    }

    /// Notes that the caller has closed the connection.
    pub(crate) fn hang_up(&mut self) {
        self.lost = true;
    }

    /// Takes the next complete line, unless too much output is unsent. A line that is too long is refused, and no more
    /// input is read.
    pub(crate) fn next_line(&mut self, now: Instant) -> Option<Vec<u8>> {
        if !self.has_room() || self.lost {
            return None;
        }
        let end = self.input.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(self.input.len()) >= WIRE_LINE_BYTES {
            self.refuse(None, &Error::too_large(format!("a line has at most {WIRE_LINE_BYTES} bytes")));
            self.stop_reading();
            return None;
        }
        let rest = self.input.split_off(end? + 1);
        let mut line = std::mem::replace(&mut self.input, rest);
        line.pop();
        self.begun = (!self.input.is_empty()).then_some(now);
        Some(line)
    }

    /// Stops reading and forgets the open requests. Prepared output is still sent.
    fn stop_reading(&mut self) {
        self.input.clear();
        self.begun = None;
        self.open.clear();
        self.no_input = true;
    }

    /// Whether the maximum number of open requests is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.open.len() >= WIRE_OPEN_REQUESTS
    }

    pub(crate) fn item(&mut self, id: u64, item: &impl Serialize) {
        self.line(Some(id), "item", item);
    }

    pub(crate) fn finish(&mut self, id: u64, result: Result<Value, Error>) {
        match result {
            Ok(value) => self.line(Some(id), "ok", &value),
            Err(error) => self.refuse(Some(id), &error),
        }
    }

    pub(crate) fn refuse(&mut self, id: Option<u64>, error: &Error) {
        self.output.extend_from_slice(&refusal(id, error));
    }

    fn line(&mut self, id: Option<u64>, key: &str, value: &impl Serialize) {
        let line = answer(id, key, value).unwrap_or_else(|error| refusal(id, &error));
        self.output.extend_from_slice(&line);
    }

    /// Sends as much output as the socket accepts without blocking.
    pub(crate) fn flush(&mut self, now: Instant) {
        let had_room = self.has_room();
        while !self.output.is_empty() && !self.lost {
            match self.stream.write(&self.output) {
                Ok(count) => {
                    self.output.drain(..count);
                    self.stalled = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert(now);
                    break;
                }
                Err(_) => self.lost = true,
            }
        }
        if self.output.capacity() > CHUNK {
            self.output.shrink_to(CHUNK);
        }
        if !had_room && self.has_room() {
            // The line has its whole time from here on: nothing was read while there was no room for a reply.
            self.begun = self.begun.map(|_| now);
        }
    }

    /// Returns the earliest deadline: of an open request, of an incomplete line, or for the caller to read.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        // A line that is not being read has no deadline. One that had passed and was not acted on would keep kend awake.
        let is_reading = !self.no_input && self.has_room();
        let line = self.begun.filter(|_| is_reading).map(|since| since + LINE_TIMEOUT);
        let stall = self.stalled.map(|since| since + STALL_TIMEOUT);
        let deadlines = self.open.iter().filter_map(|open| open.deadline);
        deadlines.chain(line).chain(stall).min()
    }

    /// Disconnects a caller that does not read, and refuses a line that is not complete in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        let passed = |since: Option<Instant>, limit| since.is_some_and(|since| since + limit <= now);
        if passed(self.stalled, STALL_TIMEOUT) {
            self.lost = true;
        }
        if passed(self.begun, LINE_TIMEOUT) && self.has_room() && !self.no_input {
            self.refuse(None, &Error::deadline("a line has to be complete 10 s after its first byte"));
            self.stop_reading();
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While the replies of a caller fill the buffer, its next line is not read. That time is not the time of the line.
    #[test]
    fn a_line_has_its_whole_time_after_the_caller_has_read() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let start = Instant::now();
        let mut connection = Connection::new(ours);
        theirs.write_all(b"{\"unfinished").unwrap();
        connection.read(start);
        for number in 0..24 {
            connection.finish(number, Ok(Value::from("x".repeat(CHUNK))));
        }
        connection.flush(start);
        assert!(!connection.has_room());
        let later = start + LINE_TIMEOUT + LINE_TIMEOUT / 2;
        connection.expire(later);
        let mut replies = vec![0; 4 * MAX_UNSENT];
        while !connection.output.is_empty() {
            let _ = theirs.read(&mut replies).unwrap();
            connection.flush(later);
        }
        for (after, is_open) in [(LINE_TIMEOUT - Duration::from_millis(1), true), (LINE_TIMEOUT, false)] {
            connection.expire(later + after);
            assert_eq!(!connection.no_input, is_open, "{after:?}");
        }
    }

    #[test]
    fn the_length_of_a_line() {
        let now = Instant::now();
        for (length, fits) in [(WIRE_LINE_BYTES, true), (WIRE_LINE_BYTES + 1, false)] {
            let mut connection = Connection::new(UnixStream::pair().unwrap().0);
            connection.input = vec![b'x'; length];
            connection.input[length - 1] = b'\n';
            assert_eq!(connection.next_line(now).map(|line| line.len()), fits.then(|| length - 1));
            assert_eq!(connection.no_input, !fits, "{length}");
        }
        // Nobody waits for the end of a line that is already too long.
        for (length, is_refused) in [(WIRE_LINE_BYTES - 1, false), (WIRE_LINE_BYTES, true)] {
            let mut connection = Connection::new(UnixStream::pair().unwrap().0);
            connection.input = vec![b'x'; length];
            assert_eq!((connection.next_line(now), connection.no_input), (None, is_refused), "{length}");
        }
    }
}
