//! Reads files that decide which programs run or what an agent is told. They must be regular files of a limited size.
//! Most of them must also belong to root or to the user who runs the program, and nobody else can have permission to
//! change them, because ken would otherwise follow the instructions of another user.
//!
//! An error says what is wrong with a file and how to correct it, but not which file it is. The caller adds the path.

mod folders;
mod owner;

pub use folders::{Folders, Identity, check_apart, resolved};
pub use owner::{Owner, work_as_owner};

use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ken_types::{Error, json};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The permission bits that allow the group and others to write.
const OTHERS_WRITE: u32 = 0o022;
/// The permission bit of a folder, such as /tmp, in which only the owner of a file can remove or rename it.
const STICKY: u32 = 0o1000;
/// The maximum size of `secrets.env`, in bytes.
const MAX_SECRETS_BYTES: u64 = 1024 * 1024;

/// What users other than the owner are allowed to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    MayRead,
    /// The group of the file may read it.
    GroupMayRead,
    Nothing,
}

/// Reads a file of at most `max` bytes that only its owner can change. Fails with `invalid` if the file is missing, is
/// not a regular file, or belongs to or can be changed by another user, and with `too_large` if it is longer.
pub fn read(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    find(path, Others::MayRead, max)?.ok_or_else(missing)
}

/// Reads a file as [`read`] does, but returns `None` if it does not exist. With [`Others::Nothing`], it also fails with
/// `invalid` if other users have any access to the file.
pub fn find(path: &Path, others: Others, max: u64) -> Result<Option<Vec<u8>>, Error> {
    find_of(path, others, max, None)
}

/// Reads a file as [`find`] does, which may also belong to this owner of the system.
fn find_of(path: &Path, others: Others, max: u64, owner: Option<&Owner>) -> Result<Option<Vec<u8>>, Error> {
    let Some((file, meta)) = open(path)? else {
        return Ok(None);
    };
    if owner.is_none_or(|owner| owner.uid.as_raw() != meta.uid()) {
        check_owner(path, &meta)?;
    }
    let mode = meta.mode() & 0o777;
    let (refused, right) = match others {
        Others::MayRead => (0, 0o644),
        Others::GroupMayRead => (0o037, 0o640),
        Others::Nothing => (0o077, 0o600),
    };
    if mode & refused != 0 {
        let error = Error::invalid("", format!("has mode {mode:04o}, others can read it"));
        return Err(error.hint(format!("chmod {right:o} {}", path.display())));
    }
    check_mode(path, mode)?;
    bounded(file, max).map(Some)
}

/// Returns the value that a JSON file of at most `max` bytes holds, and the default one if the file does not exist. The file
/// is read as by [`find`].
pub fn find_json<T: DeserializeOwned + Default>(
    path: &Path,
    others: Others,
    max: u64,
    max_depth: usize,
) -> Result<T, Error> {
    match find(path, others, max)? {
        Some(bytes) => json::parse(&bytes, max_depth).and_then(json::from_value),
        None => Ok(T::default()),
    }
}

/// Replaces a JSON file as [`replace`] does.
pub fn replace_json(path: &Path, value: &impl Serialize, others: Others) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::internal(error.to_string()))?;
    replace(path, format!("{text}\n").as_bytes(), others)
}

/// Reads, changes and replaces a file while the lock of its folder is held, so that two commands at a time lose nothing of each other. The
/// folder is made if it is missing. A question to a person belongs before it. An error about the folder contains its path in `at`.
pub fn locked<T>(path: &Path, change: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let lock = || {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let lock = File::open(folder)?;
        lock.lock().map(|()| lock)
    };
    let at = folder.display().to_string();
    let _lock = lock().map_err(|error| Error::invalid(at, format!("cannot be written: {error}")))?;
    change()
}

/// Returns the text of `secrets.env`, or an empty text if the file does not exist. Fails if other users have any access
/// to it. The error contains the path in `at`.
pub fn secrets(path: &Path) -> Result<String, Error> {
    Ok(find_secret_text(path, MAX_SECRETS_BYTES)?.unwrap_or_default())
}

