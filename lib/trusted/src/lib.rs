//! Files that decide what runs or what an agent is told: regular files of a bounded size that, where it matters, nobody but
//! their owner can change, who has to be root or the user of the program. Otherwise ken would do what another user says.
//!
//! An error says what is wrong with a file, and how to mend it, without the path, which is for the caller to add.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ken_types::Error;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::geteuid;

/// The permission bits that let group and others write.
const OTHERS_WRITE: u32 = 0o022;
/// A folder in which only the owner of a file can remove or rename it, as in /tmp.
const STICKY: u32 = 0o1000;
/// The largest `secrets.env`, in bytes.
const SECRETS_BYTES: u64 = 1024 * 1024;

/// Who may have access to a file besides its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    MayRead,
    Nothing,
}

/// Reads a file of at most `most` bytes that nobody else can change.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    find(path, Others::MayRead, most)?.ok_or_else(missing)
}

/// The same for a file that need not exist: `None` if there is none.
pub fn find(path: &Path, others: Others, most: u64) -> Result<Option<Vec<u8>>, Error> {
    let Some((file, meta)) = open(path)? else {
        return Ok(None);
    };
    check_owner(path, &meta)?;
    let mode = meta.mode() & 0o777;
    if others == Others::Nothing && mode & 0o077 != 0 {
        let error = Error::invalid("", format!("has mode {mode:04o}, others can read it"));
        return Err(error.hint(format!("chmod 600 {}", path.display())));
    }
    check_mode(path, mode)?;
    bounded(file, most).map(Some)
}

/// The text of `secrets.env`, which nobody but its owner may read; empty if there is none. An error has the path in `at`.
pub fn secrets(path: &Path) -> Result<String, Error> {
    let at = path.display().to_string();
    let found = find(path, Others::Nothing, SECRETS_BYTES);
    let bytes = found.map_err(|error| Error { at: Some(at.clone()), ..error })?;
    String::from_utf8(bytes.unwrap_or_default()).map_err(|_| Error::invalid(at, "is not text in UTF-8"))
}

/// Reads a file whoever can change it: one whose content is compared with what was approved before.
pub fn read_any(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    find_any(path, most)?.ok_or_else(missing)
}

/// The same for a file that need not exist: `None` if there is none.
pub fn find_any(path: &Path, most: u64) -> Result<Option<Vec<u8>>, Error> {
    let found = open(path)?.map(|(file, _)| bounded(file, most));
    found.transpose()
}

/// Checks a folder of such files: whoever can write there can replace them. One that does not exist is fine.
pub fn check_folder(path: &Path) -> Result<(), Error> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(&error)),
    };
    if !meta.is_dir() {
        return Err(Error::invalid("", "is not a folder"));
    }
    check_owner(path, &meta)?;
    match meta.mode() & STICKY == 0 {
        true => check_mode(path, meta.mode() & 0o777),
        false => Ok(()),
    }
}

/// Reads a file below a folder, whoever can change it. No link on the way from there is followed, and nothing outside is reached.
pub fn read_below(folder: &Path, path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let root = File::open(folder).map_err(|error| unreadable(&error))?;
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let opened = openat2(&root, path, how).map_err(|errno| match errno {
        Errno::ENOENT => Error::invalid("", "does not exist"),
        Errno::ELOOP => Error::invalid("", "is reached by a symbolic link"),
        Errno::EXDEV => Error::invalid("", "is not in the folder"),
        errno => unreadable(&errno.into()),
    })?;
    let (file, _) = regular(opened.into())?;
    bounded(file, most)
}

/// Puts bytes in the place of a file, written by this user and readable by the others as `others` says: whole or not at all,
/// also when the power fails. The folder is made when it is missing.
pub fn replace(path: &Path, bytes: &[u8], others: Others) -> Result<(), Error> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    // What an earlier process with this id has left may be readable by others.
    _ = std::fs::remove_file(&beside);
    let put = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mode = match others {
            Others::MayRead => 0o644,
            Others::Nothing => 0o600,
        };
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)?;
        File::open(folder)?.sync_all()
    };
    put().map_err(|error: std::io::Error| {
        _ = std::fs::remove_file(&beside);
        Error::invalid(path.display().to_string(), format!("cannot be written: {error}"))
    })
}

fn missing() -> Error {
    Error::invalid("", "there is no such file")
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::invalid("", format!("cannot be read: {error}"))
}

