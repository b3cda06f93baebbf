//! One part: whether it should run, its process, and how its earlier processes ended.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ken_types::config;
use ken_types::ops::kend::{Death, PartState as PublicState};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::descriptor::adopt;
use crate::handover::{PartState, ProcessState, Programs};
use crate::launch::Launch;
use crate::logs::Log;
use crate::notify::Report;
use crate::policy::Policy;

/// The maximum number of ended processes that are remembered per part.
const MAX_DEATHS: usize = 16;
/// After this many processes in a row that ended before they were ready, callers no longer wait for the part.
const MAX_SETBACKS: u32 = 3;
/// The time between SIGABRT and SIGKILL, in which a part that hangs can still log the cause.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Part {
    pub(crate) spec: config::Part,
    /// What its next process is started with.
    pub(crate) launch: Launch,
    pub(crate) log: Log,
    pub(crate) wanted: bool,
    /// A new process is requested. It starts without a delay when the current one has ended.
    pub(crate) restart_wanted: bool,
    /// The part is no longer in the configuration. It is dropped when its process has ended.
    pub(crate) removed: bool,
    pub(crate) state: State,
    pub(crate) policy: Policy,
    pub(crate) starts: u64,
    pub(crate) ever_ready: bool,
    /// How many processes ended before they were ready, since the part was last ready or a person last started it.
    pub(crate) setbacks: u32,
    pub(crate) status_text: Option<String>,
    pub(crate) deaths: VecDeque<Death>,
}

pub(crate) enum State {
    /// No process runs: the part is not wanted, or it waits for other parts.
    Down,
    Backoff {
        until: Instant,
    },
    Up(Process),
    /// The part is not restarted any more.
    Failed {
        cause: String,
    },
}

/// A process that has just been started.
pub(crate) struct Spawned {
    pub(crate) pid: Pid,
    pub(crate) mark: u64,
    pub(crate) guard: OwnedFd,
    /// Its programs as they were when it was started.
    pub(crate) programs: Programs,
}

pub(crate) struct Process {
    pub(crate) pid: Pid,
    /// The mark that all its descendants inherit (spawn.rs).
    pub(crate) mark: u64,
    pub(crate) since: Instant,
    pub(crate) ready: Option<Instant>,
    /// The deadline for becoming ready.
    ready_by: Option<Instant>,
    /// The deadline for the next watchdog message.
    alive_by: Option<Instant>,
    pub(crate) ending: Option<Ending>,
    pub(crate) programs: Programs,
    /// kend's end of a socket pair. The part reads end of file on the other end when kend has ended.
    guard: OwnedFd,
}

/// How a process is being ended.
pub(crate) struct Ending {
    pub(crate) why: Why,
    pub(crate) kill_at: Option<Instant>,
}

/// Why a process is ending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    Requested,
    /// It missed a deadline. The text describes which one, for a person.
    Fault(String),
    /// It has announced that it ends (`STOPPING=1`).
    ByItself,
}

/// The deadline that has passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The delay before the next start is over.
    Due,
    NotReady,
    /// No watchdog message has arrived in time.
    Silent,
    /// The process has not ended in time.
    NotEnded,
}

const REQUESTED: &str = "requested";
const BY_ITSELF: &str = "by itself";

impl Process {
    fn pack(&self, now: Instant) -> ProcessState {
        let ending = self.ending.as_ref().map(|ending| {
            let why = match &ending.why {
                Why::Requested => REQUESTED,
                Why::ByItself => BY_ITSELF,
                Why::Fault(fault) => fault,
            };
            (why.to_owned(), ending.kill_at.map(|at| millis(at.saturating_duration_since(now))))
        });
        ProcessState {
            pid: self.pid.as_raw(),
            mark: self.mark,
            guard: self.guard.as_raw_fd(),
            programs: self.programs.clone(),
            age_ms: millis(now.duration_since(self.since)),
            ready_ms_ago: self.ready.map(|since| millis(now.duration_since(since))),
            ending,
        }
    }

