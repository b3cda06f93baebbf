//! Bounded lines from a socket.

use std::io;
use std::time::Duration;

use ken_types::limits::WIRE_LINE_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

/// Maximum time from the first byte of a line to its LF.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// Minimum size of a read, in bytes.
const CHUNK: usize = 16 * 1024;
/// Maximum size of a buffer that is kept after a long line, in bytes. Appends to streams send many lines of this size,
/// and allocating the buffer again takes longer than reading into it.
const MAX_KEPT_BUFFER: usize = 256 * 1024;

/// Reads lines of at most [`WIRE_LINE_BYTES`]; the buffer grows only as bytes arrive.
#[derive(Debug)]
pub struct LineReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// The end of the line that was returned last, including its LF.
    taken: usize,
    /// How far the buffer has been searched for an LF.
    searched: usize,
    line_bytes: usize,
    line_time: Duration,
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A line without its LF.
    Text(&'a [u8]),
    /// The peer has ended its direction. An incomplete line is dropped.
    End,
    /// The line is too long. The rest of it is not read, so the connection has to be closed.
    TooLong,
    /// The line was not complete in time, so the connection has to be closed.
    TooSlow,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub fn new(from: R) -> LineReader<R> {
        LineReader {
            from,
            buffer: Vec::new(),
            taken: 0,
            searched: 0,
            line_bytes: WIRE_LINE_BYTES,
            line_time: LINE_TIMEOUT,
        }
    }

    /// Returns the next line. Cancel safe: bytes that have been read stay in the buffer.
    pub async fn next(&mut self) -> io::Result<Line<'_>> {
        self.discard_returned();
        let mut until = None;
        loop {
            if let Some(end) = self.find_end() {
                self.taken = end + 1;
                self.searched = self.taken;
                return Ok(Line::Text(self.buffer.get(..end).unwrap_or_default()));
            }
            if self.buffer.len() >= self.line_bytes {
                return Ok(Line::TooLong);
            }
            if !self.buffer.is_empty() && until.is_none() {
                until = Some(Instant::now() + self.line_time);
            }
            self.buffer.reserve(CHUNK);
            let read = self.from.read_buf(&mut self.buffer);
            let count = match until {
                None => read.await?,
                Some(until) => match timeout_at(until, read).await {
                    Ok(count) => count?,
                    Err(_) => return Ok(Line::TooSlow),
                },
            };
            if count == 0 {
                return Ok(Line::End);
            }
        }
    }

    pub(crate) fn source(&self) -> &R {
        &self.from
    }

    fn discard_returned(&mut self) {
        self.buffer.drain(..self.taken);
        self.searched -= self.taken;
        self.taken = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > MAX_KEPT_BUFFER {
            self.buffer = Vec::new();
        }
    }

    fn find_end(&mut self) -> Option<usize> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let found = memchr::memchr(b'\n', fresh).map(|at| at + self.searched);
        self.searched = self.buffer.len();
        found.filter(|end| *end < self.line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn reader(text: &[u8]) -> LineReader<&[u8]> {
        LineReader { line_bytes: 16, ..LineReader::new(text) }
    }

    #[tokio::test]
    async fn lines_then_the_end_and_an_unfinished_line_is_dropped() {
        let mut lines = reader(b"one\n\ntwo\nthr");
        assert_eq!(lines.next().await.unwrap(), Line::Text(b"one"));
        assert_eq!(lines.next().await.unwrap(), Line::Text(b""));
        assert_eq!(lines.next().await.unwrap(), Line::Text(b"two"));
        assert_eq!(lines.next().await.unwrap(), Line::End);
    }

    #[tokio::test]
    async fn a_line_may_have_exactly_the_limit() {
        assert_eq!(reader(b"123456789012345\n").next().await.unwrap(), Line::Text(b"123456789012345"));
        assert_eq!(reader(b"1234567890123456\n").next().await.unwrap(), Line::TooLong);
        assert_eq!(reader(b"1234567890123456").next().await.unwrap(), Line::TooLong);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_line_times_out_and_a_slow_start_does_not() {
        let (mut to, from) = tokio::io::duplex(64);
        let mut lines = LineReader::new(from);
        assert!(tokio::time::timeout(Duration::from_secs(3600), lines.next()).await.is_err());
        to.write_all(b"{").await.unwrap();
        assert_eq!(lines.next().await.unwrap(), Line::TooSlow);
    }

    #[tokio::test]
    async fn single_bytes_make_the_same_line() {
        let (mut to, from) = tokio::io::duplex(1);
        let send = async {
            for byte in b"hello\n" {
                to.write_all(&[*byte]).await.unwrap();
            }
        };
        let mut lines = LineReader::new(from);
        let (_, line) = tokio::join!(send, lines.next());
        assert_eq!(line.unwrap(), Line::Text(b"hello"));
    }
}
