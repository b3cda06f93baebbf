//! The supervisor: prepares the sandbox, waits for its end, and lets nothing outlive it.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_tool::{Code, Error, find_program};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::resource::Resource;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, write};

use crate::cli::{CANNOT_CONFINE, Job, NOT_FOUND, Refusal, Sockets, TIMED_OUT};
use crate::confine::{self, Command, FAILED, LISTENER, WALLS};
use crate::grant::{self, Grant, Grants};
use crate::group::Group;
use crate::init::{self, Setup};
use crate::memory::{self, Memory};
use crate::mounts::Plan;
use crate::namespace::{Forked, fork_inside};
use crate::network::Reach;
use crate::notify::{self, Limits};
use crate::process;
use crate::repositories::Protection;
use crate::temporary::Temporary;
use crate::walls::{self, Walls};

/// What standard error gets when memory runs over.
const MEMORY_EXCEEDED: &str = "ken-sandbox: the command was ended, because it used more memory than --memory allows\n";
/// The time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long killed processes may take to end.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(1);
const MIB: u64 = 1024 * 1024;
/// Variables that are always passed on if the caller has them.
const PASSED_ON: [&str; 6] = ["PATH", "LANG", "LC_ALL", "TERM", "TZ", "NO_COLOR"];

/// Runs the job and returns its exit status.
pub(crate) fn run(job: &Job) -> Result<u8, Refusal> {
    let landlock = walls::landlock_version()?;
    let temporary = Temporary::make().map_err(|error| Refusal::step("the temporary directory", error))?;
    let grants = Grants::open(job, temporary.path())?;
    let mut protection = Protection::of(job, &grants)?;
    let plan = Plan { held: std::mem::take(&mut protection.held), read_only: walls::needs_read_only(landlock) };
    let setup = Setup { plan, landlock, report_only: job.walls };
    let roots = grants.write.iter().map(Grant::duplicate).collect::<Result<_, _>>()?;
    let command = command(job, grants, temporary.path())?;
    let signals = process::handled();
    signals.thread_block().map_err(|errno| Refusal::step("signals", errno))?;
    if job.with_parent {
        prctl::set_pdeathsig(Signal::SIGTERM).map_err(|errno| Refusal::step("the death signal", errno))?;
    }
    let memory = job.memory.map(|memory| memory.saturating_mul(MIB));
    let group = Group::make(memory, job.processes);
    let reach = Reach::new(job.network, &job.reach.join(",")).map_err(|error| Refusal::new(CANNOT_CONFINE, error))?;
    let limits = Limits { roots, reach };
    let memory = memory.map(Memory::limited_to);
    let sandbox = Sandbox::start(command, &setup, signals, limits, group.as_ref())?;
    // Where the group limits memory, the kernel does it better.
    let memory = memory.filter(|_| !sandbox.is_limited);
    if job.walls { sandbox.report() } else { sandbox.wait(job.timeout, memory.as_ref()) }
}

fn command(job: &Job, grants: Grants, temporary: &Path) -> Result<Command, Refusal> {
    let (program, found) = program(job, &grants)?;
    let mut limits = vec![
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, job.open_files),
        (Resource::RLIMIT_FSIZE, job.file_size.saturating_mul(MIB)),
        (Resource::RLIMIT_NPROC, job.processes),
    ];
    if let Some(memory) = job.memory {
        limits.push((Resource::RLIMIT_DATA, memory.saturating_mul(MIB)));
    }
    Ok(Command {
        program: text(program.as_os_str())?,
        args: job.command.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
        environment: environment(job, temporary)?,
        grants,
        found,
        limits,
        descriptors: job.fd.clone(),
        sockets: job.sockets(),
    })
}

