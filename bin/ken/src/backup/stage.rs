//! The folders into which a backup is unpacked, beside those that it will replace, so that renaming is enough.

use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ken_trusted::Owner;
use ken_types::Error;
use ken_types::places::Places;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{linkat, syncfs};

use super::below::Below;
use super::failed;
use super::scope::Root;

/// The name of the folder for what is unpacked, in each of the two folders.
const STAGE: &str = ".restore";
/// What remains free on the disk, in bytes.
const RESERVE: u64 = 16 * 1024 * 1024;

pub(super) struct Stage {
    roots: [(Root, Below, PathBuf); 2],
    /// The user to whom the system belongs. Set only if root restores it, because what root creates belongs to root.
    owner: Option<Owner>,
    /// Whether root keeps the configuration of that user, who only reads it.
    is_config_of_root: bool,
}

/// The folder for what is unpacked of one of the two folders.
pub(super) fn folder(root: Root, places: &Places) -> PathBuf {
    root.folder(places).join(STAGE).join(root.name())
}

/// Keeps other restores away from the stage and the plan until the file is closed. The state directory is made if there is something to
/// put there; without one, there is nothing to lock.
pub(super) fn lock(places: &Places, is_needed: bool) -> Result<Option<File>, Error> {
    let state = &places.state;
    let open = || {
        if is_needed {
            DirBuilder::new().recursive(true).mode(0o700).create(state)?;
        }
        match File::open(state) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            folder => folder.map(Some),
        }
    };
    let folder = open().map_err(|error| failed(state, &error))?;
    match folder.as_ref().map_or(Ok(()), File::try_lock) {
        Ok(()) => Ok(folder),
        Err(TryLockError::WouldBlock) => {
            Err(Error::conflict(format!("another ken restore is replacing the data in {}", state.display())))
        }
        Err(TryLockError::Error(error)) => Err(failed(state, &error)),
    }
}

/// Removes what an earlier restore has unpacked.
pub(super) fn remove(places: &Places) -> io::Result<()> {
    for root in Root::ALL {
        match std::fs::remove_dir_all(root.folder(places).join(STAGE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Stage {
    /// Creates empty folders. What a restore that did not get to its end has left there is removed.
    pub(super) fn create(places: &Places) -> Result<Stage, Error> {
        let open = |root: Root| -> io::Result<(Root, Below, PathBuf)> {
            let folder = folder(root, places);
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            Ok((root, Below::of(&folder)?, folder))
        };
        let wrong = |error: io::Error| Error::unavailable(format!("cannot unpack beside the data: {error}"));
        remove(places).map_err(wrong)?;
        let roots = || -> io::Result<_> { Ok([open(Root::Config)?, open(Root::State)?]) };
        let roots = roots().map_err(wrong)?;
        let of_config = std::fs::metadata(Root::Config.folder(places)).map_err(wrong)?;
        Ok(Stage { roots, owner: Owner::other(&places.state), is_config_of_root: of_config.uid() == 0 })
    }

    fn below(&self, root: Root) -> Option<&Below> {
        self.roots.iter().find(|(own, _, _)| *own == root).map(|(_, below, _)| below)
    }

    /// Creates a folder, or sets the mode of one that is there.
    pub(super) fn make_folder(&self, root: Root, path: &Path, mode: u32) -> Result<(), Error> {
        let Some(below) = self.below(root) else { return Ok(()) };
        let folder = below.folder(path).map_err(io::Error::from);
        folder.and_then(|folder| self.dress(&folder, root, path, mode | 0o700)).map_err(|error| failed(path, &error))
    }

    /// Creates a file. Fails if it does not fit on the disk.
    pub(super) fn create_file(&self, root: Root, path: &Path, size: u64, mode: u32) -> Result<File, Error> {
        self.create_below(root, path, size, mode).map_err(|error| failed(path, &error))
    }

    /// Takes over a file of the system, if it is there, as a link: what was read of its inode stays true.
    pub(super) fn link(&self, places: &Places, root: Root, path: &Path) -> Result<(), Error> {
        let (Some(below), Some(folder)) = (self.below(root), path.parent()) else { return Ok(()) };
        let name = path.file_name().unwrap_or_default();
        let from = match Below::of(&root.folder(places)).and_then(|system| Ok(system.open(folder)?)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            from => from.map_err(|error| failed(path, &error))?,
        };
        self.make_folder(root, folder, 0o700)?;
        let linked = below.folder(folder).and_then(|to| linkat(&from, name, &to, name, AtFlags::empty()));
        match linked {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(failed(path, &error.into())),
        }
    }

    fn create_below(&self, root: Root, path: &Path, size: u64, mode: u32) -> io::Result<File> {
        let below = self.below(root).ok_or_else(|| io::Error::other("no such folder"))?;
        let disk = fstatvfs(&below.0)?;
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        if size.saturating_add(RESERVE) > free {
            let why = format!("its {size} bytes do not fit on the disk, which has {free} left");
            return Err(io::Error::new(ErrorKind::StorageFull, why));
        }
        let file = below.create(path, 0o600)?;
        self.dress(&file, root, path, mode)?;
        Ok(file)
    }

    /// Sets owner and mode. Others can never change what is restored, and no file has a set-ID bit.
    ///
    /// What root keeps for the system of another user belongs to root, so that nobody else changes it, and the group of that user reads
    /// it; but for the secrets, which nobody else may read.
    fn dress(&self, file: &File, root: Root, path: &Path, mode: u32) -> io::Result<()> {
        let is_of_root = self.is_config_of_root && root == Root::Config && path != Path::new("secrets.env");
        let mode = match &self.owner {
            Some(Owner { gid, .. }) if is_of_root => {
                fchown(file, Some(0), Some(gid.as_raw()))?;
                mode | (mode & 0o500) >> 3
            }
            Some(Owner { uid, gid, .. }) => {
                fchown(file, Some(uid.as_raw()), Some(gid.as_raw()))?;
                mode
            }
            None => mode,
        };
        file.set_permissions(Permissions::from_mode(mode & 0o755))
    }

    /// Sets the time of a folder, when everything is in it.
    pub(super) fn set_time(&self, root: Root, path: &Path, time: u64) -> Result<(), Error> {
        let Some(below) = self.below(root) else { return Ok(()) };
        let folder = below.folder(path).map_err(io::Error::from);
        folder.and_then(|folder| set_time(&folder, time)).map_err(|error| failed(path, &error))
    }

    /// Waits until everything is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        for (_, below, folder) in &self.roots {
            syncfs(&below.0)?;
            // The folder itself is an entry of one that may be on the way to the disk, too.
            File::open(folder.parent().unwrap_or(folder))?.sync_all()?;
        }
        Ok(())
    }
}

/// Sets the time at which a file was last changed, in seconds since 1970.
pub(super) fn set_time(file: &File, time: u64) -> io::Result<()> {
    let limited = time.min(u64::from(u32::MAX)); // a time that every file system can keep
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(limited))
}
