//! The files of the workspace. The kernel resolves every path below the root (openat2(2)). Neither `..`, nor a link,
//! nor a folder that is replaced meanwhile can lead out of it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ken_types::Error;
use ken_types::hex;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps, fchmod, fstat,
    mkdirat, openat, openat2, readlinkat, renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::rel_path::{Layout, RelPath};
use crate::settings::Settings;

/// How often resolving a path is tried when renames elsewhere in the tree interfere (EAGAIN of openat2(2)).
const MAX_ATTEMPTS: usize = 16;

/// The bits of a mode that a written file can have. The others make a program run as the owner of its file, and nobody has agreed
/// to that for a new content.
pub(crate) const WRITTEN_MODE: u32 = 0o1777;

/// The state of a file, used for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// SHA-256 of the content, or of the target of a symbolic link, in hexadecimal.
    pub(crate) digest: String,
    /// The permission bits.
    pub(crate) mode: u32,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) link: bool,
}

impl Version {
    pub(crate) fn of(bytes: &[u8], mode: u32, link: bool) -> Version {
        Version { digest: digest(bytes), mode, link }
    }
}

/// Returns the SHA-256 digest in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}

/// A file that has been read.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) version: Version,
    pub(crate) bytes: Vec<u8>,
}

/// Whether symbolic links below the root are followed. A link that leads out of the root is never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    Follow,
    Refuse,
}

/// The root of the workspace.
#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    layout: Layout,
}