/// Returns the text of `secrets.env` as [`secrets`] does. If root keeps the configuration for the system of another user, the file
/// belongs to this owner, and only root may be able to put another file in its place. Nothing in it may decide what root runs.
pub fn secrets_of(path: &Path, owner: Option<&Owner>) -> Result<String, Error> {
    let folder = path.parent().filter(|_| owner.is_some());
    folder.map_or(Ok(()), check_folder).map_err(|error| at(folder.unwrap_or(path), error))?;
    Ok(secret_text(path, MAX_SECRETS_BYTES, owner)?.unwrap_or_default())
}

/// Returns the text of a file of at most `max` bytes that holds secrets, or `None` if it does not exist. Fails as [`secrets`] does.
pub fn find_secret_text(path: &Path, max: u64) -> Result<Option<String>, Error> {
    secret_text(path, max, None)
}

fn secret_text(path: &Path, max: u64, owner: Option<&Owner>) -> Result<Option<String>, Error> {
    let found = find_of(path, Others::Nothing, max, owner).map_err(|error| at(path, error))?;
    let text = found.map(String::from_utf8).transpose();
    text.map_err(|_| at(path, Error::invalid("", "is not text in UTF-8")))
}

fn at(path: &Path, error: Error) -> Error {
    Error { at: Some(path.display().to_string()), ..error }
}

/// Reads a file of at most `max` bytes without checking who can change it. It is for files whose content the caller
/// compares with what was approved before.
pub fn read_any(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    find_any(path, max)?.ok_or_else(missing)
}

/// Reads a file as [`read_any`] does, but returns `None` if it does not exist.
pub fn find_any(path: &Path, max: u64) -> Result<Option<Vec<u8>>, Error> {
    let found = open(path)?.map(|(file, _)| bounded(file, max));
    found.transpose()
}

/// Checks a folder of trusted files, because whoever can write to the folder can replace the files. A folder that does
/// not exist passes.
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
    if meta.mode() & STICKY == 0 { check_mode(path, meta.mode() & 0o7777) } else { Ok(()) }
}

/// Reads a file below a folder, without checking who can change it. `path` is relative to the folder. Fails with
/// `invalid` if the path contains a symbolic link or leads out of the folder.
pub fn read_below(folder: &Path, path: &Path, max: u64) -> Result<Vec<u8>, Error> {
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
    bounded(file, max)
}

/// Replaces a file atomically and durably: even after a power failure it has either the old or the new content. Creates
/// the folder if it is missing. `others` sets who can read the file. An error contains the path in `at`.
pub fn replace(path: &Path, bytes: &[u8], others: Others) -> Result<(), Error> {
    let mode = match others {
        Others::MayRead => 0o644,
        Others::GroupMayRead => 0o640,
        Others::Nothing => 0o600,
    };
    put(path, bytes, mode, |_| Ok(()))
}

/// Replaces a file that a person keeps by hand, atomically and durably. Its mode and its owner stay as they are; a new one gets
/// `fresh_mode`, and belongs to `fresh_owner` if one is given. An error contains the path in `at`, and the old file is then unchanged.
pub fn rewrite(path: &Path, bytes: &[u8], fresh_mode: u32, fresh_owner: Option<&Owner>) -> Result<(), Error> {
    // Until it has its owner and mode, nobody else reads it.
    put(path, bytes, 0o600, |file| {
        let known = match std::fs::metadata(path) {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // The owner first: a change of it may clear bits of the mode.
        let fresh = fresh_owner.map(|owner| (owner.uid.as_raw(), owner.gid.as_raw()));
        let owner = known.as_ref().map(|known| (known.uid(), known.gid())).or(fresh);
        let own = file.metadata().map(|own| (own.uid(), own.gid()))?;
        if let Some((user, group)) = owner.filter(|owner| *owner != own) {
            std::os::unix::fs::fchown(file, Some(user), Some(group))?;
        }
        let mode = known.map_or(fresh_mode, |known| known.mode() & 0o7777);
        file.set_permissions(Permissions::from_mode(mode))
    })
}

/// Puts a new file in the place of an old one. It has its access rights before it has its content.
fn put(path: &Path, bytes: &[u8], mode: u32, set_access: impl Fn(&File) -> std::io::Result<()>) -> Result<(), Error> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    // Another process with the same id may have left this file behind, and others may be able to read it.
    _ = std::fs::remove_file(&beside);
    remove_leftovers(path);
    let put = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        set_access(&file)?;
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

/// Removes the new files that processes were about to put in the place of this one when they were killed. They may hold secrets that are
/// to be removed.
fn remove_leftovers(path: &Path) {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else { return };
    let Some(prefix) = stem.to_str().map(|stem| format!("{stem}.")) else { return };
    let is_leftover = |name: &str| {
        let process = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".new"));
        // Without /proc nobody can tell who still runs.
        process.is_some_and(|process| process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists())
            && Path::new("/proc/self").exists()
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_leftover) {
            _ = std::fs::remove_file(entry.path());
        }
    }
}

