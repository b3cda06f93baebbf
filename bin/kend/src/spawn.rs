//! Starts a process with `clone(CLONE_VM | CLONE_VFORK)`, as posix_spawn(3) does: no page table is copied, the parent waits
//! until the program runs, and the reason why it does not run comes back through shared memory.
//!
//! The child sets its own death signal, which follows the thread that cloned it: that of the loop, which lives as long as
//! kend.
//!
//! Each process is marked with a value of its own for RLIMIT_LOCKS, which Linux has not enforced since 2.4.25. All its
//! descendants inherit the mark, whatever they do with their environment, descriptors, group and session, and without
//! CAP_SYS_RESOURCE nobody can raise it again: that tells what a dead part has left behind from what belongs to a living
//! one, also where no cgroup can be made.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, clone};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid};

use crate::launch::{FIRST_FD, Launch};

const STACK_BYTES: usize = 64 * 1024;
/// Marks of one kend; those of another kend among its descendants lie in another range.
const MARKS: u64 = 1 << 20;

/// What a child is given besides its `Launch`.
pub(crate) struct Inherit<'a> {
    pub(crate) null: BorrowedFd<'a>,
    /// Standard output and error.
    pub(crate) log: BorrowedFd<'a>,
    /// In this order from descriptor 3: the sockets, the guard, the lock that says that a part lives, the secrets.
    pub(crate) passed: &'a [RawFd],
    pub(crate) mark: u64,
}

/// Why a process could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotStarted {
    pub(crate) step: &'static str,
    pub(crate) errno: Errno,
}

const STEPS: [&str; 6] = ["clone", "death signal", "descriptors", "limits", "privileges", "execute"];

/// Starts processes on one stack, which the children use one after the other.
pub(crate) struct Spawner {
    stack: Vec<u8>,
    /// Marks are below this, the hard limit of kend itself.
    marks_end: u64,
    next_mark: u64,
}

impl Spawner {
    pub(crate) fn new() -> Spawner {
        let (_, most) = getrlimit(Resource::RLIMIT_LOCKS).unwrap_or((u64::MAX, u64::MAX));
        // The largest values mean "unlimited".
        let marks_end = most.min(1 << 60);
        Spawner {
            stack: vec![0; STACK_BYTES],
            marks_end,
            next_mark: marks_end.saturating_sub(u64::from(std::process::id()) * MARKS),
        }
    }

    /// Whether a mark can come from this kend.
    pub(crate) fn is_own(&self, mark: u64) -> bool {
        mark < self.marks_end
    }

    /// A mark for one process and its descendants.
    pub(crate) fn next_mark(&mut self) -> u64 {
        self.next_mark = self.next_mark.saturating_sub(1);
        self.next_mark
    }

    /// Returns when the program runs, or with the step that failed.
    pub(crate) fn spawn(&mut self, launch: &Launch, inherit: &Inherit<'_>) -> Result<Pid, NotStarted> {
        let mut listen_pid = ListenPid::new();
        let args = pointers(&launch.args, None);
        let env = pointers(&launch.env, Some(listen_pid.pointer()));
        let mut moved = vec![0; inherit.passed.len()];
        let parent = getpid().as_raw();
        let failed = [AtomicI32::new(0), AtomicI32::new(0)];
        let child = Box::new(|| {
            let Err((step, errno)) = become_part(launch, inherit, parent, &mut moved, &mut listen_pid, &args, &env);
            failed[0].store(step, Ordering::Relaxed);
            failed[1].store(errno as i32, Ordering::Relaxed);
            127
        });
        // A handler must not run in the child, where it would act for kend.
        let mut before = SigSet::empty();
        let all = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
        all.map_err(|errno| NotStarted { step: STEPS[0], errno })?;
        // SAFETY: the child runs only `become_part`, which makes system calls on memory prepared above and neither
        // allocates nor unwinds; its frames are far smaller than the stack; CLONE_VFORK keeps this thread, the only
        // one that knows that memory and the stack, from touching them before the child has executed or exited.
        let pid = unsafe {
            clone(child, &mut self.stack, CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK, Some(libc::SIGCHLD))
        };
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
        let pid = pid.map_err(|errno| NotStarted { step: STEPS[0], errno })?;
        match failed[1].load(Ordering::Relaxed) {
            0 => Ok(pid),
            errno => {
                let _ = waitpid(pid, None);
                let step = usize::try_from(failed[0].load(Ordering::Relaxed)).unwrap_or_default();
                Err(NotStarted { step: STEPS.get(step).copied().unwrap_or_default(), errno: Errno::from_raw(errno) })
            }
        }
    }
}

