//! Modes and times of files.
//!
//! Landlock does not know chmod(2) and utimensat(2), and a filter of system calls cannot see which file a path leads to. So
//! these calls stop in the kernel and the supervisor makes them in the command's place ([`crate::notify`]), on files that lie
//! below a writable folder. It opens the file itself, so it does not matter what the command changes meanwhile.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::{FchmodatFlags, Mode, UtimensatFlags, fchmodat, utimensat};
use nix::sys::time::TimeSpec;

use crate::caller::{Caller, errno};
use crate::grant::Grant;

#[cfg(target_arch = "x86_64")]
pub(crate) const CALLS: &[i64] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_utimensat,
    libc::SYS_chmod,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const CALLS: &[i64] = &[libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchmodat2, libc::SYS_utimensat];

enum Change {
    Mode(Mode),
    /// Access and modification.
    Times([TimeSpec; 2]),
}

/// A change that a command has asked for.
pub(crate) struct Call {
    file: File,
    change: Change,
}

impl Call {
    /// Opens the file of a call as its caller would find it, as a path only: nothing is read or written through it.
    pub(crate) fn read(call: &libc::seccomp_notif) -> Result<Call, Errno> {
        let caller = Caller(call.pid);
        let argument = |at: usize| call.data.args.get(at).copied().unwrap_or_default();
        let (mode, here) = (|at| Change::Mode(mode(argument(at))), libc::AT_FDCWD as u64);
        let (file, change) = match i64::from(call.data.nr) {
            libc::SYS_fchmod => (caller.descriptor(argument(0))?, mode(1)),
            libc::SYS_fchmodat => (caller.path(argument(0), argument(1), 0)?, mode(2)),
            libc::SYS_fchmodat2 => (caller.path(argument(0), argument(1), argument(3))?, mode(2)),
            libc::SYS_utimensat => {
                let file = match argument(1) {
                    0 => caller.descriptor(argument(0))?,
                    path => caller.path(argument(0), path, argument(3))?,
                };
                (file, Change::Times(caller.times(argument(2), 1)?))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => (caller.path(here, argument(0), 0)?, mode(1)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utime => (caller.path(here, argument(0), 0)?, Change::Times(caller.seconds(argument(1))?)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_utimes => (caller.path(here, argument(0), 0)?, Change::Times(caller.times(argument(1), 1_000)?)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_futimesat => {
                (caller.path(argument(0), argument(1), 0)?, Change::Times(caller.times(argument(2), 1_000)?))
            }
            _ => return Err(Errno::ENOSYS),
        };
        Ok(Call { file, change })
    }

    pub(crate) fn apply(self, roots: &[Grant], still_waits: impl FnOnce() -> bool) -> Result<(), Errno> {
        let descriptor = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let place = std::fs::read_link(&descriptor).map_err(errno)?;
        // Where they are now: a path from before could be that of another folder by now.
        if !roots.iter().filter_map(|root| root.path().ok()).any(|root| place.starts_with(root)) {
            return Err(Errno::EPERM);
        }
        if !still_waits() {
            return Err(Errno::ESRCH);
        }
        let descriptor = Path::new(&descriptor);
        match self.change {
            Change::Mode(mode) => fchmodat(nix::fcntl::AT_FDCWD, descriptor, mode, FchmodatFlags::FollowSymlink),
            Change::Times([access, modification]) => {
                utimensat(nix::fcntl::AT_FDCWD, descriptor, &access, &modification, UtimensatFlags::FollowSymlink)
            }
        }
    }
}

/// The mode without the set-user-ID and set-group-ID bits.
fn mode(argument: u64) -> Mode {
    Mode::from_bits_truncate((argument & 0o1777) as libc::mode_t)
}
