//! Descriptors that this process has from the kend whose place it takes.

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Takes a descriptor that was kept over the exec. Programs that this process starts do not inherit it.
pub(crate) fn adopt(fd: RawFd) -> Result<OwnedFd, Errno> {
    if fd < 3 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the earlier program of this process has handed the number over for this one use (handover.rs), and nothing else here
    // knows it. A number that is not open is refused before anything owns it.
    let open = unsafe { BorrowedFd::borrow_raw(fd) };
    fcntl(open, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    // SAFETY: as above; it is open.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets whether the next program of this process inherits a descriptor.
pub(crate) fn keep_over_exec(fd: impl AsFd, keep: bool) -> Result<(), Errno> {
    let flags = if keep { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(fd, FcntlArg::F_SETFD(flags)).map(drop)
}
