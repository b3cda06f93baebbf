//! Starts a process with `clone(CLONE_VM | CLONE_VFORK)`, as posix_spawn(3) does. No page table is copied, the parent
//! waits until the program runs, and the reason for a failure is returned through shared memory. `std::process::Command` cannot
//! start a part: it takes the environment before the fork, so that the child cannot write its own pid into LISTEN_PID.
//!
//! The child asks the kernel to kill it when its parent thread ends. That thread is the one with the event loop, which
//! runs as long as kend.
//!
//! Each process is marked with its own value of RLIMIT_LOCKS, a limit that Linux has not enforced since 2.4.25. All
//! descendants inherit the mark, even if they change their environment, descriptors, process group or session, and
//! without CAP_SYS_RESOURCE they cannot raise it again. The mark tells the processes that a dead part left behind from
//! those of a running one, even where no cgroup can be created.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
/// The number of marks reserved for one kend. A kend that runs below another one uses a different range.
const MARKS: u64 = 1 << 20;

/// What a child inherits besides its `Launch`.
pub(crate) struct Inherit<'a> {
    /// `/dev/null`, or what the process reads.
    pub(crate) stdin: BorrowedFd<'a>,
    /// The descriptor for standard output and error.
    pub(crate) log: BorrowedFd<'a>,
    /// Descriptors from number 3 on, in this order: the sockets, the guard, `parts.lock`, the configuration, the secrets.
    pub(crate) passed: &'a [RawFd],
    pub(crate) mark: u64,
    /// The ruleset of its files.
    pub(crate) walls: Option<OwnedFd>,
}

/// Why a process could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotStarted {
    pub(crate) step: &'static str,
    pub(crate) errno: Errno,
}

const STEPS: [&str; 7] =
    ["clone", "death signal", "privileges", "files (Landlock)", "descriptors", "limits", "execute"];

/// Starts processes. All children use the same stack, one after the other.
pub(crate) struct Spawner {
    stack: Vec<u8>,
    /// The upper bound of all marks: the hard limit of kend itself.
    marks_end: u64,
    next_mark: u64,
}

impl Spawner {
    pub(crate) fn new() -> Spawner {
        let (_, max) = getrlimit(Resource::RLIMIT_LOCKS).unwrap_or((u64::MAX, u64::MAX));
        // Values near the maximum mean "unlimited".
        let marks_end = max.min(1 << 60);
        Spawner {
            stack: vec![0; STACK_BYTES],
            marks_end,
            next_mark: marks_end.saturating_sub(u64::from(std::process::id()) * MARKS),
        }
    }

    /// Goes on after the marks that an earlier program of this process has used.
    pub(crate) fn after(mark: u64) -> Spawner {
        Spawner { next_mark: mark, ..Spawner::new() }
    }

    pub(crate) fn last_mark(&self) -> u64 {
        self.next_mark
    }

    /// Whether a mark can be one of this kend.
    pub(crate) fn is_own(&self, mark: u64) -> bool {
        mark < self.marks_end
    }

    /// Returns a new mark for a process and its descendants.
    pub(crate) fn next_mark(&mut self) -> u64 {
        self.next_mark = self.next_mark.saturating_sub(1);
        self.next_mark
    }

    /// Starts a program. Returns its pid when the program runs, or the step that failed.
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
        // Signals are blocked, because a handler of kend that ran in the child would change the shared memory.
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

/// `LISTEN_PID=…`. The child writes the number, because only the child knows its pid before the program runs.
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

/// Runs in the child until its program starts. It makes system calls only, because the child shares kend's memory.
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
    if !launch.new_privileges {
        nix::sys::prctl::set_no_new_privs().map_err(|errno| (2, errno))?;
    }
    if let Some(ruleset) = &inherit.walls {
        restrict(ruleset).map_err(|errno| (3, errno))?;
    }
    pass(inherit, moved).map_err(|errno| (4, errno))?;
    limit(launch, inherit.mark).map_err(|errno| (5, errno))?;
    listen_pid.set(getpid().as_raw());
    // SAFETY: the program name is NUL-terminated and both arrays are null-terminated. They belong to the stack frame of
    // the parent, which waits until this call.
    unsafe { libc::execve(launch.program.as_ptr(), args.as_ptr(), env.as_ptr()) };
    Err((6, Errno::last()))
}

