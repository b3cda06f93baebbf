//! Examines the files of a database before SQLite opens them. SQLite silently creates a missing database again, and silently drops the
//! unreadable part of a damaged write-ahead log. This module detects both.

mod journal;
mod marker;

use std::path::{Path, PathBuf};

use journal::{Index, Journal};
use ken_types::{Code, Error};
use marker::{LogFound, Marker};

/// What was found in the files when the database was opened.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// The number of committed frames of the write-ahead log that could not be read. Their changes are lost.
    pub frames_lost: u64,
    /// Whether the database file differs from what the store left when it last stopped. It is then damaged, or another program has changed
    /// it.
    pub changed: bool,
    /// The path of the copy of the damaged log.
    pub copy: Option<PathBuf>,
    /// Whether the log is damaged, but all of its changes are in the database file as well.
    is_copied: bool,
    /// The log, if it is intact and has a header.
    log: Option<LogFound>,
}

impl Found {
    /// Returns the problem in one line for users; `None` if there is none.
    pub fn problem(&self) -> Option<String> {
        if self.frames_lost > 0 {
            let copy = self.copy.as_ref();
            let kept = copy.map_or(String::new(), |copy| format!(" (a copy is kept as {})", copy.display()));
            return Some(format!(
                "the write-ahead log is damaged: {} frames that had been committed cannot be read, so the last changes \
                 are missing{kept}",
                self.frames_lost
            ));
        }
        let message = "the database file is not as the store left it: it is damaged, or another program has changed it";
        self.changed.then(|| message.to_owned())
    }
}

/// The paths of one database, and its current marker.
#[derive(Debug)]
pub(super) struct Files {
    database: PathBuf,
    marker: Option<Marker>,
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns an error for a problem that trying again does not solve (exit status 2).
pub(super) fn refuse(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(Code::Invalid, format!("{}: {what}", path.display()))
}

impl Files {
    pub(super) fn of(database: &Path) -> Files {
        Files { database: database.to_owned(), marker: Marker::read(&beside(database, ".mark")) }
    }

    fn journal_path(&self) -> PathBuf {
        beside(&self.database, "-wal")
    }

    pub(super) fn has_no_log(&self) -> bool {
        std::fs::metadata(self.journal_path()).map_or(0, |meta| meta.len()) == 0
    }

    /// Compares the database with the log, its index and the marker. The caller must hold the lock, or know that nobody does. Fails if the
    /// files cannot be used without losing changes that they may still contain. Changes no file.
    pub(super) fn examine(&self) -> Result<Found, Error> {
        let failed = |error| refuse(&self.database, format_args!("cannot be read: {error}"));
        let log = self.journal_path();
        let journal = Journal::read(&log).map_err(failed)?;
        let index = self.index().filter(|index| self.trusts(index, &journal));
        let length = std::fs::metadata(&self.database).map_or(0, |meta| meta.len());
        self.check_length(length, &journal)?;
        let (frames, copied) = index.map_or((0, 0), |index| (index.frames, index.copied));
        let lost = journal.lost(index.as_ref());
        let mut found = Found {
            log: journal.salt.filter(|_| lost == 0).map(|salt| LogFound { salt, frames: journal.frames }),
            ..Found::default()
        };
        if lost > 0 && copied > 0 && copied == frames {
            // The database file contains all changes of this log. The readable part of the log is older, so it must not be applied again.
            found.is_copied = journal.exists;
        } else if lost > 0 && !journal.exists {
            let what = format_args!("{} is missing, with {lost} frames that had been committed", log.display());
            return Err(refuse(&self.database, what)
                .hint("put it back; to go on without its changes, remove ken.db-shm: ken-store(8), Restoring"));
        } else if lost > 0 && copied > 0 {
            let what = format_args!("damaged: {} cannot be read, and was copied in part", log.display());
            return Err(refuse(&self.database, what).hint("restore a backup: ken-store(8), Restoring"));
        } else {
            found.frames_lost = lost;
        }
        found.changed = self.is_changed().map_err(failed)?;
        Ok(found)
    }

    /// Returns whether the index can be trusted. An index that was rebuilt from the log does not know frames that were lost before. It can
    /// only be trusted if the marker says that the log was intact with as many frames.
    fn trusts(&self, index: &Index, journal: &Journal) -> bool {
        let found = self.marker.as_ref().and_then(|marker| marker.log.as_ref());
        let was_intact = found.is_some_and(|log| log.salt == index.salt && log.frames == index.frames);
        journal.is_of(index) && (!index.is_fresh || was_intact)
    }

    /// Returns the index of the log, unless it may be outdated. It is never synced, so after a power failure the file may contain an
    /// earlier version.
    fn index(&self) -> Option<Index> {
        let marker = self.marker.as_ref()?;
        let trusted = marker.running && marker.is_of_this_boot();
        trusted.then(|| Index::read(&beside(&self.database, "-shm"))).flatten()
    }