/// The program, and what it is open on. It can be read wherever it is; files that it needs have to be named. A relative path
/// such as `./configure` is looked up in the folder in which the command starts, when it starts.
fn program(job: &Job, grants: &Grants) -> Result<(PathBuf, Option<Grant>), Refusal> {
    let name = PathBuf::from(job.command.first().cloned().unwrap_or_default());
    if job.walls {
        return Ok((name, None));
    }
    let is_relative = is_relative(&name);
    let path = if is_relative {
        grants.cwd.path().ok().map(|cwd| cwd.join(&name)).and_then(find_program)
    } else {
        find_program(&name)
    };
    let path = path.ok_or_else(|| {
        let message = format!("there is no command {}", name.display());
        Refusal::new(NOT_FOUND, Error { code: Code::NotFound, ..Error::internal(message) })
    })?;
    let found = Grant::open(&path)?;
    grant::check_kept_out(job, &found)?;
    Ok((if is_relative { name } else { path }, Some(found)))
}

/// Whether a program is named by a path from the working directory, and not by its name alone.
fn is_relative(name: &Path) -> bool {
    name.is_relative() && name.components().count() > 1 || name.starts_with(".")
}

fn text(text: &OsStr) -> Result<CString, Refusal> {
    CString::new(text.as_bytes()).map_err(|_| Refusal::step("the command line", "a word holds a NUL byte"))
}

/// The environment of the command, which has only the variables of the caller that are named.
fn environment(job: &Job, temporary: &Path) -> Result<Vec<CString>, Refusal> {
    let passed = |name: &OsStr| std::env::var_os(name).map(|value| join(name, &value));
    let mut variables: Vec<OsString> = PASSED_ON.iter().filter_map(|name| passed(OsStr::new(name))).collect();
    for name in ["TMPDIR", "HOME"] {
        variables.push(join(OsStr::new(name), temporary.as_os_str()));
    }
    if job.network {
        // Otherwise glibc would ask for both kinds of addresses with sendmmsg(2), which is refused.
        variables.push("RES_OPTIONS=single-request".into());
    }
    let mut wanted = job.env.clone();
    for number in &job.env_fd {
        let bytes = grant::content(*number)?;
        let entries = bytes.split(|byte| *byte == 0).filter(|entry| !entry.is_empty());
        wanted.extend(entries.map(|entry| OsStr::from_bytes(entry).to_owned()));
    }
    for wanted in wanted {
        if wanted.as_bytes().contains(&b'=') {
            variables.push(wanted);
        } else {
            variables.extend(passed(&wanted));
        }
    }
    keep_last(&mut variables);
    variables.iter().map(|variable| text(variable)).collect()
}

/// Keeps the last setting of each name.
fn keep_last(variables: &mut Vec<OsString>) {
    let mut seen = std::collections::HashSet::new();
    variables.reverse();
    variables.retain(|variable| {
        let name = variable.as_bytes().split(|byte| *byte == b'=').next();
        seen.insert(name.unwrap_or_default().to_vec())
    });
}

fn join(name: &OsStr, value: &OsStr) -> OsString {
    [name, OsStr::new("="), value].into_iter().collect()
}

/// A running command.
struct Sandbox {
    init: Pid,
    /// Whether the end of init ends everything.
    is_alone: bool,
    /// Whether the kernel limits the memory of all its processes together.
    is_limited: bool,
    signals: SignalFd,
    channel: Option<OwnedFd>,
    listener: Option<Arc<OwnedFd>>,
    limits: Limits,
    /// Why the command could not be executed.
    refusal: Option<Refusal>,
    /// What init has set up, as JSON.
    walls: Option<Vec<u8>>,
}

