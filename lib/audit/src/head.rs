//! The head: which record is the last that was written, kept beside the files. It tells a tail that was cut off from one
//! that never was, and where to go on after a crash.
//!
//! It is written after the records are on disk, so what it names is always there; it is not synced itself, and after a
//! power cut names an earlier record at worst.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ken_types::Error;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::chain::Link;

/// The file's length: one page holds it, so that a reader sees an old or a new one.
const LENGTH: usize = 192;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) link: Link,
    /// Where the file that holds the record ends with it.
    pub(crate) offset: u64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    seq: u64,
    hash: String,
    offset: u64,
}

/// The open head file; the lock on it makes its owner the only writer of the log.
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
                .hint("one server writes one audit log: stop the other, or give another --home")
        })
    }

    /// What it says; `None` when it is new or damaged.
    pub(crate) fn read(&mut self) -> Option<Head> {
        let mut text = String::new();
        self.0.seek(SeekFrom::Start(0)).ok()?;
        (&mut *self.0)
            .take(LENGTH as u64)
            .read_to_string(&mut text)
            .ok()?;
        parse(&text)
    }

    pub(crate) fn write(&mut self, head: &Head) -> io::Result<()> {
        let text = serde_json::to_string(&Text {
            seq: head.link.seq,
            hash: head.link.hash_text().to_owned(),
            offset: head.offset,
        })?;
        self.0.seek(SeekFrom::Start(0))?;
        self.0
            .write_all(format!("{text:<width$}\n", width = LENGTH - 1).as_bytes())
    }
}

/// What the head beside a log says, for whoever only reads.
pub(crate) fn beside(log: &Path) -> Option<Head> {
    parse(&std::fs::read_to_string(path(log)).ok()?)
}

/// `security_events.head` beside `security_events.log`.
fn path(log: &Path) -> PathBuf {
    log.with_extension("head")
}

fn parse(text: &str) -> Option<Head> {
    let text: Text = serde_json::from_str(text.trim_end()).ok()?;
    Some(Head {
        link: Link::from_text(text.seq, &text.hash)?,
        offset: text.offset,
    })
}
