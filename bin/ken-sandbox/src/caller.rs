//! The process whose system call the supervisor answers.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::sys::stat::Mode;
use nix::sys::time::TimeSpec;

/// The longest path with its final NUL, in bytes (PATH_MAX of <limits.h>).
const MAX_PATH_BYTES: usize = 4096;

pub(crate) fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// The thread that made the call, by its number. It waits in the kernel until it gets an answer.
pub(crate) struct Caller(pub(crate) u32);

impl Caller {
    pub(crate) fn descriptor(&self, number: u64) -> Result<File, Errno> {
        self.open(&format!("fd/{}", number as u32), true)
    }

    /// The file at the path that is at `address`, relative to the descriptor `directory` of the caller.
    pub(crate) fn path(&self, directory: u64, address: u64, flags: u64) -> Result<File, Errno> {
        let path = self.text(address)?;
        let flags = flags as libc::c_int;
        if path.as_os_str().is_empty() {
            return match flags & libc::AT_EMPTY_PATH {
                0 => Err(Errno::ENOENT),
                _ => self.descriptor(directory),
            };
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        if let Ok(own) = path.strip_prefix("/proc/self") {
            // For this process `/proc/self` is the supervisor.
            return self.open(&own.to_string_lossy(), follow);
        }
        let from = match directory as libc::c_int {
            _ if path.is_absolute() => "root".to_owned(),
            libc::AT_FDCWD => "cwd".to_owned(),
            number => format!("fd/{number}"),
        };
        self.open(&format!("{from}/{}", path.to_str().ok_or(Errno::EILSEQ)?), follow)
    }

    /// A duplicate of a socket of the caller. It stays the same socket, even if the caller closes or replaces the descriptor.
    #[allow(unsafe_code)]
    pub(crate) fn socket(&self, number: u64) -> Result<OwnedFd, Errno> {
        // PIDFD_THREAD of <linux/pidfd.h>: the caller need not be the first thread of its process.
        const THREAD: libc::c_int = libc::O_EXCL;
        let own = |descriptor: libc::c_long| {
            let descriptor = i32::try_from(Errno::result(descriptor)?).map_err(|_| Errno::EOVERFLOW)?;
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
        };
        // SAFETY: a plain system call that makes a descriptor.
        let open = |number: u32, flags: libc::c_int| own(unsafe { libc::syscall(libc::SYS_pidfd_open, number, flags) });
        let process = open(self.0, THREAD).or_else(|errno| match errno {
            // Linux before 6.9 knows processes only. The threads of one share its descriptors, or else it is another socket of the
            // sandbox for which the same holds.
            Errno::EINVAL => open(self.process()?, 0),
            errno => Err(errno),
        })?;
        let (process, number) = (std::os::fd::AsRawFd::as_raw_fd(&process), number as libc::c_int);
        // SAFETY: a plain system call that makes a descriptor.
        own(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, number, 0) })
    }

    /// The process that the thread belongs to.
    fn process(&self) -> Result<u32, Errno> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).map_err(errno)?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        number.ok_or(Errno::ESRCH)
    }

    pub(crate) fn open(&self, below: &str, follow: bool) -> Result<File, Errno> {
        let mut flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        flags.set(OFlag::O_NOFOLLOW, !follow);
        let path = format!("/proc/{}/{below}", self.0);
        Ok(File::from(open(path.as_str(), flags, Mode::empty())?))
    }

    pub(crate) fn memory(&self, address: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let memory = File::open(format!("/proc/{}/mem", self.0)).map_err(errno)?;
        memory.read_at(bytes, address).map_err(|_| Errno::EFAULT)
    }

    /// Reads exactly `count` bytes.
    pub(crate) fn bytes(&self, address: u64, count: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = vec![0; count];
        if self.memory(address, &mut bytes)? == count { Ok(bytes) } else { Err(Errno::EFAULT) }
    }

    pub(crate) fn text(&self, address: u64) -> Result<PathBuf, Errno> {
        let mut bytes = vec![0; MAX_PATH_BYTES];
        // Read up to the end of the page first: the next page may not be readable.
        let first = MAX_PATH_BYTES - (address as usize % MAX_PATH_BYTES);
        let (head, tail) = bytes.split_at_mut(first);
        let mut count = self.memory(address, head)?;
        if !head.contains(&0) && count == first {
            count += self.memory(address + first as u64, tail).unwrap_or_default();
        }
        bytes.truncate(count);
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(Errno::ENAMETOOLONG)?;
        bytes.truncate(end);
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    pub(crate) fn words<const N: usize>(&self, address: u64) -> Result<[i64; N], Errno> {
        let bytes = self.bytes(address, N * 8)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = i64::from_ne_bytes(*bytes);
        }
        Ok(words)
    }

    /// Two times, each in seconds and a fraction in units of `unit` nanoseconds. A null address means now.
    pub(crate) fn times(&self, address: u64, unit: i64) -> Result<[TimeSpec; 2], Errno> {
        if address == 0 {
            return Ok([TimeSpec::UTIME_NOW; 2]);
        }
        let [access, access_part, modification, modification_part] = self.words(address)?;
        let part = |part: i64| part.checked_mul(unit).ok_or(Errno::EINVAL);
        Ok([TimeSpec::new(access, part(access_part)?), TimeSpec::new(modification, part(modification_part)?)])
    }

    #[cfg(target_arch = "x86_64")]
    pub(crate) fn seconds(&self, address: u64) -> Result<[TimeSpec; 2], Errno> {
        if address == 0 {
            return Ok([TimeSpec::UTIME_NOW; 2]);
        }
        let [access, modification] = self.words(address)?;
        Ok([TimeSpec::new(access, 0), TimeSpec::new(modification, 0)])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;

    /// This process, as the caller whose memory and files are looked at.
    fn caller() -> Caller {
        Caller(std::process::id())
    }

    fn inode(path: &Path) -> u64 {
        std::fs::symlink_metadata(path).unwrap().ino()
    }

    #[test]
    fn a_path_is_found_as_its_caller_would_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("link"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink("a", &link).unwrap();
        std::os::unix::fs::symlink(".", folder.path().join("here")).unwrap();
        let opened = File::open(folder.path()).unwrap();
        let (number, here) = (opened.as_raw_fd() as u64, libc::AT_FDCWD as u64);
        let (empty, nofollow) = (libc::AT_EMPTY_PATH as u64, libc::AT_SYMLINK_NOFOLLOW as u64);
        let root = inode(Path::new("/"));
        let cwd = inode(&std::env::current_dir().unwrap());
        for (directory, path, flags, expected) in [
            (number, "a", 0, Ok(inode(&file))),
            (number, "link", 0, Ok(inode(&file))),
            (number, "link", nofollow, Ok(inode(&link))),
            (number, "b", 0, Err(Errno::ENOENT)),
            // A file is no folder, and a link that stands for one is followed.
            (number, "a/", 0, Err(Errno::ENOTDIR)),
            (number, "here/", nofollow, Ok(inode(folder.path()))),
            // An absolute path does not depend on the folder, not even on one that is not open.
            (number, file.to_str().unwrap(), 0, Ok(inode(&file))),
            (99_999, file.to_str().unwrap(), 0, Ok(inode(&file))),
            (99_999, "a", 0, Err(Errno::ENOENT)),
            (here, "/", 0, Ok(root)),
            (here, ".", 0, Ok(cwd)),
            (number, "", empty, Ok(inode(folder.path()))),
            (number, "", 0, Err(Errno::ENOENT)),
            // For the supervisor, `/proc/self` is itself.
            (here, "/proc/self/cwd", 0, Ok(cwd)),
            (here, "/proc/self/root", 0, Ok(root)),
        ] {
            let text = CString::new(path).unwrap();
            let found = caller().path(directory, text.as_ptr() as u64, flags);
            assert_eq!(found.map(|file| file.metadata().unwrap().ino()), expected, "{directory} {path:?} {flags}");
        }
    }

    /// A text may end in the page in which it begins, or in the next one, or nowhere.
    #[test]
    fn a_text_is_read_up_to_its_nul_and_no_further_than_a_path_may_be() {
        let page = MAX_PATH_BYTES;
        let mut memory = vec![b'x'; 4 * page];
        let start = memory.as_ptr() as usize;
        let first = page - start % page;
        for (from, length, expected) in [
            (first, 0, Some(0)),
            (first, 5, Some(5)),
            (first, page - 1, Some(page - 1)),
            (first, page, None),
            (first + page - 1, 0, Some(0)),
            (first + page - 1, 1, Some(1)),
            (first + page - 3, 10, Some(10)),
            (first + 7, page - 1, Some(page - 1)),
            (first + 7, page, None),
        ] {
            memory.fill(b'x');
            memory[from + length] = 0;
            let read = caller().text((start + from) as u64).map(|text| text.as_os_str().len());
            assert_eq!(read.ok(), expected, "{from} {length}");
        }
        assert_eq!(caller().text(8).err(), Some(Errno::EFAULT));
    }

    #[test]
    fn times_that_are_not_given_are_now() {
        let words = [1i64, 2, 3, 4];
        let place = words.as_ptr() as u64;
        let spec = TimeSpec::new;
        assert_eq!(caller().times(0, 1).unwrap(), [TimeSpec::UTIME_NOW; 2]);
        assert_eq!(caller().times(place, 1_000).unwrap(), [spec(1, 2_000), spec(3, 4_000)]);
        assert_eq!(caller().times(place, i64::MAX).err(), Some(Errno::EINVAL));
        #[cfg(target_arch = "x86_64")]
        {
            assert_eq!(caller().seconds(0).unwrap(), [TimeSpec::UTIME_NOW; 2]);
            assert_eq!(caller().seconds(place).unwrap(), [spec(1, 0), spec(2, 0)]);
        }
    }
}
