//! Opens and creates files below a folder. No path leaves the folder, and no link is followed, whoever writes there meanwhile.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};

/// A folder that is open.
pub(super) struct Below(pub(super) File);

impl Below {
    pub(super) fn of(folder: &Path) -> io::Result<Below> {
        File::open(folder).map(Below)
    }

    fn open_with(&self, path: &Path, flags: OFlag, mode: u32) -> nix::Result<OwnedFd> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(Mode::from_bits_truncate(mode)).resolve(resolve);
        openat2(&self.0, path, how)
    }

    /// Opens a file or a folder for reading. A FIFO is not waited for.
    pub(super) fn open(&self, path: &Path) -> nix::Result<File> {
        self.open_with(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0).map(File::from)
    }

    /// Creates a file that does not exist, and the folders above it.
    pub(super) fn create(&self, path: &Path, mode: u32) -> nix::Result<File> {
        if let Some(parent) = path.parent() {
            self.folder(parent)?;
        }
        self.open_with(path, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, mode).map(File::from)
    }

    /// Opens a folder, and creates it and the folders above it if they do not exist.
    pub(super) fn folder(&self, path: &Path) -> nix::Result<File> {
        let open = |path: &Path| self.open_with(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0).map(File::from);
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match open(path) {
            Err(Errno::ENOENT) => {}
            opened => return opened,
        }
        let parent = self.folder(path.parent().unwrap_or(Path::new(".")))?;
        let name = path.file_name().ok_or(Errno::EINVAL)?;
        mkdirat(&parent, name, Mode::S_IRWXU)?;
        open(path)
    }
}