impl Sandbox {
    fn start(
        command: Command,
        setup: &Setup,
        signals: SigSet,
        limits: Limits,
        group: Option<&Group>,
    ) -> Result<Sandbox, Refusal> {
        let refused = |what: &'static str| move |errno: Errno| Refusal::step(what, errno.desc());
        let (own, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
            .map_err(refused("a socket pair"))?;
        // What the sandbox leaves behind becomes a child of this process.
        prctl::set_child_subreaper(true).map_err(refused("the subreaper"))?;
        let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).map_err(refused("signals"))?;
        let network = if command.sockets == Sockets::None { libc::CLONE_NEWNET } else { 0 };
        let wanted = libc::CLONE_NEWPID | libc::CLONE_NEWNS | network;
        let (init, is_alone) = match fork_inside(wanted, group).map_err(refused("fork"))? {
            Forked::Supervisor { init, is_alone } => (init, is_alone),
            Forked::Init { namespaces } => {
                drop(own);
                init::run(command, setup, namespaces, theirs)
            }
        };
        drop(theirs);
        // Before init goes on, so that all that it starts is in the group, too.
        let is_limited = group.is_some_and(|group| group.take(init) && group.limits_memory);
        // If init is gone, its death is what `wait` finds.
        let _ = write(&own, b"g");
        let channel = Some(own);
        Ok(Sandbox { init, is_alone, is_limited, signals, channel, listener: None, limits, refusal: None, walls: None })
    }

