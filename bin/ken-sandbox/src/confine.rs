//! What the command does to itself between fork and exec.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use ken_walls::kernel;
use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::{execve, fchdir};
use seccompiler::BpfProgram;

use crate::cli::{CANNOT_CONFINE, CANNOT_EXECUTE, NOT_FOUND, Sockets};
use crate::grant::{Grant, Grants};
use crate::walls::Walls;
use crate::{files, notify, process, syscalls};

/// Everything that the command needs, prepared by the supervisor.
pub(crate) struct Command {
    pub(crate) program: CString,
    pub(crate) args: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    pub(crate) grants: Grants,
    /// The program, which it can read wherever it is. `None` if the command finds it from its working directory.
    pub(crate) found: Option<Grant>,
    pub(crate) limits: Vec<(Resource, u64)>,
    /// Inherited descriptors that stay open.
    pub(crate) descriptors: Vec<i32>,
    pub(crate) sockets: Sockets,
}

/// The messages from the command to the supervisor begin with one of these bytes. `LISTENER` comes with the descriptor that
/// tells of its system calls; `FAILED` is followed by an exit status and the text for standard error; `WALLS` comes from init,
/// before the command is started, and is followed by what has been set up, as JSON.
pub(crate) const WALLS: u8 = b'W';
pub(crate) const LISTENER: u8 = b'L';
pub(crate) const FAILED: u8 = b'F';

impl Command {
    /// Becomes the command, or tells the supervisor why not.
    pub(crate) fn run(self, walls: Walls, channel: &OwnedFd) -> ! {
        let (status, text) = match self.confined(walls, channel) {
            Ok(failed) => failed,
            Err((step, error)) => (CANNOT_CONFINE, format!("{step}: {error}")),
        };
        fail(channel, status, &text)
    }

    /// Restricts this process and executes the program. Returns the exit status and the reason if it cannot be executed.
    fn confined(self, walls: Walls, channel: &OwnedFd) -> Result<(u8, String), (&'static str, String)> {
        let step = |name| move |errno: Errno| (name, errno.desc().to_owned());
        prctl::set_pdeathsig(Signal::SIGKILL).map_err(step("the death signal"))?;
        process::reset_signals().map_err(step("signals"))?;
        self.enter(walls).map_err(step("the working directory"))?;
        let sockets = self.sockets.with(walls.loopback);
        let ruleset = files::ruleset(&self.grants, self.found.as_ref(), sockets, walls.landlock)
            .map_err(|why| ("files (Landlock)", why))?;
        let filter = syscalls::filter(sockets).map_err(|error| ("system calls (seccomp)", error.to_string()))?;
        for (resource, max) in &self.limits {
            limit(*resource, *max).map_err(step("resource limits"))?;
        }
        close_others(&self.descriptors).map_err(step("descriptors"))?;
        drop_capabilities().map_err(step("capabilities"))?;
        prctl::set_no_new_privs().map_err(step("privileges"))?;
        let status = ruleset.restrict_self().map_err(|error| ("files (Landlock)", error.to_string()))?;
        if status.ruleset != landlock::RulesetStatus::FullyEnforced {
            return Err(("files (Landlock)", "the kernel enforces only a part of the rules".to_owned()));
        }
        listen(sockets, &filter, channel).map_err(step("system calls (seccomp)"))?;
        let Err(errno) = execve(&self.program, &self.args, &self.environment);
        let status = if errno == Errno::ENOENT { NOT_FOUND } else { CANNOT_EXECUTE };
        Ok((status, format!("{}: {}", self.program.to_string_lossy(), errno.desc())))
    }

    /// Goes to the working directory. Where there are mounts of its own, the descriptor from before would lead past them.
    fn enter(&self, walls: Walls) -> Result<(), Errno> {
        if walls.mounts { fchdir(self.grants.cwd.reopened()?) } else { fchdir(&self.grants.cwd) }
    }
}