fn missing() -> Error {
    Error::invalid("", "there is no such file")
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::invalid("", format!("cannot be read: {error}"))
}

/// Opens a regular file; `None` if it does not exist.
fn open(path: &Path) -> Result<Option<(File, Metadata)>, Error> {
    let mut options = OpenOptions::new();
    // With this flag, opening a FIFO does not wait for a writer.
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let hint = format!("the user with id {} must be able to read it: chown, chgrp or chmod", geteuid());
            return Err(unreadable(&error).hint(hint));
        }
        Err(error) => return Err(unreadable(&error)),
    };
    regular(file).map(Some)
}

/// Returns the file and its metadata. Fails if it is not a regular file, but for example a folder, a FIFO or a device.
fn regular(file: File) -> Result<(File, Metadata), Error> {
    let meta = file.metadata().map_err(|error| unreadable(&error))?;
    if meta.is_file() {
        Ok((file, meta))
    } else {
        Err(Error::invalid("", "is not a regular file").hint("put a file in its place, or remove it"))
    }
}

fn bounded(file: File, max: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = file.take(max + 1).read_to_end(&mut bytes);
    read.map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > max { Err(Error::too_large(format!("has more than {max} bytes"))) } else { Ok(bytes) }
}

fn check_owner(path: &Path, meta: &Metadata) -> Result<(), Error> {
    let (owner, own) = (meta.uid(), geteuid().as_raw());
    if owner == 0 || owner == own {
        return Ok(());
    }
    let message = format!("belongs to the user with id {owner}, who is neither root nor the user of this program");
    let remedy = format!("chown {own} {}", path.display());
    // Given to root, a file with secrets could not be read any more by the system of that user.
    let remedy = if own == 0 { format!("do it as that user (sudo -u '#{owner}' ...), or {remedy}") } else { remedy };
    Err(Error::invalid("", message).hint(remedy))
}

fn check_mode(path: &Path, mode: u32) -> Result<(), Error> {
    if mode & OTHERS_WRITE == 0 {
        return Ok(());
    }
    let message = format!("has mode {mode:04o}, others can change it");
    // Without this right, a folder such as /tmp would be of no use to the others on the machine.
    let hint = match mode & STICKY {
        0 => format!("chmod go-w {}", path.display()),
        _ => "it is a folder for all users: trust a folder of your own below it".to_owned(),
    };
    Err(Error::invalid("", message).hint(hint))
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
        // A temporary file that was left behind and that everybody can read affects neither the mode nor the content of
        // the new file.
        let left = path.with_extension(format!("{}.new", std::process::id()));
        let elsewhere = folder.path().join("elsewhere");
        std::os::unix::fs::symlink(&elsewhere, &left).unwrap();
        replace(&path, b"two", Others::Nothing).unwrap();
        assert_eq!((mode(), std::fs::read(&path).unwrap()), (0o600, b"two".to_vec()));
        assert!(!elsewhere.exists() && !left.exists());
        // A file cannot replace a folder.
        let error = replace(&folder.path().join("new"), b"three", Others::Nothing).unwrap_err();
        assert!(error.message.starts_with("cannot be written: "), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
