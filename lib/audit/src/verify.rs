//! Verifies the chain through the files of a log.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use ken_types::Error;

use crate::chain::{LineFault, Link};
use crate::head;
use crate::record::OPENED;
use crate::trail::check_regular;

/// The summary of an intact chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub records: u64,
    /// The number of the first record; above 1 if older files were deleted or not given.
    pub first: u64,
    pub last: Link,
    /// Whether there is a record with the given hash; true if no hash was given.
    pub holds: bool,
}

/// The first record that is wrong or missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRecord {
    pub file: PathBuf,
    /// The line in the file, counted from 1; 0 if the missing record would follow the last line.
    pub line: u64,
    /// The number that the record should have; 0 if that is unknown.
    pub seq: u64,
    pub fault: Why,
}

/// What is wrong with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Fault(LineFault),
    /// The file ends before the record `last`, which the head file names as the last one.
    Cut {
        last: u64,
    },
    /// The head file has another hash for the record of this number.
    Replaced,
}

/// Follows the chain through files, in the order of their first records, up to the record that the head file beside the
/// last one names. `wanted` is the hash of a record to look for, in lower-case hexadecimal, or empty. The inner error
/// is the first wrong record; the outer error means that a file cannot be read.
pub fn verify(files: &[PathBuf], wanted: &str) -> Result<Result<Verified, BadRecord>, Error> {
    let mut walk = Walk {
        link: None,
        found: Verified { records: 0, first: 0, last: Link::START, holds: wanted.is_empty() },
        wanted,
        head: None,
    };
    let files = in_order(files)?;
    if let Some(last) = files.last() {
        walk.head = head::beside(last).map(|head| head.link);
    }
    for path in &files {
        let bad = walk.file(path).map_err(|error| unreadable(path, &error))?;
        if let Some(bad) = bad {
            return Ok(Err(bad));
        }
    }
    Ok(match (walk.cut(files.last()), walk.found) {
        (Some(bad), _) => Err(bad),
        (None, found) => Ok(found),
    })
}

struct Walk<'a> {
    link: Option<Link>,
    found: Verified,
    wanted: &'a str,
    head: Option<Link>,
}

impl Walk<'_> {
    fn file(&mut self, path: &Path) -> io::Result<Option<BadRecord>> {
        check_regular(path)?;
        let mut reader = BufReader::with_capacity(1 << 18, File::open(path)?);
        let mut line = Vec::new();
        let mut number = 0;
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(None);
            }
            number += 1;
            if let Err(fault) = self.line(&line, number == 1) {
                let seq = self.link.map_or(0, |link| link.seq + 1);
                return Ok(Some(BadRecord { file: path.to_owned(), line: number, seq, fault }));
            }
        }
    }

    fn line(&mut self, line: &[u8], is_first: bool) -> Result<(), Why> {
        let record = line.strip_suffix(b"\n").ok_or(Why::Fault(LineFault::Unfinished))?;
        let link = match self.link {
            Some(link) => link.follow(record),
            None => Link::begin(record),
        };
        let link = link.map_err(Why::Fault)?;
        if is_first && !opens_a_file(record) {
            return Err(Why::Fault(LineFault::Beginning));
        }
        if self.head.is_some_and(|head| head.seq == link.seq && head != link) {
            return Err(Why::Replaced);
        }
        self.take(link);
        Ok(())
    }

    fn take(&mut self, link: Link) {
        if self.link.is_none() {
            self.found.first = link.seq;
        }
        self.found.holds |= link.hash_text() == self.wanted;
        self.found.records += 1;
        self.found.last = link;
        self.link = Some(link);
    }

    /// Returns the fault if the head file names a later record than the last one that was found.
    fn cut(&self, file: Option<&PathBuf>) -> Option<BadRecord> {
        let last = self.head.filter(|head| head.seq > self.found.last.seq)?.seq;
        Some(BadRecord { file: file?.clone(), line: 0, seq: self.found.last.seq + 1, fault: Why::Cut { last } })
    }
}

fn opens_a_file(record: &[u8]) -> bool {
    // The search is limited to the beginning of the record, because the details at its end could contain the same text.
    let text = format!("\"event\":\"{OPENED}\"");
    record.windows(text.len()).take(192).any(|window| window == text.as_bytes())
}

/// Sorts files by the numbers of their first records, because callers pass them in any order. Empty files come last.
fn in_order(files: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut numbered = Vec::new();
    for path in files {
        let first = first_number(path).map_err(|error| unreadable(path, &error))?;
        numbered.push((first, path.clone()));
    }
    numbered.sort_by_key(|(first, _)| *first);
    Ok(numbered.into_iter().map(|(_, path)| path).collect())
}

fn first_number(path: &Path) -> io::Result<u64> {
    check_regular(path)?;
    let mut line = Vec::new();
    BufReader::new(File::open(path)?).read_until(b'\n', &mut line)?;
    let digits = line.strip_prefix(b"{\"seq\":").unwrap_or_default();
    let number = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let text: String = number.map(|byte| char::from(*byte)).collect();
    Ok(text.parse().unwrap_or(u64::MAX))
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("there is no file {}", path.display())),
        io::ErrorKind::IsADirectory => Error::invalid("FILE", format!("{} is a directory", path.display())),
        _ => Error::unavailable(format!("{}: {error}", path.display())),
    }
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file.display(), self.line)?;
        match (&self.fault, self.seq) {
            (Why::Fault(fault), 0) => write!(f, "the first record: {fault}"),
            (Why::Fault(fault), seq) => write!(f, "record {seq}: {fault}"),
            (Why::Replaced, seq) => write!(f, "record {seq}: it is not the record that was written last"),
            (Why::Cut { last }, seq) => {
                write!(f, "record {seq}: it is missing, like all up to record {last}: the end was cut off")
            }
        }
    }
}