/// `LISTEN_PID=…`, written by the child, because only the child knows its pid before the program runs.
struct ListenPid([u8; 24]);

impl ListenPid {
    fn new() -> ListenPid {
        let mut text = [0; 24];
        let name = b"LISTEN_PID=";
        text[..name.len()].copy_from_slice(name);
        ListenPid(text)
    }

    fn pointer(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    fn set(&mut self, pid: i32) {
        let (mut digits, mut rest, mut count) = ([0u8; 10], pid.unsigned_abs(), 0);
        for digit in &mut digits {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
            count += 1;
            if rest == 0 {
                break;
            }
        }
        let places = self.0.iter_mut().skip(11);
        for (place, digit) in places.zip(digits.iter().take(count).rev()) {
            *place = *digit;
        }
    }
}

fn pointers(texts: &[CString], last: Option<*const c_char>) -> Vec<*const c_char> {
    let texts = texts.iter().map(|text| CStr::as_ptr(text));
    texts.chain(last).chain([std::ptr::null()]).collect()
}

type Step = (i32, Errno);

/// What the child does until its program runs: only system calls, as it shares kend's memory.
fn become_part(
    launch: &Launch,
    inherit: &Inherit<'_>,
    parent: i32,
    moved: &mut [RawFd],
    listen_pid: &mut ListenPid,
    args: &[*const c_char],
    env: &[*const c_char],
) -> Result<std::convert::Infallible, Step> {
    chain(parent).map_err(|errno| (1, errno))?;
    pass(inherit, moved).map_err(|errno| (2, errno))?;
    limit(launch, inherit.mark).map_err(|errno| (3, errno))?;
    if !launch.new_privileges {
        nix::sys::prctl::set_no_new_privs().map_err(|errno| (4, errno))?;
    }
    listen_pid.set(getpid().as_raw());
    // SAFETY: all three are NUL-terminated and null-terminated, and belong to the parent's frame, which waits.
    unsafe { libc::execve(launch.program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    Err((5, Errno::last()))
}

/// Gives the child its own process group and default signals, and lets the kernel kill it when kend dies.
fn chain(parent: i32) -> Result<(), Errno> {
    // SAFETY: plain system calls on this process.
    unsafe {
        Errno::result(libc::setpgid(0, 0))?;
        for signal in 1..32 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        Errno::result(libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()))?;
        Errno::result(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        // kend may have died before the line above.
        if libc::getppid() != parent {
            libc::_exit(127);
        }
    }
    Ok(())
}

/// Puts the descriptors where they belong and closes all others.
fn pass(inherit: &Inherit<'_>, moved: &mut [RawFd]) -> Result<(), Errno> {
    let first_free = FIRST_FD + inherit.passed.len() as RawFd;
    // SAFETY: plain system calls on descriptors of this process; its table is a copy, not kend's.
    unsafe {
        // First moved out of the way: one descriptor may have the number that another one is to get.
        for (to, from) in moved.iter_mut().zip(inherit.passed) {
            *to = Errno::result(libc::fcntl(*from, libc::F_DUPFD, first_free))?;
        }
        Errno::result(libc::dup2(inherit.null.as_raw_fd(), 0))?;
        Errno::result(libc::dup2(inherit.log.as_raw_fd(), 1))?;
        Errno::result(libc::dup2(inherit.log.as_raw_fd(), 2))?;
        for (target, from) in (FIRST_FD..).zip(moved.iter()) {
            Errno::result(libc::dup2(*from, target))?;
        }
        // Closes what kend itself may have inherited. Kernels before 5.9 lack the call; there, kend's own descriptors are
        // still closed by their flag.
        libc::syscall(libc::SYS_close_range, first_free, libc::c_uint::MAX, 0);
    }
    Ok(())
}

fn limit(launch: &Launch, mark: u64) -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_LOCKS, mark, mark)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let files = launch.nofile.min(most);
    setrlimit(Resource::RLIMIT_NOFILE, files, files)?;
    // SAFETY: a plain system call on this process. A part may be nicer than kend, not less nice.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let nice = own.max(launch.nice.into());
    // SAFETY: as above.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pid_is_written_in_decimal() {
        for pid in [1, 9, 10, 4_194_304, i32::MAX] {
            let mut text = ListenPid::new();
            text.set(pid);
            let shown = CStr::from_bytes_until_nul(&text.0).unwrap();
            assert_eq!(shown.to_str().unwrap(), format!("LISTEN_PID={pid}"));
        }
    }
}