    fn unpack(state: ProcessState, part: &Part, now: Instant) -> Result<Process, Errno> {
        let before = |ms: u64| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
        let ready = state.ready_ms_ago.map(before);
        let ending = state.ending.map(|(why, kill_ms)| Ending {
            why: match why.as_str() {
                REQUESTED => Why::Requested,
                BY_ITSELF => Why::ByItself,
                _ => Why::Fault(why),
            },
            kill_at: kill_ms.map(|ms| now + Duration::from_millis(ms)),
        });
        Ok(Process {
            pid: Pid::from_raw(state.pid),
            mark: state.mark,
            since: before(state.age_ms),
            ready,
            ready_by: (ready.is_none() && ending.is_none()).then(|| now + part.start_time()),
            alive_by: None,
            ending,
            programs: state.programs,
            guard: adopt(state.guard)?,
        })
    }
}

impl Part {
    pub(crate) fn new(spec: config::Part, launch: Launch, log: Log) -> Part {
        Part {
            wanted: spec.enabled,
            spec,
            launch,
            log,
            restart_wanted: false,
            removed: false,
            state: State::Down,
            policy: Policy::default(),
            starts: 0,
            ever_ready: false,
            setbacks: 0,
            status_text: None,
            deaths: VecDeque::new(),
        }
    }

    /// What the next program of this process needs to know of the part.
    pub(crate) fn pack(&self, now: Instant) -> PartState {
        let (delay_ms, started_ms_ago) = self.policy.pack(now);
        PartState {
            wanted: self.wanted,
            restart_wanted: self.restart_wanted,
            process: self.process().map(|process| process.pack(now)),
            backoff_ms: match &self.state {
                State::Backoff { until } => Some(millis(until.saturating_duration_since(now))),
                _ => None,
            },
            failed: match &self.state {
                State::Failed { cause } => Some(cause.clone()),
                _ => None,
            },
            delay_ms,
            started_ms_ago,
            starts: self.starts,
            ever_ready: self.ever_ready,
            setbacks: self.setbacks,
            status_text: self.status_text.clone(),
            deaths: self.deaths.iter().cloned().collect(),
            log_read: self.log.as_fd().as_raw_fd(),
            log_write: self.log.writer().as_raw_fd(),
            is_in_a_line: self.log.is_in_a_line(),
        }
    }

    /// A part as an earlier program of this process has left it. The deadlines begin anew.
    pub(crate) fn unpack(
        spec: config::Part,
        launch: Launch,
        log: Log,
        state: PartState,
        now: Instant,
    ) -> Result<Part, Errno> {
        let mut part = Part::new(spec, launch, log);
        (part.wanted, part.restart_wanted, part.starts) = (state.wanted, state.restart_wanted, state.starts);
        (part.ever_ready, part.setbacks, part.status_text) = (state.ever_ready, state.setbacks, state.status_text);
        part.deaths = state.deaths.into();
        part.policy = Policy::unpack(state.delay_ms, &state.started_ms_ago, now);
        part.state = match (state.process, state.backoff_ms, state.failed) {
            (Some(process), ..) => State::Up(Process::unpack(process, &part, now)?),
            (None, Some(ms), _) => State::Backoff { until: now + Duration::from_millis(ms) },
            (None, None, Some(cause)) => State::Failed { cause },
            (None, None, None) => State::Down,
        };
        part.restart_deadlines(now);
        Ok(part)
    }