    /// Fails if the database is missing, empty or truncated, but the files beside it show that it was larger.
    fn check_length(&self, length: u64, journal: &Journal) -> Result<(), Error> {
        let expected = self.marker.as_ref().map_or(0, |marker| marker.length);
        let what = match length {
            0 if !self.database.exists() => "the file is missing".to_owned(),
            0 => "the file is empty".to_owned(),
            _ if length < expected => format!("damaged: {length} bytes of {expected} are there"),
            _ => return Ok(()),
        };
        let beside = match &self.marker {
            Some(marker) => format!("its marker ken.db.mark knows of change {}", marker.change),
            None if journal.length > 0 => format!("ken.db-wal beside it holds {} frames", journal.frames),
            None => return Ok(()),
        };
        Err(refuse(&self.database, format_args!("{what}, but {beside}")).hint(
            "put the file back, or restore a backup; to start empty, move ken.db, ken.db-wal and ken.db.mark away",
        ))
    }

    /// Returns whether the checksum of the database file differs from the one in the marker.
    fn is_changed(&self) -> std::io::Result<bool> {
        let Some(expected) = self.marker.as_ref().and_then(|marker| marker.sum) else {
            return Ok(false);
        };
        let (_, found) = marker::measure(&self.database)?;
        Ok(found.is_some_and(|found| found != expected))
    }

    /// Checks that the newest change in the opened database is not older than the newest one that the marker has recorded.
    pub(super) fn check_change(&self, newest: u64) -> Result<(), Error> {
        match &self.marker {
            Some(marker) if newest < marker.change => Err(refuse(
                &self.database,
                format_args!(
                    "its newest change is {newest}, but change {} had been stored: this is an older copy",
                    marker.change
                ),
            )
            .hint("put the newer file back; to go on with this one, remove ken.db.mark: ken-store(8), Restoring")),
            _ => Ok(()),
        }
    }

    /// Copies a damaged log to another file, before SQLite truncates it.
    pub(super) fn keep_journal(&self, found: &mut Found) -> Result<(), Error> {
        if found.frames_lost == 0 && !found.is_copied {
            return Ok(());
        }
        let log = self.journal_path();
        let copy = beside(&log, &format!(".damaged-{}", ken_types::Timestamp::now().millis()));
        let kept = match found.is_copied {
            true => std::fs::rename(&log, &copy),
            false => std::fs::copy(&log, &copy).map(drop),
        };
        kept.map_err(|error| Error::unavailable(format!("{}: cannot be copied: {error}", log.display())))?;
        found.copy = Some(copy);
        Ok(())
    }

    /// Records in the marker that a store uses the database. What the marker says about the database file stays true until the log is
    /// copied into it.
    pub(super) fn mark_running(&mut self, found: &Found) -> std::io::Result<()> {
        let known = self.marker.clone();
        let length = std::fs::metadata(&self.database)?.len();
        self.write(Marker {
            running: true,
            boot: marker::boot(),
            change: known.as_ref().map_or(0, |marker| marker.change),
            length: known.as_ref().map_or(length, |marker| marker.length),
            sum: known.and_then(|marker| marker.sum),
            log: found.log.clone(),
        })
    }

    /// Removes the checksum from the marker, because the database file is about to change. If the disk is full, removes the whole marker.
    pub(super) fn remove_checksum(&mut self) -> Result<(), Error> {
        let Some(marker) = self.marker.clone().filter(|marker| marker.sum.is_some()) else {
            return Ok(());
        };
        let written = self.write(Marker { sum: None, ..marker });
        let forgotten = written.or_else(|_| {
            self.marker = None;
            std::fs::remove_file(beside(&self.database, ".mark"))
        });
        forgotten.map_err(|error| Error::unavailable(format!("the marker cannot be written: {error}")))
    }

    /// Returns whether the log is empty and the marker says so.
    pub(super) fn is_cut(&self) -> bool {
        let length = std::fs::metadata(&self.database).map_or(0, |meta| meta.len());
        let known = self.marker.as_ref();
        self.has_no_log() && known.is_some_and(|known| known.sum.is_some() && known.length == length)
    }

    /// Records in the marker that the log has been copied completely. The database file then contains everything up to the change `change`,
    /// and is not being changed.
    pub(super) fn mark_copied(&mut self, change: u64, running: bool) -> std::io::Result<()> {
        let (length, sum) = marker::measure(&self.database)?;
        let boot = marker::boot();
        self.write(Marker { running, boot, change, length, sum, log: None })
    }

    fn write(&mut self, marker: Marker) -> std::io::Result<()> {
        if self.marker.as_ref() == Some(&marker) {
            return Ok(());
        }
        marker.write(&beside(&self.database, ".mark"))?;
        self.marker = Some(marker);
        Ok(())
    }
}
