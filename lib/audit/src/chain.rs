//! The chain itself: where it stands, and whether a line is the next one. Pure.

use std::fmt;

use sha2::{Digest, Sha256};

/// Where a chain stands: the number and the hash of its last record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Counted from 1; 0 before the first record.
    pub seq: u64,
    hash: [u8; HEX],
}

/// Hexadecimal digits of a SHA-256.
pub(crate) const HEX: usize = 64;
/// What stands behind the bytes that are hashed.
const HASH: &[u8] = b",\"hash\":\"";
const END: &[u8] = b"\"}";
/// From the first byte behind what is hashed to the end of the line, without its LF.
pub(crate) const TAIL: usize = HASH.len() + HEX + END.len();

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has not the form of a record.
    Form,
    /// Its hash is not that of its content.
    Content,
    /// Its number is not the next one: this many records are missing, or it stands elsewhere.
    Order { expected: u64, found: u64 },
    /// It does not follow the record before it.
    Link,
    /// The first record of a file is not the one that every file begins with.
    Beginning,
    /// The line has no end.
    Unfinished,
}

impl Link {
    /// Before the first record ever.
    pub const START: Link = Link {
        seq: 0,
        hash: [b'0'; HEX],
    };

    /// The hash, in lower-case hexadecimal.
    pub fn hash_text(&self) -> &str {
        std::str::from_utf8(&self.hash).unwrap_or_default()
    }

    pub(crate) fn from_text(seq: u64, hash: &str) -> Option<Link> {
        let hash: [u8; HEX] = hash.as_bytes().try_into().ok()?;
        hash.iter().all(is_digit).then_some(Link { seq, hash })
    }

    /// The link of a record that follows `before` and of which these are the hashed bytes.
    pub(crate) fn after(before: &Link, hashed: &[u8]) -> Link {
        Link {
            seq: before.seq + 1,
            hash: hex(hashed),
        }
    }

    /// Takes a line, without its LF, as the next record.
    pub fn follow(&self, line: &[u8]) -> Result<Link, Fault> {
        let (found, prev) = read(line)?;
        if found.seq != self.seq + 1 {
            return Err(Fault::Order {
                expected: self.seq + 1,
                found: found.seq,
            });
        }
        match prev == self.hash {
            true => Ok(found),
            false => Err(Fault::Link),
        }
    }

    /// Takes a line as the first one that is known of a chain.
    pub fn begin(line: &[u8]) -> Result<Link, Fault> {
        let (found, prev) = read(line)?;
        match found.seq == 1 && prev != Link::START.hash {
            true => Err(Fault::Link),
            false => Ok(found),
        }
    }
}

/// The link that a line stands for, and the hash that it says it follows. Its content is checked against its own hash.
fn read(line: &[u8]) -> Result<(Link, [u8; HEX]), Fault> {
    let (hashed, tail) = line
        .len()
        .checked_sub(TAIL)
        .and_then(|at| line.split_at_checked(at))
        .ok_or(Fault::Form)?;
    let hash = tail
        .strip_prefix(HASH)
        .and_then(|tail| tail.strip_suffix(END))
        .ok_or(Fault::Form)?;
    if hex(hashed) != *hash {
        return Err(Fault::Content);
    }
    // What has the right hash is what was written; the rest finds lines that somebody else has written.
    let (seq, prev) = numbers(hashed).ok_or(Fault::Form)?;
    let hash = hash.try_into().map_err(|_| Fault::Form)?;
    Ok((Link { seq, hash }, prev))
}

/// `{"seq":N,"prev":"…",`
fn numbers(hashed: &[u8]) -> Option<(u64, [u8; HEX])> {
    let rest = hashed.strip_prefix(b"{\"seq\":")?;
    let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = rest.split_at_checked(end)?;
    let seq = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let rest = rest.strip_prefix(b",\"prev\":\"")?;
    let (prev, rest) = rest.split_at_checked(HEX)?;
    rest.starts_with(b"\",").then_some((seq, prev.try_into().ok()?))
}

fn hex(bytes: &[u8]) -> [u8; HEX] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; HEX];
    let digest = Sha256::digest(bytes);
    for (pair, byte) in text.chunks_exact_mut(2).zip(digest) {
        for (place, digit) in pair.iter_mut().zip([byte >> 4, byte & 15]) {
            *place = DIGITS[usize::from(digit)];
        }
    }
    text
}

fn is_digit(byte: &u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Form => f.write_str("it has not the form of a record"),
            Fault::Content => f.write_str("it was changed: its hash is not that of its content"),
            Fault::Order { expected, found } if found == &(expected + 1) => {
                write!(f, "it is record {found}: record {expected} is missing")
            }
            Fault::Order { expected, found } if found > expected => {
                write!(
                    f,
                    "it is record {found}: records {expected} to {} are missing",
                    found - 1
                )
            }
            Fault::Order { expected, found } => {
                write!(f, "it is record {found}, and stands where record {expected} was")
            }
            Fault::Link => f.write_str("it does not follow the record before it"),
            Fault::Beginning => {
                f.write_str("a file does not begin with it: what stood before it was taken away")
            }
            Fault::Unfinished => f.write_str("it has no end"),
        }
    }
}
