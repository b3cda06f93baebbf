//! Where a backup is written, and which older ones are removed.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use ken_types::{Error, Timestamp};

/// The names of backups in a folder: `ken-2026-11-27T03-00-00.000Z.tar`, of equal length, so that they sort by time.
const PREFIX: &str = "ken-";
const SUFFIX: &str = ".tar";
/// What is added to the name of a backup for the backup that is being written, and for the copy of the database. Files with these names are
/// removed unasked, so they must be names that nobody else gives: `notes.db` beside a backup `notes` is the file of another program.
pub(super) const PART: &str = ".ken-part";
pub(super) const COPY: &str = ".ken-copy";

pub(super) struct Target {
    pub(super) file: PathBuf,
    pub(super) folder: PathBuf,
    /// Locked while the backup is written, so that two of them do not share temporary names.
    _lock: File,
    keep: Option<usize>,
}

impl Target {
    /// Returns the file to write, which does not exist. If `path` is a folder, the file is named after the time.
    pub(super) fn of(path: &Path, keep: Option<u32>) -> Result<Target, Error> {
        let is_folder = path.is_dir();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = if is_folder { path } else { parent }.to_owned();
        let at = |error: std::io::Error| Error::invalid(folder.display().to_string(), error.to_string());
        let lock = File::open(&folder).map_err(at)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::busy(format!("another backup is being written to {}", folder.display()), 5_000));
            }
            Err(TryLockError::Error(error)) => return Err(at(error)),
        }
        if !is_folder {
            if keep.is_some() {
                let why = format!("{} is not a folder", path.display());
                return Err(Error::invalid("--keep", why).hint("name a folder for the backups"));
            }
            if path.symlink_metadata().is_ok() {
                return Err(Error::invalid(path.display().to_string(), "exists already").hint("name a new file"));
            }
            return Ok(Target { file: path.to_owned(), folder, _lock: lock, keep: None });
        }
        for name in own_names(&folder, |end| end.starts_with(PART) || end.starts_with(COPY)) {
            _ = std::fs::remove_file(folder.join(name)); // what a backup that was killed has left
        }
        let file = folder.join(name_of(Timestamp::now()));
        let keep = keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
        Ok(Target { file, folder, _lock: lock, keep })
    }

    pub(super) fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.file.clone().into_os_string();
        path.push(end);
        path.into()
    }

    /// Removes the oldest backups in the folder, but not the new one. Called when that is complete, so that there are never fewer.
    pub(super) fn rotate(&self) -> Result<(), Error> {
        let Some(keep) = self.keep else { return Ok(()) };
        let new = self.file.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let mut names: Vec<String> = own_names(&self.folder, str::is_empty).filter(|name| name != new).collect();
        // Those that are dated after the new one are from a time at which the clock was ahead, or it is behind now. In both cases they are
        // older than it. They go first: if they went last, they would take the place of new ones for ever.
        names.sort_by_key(|name| (name.as_str() < new, name.clone()));
        for name in names.iter().take((names.len() + 1).saturating_sub(keep)) {
            let path = self.folder.join(name);
            std::fs::remove_file(&path).map_err(|error| Error::unavailable(format!("{}: {error}", path.display())))?;
        }
        Ok(())
    }
}

fn name_of(time: Timestamp) -> String {
    format!("{PREFIX}{}{SUFFIX}", time.to_string().replace(':', "-"))
}

/// Returns the names in a folder that begin with that of a backup, and of which the rest `ends` as asked for. A person may have compressed or
/// encrypted a backup beside it.
fn own_names(folder: &Path, ends: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let length = name_of(Timestamp::now()).len();
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(move |name| {
        let Some((name, end)) = name.split_at_checked(length) else { return false };
        let time = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
        // The colons of the time, which some file systems do not allow.
        ends(end) && time.is_some_and(|time| time.len() > 19 && is_time(time))
    })
}

fn is_time(text: &str) -> bool {
    let time = text.char_indices().map(|(at, letter)| if at == 13 || at == 16 { ':' } else { letter });
    Timestamp::from_rfc3339(&time.collect::<String>()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The second and the third backup after the clock was set back, with as many as are kept, one fewer and one more.
    #[test]
    fn a_new_backup_stays_although_others_are_dated_later() {
        let name = |time: &str| format!("ken-{time}T03-00-00.000Z.tar");
        for (keep, old, left) in [
            (1, &["2026-01-01", "2099-01-01"][..], [&[][..], &[], &[]]),
            (2, &["2099-01-01", "2099-01-02"], [&["2099-01-02"], &[], &[]]),
            (3, &["2026-01-01", "2099-01-01"], [&["2026-01-01", "2099-01-01"], &["2026-01-01"], &[]]),
            (3, &["2026-01-01", "2026-01-02", "2099-01-01"], [&["2026-01-01", "2026-01-02"], &["2026-01-02"], &[]]),
            (9, &["2026-01-01", "2099-01-01"], [&["2026-01-01", "2099-01-01"]; 3]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let there = || own_names(folder.path(), str::is_empty).collect::<BTreeSet<String>>();
            for time in old {
                std::fs::write(folder.path().join(name(time)), "").unwrap();
            }
            let mut new = BTreeSet::new();
            for left in left {
                // Its name holds milliseconds.
                std::thread::sleep(std::time::Duration::from_millis(2));
                let target = Target::of(folder.path(), Some(keep)).unwrap();
                std::fs::write(&target.file, "").unwrap();
                new.insert(target.file.file_name().unwrap().to_str().unwrap().to_owned());
                target.rotate().unwrap();
                let newest = new.iter().rev().take(keep as usize).cloned();
                let expected: BTreeSet<String> = left.iter().map(|time| name(time)).chain(newest).collect();
                assert_eq!(there(), expected, "keep {keep} of {old:?}");
            }
        }
    }

    #[test]
    fn only_own_backups_are_removed_and_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        let old = ["ken-2026-01-01T03-00-00.000Z.tar", "ken-2026-01-02T03-00-00.000Z.tar"];
        let other = [
            "ken-notes.tar",
            "ken-2026-01-01.tar",
            "ken-2026-99-01T03-00-00.000Z.tar",
            "photo.jpg",
            "ken-2025-01-01T03-00-00.000Z.tar.age",
            "ken-2025-01-01T03-00-00.000Z.tar.tar",
            "ken-2025-01-01T03-00-00.000Z.tar.part",
            "ken-2025-01-01T03-00-00.000Z.tar.db",
        ];
        let left = [".ken-part", ".ken-copy", ".ken-copy.ken-part"]
            .map(|end| format!("ken-2026-01-03T03-00-00.000Z.tar{end}"));
        for name in old.iter().chain(&other).copied().chain(left.iter().map(String::as_str)) {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let target = Target::of(folder.path(), Some(2)).unwrap();
        assert!(Target::of(folder.path(), None).is_err(), "one at a time");
        std::fs::write(&target.file, "").unwrap();
        target.rotate().unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let mut expected: Vec<&str> = other.to_vec();
        let new = target.file.file_name().unwrap().to_str().unwrap();
        expected.extend([old[1], new]);
        expected.sort_unstable();
        assert_eq!(names, expected);
    }
}
