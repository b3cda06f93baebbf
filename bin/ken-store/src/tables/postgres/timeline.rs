//! The timeline of the server. The promotion of a standby begins a new one. A server with an older one than was seen is a primary that was
//! replaced and has come back: what was acknowledged since then is not there, and what it is told is lost.

use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use ken_types::Error;
use parking_lot::Mutex;

use crate::tables::sql::Row;

/// Asks the server for its timeline; a standby says 0. The control file has the new one only after the first checkpoint, the name of the log at once.
pub(super) const QUERY: &str = "SELECT system_identifier::text AS system, CASE WHEN pg_is_in_recovery() THEN 0
       ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint END AS number
     FROM pg_control_system()";

/// The file in the state folder with the newest timeline that was seen.
const FILE: &str = "timeline";

/// A number that all copies of a server have in common, and the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    system: String,
    number: i64,
}

impl Timeline {
    pub(super) fn of(row: &dyn Row) -> Result<Timeline, Error> {
        Ok(Timeline { system: row.get("system")?, number: row.get("number")? })
    }
}

/// The newest timeline that was seen.
#[derive(Debug, Default)]
pub(super) struct Newest {
    path: Option<PathBuf>,
    seen: Mutex<Option<Timeline>>,
}

impl Newest {
    /// Reads what was seen by earlier processes of this host. Only without the file was nothing seen: with one that cannot be read, a
    /// primary that was replaced would be taken for the right one.
    pub(super) fn of(state: &Path) -> Result<Newest, Error> {
        let path = state.join(FILE);
        let seen = match std::fs::read_to_string(&path) {
            Ok(text) => Some(read(&text).ok_or_else(|| unusable(&path, "it names no timeline"))?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(unusable(&path, error)),
        };
        Ok(Newest { path: Some(path), seen: Mutex::new(seen) })
    }

    /// Fails if a server has an older timeline than was seen.
    pub(super) fn check(&self, server: &str, found: Timeline) -> Result<(), Error> {
        let mut seen = self.seen.lock();
        if found.number == 0 || seen.as_ref() == Some(&found) {
            return Ok(());
        }
        if let Some(newest) = seen.as_ref().filter(|seen| seen.system == found.system && seen.number > found.number) {
            return Err(replaced(server, found.number, newest.number));
        }
        self.store(&found);
        *seen = Some(found);
        Ok(())
    }

    fn store(&self, found: &Timeline) {
        let Some(path) = &self.path else { return };
        if let Err(error) = write(path, found) {
            tracing::warn!("{}: cannot be written: {error}", path.display());
        }
    }
}

fn read(text: &str) -> Option<Timeline> {
    let (system, number) = text.trim().split_once(' ')?;
    Some(Timeline { system: system.to_owned(), number: number.parse().ok()? })
}

fn unusable(path: &Path, why: impl Display) -> Error {
    let place = path.display();
    Error::invalid(place.to_string(), format!("{place}: cannot be used: {why}"))
        .hint("remove it once the server that the URL leads to is the primary that was promoted last")
}

fn replaced(server: &str, own: i64, newest: i64) -> Error {
    let message = format!(
        "{server}: this server is on timeline {own}, and {newest} was seen: a standby was promoted in its place"
    );
    let hint =
        "stop it, or make it a standby; if it is meant to be used, remove the file store/timeline in the state folder";
    Error::unavailable(message).hint(hint)
}

fn write(path: &Path, found: &Timeline) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{} {}", found.system, found.number)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    // Without this, the old file can be back after a power failure.
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_newest_timeline_that_was_seen_counts_in_later_processes() {
        let state = tempfile::tempdir().unwrap();
        let found = |number| Timeline { system: "7".to_owned(), number };
        let check = |number| Newest::of(state.path()).unwrap().check("server", found(number));
        for (number, is_right) in [(2, true), (3, true), (2, false), (0, true), (3, true)] {
            assert_eq!(check(number).is_ok(), is_right, "{number}");
        }
        let file = state.path().join(FILE);
        for text in ["", "7", "7 x", "\u{fffd}"] {
            std::fs::write(&file, text).unwrap();
            let error = Newest::of(state.path()).unwrap_err();
            assert!(error.at.as_deref() == file.to_str() && error.message.contains("names no timeline"), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(check(1).is_ok(), "nothing was seen");
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(Newest::of(state.path()).is_err());
    }
}
