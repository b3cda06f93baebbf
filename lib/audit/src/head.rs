//! The head file, which names the last record that was written. It shows whether the end of a log was cut off, and
//! where to continue after a crash.
//!
//! It is written after the records are on the disk, so the record that it names always exists. It is not synced, so
//! after a power failure it may name an earlier record.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ken_types::Error;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::chain::Link;

/// The length of the file in bytes. It fits into one page, so that a reader sees either the old or the new content.
const LENGTH: usize = 192;

/// The content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) link: Link,
    /// The offset of the record's end in the log file, in bytes.
    pub(crate) offset: u64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    seq: u64,
    hash: String,
    offset: u64,
}

/// The open head file. It is locked, which makes this process the only writer of the log.
#[derive(Debug)]
pub(crate) struct HeadFile(Flock<File>);

impl HeadFile {
    pub(crate) fn open(log: &Path) -> Result<HeadFile, Error> {
        let path = path(log);
        let failed = |error: io::Error| Error::unavailable(format!("{}: {error}", path.display()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed)?;
        let locked = Flock::lock(file, FlockArg::LockExclusiveNonblock);
        locked.map(HeadFile).map_err(|_| {
            Error::conflict(format!("another process writes {}", log.display()))
                .hint("only one server can write an audit log: stop the other one, or use another --home")
        })
    }

    /// Reads the head; `None` if the file is new or damaged.
    pub(crate) fn read(&mut self) -> Option<Head> {
        let mut text = String::new();
        self.0.seek(SeekFrom::Start(0)).ok()?;
        (&mut *self.0).take(LENGTH as u64).read_to_string(&mut text).ok()?;
        parse(&text)
    }

    pub(crate) fn write(&mut self, head: &Head) -> io::Result<()> {
        let text = serde_json::to_string(&Text {
            seq: head.link.seq,
            hash: head.link.hash_text().to_owned(),
            offset: head.offset,
        })?;
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(format!("{text:<width$}\n", width = LENGTH - 1).as_bytes())
    }
}

/// Reads the head file of a log without locking it; `None` if it is missing or damaged.
pub(crate) fn beside(log: &Path) -> Option<Head> {
    parse(&std::fs::read_to_string(path(log)).ok()?)
}

/// Returns the path of the head file of a log: `security_events.head` beside `security_events.log`.
fn path(log: &Path) -> PathBuf {
    log.with_extension("head")
}

fn parse(text: &str) -> Option<Head> {
    let text: Text = serde_json::from_str(text.trim_end()).ok()?;
    Some(Head { link: Link::from_text(text.seq, &text.hash)?, offset: text.offset })
}
