//! The temporary folder of the command. It goes with the sandbox, whatever the command has left in it; after a kill of the
//! supervisor the next one removes it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use tempfile::TempDir;

use crate::caller::errno;

/// The folders are named after this, with random letters behind it. Other programs, and versions that did not lock their
/// folders, use other names.
const PREFIX: &str = "ken-sandbox.";
/// How often another folder is made, because somebody takes the new one for one that is left.
const MAX_ATTEMPTS: usize = 8;

/// A folder that is locked as long as a process of the sandbox may use it: so it is known to be in use.
pub(crate) struct Temporary {
    folder: TempDir,
    /// `None` on a file system without locks, where nothing is taken for left either.
    _lock: Option<Flock<File>>,
}

impl Temporary {
    /// Makes a folder, after those that nobody uses any more have been removed.
    pub(crate) fn make() -> io::Result<Temporary> {
        remove_abandoned(&std::env::temp_dir());
        for _ in 0..MAX_ATTEMPTS {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
            let lock = lock(folder.path());
            if !matches!(lock, Err(Errno::EWOULDBLOCK | Errno::ENOENT)) {
                return Ok(Temporary { folder, _lock: lock.ok() });
            }
        }
        Err(io::Error::other(format!("each new folder in {} is removed", std::env::temp_dir().display())))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next sandbox. It must not cost the result of the command.
        let _ = remove(self.folder.path());
    }
}

/// Locks a folder that is still there, if nobody else has.
fn lock(path: &Path) -> Result<Flock<File>, Errno> {
    // A pipe of this name would be waited for.
    let how = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = File::options().read(true).custom_flags(how).open(path).map_err(errno)?;
    let lock = Flock::lock(folder, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
    let (locked, there) = (lock.metadata().map_err(errno)?, fs::symlink_metadata(path).map_err(errno)?);
    if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) { Ok(lock) } else { Err(Errno::ENOENT) }
}

/// Removes the own folders that nobody holds.
fn remove_abandoned(within: &Path) {
    let user = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if is_named && entry.metadata().is_ok_and(|about| about.uid() == user) {
            let path: PathBuf = entry.path();
            if let Ok(_lock) = lock(&path) {
                let _ = remove(&path);
            }
        }
    }
}

/// Removes a folder with everything in it, also with folders that their owner may not change, as Go's module cache has them.
fn remove(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).or_else(|_| {
        open_up(path);
        fs::remove_dir_all(path)
    })
}

/// No process of the sandbox lives any more, so nothing is replaced meanwhile.
fn open_up(folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let _ = fs::set_permissions(&folder, PermissionsExt::from_mode(0o700));
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        folders.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_own_folders_that_nobody_holds_are_removed() {
        let around = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = around.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("x"), "x").unwrap();
            path
        };
        let (left, held, other) = (make(&format!("{PREFIX}left")), make(&format!("{PREFIX}held")), make("other"));
        let file = around.path().join(format!("{PREFIX}file"));
        fs::write(&file, "x").unwrap();
        let pipe = around.path().join(format!("{PREFIX}pipe"));
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let link = around.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let stranger = make(&format!("{PREFIX}stranger"));
        // Only root can give a folder away.
        let is_given = std::os::unix::fs::chown(&stranger, Some(65_534), None).is_ok();
        let lock = lock(&held).unwrap();
        remove_abandoned(around.path());
        assert!(!left.exists() && [&held, &other.join("x"), &file, &pipe, &link].iter().all(|path| path.exists()));
        assert_eq!(stranger.exists(), is_given);
        drop(lock);
        remove_abandoned(around.path());
        assert!(!held.exists());
    }

    /// What a folder is removed with are its own folders, not those that links in it lead to.
    #[test]
    fn folders_are_made_accessible_and_nothing_else() {
        let around = tempfile::tempdir().unwrap();
        let (within, outside) = (around.path().join("within"), around.path().join("outside"));
        fs::create_dir_all(within.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        std::os::unix::fs::symlink(&outside, within.join("a/link")).unwrap();
        fs::write(within.join("a/file"), "x").unwrap();
        let places = [within.join("a/b"), within.join("a/file"), outside];
        for place in &places {
            fs::set_permissions(place, PermissionsExt::from_mode(0o500)).unwrap();
        }
        open_up(&within);
        assert_eq!(places.map(|place| fs::metadata(place).unwrap().mode() & 0o777), [0o700, 0o500, 0o500]);
        remove(&within).unwrap();
        assert!(!within.exists());
    }

    #[test]
    fn what_was_removed_meanwhile_is_not_locked() {
        let around = tempfile::tempdir().unwrap();
        let path = around.path().join("a");
        assert!(lock(&path).is_err());
        fs::create_dir(&path).unwrap();
        let held = lock(&path).unwrap();
        assert_eq!(lock(&path).err(), Some(Errno::EWOULDBLOCK));
        drop(held);
        assert!(lock(&path).is_ok());
    }
}
