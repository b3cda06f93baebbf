//! The log files: appending, daily rotation, and recovery after a crash.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ken_types::{Error, Timestamp};

use crate::chain::{Link, TAIL};
use crate::head::{Head, HeadFile};
use crate::record::{OPENED, Record};

/// The name of the current file. The files of earlier days beside it are named `security_events.YYYY-MM-DD.log`.
pub const FILE: &str = "security_events.log";
/// The maximum number of files of earlier days. Older ones are deleted.
pub const MAX_OLD_FILES: usize = 14;

/// The audit log in a folder, open for appending. A lock ensures that only one process writes it.
#[derive(Debug)]
pub struct Trail {
    dir: PathBuf,
    file: File,
    head_file: HeadFile,
    /// The last record on disk, and the offset of its end.
    head: Head,
    /// The day of the file's first record in UTC, `YYYY-MM-DD`; empty if the file is empty.
    day: String,
    /// Whether a write has failed. There may then be bytes after the last record, which the next write removes first.
    write_failed: bool,
    buffer: Vec<u8>,
}

impl Trail {
    /// Opens the log in a folder, and creates the folder with mode 0700 if needed. Removes a record that was only
    /// partly written before a crash. Records whose append has succeeded are never removed. Fails with `conflict` if
    /// another process writes the log.
    pub fn open(dir: &Path) -> Result<Trail, Error> {
        let failed = |error: io::Error| Error::unavailable(format!("the audit log below {}: {error}", dir.display()));
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir).map_err(failed)?;
        let path = dir.join(FILE);
        let mut head_file = HeadFile::open(&path)?;
        let mut file = open_file(&path).map_err(failed)?;
        let known = head_file.read();
        let head = resume(&mut file, known).map_err(failed)?;
        file.set_len(head.offset).map_err(failed)?;
        let day = day_of_file(&mut file).map_err(failed)?;
        Ok(Trail { dir: dir.to_owned(), file, head_file, head, day, write_failed: false, buffer: Vec::new() })
    }

    /// Returns the state of the chain after the last record.
    pub fn link(&self) -> Link {
        self.head.link
    }

    /// Appends records, and returns when all of them are on the disk. After an error none of them has been appended,
    /// and a later call can succeed.
    pub fn append(&mut self, records: &[Record]) -> Result<Link, Error> {
        let written = self.try_append(records);
        if written.is_err() {
            self.write_failed = true;
        }
        written.map_err(|error| Error::unavailable(format!("the audit log cannot be written: {error}")))
    }

    fn try_append(&mut self, records: &[Record]) -> io::Result<Link> {
        let Some(first) = records.first() else {
            return Ok(self.head.link);
        };
        if self.write_failed {
            self.file.set_len(self.head.offset)?;
            self.write_failed = false;
        }
        self.start_day(first.time.day())?;
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let link = self.write_lines(records, first.time, &mut buffer);
        let written = link.and_then(|link| self.put(&buffer).map(|()| link));
        self.buffer = buffer;
        let link = written?;
        self.head.link = link;
        // The records are safe even if the head file cannot be written.
        _ = self.head_file.write(&self.head);
        Ok(link)
    }

    fn write_lines(&self, records: &[Record], now: Timestamp, out: &mut Vec<u8>) -> io::Result<Link> {
        let mut link = self.head.link;
        if self.head.offset == 0 {
            let opened = Record { time: now, ..Record::new(OPENED, "", "") };
            link = opened.write(&link, out).map_err(io::Error::other)?;
        }
        for record in records {
            link = record.write(&link, out).map_err(io::Error::other)?;
        }
        Ok(link)
    }

    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.head.offset))?;
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.head.offset += lines.len() as u64;
        Ok(())
    }

    /// Starts a new file if the day has changed. A clock that was set back to an earlier day starts none.
    fn start_day(&mut self, day: String) -> io::Result<()> {
        if self.day.is_empty() {
            self.day.clone_from(&day);
        }
        if day <= self.day {
            return Ok(());
        }
        let old = self.dir.join(dated(&self.day));
        if self.head.offset > 0 && !old.exists() {
            std::fs::rename(self.dir.join(FILE), &old)?;
            self.file = open_file(&self.dir.join(FILE))?;
            File::open(&self.dir)?.sync_all()?;
            self.head.offset = 0;
            self.prune();
        }
        self.day = day;
        Ok(())
    }

    /// Deletes the oldest files. If one cannot be deleted, this is tried again the next day.
    fn prune(&self) {
        let days = dated_files(&self.dir).unwrap_or_default();
        for path in days.iter().rev().skip(MAX_OLD_FILES) {
            _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the paths of all files of the log in a folder, oldest first.
pub fn files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = dated_files(dir)?;
    files.extend(Some(dir.join(FILE)).filter(|path| path.exists()));
    Ok(files)
}

fn dated_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut days = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_dated(name) {
            days.push(path);
        }
    }
    days.sort_unstable();
    Ok(days)
}

