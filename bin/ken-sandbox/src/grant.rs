//! What the command is given: each folder or file is opened once, and from then on it is this descriptor that counts. A
//! path that is resolved again later could lead elsewhere, because another process may have renamed what it leads through.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, FcntlArg, OFlag, OpenHow, ResolveFlag, fcntl, open, openat, openat2};
use nix::libc;
use nix::sys::stat::Mode;

use crate::caller::errno;
use crate::cli::{CANNOT_CONFINE, Job, Refusal};

/// A folder or a file, open as a path only.
#[derive(Debug)]
pub(crate) struct Grant(File);

/// A file by its device and inode: the same for all names of it.
type Identity = (u64, u64);

impl Grant {
    /// What a path leads to now, by way of links too.
    pub(crate) fn open(path: &Path) -> Result<Grant, Refusal> {
        Grant::find(path)?.ok_or_else(|| refused(path, "there is no such file or folder"))
    }

    /// `None` if it does not exist or this user cannot reach it.
    pub(crate) fn find(path: &Path) -> Result<Option<Grant>, Refusal> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_PATH);
        match options.open(path) {
            Ok(file) => Ok(Some(Grant(file))),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => Ok(None),
                _ => Err(refused(path, error)),
            },
        }
    }

    /// What the caller has left open as descriptor `number`.
    fn inherited(number: i32) -> Result<Grant, Refusal> {
        let (own, name) = (duplicate(number)?, descriptor_name(number));
        // What is open for reading or writing would let its holder do that whatever the rules say.
        let flags = fcntl(&own, FcntlArg::F_GETFL).map_err(|errno| refused(&name, errno))?;
        if flags & libc::O_PATH == 0 {
            return Err(refused(&name, "it is not open as a path (O_PATH)"));
        }
        Ok(Grant(own.into()))
    }

    pub(crate) fn about(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    pub(crate) fn duplicate(&self) -> Result<Grant, Refusal> {
        self.0.try_clone().map(Grant).map_err(|error| Refusal::step("descriptors", error))
    }

    /// Where it is now, without links. A file that has been removed has no path that leads to it.
    pub(crate) fn path(&self) -> Result<PathBuf, Errno> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.0.as_raw_fd())).map_err(errno)
    }

    /// Opens it again where it is now. In another mount namespace this is how the mounts on it and below it are seen: a
    /// descriptor from before still leads to the mounts of the former one. Fails if something else is at its path.
    pub(crate) fn reopened(&self) -> Result<Grant, Errno> {
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        let again = Grant(openat2(AT_FDCWD, &self.path()?, how)?.into());
        if again.identity()? == self.identity()? { Ok(again) } else { Err(Errno::ESTALE) }
    }

    fn identity(&self) -> Result<Identity, Errno> {
        let about = self.about().map_err(errno)?;
        Ok((about.dev(), about.ino()))
    }

    /// It and all folders above it, up to the root.
    fn upwards(&self) -> Result<Vec<Identity>, Errno> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_DIRECTORY;
        let (mut found, mut folder) = if self.about().map_err(errno)?.is_dir() {
            (Vec::new(), openat(&self.0, ".", flags, Mode::empty())?)
        } else {
            let path = self.path()?;
            let around = open(path.parent().unwrap_or(Path::new("/")), flags, Mode::empty())?;
            (vec![self.identity()?], around)
        };
        loop {
            let next = openat(&folder, "..", flags, Mode::empty())?;
            let identity = Grant(folder.into()).identity()?;
            // The parent of the root is the root.
            if found.last() == Some(&identity) {
                return Ok(found);
            }
            found.push(identity);
            folder = next;
        }
    }
}

/// Returns a duplicate of what the caller has left open as descriptor `number`.
fn duplicate(number: i32) -> Result<OwnedFd, Refusal> {
    // SAFETY: the descriptor is only duplicated; if the caller has not left it open, that is the error.
    #[allow(unsafe_code)]
    let theirs = unsafe { BorrowedFd::borrow_raw(number) };
    theirs.try_clone_to_owned().map_err(|error| refused(descriptor_name(number), error))
}

fn descriptor_name(number: i32) -> String {
    format!("descriptor {number}")
}

/// Reads to its end what the caller has left open as descriptor `number`.
pub(crate) fn content(number: i32) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let read = File::from(duplicate(number)?).read_to_end(&mut bytes);
    read.map_err(|error| refused(descriptor_name(number), error)).map(|_| bytes)
}

