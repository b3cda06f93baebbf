//! The hash chain: its state, and the check whether a line is its next record. This module does no I/O.

use std::fmt;

use ken_types::hex;
use sha2::{Digest, Sha256};

/// The state of a chain after a record: the number and the hash of that record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The number of the record, counted from 1; 0 before the first record.
    pub seq: u64,
    hash: [u8; HEX],
}

/// The number of hexadecimal digits of a SHA-256.
pub(crate) const HEX: usize = 64;
/// The text between the hashed bytes of a line and the hash.
const HASH: &[u8] = b",\"hash\":\"";
const END: &[u8] = b"\"}";
/// The length of the text from the end of the hashed bytes to the end of the line, without the line feed.
pub(crate) const TAIL: usize = HASH.len() + HEX + END.len();

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFault {
    /// The line does not have the form of a record.
    Form,
    /// The hash of the record does not match its content.
    Content,
    /// The number of the record is not the expected one: records are missing, or this one was moved.
    Order { expected: u64, found: u64 },
    /// The record does not contain the hash of the record before it.
    Link,
    /// The first record of the file is not `audit_opened`, with which every file begins.
    Beginning,
    /// The line has no line feed.
    Unfinished,
}

impl Link {
    /// The state before the very first record.
    pub const START: Link = Link { seq: 0, hash: [b'0'; HEX] };

    /// Returns the hash, in lower-case hexadecimal.
    pub fn hash_text(&self) -> &str {
        std::str::from_utf8(&self.hash).unwrap_or_default()
    }

    pub(crate) fn from_text(seq: u64, hash: &str) -> Option<Link> {
        let hash: [u8; HEX] = hash.as_bytes().try_into().ok()?;
        hash.iter().all(is_digit).then_some(Link { seq, hash })
    }

    /// Returns the state after the record that follows `before` and has these hashed bytes.
    pub(crate) fn after(before: &Link, hashed: &[u8]) -> Link {
        Link { seq: before.seq + 1, hash: digest(hashed) }
    }

    /// Checks that a line, given without its line feed, is the next record. Returns the state after it.
    pub fn follow(&self, line: &[u8]) -> Result<Link, LineFault> {
        let (found, prev) = read(line)?;
        if found.seq != self.seq + 1 {
            return Err(LineFault::Order { expected: self.seq + 1, found: found.seq });
        }
        if prev == self.hash { Ok(found) } else { Err(LineFault::Link) }
    }

    /// Checks that a line is a valid record, without knowing the record before it. Returns the state after it.
    pub fn begin(line: &[u8]) -> Result<Link, LineFault> {
        let (found, prev) = read(line)?;
        if found.seq == 1 && prev != Link::START.hash { Err(LineFault::Link) } else { Ok(found) }
    }
}

/// Returns the state after a line, and the previous hash that the line contains. Fails if the content does not match
/// its hash.
fn read(line: &[u8]) -> Result<(Link, [u8; HEX]), LineFault> {
    let (hashed, tail) =
        line.len().checked_sub(TAIL).and_then(|at| line.split_at_checked(at)).ok_or(LineFault::Form)?;
    let hash = tail.strip_prefix(HASH).and_then(|tail| tail.strip_suffix(END)).ok_or(LineFault::Form)?;
    if digest(hashed) != *hash {
        return Err(LineFault::Content);
    }
    // The hash matches, but a program other than ken may have written the line, so its form is checked too.
    let (seq, prev) = numbers(hashed).ok_or(LineFault::Form)?;
    let hash = hash.try_into().map_err(|_| LineFault::Form)?;
    Ok((Link { seq, hash }, prev))
}

/// Reads the number and the previous hash from the beginning of a record: `{"seq":N,"prev":"…",`.
fn numbers(hashed: &[u8]) -> Option<(u64, [u8; HEX])> {
    let rest = hashed.strip_prefix(b"{\"seq\":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = rest.split_at_checked(end)?;
    let seq = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let rest = rest.strip_prefix(b",\"prev\":\"")?;
    let (prev, rest) = rest.split_at_checked(HEX)?;
    rest.starts_with(b"\",").then_some((seq, prev.try_into().ok()?))
}

/// Returns the SHA-256 of bytes in hexadecimal.
fn digest(bytes: &[u8]) -> [u8; HEX] {
    let text = hex::encode(&Sha256::digest(bytes));
    text.as_bytes().try_into().unwrap_or([b'0'; HEX]) // a SHA-256 has 32 bytes
}

fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            LineFault::Order { expected, found } => return write_order(f, *expected, *found),
            LineFault::Form => "it does not have the form of a record",
            LineFault::Content => "it was changed: its hash does not match its content",
            LineFault::Link => "it does not follow the record before it",
            LineFault::Beginning => "it is not the beginning of a file: the records before it were removed",
            LineFault::Unfinished => "it has no line feed",
        };
        f.write_str(text)
    }
}

fn write_order(f: &mut fmt::Formatter<'_>, expected: u64, found: u64) -> fmt::Result {
    write!(f, "it is record {found}")?;
    match found.checked_sub(expected) {
        Some(1) => write!(f, ": record {expected} is missing"),
        Some(_) => write!(f, ": records {expected} to {} are missing", found - 1),
        None => write!(f, " in the place of record {expected}"),
    }
}