fn is_dated(name: &str) -> bool {
    let day = name.strip_prefix("security_events.").and_then(|rest| rest.strip_suffix(".log"));
    day.is_some_and(|day| day.len() == 10 && day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
}

fn dated(day: &str) -> String {
    format!("security_events.{day}.log")
}

fn open_file(path: &Path) -> io::Result<File> {
    check_regular(path)?;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Refuses a log that is a pipe or a device: opening it could block forever, and what is written to it would be lost.
pub(crate) fn check_regular(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => Err(io::Error::other("it is not a regular file")),
        _ => Ok(()), // all other errors are reported when the file is opened
    }
}

/// Returns the day of the file's first record; empty if the file has none.
fn day_of_file(file: &mut File) -> io::Result<String> {
    let mut begin = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(256).read_to_end(&mut begin)?;
    let text = String::from_utf8_lossy(&begin);
    let day = text.split("\"time\":\"").nth(1).and_then(|rest| rest.get(..10));
    Ok(day.unwrap_or_default().to_owned())
}

/// Returns the last record of the log and the offset at which the next one is written. The search begins at the record
/// that the head file names and follows the chain from there. The caller removes the bytes after that offset, which
/// belong to a record whose append has not succeeded.
fn resume(file: &mut File, known: Option<Head>) -> io::Result<Head> {
    if let Some(head) = known
        && ends_with(file, &head)?
    {
        return follow(file, head);
    }
    let all = read_from(file, 0)?;
    let offset = end_of_lines(&all);
    match (known, last_record(&all)) {
        // The head file names the last record of the previous day's file.
        (Some(head), Some(_)) if follows(&all, &head) => follow(file, Head { link: head.link, offset: 0 }),
        // Records are missing at the end of the file. The next record gets the number after the one in the head file,
        // so the gap remains visible.
        (Some(head), last) if last.is_none_or(|last| last.seq < head.link.seq) => Ok(Head { link: head.link, offset }),
        (_, last) => Ok(Head { link: last.unwrap_or(Link::START), offset }),
    }
}

/// Returns whether the record that the head file names ends at the offset in the head file.
fn ends_with(file: &mut File, head: &Head) -> io::Result<bool> {
    let tail = TAIL as u64 + 1;
    let Some(from) = head.offset.checked_sub(tail) else {
        return Ok(false);
    };
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(tail).read_to_end(&mut end)?;
    let expected = format!(",\"hash\":\"{}\"}}\n", head.link.hash_text());
    Ok(end == expected.as_bytes())
}

/// Follows the chain after a record to the last valid one, and returns that record.
fn follow(file: &mut File, from: Head) -> io::Result<Head> {
    let rest = read_from(file, from.offset)?;
    let mut head = from;
    for line in rest.split_inclusive(|byte| *byte == b'\n') {
        let Some(record) = line.strip_suffix(b"\n") else {
            break;
        };
        let Ok(link) = head.link.follow(record) else { break };
        head = Head { link, offset: head.offset + line.len() as u64 };
    }
    Ok(head)
}

fn follows(all: &[u8], head: &Head) -> bool {
    let first = all.split(|byte| *byte == b'\n').next().unwrap_or_default();
    head.link.follow(first).is_ok()
}

/// Returns the state after the last line that is a valid record.
fn last_record(all: &[u8]) -> Option<Link> {
    let whole = all.get(..usize::try_from(end_of_lines(all)).ok()?)?;
    let mut lines = whole.split(|byte| *byte == b'\n').rev();
    lines.find_map(|line| Link::begin(line).ok())
}

fn end_of_lines(all: &[u8]) -> u64 {
    let end = all.iter().rposition(|byte| *byte == b'\n');
    end.map_or(0, |end| end as u64 + 1)
}

fn read_from(file: &mut File, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}