/// Tells the supervisor why the command was not run, and ends.
pub(crate) fn fail(channel: &OwnedFd, status: u8, text: &str) -> ! {
    let message = [&[FAILED, status][..], text.as_bytes()].concat();
    // If the supervisor is gone there is nobody left to tell.
    let _ = nix::unistd::write(channel, &message);
    process::exit(status.into())
}

/// Installs the filter of system calls, and sends the supervisor the descriptor that tells of those that wait for it.
fn listen(sockets: Sockets, filter: &BpfProgram, channel: &OwnedFd) -> Result<(), Errno> {
    if !sockets.are_supervised() {
        return send(channel, &notify::listen(filter)?);
    }
    // With this filter sendmsg(2) waits for the supervisor, which does not have the descriptor yet. A thread that was
    // started before is not subject to the filter, so it sends the descriptor.
    std::thread::scope(|scope| {
        let (give, take) = std::sync::mpsc::channel::<OwnedFd>();
        let sender = std::thread::Builder::new().spawn_scoped(scope, move || {
            let listener = take.recv().map_err(|_| Errno::EPIPE)?;
            send(channel, &listener)
        });
        let sender = sender.map_err(|_| Errno::EAGAIN)?;
        let given = notify::listen(filter).map(|listener| give.send(listener));
        drop(give);
        let sent = sender.join().unwrap_or(Err(Errno::EPIPE));
        given?.map_err(|_| Errno::EPIPE).and(sent)
    })
}

/// Sets a limit that cannot be raised again, at most to the hard limit of this process.
fn limit(resource: Resource, max: u64) -> Result<(), Errno> {
    let (_, hard) = getrlimit(resource)?;
    let max = max.min(hard);
    setrlimit(resource, max, max)
}

/// Makes exec close all descriptors but standard input, output and error and those in `kept`.
#[allow(unsafe_code)]
fn close_others(kept: &[i32]) -> Result<(), Errno> {
    // SAFETY: only sets a flag on descriptors of this process.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    Errno::result(done)?;
    for descriptor in kept {
        // SAFETY: only takes a flag from a descriptor; one that is not open is an error.
        Errno::result(unsafe { libc::fcntl(*descriptor, libc::F_SETFD, 0) })?;
    }
    Ok(())
}

/// Root without capabilities is an ordinary user that owns the system's files; Landlock keeps it from those.
#[allow(unsafe_code)]
fn drop_capabilities() -> Result<(), Errno> {
    // SAFETY: plain system calls on this process.
    unsafe {
        for capability in 0..64 {
            // EINVAL ends the list, EPERM means that there is nothing to drop.
            if libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 {
                break;
            }
        }
        Errno::result(libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))?;
    }
    kernel::keep_capabilities(0).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

fn send(channel: &OwnedFd, listener: &OwnedFd) -> Result<(), Errno> {
    let byte = [std::io::IoSlice::new(&[LISTENER])];
    let descriptors = [listener.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&descriptors)];
    sendmsg::<()>(channel.as_raw_fd(), &byte, &rights, MsgFlags::empty(), None).map(drop)
}

/// For the supervisor: the descriptor that came with [`LISTENER`].
pub(crate) fn receive(channel: BorrowedFd<'_>) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    use nix::sys::socket::{ControlMessageOwned, recvmsg};
    use std::os::fd::FromRawFd;
    let mut bytes = [0; 4096];
    let mut space = nix::cmsg_space!([i32; 1]);
    let mut slices = [std::io::IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(channel.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let count = message.bytes;
    let mut listener = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            for descriptor in descriptors {
                // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
                #[allow(unsafe_code)]
                let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
                listener = Some(owned);
            }
        }
    }
    Ok((bytes.get(..count).unwrap_or_default().to_vec(), listener))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root could raise a limit that it is under.
    #[test]
    fn a_limit_is_never_raised() {
        let (_, hard) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        for (wanted, is) in [(9, 9), (5, 5), (9, 5), (5, 5)] {
            limit(Resource::RLIMIT_CORE, wanted).unwrap();
            assert_eq!(getrlimit(Resource::RLIMIT_CORE), Ok((hard.min(is), hard.min(is))));
        }
    }
}
