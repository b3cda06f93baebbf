//! Tells without reading them whether the files of skills and rules are as they were: by what stat(2) says of each.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// More files and folders than this are not compared; they are read each time.
const MAX_PATHS: usize = 1024;
/// Every change sets the time of the last change of status (ctime), which no program can set to another value. But the kernel's clock
/// ticks every few milliseconds, and two changes within one tick leave the same time.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// What was there at some time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Stamp(Vec<(PathBuf, Option<Seen>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    device: u64,
    inode: u64,
    changed: Duration,
    is_folder: bool,
}

impl Stamp {
    /// Looks at these paths and, up to a depth, at what is below them. Hidden files below the first level are passed over. Returns `None` if
    /// there is too much, or if something has just been changed, so that a further change might not show.
    pub(crate) fn of<'a>(paths: impl Iterator<Item = &'a Path>, depth: usize) -> Option<Stamp> {
        let latest = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.checked_sub(SETTLED_AFTER)?;
        let mut stamp = Stamp(Vec::new());
        let mut left: Vec<(PathBuf, usize)> = paths.map(|path| (path.to_owned(), 0)).collect();
        while let Some((path, level)) = left.pop() {
            let seen = look(&path);
            if stamp.0.len() == MAX_PATHS || seen.is_some_and(|seen| seen.changed > latest) {
                return None;
            }
            if seen.is_some_and(|seen| seen.is_folder) && level < depth {
                let is_wanted = |path: &PathBuf| level == 0 || !is_hidden(path);
                let entries = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
                left.extend(entries.filter(is_wanted).map(|path| (path, level + 1)));
            }
            stamp.0.push((path, seen));
        }
        Some(stamp)
    }

    /// Whether everything is as it was.
    pub fn holds(&self) -> bool {
        self.0.iter().all(|(path, seen)| look(path) == *seen)
    }
}

fn look(path: &Path) -> Option<Seen> {
    let meta = fs::metadata(path).ok()?;
    let seconds = Duration::from_secs(u64::try_from(meta.ctime()).unwrap_or_default());
    let changed = seconds + Duration::from_nanos(u64::try_from(meta.ctime_nsec()).unwrap_or_default());
    Some(Seen { device: meta.dev(), inode: meta.ino(), changed, is_folder: meta.is_dir() })
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(folder: &Path) -> Stamp {
        let begun = std::time::Instant::now();
        loop {
            if let Some(stamp) = Stamp::of([folder].into_iter(), 3) {
                return stamp;
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Each change shows, also one that leaves the length and the time of the last change of the content.
    #[test]
    fn every_change_shows() {
        type Change = fn(&Path);
        let changes: [Change; 6] = [
            |folder| fs::write(folder.join("a/b/file"), "other").unwrap(),
            |folder| {
                let time = fs::metadata(folder.join("a/b/file")).unwrap().modified().unwrap();
                fs::write(folder.join("a/b/file"), "tests").unwrap();
                fs::File::options().write(true).open(folder.join("a/b/file")).unwrap().set_modified(time).unwrap();
            },
            |folder| fs::rename(folder.join("a/b/file"), folder.join("a/b/moved")).unwrap(),
            |folder| fs::write(folder.join("a/new"), "").unwrap(),
            |folder| fs::remove_dir_all(folder.join("a/b")).unwrap(),
            |folder| {
                use std::os::unix::fs::PermissionsExt;
                fs::set_permissions(folder.join("a/b/file"), fs::Permissions::from_mode(0o666)).unwrap();
            },
        ];
        std::thread::scope(|scope| {
            for change in changes {
                scope.spawn(move || {
                    let folder = tempfile::tempdir().unwrap();
                    fs::create_dir_all(folder.path().join("a/b")).unwrap();
                    fs::write(folder.path().join("a/b/file"), "texts").unwrap();
                    assert!(Stamp::of([folder.path()].into_iter(), 3).is_none());
                    let stamp = settled(folder.path());
                    assert!(stamp.holds());
                    change(folder.path());
                    assert!(!stamp.holds());
                });
            }
        });
    }

    #[test]
    fn what_is_missing_is_seen_when_it_comes_and_too_much_is_not_compared() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let stamp = Stamp::of([file.as_path()].into_iter(), 0).unwrap();
        assert!(stamp.holds());
        fs::write(&file, "").unwrap();
        assert!(!stamp.holds());
        let files: Vec<PathBuf> = (0..=MAX_PATHS).map(|number| PathBuf::from(format!("/nowhere/{number}"))).collect();
        let of = |files: &[PathBuf]| Stamp::of(files.iter().map(PathBuf::as_path), 0).is_some();
        assert_eq!((of(files.get(1..).unwrap()), of(&files)), (true, false));
    }
}