impl AsFd for Grant {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens what is at a path below a folder. The path cannot lead out of the folder, or through a symbolic link. With `O_PATH`, a link
/// at its end is opened itself; otherwise it is refused.
pub(crate) fn open_below(folder: &impl AsFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(folder, path, how)
}

/// Everything that the command is given.
#[derive(Debug)]
pub(crate) struct Grants {
    pub(crate) read: Vec<Grant>,
    pub(crate) write: Vec<Grant>,
    /// The only files and folders that it can execute; empty for no such limit.
    pub(crate) execute: Vec<Grant>,
    pub(crate) cwd: Grant,
}

impl Grants {
    /// `temporary` is the folder that the command has for itself.
    pub(crate) fn open(job: &Job, temporary: &Path) -> Result<Grants, Refusal> {
        let all = |paths: &[PathBuf], numbers: &[i32]| -> Result<Vec<Grant>, Refusal> {
            let numbers = numbers.iter().map(|number| Grant::inherited(*number));
            numbers.chain(paths.iter().map(|path| Grant::open(path))).collect()
        };
        let cwd = match (job.cwd_fd, &job.cwd) {
            (Some(number), _) => Grant::inherited(number),
            (None, Some(path)) => Grant::open(path),
            (None, None) => Grant::open(Path::new(".")),
        };
        let mut grants = Grants {
            read: all(&job.read, &job.read_fd)?,
            write: all(&job.write, &job.write_fd)?,
            execute: all(&job.execute, &[])?,
            cwd: cwd.map_err(|refusal| refusal.about("the working directory"))?,
        };
        for grant in grants.read.iter().chain(&grants.write) {
            check_kept_out(job, grant)?;
        }
        grants.write.push(Grant::open(temporary)?);
        Ok(grants)
    }
}

/// Refuses a grant that contains a folder of `--keep-out`, or lies in one: Landlock cannot take a part of a folder away
/// again. Compared by device and inode, because a folder can have several paths.
pub(crate) fn check_kept_out(job: &Job, grant: &Grant) -> Result<(), Refusal> {
    let name = grant.path().unwrap_or_default();
    let failed = |errno: Errno| refused(&name, errno);
    let mut except = Vec::new();
    for path in &job.except {
        except.extend(Grant::find(path)?.map(|found| found.identity()).transpose().map_err(failed)?);
    }
    for path in &job.keep_out {
        let Some(kept) = Grant::find(path)? else { continue };
        let above = grant.upwards().map_err(failed)?;
        let (kept_identity, own) = (kept.identity().map_err(failed)?, grant.identity().map_err(failed)?);
        let lies_in = above.iter().take_while(|folder| !except.contains(folder)).any(|folder| *folder == kept_identity);
        let contains = kept.upwards().map_err(failed)?.contains(&own);
        if lies_in || contains {
            let relation = if lies_in { "lies in" } else { "contains" };
            return Err(refused(&name, format!("it {relation} {}, which no command may touch", path.display())));
        }
    }
    Ok(())
}

pub(crate) fn refused(what: impl AsRef<Path>, why: impl std::fmt::Display) -> Refusal {
    Refusal::step(&what.as_ref().display().to_string(), why).with_status(CANNOT_CONFINE)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn job(keep_out: &[&Path], except: &[&Path]) -> Job {
        let option = |name: &str, paths: &[&Path]| -> Vec<std::ffi::OsString> {
            paths.iter().flat_map(|path| [name.into(), path.as_os_str().to_owned()]).collect()
        };
        let mut words = vec!["ken-sandbox".into()];
        words.extend(option("--keep-out", keep_out));
        words.extend(option("--except", except));
        words.push("true".into());
        crate::cli::parse(words.into_iter()).unwrap()
    }

    /// A grant neither contains what is kept out nor lies in it, whatever path leads there, unless an exception is between them.
    #[test]
    fn what_is_kept_out_is_in_no_grant_and_around_none() {
        let around = tempfile::tempdir().unwrap();
        let at = |name: &str| around.path().join(name);
        for name in ["own/state/run", "own/skills/one", "work/src", "other"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("own/state/file"), "x").unwrap();
        std::os::unix::fs::symlink(at("own/state"), at("link")).unwrap();
        let own = at("own");
        let (state, skills, absent) = (at("own/state"), at("own/skills"), at("absent"));
        for (keep_out, except, granted, is_refused) in [
            (&[&*own][..], &[][..], at("work"), false),
            (&[&*own], &[], at("own"), true),
            (&[&*own], &[], at("own/state/run"), true),
            (&[&*own], &[], at("own/state/file"), true),
            (&[&*own], &[], at("link"), true),
            (&[&*own], &[], around.path().to_owned(), true),
            (&[&*own], &[&*skills], at("own/skills"), false),
            (&[&*own], &[&*skills], at("own/skills/one"), false),
            (&[&*own], &[&*skills], at("own/state"), true),
            (&[&*own], &[&*absent], at("own/state"), true),
            (&[&*state], &[], at("own"), true),
            (&[&*state], &[], at("own/skills"), false),
            (&[&*absent, &*state], &[], at("own/state"), true),
            (&[&*absent], &[], at("own"), false),
        ] {
            let grant = Grant::open(&granted).unwrap();
            let found = check_kept_out(&job(keep_out, except), &grant);
            assert_eq!(found.is_err(), is_refused, "{keep_out:?} {except:?} {granted:?}");
        }
        // Down to the root, each folder once.
        let depth = |path: &Path| Grant::open(path).unwrap().upwards().unwrap().len();
        assert_eq!(depth(Path::new("/")), 1);
        assert_eq!(
            (depth(&own), depth(&at("own/state/file"))),
            (own.components().count(), own.components().count() + 2)
        );
    }

    /// A descriptor that can be read or written would let its holder do so whatever the rules say.
    #[test]
    fn only_a_descriptor_that_is_a_path_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let opened = File::open(folder.path()).unwrap();
        assert!(Grant::inherited(opened.as_raw_fd()).is_err());
        let path = Grant::open(folder.path()).unwrap();
        assert!(Grant::inherited(path.0.as_raw_fd()).is_ok());
        assert!(Grant::inherited(99_999).is_err());
        assert!(
            Grant::open(&folder.path().join("absent")).is_err()
                && Grant::find(&folder.path().join("absent")).unwrap().is_none()
        );
    }
}
