//! The mounts of the sandbox, in a mount namespace of its own. What Landlock cannot express is made read-only here: a part of
//! a folder that can be changed otherwise. All mounts come before Landlock, which then forbids to change them.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::mount::{MsFlags, mount};

use crate::grant::{Grant, Grants, open_below};

/// The constants of <linux/mount.h> that libc lacks here.
const OPEN_TREE_CLONE: libc::c_uint = 1;
const MOVE_FROM_DESCRIPTOR: libc::c_uint = 0x4;
const MOVE_TO_DESCRIPTOR: libc::c_uint = 0x40;
const ATTRIBUTE_READ_ONLY: u64 = 0x1;
const ATTRIBUTE_NO_SET_ID: u64 = 0x2;
const AT_RECURSIVE: libc::c_int = 0x8000;

/// `struct mount_attr` of <linux/mount.h>.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// What happens to a file or folder below a writable folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// It cannot be renamed, removed or replaced. What is in it can be changed.
    InPlace,
    /// In addition, neither it nor anything in it can be changed.
    ReadOnly,
}

/// The files and folders to hold, each by its writable folder, as an index of [`Grants::write`], and its path below that. A folder
/// comes before what is in it.
pub(crate) type Held = BTreeMap<(usize, PathBuf), Hold>;

/// What to do in the namespace.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) held: Held,
    /// Whether everything but the writable folders becomes read-only.
    pub(crate) read_only: bool,
}

/// Whether this process may mount. On some systems a user namespace can be made in which nothing is allowed.
pub(crate) fn make_private() -> bool {
    // Otherwise the mounts would appear outside too.
    mount(None::<&CStr>, "/", None::<&CStr>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&CStr>).is_ok()
}

/// Sets up the mounts. The error names the step.
pub(crate) fn set_up(plan: &Plan, grants: &Grants) -> Result<(), (String, Errno)> {
    let of = |grant: &Grant| grant.path().unwrap_or_default().display().to_string();
    // Taken before everything becomes read-only.
    let mut copies = Vec::new();
    for grant in &grants.write {
        let failed = |errno| (of(grant), errno);
        let copy = copy_of(&grant.reopened().map_err(failed)?).map_err(failed)?;
        set(&copy, libc::AT_EMPTY_PATH | AT_RECURSIVE, ATTRIBUTE_NO_SET_ID).map_err(failed)?;
        copies.push((grant.path().map_err(failed)?, grant, copy));
    }
    if plan.read_only {
        let root = Grant::open(Path::new("/")).map_err(|_| ("/".to_owned(), Errno::ENOENT))?;
        set(&root, libc::AT_EMPTY_PATH | AT_RECURSIVE, ATTRIBUTE_READ_ONLY).map_err(|errno| ("/".to_owned(), errno))?;
    }
    // A folder comes before the folders in it, which it would hide.
    copies.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    for (path, grant, copy) in &copies {
        let attached = grant.reopened().and_then(|place| attach(copy, &place));
        attached.map_err(|errno| (path.display().to_string(), errno))?;
    }
    for ((root, path), how) in &plan.held {
        let root = grants.write.get(*root).ok_or(Errno::EINVAL);
        root.and_then(|root| hold(root, path, *how)).map_err(|errno| (path.display().to_string(), errno))?;
    }
    Ok(())
}

/// Mounts a `/proc` that shows this PID namespace only. A host that hides parts of its own does not allow it.
pub(crate) fn own_proc() -> bool {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&CStr>).is_ok()
}

fn hold(root: &Grant, path: &Path, hold: Hold) -> Result<(), Errno> {
    // A symbolic link is held itself: a mount of the link on the link leads where the link leads.
    let place = open_below(&root.reopened()?, path, OFlag::O_PATH)?;
    let copy = copy_of(&place)?;
    if hold == Hold::ReadOnly {
        set(&copy, libc::AT_EMPTY_PATH | AT_RECURSIVE, ATTRIBUTE_READ_ONLY)?;
    }
    attach(&copy, &place)
}

/// A copy of the mounts from `place` on, attached nowhere.
#[allow(unsafe_code)]
fn copy_of(place: &impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OPEN_TREE_CLONE | (libc::O_CLOEXEC | libc::AT_EMPTY_PATH | AT_RECURSIVE).cast_unsigned();
    // SAFETY: the path lives during the call, and the kernel makes the descriptor for us.
    unsafe {
        let copy = libc::syscall(libc::SYS_open_tree, place.as_fd().as_raw_fd(), c"".as_ptr(), flags);
        Ok(OwnedFd::from_raw_fd(i32::try_from(Errno::result(copy)?).map_err(|_| Errno::EOVERFLOW)?))
    }
}

#[allow(unsafe_code)]
fn set(mounts: &impl AsFd, flags: libc::c_int, attributes: u64) -> Result<(), Errno> {
    let attributes = Attributes { set: attributes, ..Attributes::default() };
    // SAFETY: the path and the structure live during the call.
    Errno::result(unsafe {
        let (mounts, size) = (mounts.as_fd().as_raw_fd(), size_of::<Attributes>());
        libc::syscall(libc::SYS_mount_setattr, mounts, c"".as_ptr(), flags, &raw const attributes, size)
    })
    .map(drop)
}

#[allow(unsafe_code)]
fn attach(copy: &OwnedFd, place: &impl AsFd) -> Result<(), Errno> {
    let flags = MOVE_FROM_DESCRIPTOR | MOVE_TO_DESCRIPTOR;
    let (copy, place) = (copy.as_raw_fd(), place.as_fd().as_raw_fd());
    // SAFETY: the paths live during the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_move_mount, copy, c"".as_ptr(), place, c"".as_ptr(), flags) })
        .map(drop)
}
