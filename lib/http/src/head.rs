//! Checks the head of a request before hyper parses it (RFC 9112, sections 2 to 6).
//!
//! hyper answers malformed heads itself, without a body, and accepts some that the contract refuses: a bare LF, bytes
//! beyond ASCII, two hosts, two equal lengths, both a length and chunks. Each head is therefore checked here first, in one pass
//! over its bytes, and a refusal is answered like any other error. hyper accepts every head that passes.

use http::{StatusCode, Uri};
use ken_types::{Code, Error};

use crate::failure::Failure;
use crate::limits::Limits;

/// A head that is complete and well formed: its length, and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub length: usize,
    pub body: BodyLength,
}

/// How the body after a head is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    Chunked,
}

/// Reads a head as it arrives, and remembers how far it has read.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    /// The first byte that has not been read.
    at: usize,
    /// Where the current line starts.
    line_start: usize,
    lines: usize,
    version_1_0: bool,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

impl HeadReader {
    /// Whether no byte of the head has arrived yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.at == 0
    }

    /// Reads what has arrived so far, from the request line on. `None` if the head is not complete.
    pub(crate) fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<Head>, Failure> {
        while let Some(line) = self.next_line(bytes)? {
            if line.is_empty() {
                return self.finish(limits).map(Some);
            }
            if self.lines == 0 {
                self.request_line(line)?;
            } else {
                self.field(line)?;
            }
            self.lines += 1;
            if self.lines > limits.head_lines + 1 {
                return Err(too_large(format!("more than {} header lines", limits.head_lines)));
            }
        }
        if bytes.len() >= limits.head_bytes {
            return Err(too_large(format!("headers of more than {} bytes", limits.head_bytes)));
        }
        Ok(None)
    }

    /// The next complete line, without its CRLF. A line has only visible ASCII characters, spaces and tabs.
    fn next_line<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, Failure> {
        let unseen = bytes.get(self.at..).unwrap_or_default();
        let Some(skip) = unseen.iter().position(|byte| !is_text(*byte)) else {
            self.at = bytes.len();
            return Ok(None);
        };
        self.at += skip;
        match (bytes.get(self.at), bytes.get(self.at + 1)) {
            (Some(b'\r'), Some(b'\n')) => {
                let line = bytes.get(self.line_start..self.at);
                self.at += 2;
                self.line_start = self.at;
                Ok(line)
            }
            (Some(b'\r'), None) => Ok(None),
            (Some(b'\r'), _) => Err(bad("a CR without LF")),
            (Some(b'\n'), _) => Err(bad("a line that ends in LF without CR")),
            _ => Err(bad("a byte in the headers that is not visible ASCII")),
        }
    }

    fn request_line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let mut parts = line.split(|byte| *byte == b' ');
        let (method, target, version) = (parts.next(), parts.next(), parts.next());
        let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
            return Err(bad("a request line is METHOD, one blank, target, one blank, HTTP/1.1"));
        };
        if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
            return Err(bad("a bad method in the request line"));
        }
        if !(target.starts_with(b"/") || is_absolute(target)) || !target.iter().all(|byte| is_target(*byte)) {
            return Err(bad("a bad target in the request line"));
        }
        self.version_1_0 = version == b"HTTP/1.0";
        if !self.version_1_0 && version != b"HTTP/1.1" {
            return Err(bad("a version other than HTTP/1.1 and HTTP/1.0"));
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Failure> {
        let colon = line.iter().position(|byte| !is_token(*byte)).unwrap_or(line.len());
        let (name, rest) = line.split_at_checked(colon).unwrap_or_default();
        let Some((b':', value)) = rest.split_first() else {
            return Err(bad("a header line without name and colon"));
        };
        if name.is_empty() {
            return Err(bad("a header line without a name"));
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Failure> {
        self.hosts += 1;
        if value.trim_ascii().iter().all(|byte| is_host(*byte)) { Ok(()) } else { Err(bad_at("host", "a bad Host")) }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Failure> {
        let digits = value.trim_ascii();
        // Nineteen digits fit in 64 bits, and no body has that many bytes.
        let well_formed = (1..=19).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
        if self.length.is_some() || !well_formed {
            return Err(bad_at("content-length", "two lengths, or a length that is not a number"));
        }
        let sum = digits.iter().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        self.length = Some(sum);
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.chunked || self.version_1_0 || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err(bad_at("transfer-encoding", "a transfer encoding other than one chunked"));
        }
        self.chunked = true;
        Ok(())
    }

    /// The checks that need the whole head.
    fn finish(&self, limits: &Limits) -> Result<Head, Failure> {
        if self.lines == 0 {
            return Err(bad("an empty line instead of a request line"));
        }
        if self.at > limits.head_bytes {
            return Err(too_large(format!("headers of more than {} bytes", limits.head_bytes)));
        }
        if self.hosts > 1 || self.hosts == 0 && !self.version_1_0 {
            return Err(bad_at("host", "a request has exactly one Host"));
        }
        if self.chunked && self.length.is_some() {
            return Err(bad_at("content-length", "both a length and chunks"));
        }
        let body = if self.chunked { BodyLength::Chunked } else { BodyLength::Known(self.length.unwrap_or_default()) };
        Ok(Head { length: self.at, body })
    }
}

/// The request id in a head that is refused, so that the response can carry it.
pub(crate) fn request_id_in(bytes: &[u8]) -> Option<&[u8]> {
    const NAME: &[u8] = b"x-request-id:";
    let mut lines = bytes.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let (name, value) = line.split_at_checked(NAME.len())?;
        let value = value.trim_ascii();
        (name.eq_ignore_ascii_case(NAME) && is_request_id(value)).then_some(value)
    })
}

/// 1 to 128 visible ASCII characters.
pub(crate) fn is_request_id(value: &[u8]) -> bool {
    (1..=128).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic)
}

fn bad(what: &str) -> Failure {
    Failure::from(Error::new(Code::Invalid, format!("malformed request: {what}"))).closing()
}

fn bad_at(header: &str, what: &str) -> Failure {
    bad(what).at(header)
}

fn too_large(what: String) -> Failure {
    Failure::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Code::TooLarge, what).closing()
}

/// `http://host/path`, which proxies send and servers must take (RFC 9112, section 3.2.2).
fn is_absolute(target: &[u8]) -> bool {
    let with_scheme = target.starts_with(b"http://") || target.starts_with(b"https://");
    with_scheme && Uri::try_from(target).is_ok()
}

/// A byte of a line: visible ASCII, a blank or a tab.
fn is_text(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// What RFC 3986 allows, and `[ ] { } |`, which clients send unescaped in queries.
fn is_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`')
}

/// A name, an address or a bracketed address, and a port (RFC 3986, section 3.2, without user information).
fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'$'..=b'+' | b'-' | b'.' | b':' | b';' | b'=' | b'[' | b']' | b'_' | b'~')
}

#[cfg(test)]
mod tests;