/// Gives the child its own process group and default signal handlers, and asks the kernel to kill it when kend ends.
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
        // kend may have ended before the call above.
        if libc::getppid() != parent {
            libc::_exit(127);
        }
    }
    Ok(())
}

/// Lets the process touch only what the ruleset names, before `pass` closes its descriptor.
fn restrict(ruleset: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: a plain system call on this process.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    Errno::result(done).map(drop)
}

/// Moves the descriptors to their numbers and closes all others.
fn pass(inherit: &Inherit<'_>, moved: &mut [RawFd]) -> Result<(), Errno> {
    let first_free = FIRST_FD + inherit.passed.len() as RawFd;
    // SAFETY: plain system calls on descriptors of this process; its table is a copy, not kend's.
    unsafe {
        // Duplicate each descriptor to a free number first, because it may have the number that another one must get.
        for (to, from) in moved.iter_mut().zip(inherit.passed) {
            *to = Errno::result(libc::fcntl(*from, libc::F_DUPFD, first_free))?;
        }
        Errno::result(libc::dup2(inherit.stdin.as_raw_fd(), 0))?;
        Errno::result(libc::dup2(inherit.log.as_raw_fd(), 1))?;
        Errno::result(libc::dup2(inherit.log.as_raw_fd(), 2))?;
        for (target, from) in (FIRST_FD..).zip(moved.iter()) {
            Errno::result(libc::dup2(*from, target))?;
        }
        // Close descriptors that kend itself may have inherited. Kernels before 5.9 lack this call; there,
        // close-on-exec still closes kend's own descriptors.
        libc::syscall(libc::SYS_close_range, first_free, libc::c_uint::MAX, 0);
    }
    Ok(())
}

fn limit(launch: &Launch, mark: u64) -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_LOCKS, mark, mark)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    lower(Resource::RLIMIT_NOFILE, launch.nofile)?;
    for (resource, wanted) in [(Resource::RLIMIT_AS, launch.address_space), (Resource::RLIMIT_NPROC, launch.nproc)] {
        if wanted > 0 {
            lower(resource, wanted)?;
        }
    }
    // SAFETY: a plain system call on this process.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    // SAFETY: as above.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice(own, launch.nice.into())) }).map(drop)
}

/// Sets a limit, which may not be higher than that of kend.
fn lower(resource: Resource, wanted: u64) -> Result<(), Errno> {
    let (_, max) = getrlimit(resource)?;
    setrlimit(resource, wanted.min(max), wanted.min(max))
}

/// The nice value of a part: it can be higher than that of kend, but not lower.
fn nice(own: i32, wanted: i32) -> i32 {
    own.max(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_less_nice_than_kend() {
        for (own, wanted, expected) in [(0, 5, 5), (0, 0, 0), (10, 5, 10), (5, -5, 5), (-5, 0, 0)] {
            assert_eq!(nice(own, wanted), expected, "{own} {wanted}");
        }
    }

    /// The mark of a process without one of kend's is that of kend itself, or of a system without a limit.
    #[test]
    fn a_mark_is_below_the_limit_of_kend() {
        let mut spawner = Spawner { stack: Vec::new(), marks_end: 1_000, next_mark: 1_000 };
        assert_eq!([spawner.next_mark(), spawner.next_mark(), spawner.last_mark()], [999, 998, 998]);
        assert_eq!([998, 999, 1_000, u64::MAX].map(|mark| spawner.is_own(mark)), [true, true, false, false]);
        let spawner = Spawner::new();
        assert!(spawner.marks_end <= 1 << 60 && spawner.is_own(spawner.last_mark()));
    }

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