impl Tree {
    /// Opens the folder of the settings to read names and to sync. It is reached by the descriptor of the settings, so it is
    /// the folder that was checked, whatever is at its path by now.
    pub(crate) fn open(settings: &Settings) -> Result<Tree, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(&settings.folder, ".", flags, Mode::empty())
            .map(|root| Tree { root, layout: settings.layout })
            .map_err(|errno| Error::unavailable(format!("the workspace {}: {errno}", settings.root.display())))
    }

    /// Fails for paths that no call can change: files outside repositories and projects, and git's own files.
    pub(crate) fn check_changeable(&self, place: &RelPath) -> Result<(), Error> {
        self.layout.check_changeable(place)
    }

    /// Returns the metadata of a place, or `None` if nothing is there. With [`Links::Refuse`], it is that of a link
    /// itself.
    pub(crate) fn stat(&self, place: &RelPath, links: Links) -> Result<Option<Stat>, Error> {
        let mut flags = OFlags::PATH;
        flags.set(OFlags::NOFOLLOW, links == Links::Refuse);
        match self.resolve(place, flags, links) {
            Ok(opened) => fstat(&opened).map(Some).map_err(|errno| resolve_error(place, errno)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(resolve_error(place, errno)),
        }
    }

    /// Returns the type of the file at a place, without following a link; `None` if there is none or it cannot be examined.
    pub(crate) fn kind(&self, place: &RelPath) -> Option<FileType> {
        Some(FileType::from_raw_mode(self.stat(place, Links::Refuse).ok()??.st_mode))
    }

    /// Reads a file of at most `max` bytes. A link is read as a file with [`Links::Follow`], else as its target.
    pub(crate) fn read(&self, place: &RelPath, links: Links, max: u64) -> Result<Option<Node>, Error> {
        let Some(stat) = self.stat(place, links)? else {
            return Ok(None);
        };
        let mode = stat.st_mode & 0o7777;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => {
                let bytes = self.target(place)?;
                let version = Version::of(&bytes, 0o777, true);
                return Ok(Some(Node { version, bytes }));
            }
            other => return Err(forbidden(place, &format!("is {}", kind_name(other)))),
        }
        if stat.st_nlink > 1 {
            let message = format!("has {} hard links, so it may be a file outside of the workspace", stat.st_nlink);
            return Err(forbidden(place, &message));
        }
        let too_large = || Error::too_large(format!("{place} has more than {max} bytes")).at("/path");
        if stat.st_size.unsigned_abs() > max {
            return Err(too_large());
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = self.resolve(place, flags, links).map_err(|errno| resolve_error(place, errno))?;
        let now = fstat(&opened).map_err(|errno| resolve_error(place, errno))?;
        if (now.st_dev, now.st_ino) != (stat.st_dev, stat.st_ino) {
            return Err(Error::conflict(format!("{place} is being replaced")));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(stat.st_size).unwrap_or_default());
        let read = File::from(opened).take(max + 1).read_to_end(&mut bytes);
        read.map_err(|error| Error::unavailable(format!("{place} cannot be read: {error}")))?;
        if bytes.len() as u64 > max {
            Err(too_large())
        } else {
            Ok(Some(Node { version: Version::of(&bytes, mode, false), bytes }))
        }
    }

    /// Reads a file or a link itself, as a change records and replaces them. There is none either where a folder is in its
    /// place, or where a file or a link is in the place of its folder.
    pub(crate) fn file(&self, place: &RelPath, max: u64) -> Result<Option<Node>, Error> {
        match self.resolve(place, OFlags::PATH | OFlags::NOFOLLOW, Links::Refuse) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            _ if self.kind(place) == Some(FileType::Directory) => Ok(None),
            _ => self.read(place, Links::Refuse, max),
        }
    }

    /// Whether a file can be opened to read it.
    pub(crate) fn is_readable(&self, place: &RelPath) -> bool {
        self.resolve(place, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, Links::Refuse).is_ok()
    }

    /// Writes a new file or link under a temporary name beside `place`.
    pub(crate) fn stage(
        &self,
        place: &RelPath,
        name: &str,
        version: &Version,
        bytes: &[u8],
        sync: bool,
    ) -> Result<(), Error> {
        if !version.link {
            return self.create(place, name, version.mode, bytes, sync);
        }
        let (folder, _) = self.open_parent(place)?;
        symlinkat(bytes, &folder, name).map_err(|errno| resolve_error(place, errno))
    }

    /// Writes a new file under a temporary name beside `place`. Fails if something has that name.
    pub(crate) fn create(&self, place: &RelPath, name: &str, mode: u32, bytes: &[u8], sync: bool) -> Result<(), Error> {
        let (folder, _) = self.open_parent(place)?;
        let failed = |errno: Errno| resolve_error(place, errno);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&folder, name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        fchmod(&file, Mode::from_raw_mode(mode & WRITTEN_MODE)).map_err(failed)?;
        let mut file = File::from(file);
        let written = file.write_all(bytes).and_then(|()| if sync { file.sync_all() } else { Ok(()) });
        written.map_err(|error| Error::unavailable(format!("{place} cannot be written: {error}")))
    }

    /// Reads a file as [`Tree::read`] does, with the time of its last modification.
    pub(crate) fn read_timed(&self, place: &RelPath, max: u64) -> Result<Option<(Node, SystemTime)>, Error> {
        let stat = self.stat(place, Links::Refuse)?;
        let node = self.read(place, Links::Refuse, max)?.filter(|node| !node.version.link);
        let modified = stat.map(|stat| {
            let seconds = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or_default());
            UNIX_EPOCH + seconds + Duration::from_nanos(stat.st_mtime_nsec)
        });
        Ok(node.zip(modified))
    }

    /// Sets the modification time of a staged file.
    pub(crate) fn set_time(&self, place: &RelPath, staged: &str, modified: SystemTime) -> Result<(), Error> {
        let (folder, _) = self.open_parent(place)?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
        let time = Timespec { tv_sec: seconds, tv_nsec: i64::from(since.subsec_nanos()) };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(&folder, staged, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| resolve_error(place, errno))
    }

    /// Renames a staged file to its final name, in place of a file that has that name.
    pub(crate) fn take_over(&self, place: &RelPath, staged: &str) -> Result<(), Error> {
        let (folder, name) = self.open_parent(place)?;
        renameat_with(&folder, staged, &folder, name, RenameFlags::empty()).map_err(|errno| resolve_error(place, errno))
    }

    /// Writes a file under a temporary name beside `place`, and renames it over what is there. Fails if something has the temporary name.
    pub(crate) fn replace(&self, place: &RelPath, name: &str, mode: u32, bytes: &[u8]) -> Result<(), Error> {
        self.create(place, name, mode, bytes, true)?;
        self.take_over(place, name)
    }

    /// Renames a staged file to its final name. Fails if a file has that name already.
    pub(crate) fn put(&self, place: &RelPath, staged: &str) -> Result<(), Error> {
        let (folder, name) = self.open_parent(place)?;
        renameat_with(&folder, staged, &folder, name, RenameFlags::NOREPLACE).map_err(|errno| match errno {
            Errno::EXIST => Error::conflict(format!("{place} has been created meanwhile")),
            errno => resolve_error(place, errno),
        })
    }

    /// Exchanges a file and a staged one atomically.
    pub(crate) fn exchange(&self, place: &RelPath, staged: &str) -> Result<(), Error> {
        let (folder, name) = self.open_parent(place)?;
        renameat_with(&folder, staged, &folder, name, RenameFlags::EXCHANGE)
            .map_err(|errno| resolve_error(place, errno))
    }

    /// Renames a file to a temporary name beside it.
    pub(crate) fn set_aside(&self, place: &RelPath, staged: &str) -> Result<(), Error> {
        let (folder, name) = self.open_parent(place)?;
        renameat_with(&folder, name, &folder, staged, RenameFlags::NOREPLACE)
            .map_err(|errno| resolve_error(place, errno))
    }

    /// Moves a file with a temporary name out of the workspace. Fails if `to` is in another file system.
    pub(crate) fn move_out(&self, place: &RelPath, staged: &str, to: &Path) -> Result<(), Error> {
        let (folder, _) = self.open_parent(place)?;
        renameat_with(&folder, staged, CWD, to, RenameFlags::NOREPLACE).map_err(|errno| resolve_error(place, errno))
    }

    /// Reads a file with a temporary name beside `place`.
    pub(crate) fn read_aside(&self, place: &RelPath, staged: &str, max: u64) -> Result<Option<Node>, Error> {
        self.file(&place.around().join(staged), max)
    }

    pub(crate) fn remove(&self, place: &RelPath) -> Result<(), Error> {
        let (folder, name) = self.open_parent(place)?;
        unlinkat(&folder, name, AtFlags::empty()).map_err(|errno| resolve_error(place, errno))
    }

    /// Removes a staged file if it exists.
    pub(crate) fn discard(&self, place: &RelPath, staged: &str) {
        if let Ok((folder, _)) = self.open_parent(place) {
            let _ = unlinkat(&folder, staged, AtFlags::empty());
        }
    }

    /// Removes a folder if it is empty.
    pub(crate) fn remove_folder(&self, place: &RelPath) {
        if let Ok((folder, name)) = self.open_parent(place) {
            let _ = unlinkat(&folder, name, AtFlags::REMOVEDIR);
        }
    }

    /// Removes a folder with the folders in it. Where files are in them, they stay, with the folders around them.
    pub(crate) fn remove_empty_folders(&self, place: &RelPath) {
        for name in self.folder(place).and_then(|folder| self.names(folder)).unwrap_or_default() {
            let below = place.join(&name);
            if self.kind(&below) == Some(FileType::Directory) {
                self.remove_empty_folders(&below);
            }
        }
        self.remove_folder(place);
    }

    /// Creates a folder if it does not exist. Its parent folder must exist.
    pub(crate) fn make_folder(&self, place: &RelPath) -> Result<(), Error> {
        let (around, name) = self.open_parent(place)?;
        match mkdirat(&around, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(resolve_error(place, errno)),
        }
    }

    /// Opens a folder. No component of its path can be a symbolic link.
    pub(crate) fn folder(&self, place: &RelPath) -> Result<OwnedFd, Error> {
        self.resolve(place, OFlags::RDONLY | OFlags::DIRECTORY, Links::Refuse)
            .map_err(|errno| resolve_error(place, errno))
    }

    /// Returns the names in an open folder. Those that are not UTF-8 are changed.
    pub(crate) fn names(&self, folder: OwnedFd) -> Result<Vec<String>, Error> {
        let failed = |errno: Errno| Error::unavailable(format!("a folder cannot be read: {errno}"));
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            names.extend(Some(name).filter(|name| name != "." && name != ".."));
        }
        Ok(names)
    }

    /// Opens a folder as a path only, for ken-sandbox(1). No component of its path can be a symbolic link.
    pub(crate) fn grant(&self, place: &RelPath) -> Result<OwnedFd, Error> {
        self.resolve(place, OFlags::PATH | OFlags::DIRECTORY, Links::Refuse)
            .map_err(|errno| resolve_error(place, errno))
    }

    /// Whether a folder is still the one that was opened.
    pub(crate) fn is_still(&self, place: &RelPath, granted: &OwnedFd) -> bool {
        let same = |one: Stat, other: Stat| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
        let there = self.stat(place, Links::Refuse).ok().flatten();
        there.zip(fstat(granted).ok()).is_some_and(|(there, granted)| same(there, granted))
    }

    /// Syncs the file system to the disk.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let failed = |errno| Error::unavailable(format!("the workspace cannot be written to the disk: {errno}"));
        rustix::fs::syncfs(&self.root).map_err(failed)
    }

    fn target(&self, place: &RelPath) -> Result<Vec<u8>, Error> {
        let (folder, name) = self.open_parent(place)?;
        readlinkat(&folder, name, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| resolve_error(place, errno))
    }

    fn open_parent<'a>(&self, place: &'a RelPath) -> Result<(OwnedFd, &'a str), Error> {
        let (folder, name) = place.split().ok_or_else(|| forbidden(place, "is the workspace itself"))?;
        Ok((self.folder(&folder)?, name))
    }

    fn resolve(&self, place: &RelPath, flags: OFlags, links: Links) -> Result<OwnedFd, Errno> {
        let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        how.set(ResolveFlags::NO_SYMLINKS, links == Links::Refuse);
        let mut tries = 0;
        loop {
            match openat2(&self.root, place.or_dot(), flags | OFlags::CLOEXEC, Mode::empty(), how) {
                Err(Errno::AGAIN | Errno::INTR) if tries < MAX_ATTEMPTS => tries += 1,
                result => return result,
            }
        }
    }
}

fn forbidden(place: &RelPath, why: &str) -> Error {
    Error::forbidden(format!("{place} {why}")).at("/path")
}

/// Returns the error for a path that the kernel did not resolve, or for an operation that failed.
fn resolve_error(place: &RelPath, errno: Errno) -> Error {
    match errno {
        Errno::NOENT => Error::not_found(format!("there is no {place}")).at("/path"),
        Errno::XDEV => forbidden(place, "leads out of the workspace"),
        Errno::LOOP => forbidden(place, "is reached by a symbolic link; name the place that it leads to"),
        Errno::NOTDIR => Error::conflict(format!("{place}: there is a file where a folder is needed")).at("/path"),
        Errno::ISDIR => forbidden(place, "is a folder"),
        Errno::NAMETOOLONG => Error::invalid("/path", format!("{place}: the path is too long")),
        Errno::ACCESS | Errno::PERM => forbidden(place, "cannot be used: permission denied"),
        Errno::NOSYS => Error::unavailable("this kernel cannot resolve paths below a folder (openat2)")
            .hint("use Linux 6.12 or newer"),
        errno => Error::unavailable(format!("{place}: {errno}")).at("/path"),
    }
}

pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of an unknown kind",
    }
}