    /// Prints what has been set up, for a job without a command.
    fn report(mut self) -> Result<u8, Refusal> {
        while self.channel.is_some() && self.refusal.is_none() {
            self.read_channel();
        }
        let _ = waitpid(self.init, None);
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        let mut text = self.walls.unwrap_or_else(|| Walls::default().json().into());
        text.push(b'\n');
        let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), &text);
        Ok(0)
    }

    /// Waits until the command has ended, by itself or not, and none of its processes lives.
    fn wait(mut self, timeout: Option<Duration>, memory: Option<&Memory>) -> Result<u8, Refusal> {
        let mut ending = Ending::default();
        let mut until = timeout.map(|timeout| Instant::now() + timeout);
        let mut look = memory.map(|_| Instant::now() + memory::INTERVAL);
        let status = loop {
            self.wait_for_event(until.into_iter().chain(look).min());
            if is_reached(look, Instant::now()) {
                look = Some(Instant::now() + memory::INTERVAL);
                if ending.status.is_none() && memory.is_some_and(|memory| memory.is_exceeded_by(self.init)) {
                    ending = Ending::of_too_much_memory();
                    until = Some(Instant::now());
                }
            }
            let mut signals = self.pending_signals().into_iter();
            if let Some(signal) = signals.find(|signal| *signal != Signal::SIGCHLD)
                && ending.status.is_none()
            {
                ending.status = Some(128 + signal as u8);
                until = Some(Instant::now());
            }
            if let Some(status) = self.reap() {
                break status;
            }
            if is_reached(until, Instant::now()) {
                ending.status.get_or_insert(TIMED_OUT);
                until = ending.next(self.init);
            }
        };
        self.sweep();
        match self.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(ending.status.unwrap_or(status)),
        }
    }

    /// Waits for a signal, a message of the command or `until`, and answers the system calls that wait for the supervisor.
    fn wait_for_event(&mut self, until: Option<Instant>) {
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let descriptors = [self.listener.as_deref(), self.channel.as_ref()].into_iter().flatten();
        let mut polled = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        polled.extend(descriptors.map(|descriptor| PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)));
        let _ = poll(&mut polled, timeout); // EINTR and a timeout are seen by the caller
        let ready: Vec<PollFlags> = polled.iter().map(|entry| entry.revents().unwrap_or(PollFlags::empty())).collect();
        drop(polled);
        let mut ready = ready.into_iter().skip(1);
        if let Some(listener) = &self.listener {
            match ready.next().unwrap_or(PollFlags::empty()) {
                flags if flags.contains(PollFlags::POLLIN) => notify::serve(listener, &self.limits),
                // The last process of the sandbox is gone.
                flags if flags.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) => self.listener = None,
                _ => {}
            }
        }
        if ready.next().is_some_and(|flags| !flags.is_empty()) {
            self.read_channel();
        }
    }

    /// Reads one message of the command, which it sends before it is executed.
    fn read_channel(&mut self) {
        let Some(channel) = &self.channel else { return };
        let (bytes, listener) = confine::receive(channel.as_fd()).unwrap_or_default();
        match bytes.split_first() {
            Some((&LISTENER, _)) => self.listener = listener.map(Arc::new),
            Some((&WALLS, walls)) => self.walls = Some(walls.to_vec()),
            Some((&FAILED, [status, message @ ..])) => {
                let refusal = Refusal::step("cannot run the command", String::from_utf8_lossy(message));
                self.refusal = Some(match *status {
                    CANNOT_CONFINE => refusal,
                    status => refusal.with_status(status),
                });
            }
            // The program was executed, which has closed its end of the channel.
            _ => self.channel = None,
        }
    }

    fn pending_signals(&self) -> Vec<Signal> {
        let mut signals = Vec::new();
        let mut ready = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        while poll(&mut ready, PollTimeout::ZERO).is_ok_and(|count| count > 0) {
            let Ok(Some(signal)) = self.signals.read_signal() else {
                break;
            };
            signals.extend(i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()));
        }
        signals
    }

    /// The exit status of init, when it has ended.
    fn reap(&mut self) -> Option<u8> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == self.init => {
                    // A refusal may still be on the way.
                    while self.channel.is_some() && self.refusal.is_none() {
                        self.read_channel();
                    }
                    return u8::try_from(code).ok().or(Some(CANNOT_CONFINE));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.init => {
                    return Some(128 + signal as u8);
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Kills the processes that have become children of this one. Their own children become ours only once they are dead.
    fn sweep(&self) {
        if self.is_alone {
            return;
        }
        let end = Some(Instant::now() + SWEEP_TIMEOUT);
        while !is_reached(end, Instant::now()) {
            let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
            let pids: Vec<i32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            let _ = waitpid(None, None);
        }
    }
}

fn is_reached(time: Option<Instant>, now: Instant) -> bool {
    time.is_some_and(|time| now >= time)
}

/// The progress of ending a command.
#[derive(Default)]
struct Ending {
    /// The exit status to report; `None` until the command is told to end.
    status: Option<u8>,
    is_terminated: bool,
}

impl Ending {
    /// As the kernel does it in a control group: without TERM.
    fn of_too_much_memory() -> Ending {
        // Nowhere is left to report that this failed; the exit status still tells.
        let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), MEMORY_EXCEEDED.as_bytes());
        Ending { status: Some(128 + Signal::SIGKILL as u8), is_terminated: true }
    }

    /// Sends TERM the first time and KILL after that. Returns when to look again.
    fn next(&mut self, init: Pid) -> Option<Instant> {
        let signal = if !std::mem::replace(&mut self.is_terminated, true) { Signal::SIGTERM } else { Signal::SIGKILL };
        let _ = kill(init, signal);
        Some(Instant::now() + GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_up_by_its_name_or_from_the_folder() {
        for (name, is) in [
            ("make", false),
            ("/bin/make", false),
            ("./configure", true),
            (".", true),
            ("bin/make", true),
            ("../make", true),
            (".configure", false),
        ] {
            assert_eq!(is_relative(Path::new(name)), is, "{name}");
        }
    }

    #[test]
    fn a_time_is_reached_when_it_has_come() {
        let (now, millisecond) = (Instant::now(), Duration::from_millis(1));
        for (time, is) in
            [(None, false), (Some(now), true), (now.checked_sub(millisecond), true), (Some(now + millisecond), false)]
        {
            assert_eq!(is_reached(time, now), is, "{time:?}");
        }
    }

    #[test]
    fn the_last_setting_of_a_name_counts() {
        let mut variables: Vec<OsString> = ["A=1", "B=1", "A=2", "AB=1", "A=", "B"].map(OsString::from).to_vec();
        keep_last(&mut variables);
        assert_eq!(variables, ["B", "A=", "AB=1"]);
    }
}