    /// The descriptors that the next program of this process needs.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let guard = self.process().map(|process| process.guard.as_fd());
        [self.log.as_fd(), self.log.writer()].into_iter().chain(guard)
    }

    /// The programs that its next process will have.
    pub(crate) fn installed(&self) -> Programs {
        let own = Path::new(OsStr::from_bytes(self.launch.program.as_bytes()));
        Programs::of(own, self.launch.walls.as_ref().map_or(&[], |walls| &walls.run))
    }

    /// Whether its process runs another program than the one that is installed now, or may execute others.
    pub(crate) fn is_outdated(&self) -> bool {
        self.process().is_some_and(|process| process.programs.differ_from(&self.installed()))
    }

    /// Whether its process may not read a file of the system that has taken the place of another one.
    pub(crate) fn lacks_files(&self) -> bool {
        self.process().is_some() && self.launch.lacks_files()
    }

    pub(crate) fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Up(process) => Some(process),
            _ => None,
        }
    }

    fn process_mut(&mut self) -> Option<&mut Process> {
        match &mut self.state {
            State::Up(process) => Some(process),
            _ => None,
        }
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        self.process().map(|process| process.pid)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.process().is_some_and(|process| process.ready.is_some() && process.ending.is_none())
    }

    /// Whether the part has stopped or is stopping, and will not start again by itself.
    pub(crate) fn is_stopped(&self) -> bool {
        match &self.state {
            State::Failed { .. } => true,
            State::Up(process) => !self.wanted && process.ending.is_some(),
            State::Down | State::Backoff { .. } => !self.wanted,
        }
    }

    /// Whether it is useless to wait for this part: it has failed, or its last process exited before it was ready and
    /// the next one will probably do the same. Exit status 75 means "try again" (sysexits.h), and a death by a signal
    /// may be an accident, so these two count only after several times.
    pub(crate) fn cannot_become_ready(&self) -> bool {
        let code = self.deaths.back().and_then(|death| death.code);
        matches!(self.state, State::Failed { .. })
            || self.setbacks >= MAX_SETBACKS
            || self.setbacks > 0 && code.is_some_and(|code| code != 75)
    }

    /// Returns the last line of the log after `: `, to be appended to a message, or an empty text.
    pub(crate) fn last_line(&self) -> String {
        let line = self.log.last_line();
        line.map(|line| format!(": {line}")).unwrap_or_default()
    }

    pub(crate) fn stop_wanting(&mut self) {
        self.wanted = false;
        self.restart_wanted = false;
        if self.process().is_none() {
            self.state = State::Down;
        }
    }

    /// Applies a new entry of the configuration. Returns whether the part needs a new process.
    pub(crate) fn set_spec(
        &mut self,
        spec: &config::Part,
        launch: Launch,
        kend: &config::Kend,
        sockets_moved: bool,
    ) -> bool {
        let enabled = spec.enabled != self.spec.enabled;
        let changed = launch != self.launch || sockets_moved;
        self.spec = spec.clone();
        self.launch = launch;
        self.log.out.limit(kend.log_max_bytes, kend.log_keep);
        if enabled && self.spec.enabled {
            self.wanted = true;
        } else if enabled {
            self.stop_wanting();
        }
        if changed && self.process().is_none() {
            // The change may have removed the cause of a failure.
            self.policy.reset();
            self.state = State::Down;
        }
        self.restart_wanted |= changed && self.wanted && self.process().is_some();
        changed
    }

    /// Returns the state that is shown to a person.
    pub(crate) fn public_state(&self) -> PublicState {
        match &self.state {
            State::Down if self.wanted => PublicState::Waiting,
            State::Down => PublicState::Stopped,
            State::Backoff { .. } => PublicState::Backoff,
            State::Failed { .. } => PublicState::Failed,
            State::Up(process) if process.ending.is_some() => PublicState::Stopping,
            State::Up(process) if process.ready.is_some() => PublicState::Ready,
            State::Up(_) => PublicState::Starting,
        }
    }

    /// Records a process that has just been started.
    pub(crate) fn started(&mut self, spawned: Spawned, now: Instant) {
        let ready = self.spec.ready == config::Ready::Start;
        self.starts += 1;
        self.policy.record_start(now, self.spec.limit);
        self.status_text = None;
        self.restart_wanted = false;
        self.state = State::Up(Process {
            pid: spawned.pid,
            mark: spawned.mark,
            since: now,
            ready: None,
            ready_by: Some(now + self.start_time()),
            alive_by: None,
            ending: None,
            programs: spawned.programs,
            guard: spawned.guard,
        });
        if ready {
            self.set_ready(now);
        }
    }

    /// Applies a report of the part. Returns whether the part became ready.
    pub(crate) fn report(&mut self, report: Report, now: Instant) -> bool {
        if report.status_text.is_some() {
            self.status_text = report.status_text;
        }
        let became_ready = report.ready && self.set_ready(now);
        if report.alive {
            self.reset_watchdog(now);
        }
        if report.stopping {
            self.mark_ending(Why::ByItself, now + self.stop_time());
        }
        became_ready
    }

    fn set_ready(&mut self, now: Instant) -> bool {
        let Some(process) = self.process_mut().filter(|process| process.ready.is_none()) else {
            return false;
        };
        process.ready = Some(now);
        process.ready_by = None;
        self.ever_ready = true;
        self.setbacks = 0;
        self.reset_watchdog(now);
        true
    }

    fn reset_watchdog(&mut self, now: Instant) {
        let every = Duration::from_millis(self.spec.watchdog_ms);
        let lives = |process: &&mut Process| process.ready.is_some() && process.ending.is_none();
        if let Some(process) = self.process_mut().filter(lives) {
            process.alive_by = (!every.is_zero()).then(|| now + every);
        }
    }

    /// Restarts the time limit for becoming ready and that of the watchdog.
    pub(crate) fn restart_deadlines(&mut self, now: Instant) {
        let ready_by = now + self.start_time();
        if let Some(process) = self.process_mut() {
            process.ready_by = process.ready_by.map(|_| ready_by);
        }
        self.reset_watchdog(now);
    }

    fn start_time(&self) -> Duration {
        Duration::from_millis(self.spec.ready_timeout_ms)
    }

    /// Returns the time between SIGTERM and SIGKILL.
    fn stop_time(&self) -> Duration {
        Duration::from_millis(self.spec.stop_timeout_ms)
    }

    /// Sends SIGTERM to its whole process group.
    pub(crate) fn end(&mut self, now: Instant) {
        if let Some(pid) = self.mark_ending(Why::Requested, now + self.stop_time()) {
            let _ = killpg(pid, Signal::SIGTERM);
        }
    }

    /// Ends the process because it missed a deadline, and returns which one as text. If it did not become ready, its
    /// group gets SIGTERM. If the watchdog received nothing, the process alone gets SIGABRT.
    pub(crate) fn end_for(&mut self, alarm: &Alarm, now: Instant) -> String {
        if *alarm == Alarm::Silent {
            let fault = format!("watchdog timeout after {} ms", self.spec.watchdog_ms);
            if let Some(pid) = self.mark_ending(Why::Fault(fault.clone()), now + ABORT_TIMEOUT) {
                let _ = kill(pid, Signal::SIGABRT);
            }
            return fault;
        }
        let fault = format!("not ready within {} ms", self.spec.ready_timeout_ms);
        if let Some(pid) = self.mark_ending(Why::Fault(fault.clone()), now + self.stop_time()) {
            let _ = killpg(pid, Signal::SIGTERM);
        }
        fault
    }

    /// Marks the process as ending. Returns its pid, or `None` if it is ending already.
    fn mark_ending(&mut self, why: Why, kill_at: Instant) -> Option<Pid> {
        let process = self.process_mut().filter(|process| process.ending.is_none())?;
        process.ready_by = None;
        process.alive_by = None;
        process.ending = Some(Ending { why, kill_at: Some(kill_at) });
        Some(process.pid)
    }

    /// Sends SIGKILL to its whole process group.
    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process_mut() {
            let _ = killpg(process.pid, Signal::SIGKILL);
            if let Some(ending) = &mut process.ending {
                ending.kill_at = None;
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Backoff { until } => Some(*until),
            State::Up(process) => {
                let kill_at = process.ending.as_ref().and_then(|ending| ending.kill_at);
                [process.ready_by, process.alive_by, kill_at].into_iter().flatten().min()
            }
            _ => None,
        }
    }

    /// Returns the deadline that has passed, if any.
    pub(crate) fn alarm(&self, now: Instant) -> Option<Alarm> {
        let passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        match &self.state {
            State::Backoff { until } if *until <= now => Some(Alarm::Due),
            State::Up(process) => match &process.ending {
                Some(ending) => passed(ending.kill_at).then_some(Alarm::NotEnded),
                None if passed(process.ready_by) => Some(Alarm::NotReady),
                None if passed(process.alive_by) => Some(Alarm::Silent),
                None => None,
            },
            _ => None,
        }
    }

    pub(crate) fn record_death(&mut self, death: Death) {
        if self.deaths.len() == MAX_DEATHS {
            self.deaths.pop_front();
        }
        if !death.ready && !death.requested {
            self.setbacks += 1;
        }
        self.deaths.push_back(death);
    }
}

/// Describes the end of a process for a person.
pub(crate) fn describe(death: &Death) -> String {
    if death.pid == 0 {
        return death.cause.clone();
    }
    let when = if death.ready { "" } else { " before it was ready," };
    format!("ended ({}){when} after {} ms", death.cause, death.ran_ms)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