/// Opens a regular file, if there is one.
fn open(path: &Path) -> Result<Option<(File, Metadata)>, Error> {
    let mut options = OpenOptions::new();
    // Opening a FIFO must not wait for a writer.
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&error)),
    };
    regular(file).map(Some)
}

/// The same file, unless it is a folder, a FIFO or a device.
fn regular(file: File) -> Result<(File, Metadata), Error> {
    let meta = file.metadata().map_err(|error| unreadable(&error))?;
    match meta.is_file() {
        true => Ok((file, meta)),
        false => Err(Error::invalid("", "is not a regular file").hint("put a file in its place, or remove it")),
    }
}

fn bounded(file: File, most: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&error))?;
    match bytes.len() as u64 > most {
        true => Err(Error::too_large(format!("has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), Error> {
    let (owner, own) = (meta.uid(), geteuid().as_raw());
    if owner == 0 || owner == own {
        return Ok(());
    }
    let message = format!("belongs to the user with id {owner}, who is neither root nor the user of this program");
    Err(Error::invalid("", message).hint(format!("chown {own} {}", path.display())))
}

fn check_mode(path: &Path, mode: u32) -> Result<(), Error> {
    if mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let message = format!("has mode {mode:04o}, others can change it");
    Err(Error::invalid("", message).hint(format!("chmod go-w {}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_change_is_refused_unless_its_content_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert_eq!(read(&path, 4), Ok(b"text".to_vec()));
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.message, "has more than 3 bytes");
        mode(0o664);
        let error = read(&path, 4).unwrap_err();
        assert_eq!(error.message, "has mode 0664, others can change it");
        assert_eq!(read_any(&path, 4), Ok(b"text".to_vec()));
    }

    #[test]
    fn secrets_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.env");
        assert_eq!(secrets(&path), Ok(String::new()));
        std::fs::write(&path, "A=1\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o640);
        let error = secrets(&path).unwrap_err();
        assert_eq!(error.message, "has mode 0640, others can read it");
        assert_eq!(error.at.as_deref(), path.to_str());
        mode(0o600);
        assert_eq!(secrets(&path), Ok("A=1\n".to_owned()));
    }

    #[test]
    fn a_fifo_or_a_folder_is_no_file_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&fifo, folder.path()] {
            assert_eq!(read(path, 9).unwrap_err().message, "is not a regular file");
        }
        let none = folder.path().join("none");
        assert_eq!(read(&none, 9).unwrap_err().message, "there is no such file");
        assert_eq!(find(&none, Others::Nothing, 9), Ok(None));
        assert_eq!(find_any(&none, 9), Ok(None));
    }

    #[test]
    fn what_is_below_a_folder_is_read_without_following_a_link() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("file"), "secret").unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("deep")).unwrap();
        std::fs::write(at("deep/file"), "text").unwrap();
        std::os::unix::fs::symlink(outside.path(), at("link")).unwrap();
        std::os::unix::fs::symlink("deep/file", at("file")).unwrap();
        let read = |path: &str| read_below(folder.path(), Path::new(path), 4).map_err(|error| error.message);
        assert_eq!(read("deep/file"), Ok(b"text".to_vec()));
        for (path, why) in [
            ("link/file", "is reached by a symbolic link"),
            ("file", "is reached by a symbolic link"),
            ("../file", "is not in the folder"),
            ("deep", "is not a regular file"),
            ("none", "does not exist"),
        ] {
            assert_eq!(read(path), Err(why.to_owned()), "{path}");
        }
        std::fs::write(at("deep/file"), "longer").unwrap();
        assert_eq!(read("deep/file"), Err("has more than 4 bytes".to_owned()));
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_readable_by_whom_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file.json");
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o777;
        replace(&path, b"one", Others::MayRead).unwrap();
        assert_eq!(mode() & 0o700, 0o600);
        // One that was left behind, and that everybody can read, gives neither its mode nor its place.
        let left = path.with_extension(format!("{}.new", std::process::id()));
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &left).unwrap();
        replace(&path, b"two", Others::Nothing).unwrap();
        assert_eq!((mode(), std::fs::read(&path).unwrap()), (0o600, b"two".to_vec()));
        assert!(!elsewhere.exists() && !left.exists());
        // A folder cannot be replaced by a file.
        let error = replace(&folder.path().join("new"), b"three", Others::Nothing).unwrap_err();
        assert!(error.message.starts_with("cannot be written: "), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
