//! One part while kend runs: what it should be doing, what it does, and what it did.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ken_types::config;
use ken_types::ops::kend::{Death, PartState};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::launch::Launch;
use crate::logs::Log;
use crate::notify::Report;
use crate::policy::Policy;

/// Deaths that are remembered.
const DEATHS: usize = 16;
/// From ABRT, which a part that hangs may still use to say why, to KILL.
const ABORT: Duration = Duration::from_secs(5);

pub(crate) struct Part {
    pub(crate) spec: config::Part,
    /// How its next process is started; the words why it cannot be, if its program has gone.
    pub(crate) launch: Launch,
    pub(crate) log: Log,
    pub(crate) wanted: bool,
    /// A person wants a new process: when this one has ended, without any delay.
    pub(crate) again: bool,
    /// No longer in the configuration: forgotten when it has ended.
    pub(crate) removed: bool,
    pub(crate) state: State,
    pub(crate) policy: Policy,
    pub(crate) starts: u64,
    pub(crate) first_start: Option<Instant>,
    pub(crate) ever_ready: bool,
    pub(crate) says: Option<String>,
    pub(crate) deaths: VecDeque<Death>,
}

pub(crate) enum State {
    /// No process: not wanted, or waiting for other parts.
    Down,
    Backoff {
        until: Instant,
    },
    Up(Process),
    /// Given up on.
    Failed {
        cause: String,
    },
}

/// The process of a part.
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) since: Instant,
    pub(crate) ready: Option<Instant>,
    /// When it has to be ready.
    ready_by: Option<Instant>,
    /// When it has to have said that it lives.
    alive_by: Option<Instant>,
    pub(crate) ending: Option<Ending>,
    /// kend's end: the part reads EOF on the other when kend is gone.
    _guard: OwnedFd,
}

/// A process on its way out.
pub(crate) struct Ending {
    pub(crate) why: Why,
    pub(crate) kill_at: Option<Instant>,
}

/// Why a process ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    Asked,
    /// It has done wrong: in words.
    Fault(String),
    /// It has said so itself (`STOPPING=1`).
    OwnWill,
}

/// What a look at the clock brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Its pause is over.
    Due,
    NotReady,
    Silent,
    Stubborn,
}

impl Part {
    pub(crate) fn new(spec: config::Part, launch: Launch, log: Log) -> Part {
        Part {
            wanted: spec.enabled,
            spec,
            launch,
            log,
            again: false,
            removed: false,
            state: State::Down,
            policy: Policy::default(),
            starts: 0,
            first_start: None,
            ever_ready: false,
            says: None,
            deaths: VecDeque::new(),
        }
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
        self.process()
            .is_some_and(|process| process.ready.is_some() && process.ending.is_none())
    }

    /// The state's name for a person.
    pub(crate) fn shown(&self) -> PartState {
        match &self.state {
            State::Down if self.wanted => PartState::Waiting,
            State::Down => PartState::Stopped,
            State::Backoff { .. } => PartState::Backoff,
            State::Failed { .. } => PartState::Failed,
            State::Up(process) if process.ending.is_some() => PartState::Stopping,
            State::Up(process) if process.ready.is_some() => PartState::Ready,
            State::Up(_) => PartState::Starting,
        }
    }

    /// Its program runs.
    pub(crate) fn started(&mut self, pid: Pid, guard: OwnedFd, now: Instant) {
        let ready = self.spec.ready == config::Ready::Start;
        self.starts += 1;
        self.first_start.get_or_insert(now);
        self.policy.started(now, self.spec.limit);
        self.says = None;
        self.again = false;
        self.state = State::Up(Process {
            pid,
            since: now,
            ready: None,
            ready_by: Some(now + self.start_time()),
            alive_by: None,
            ending: None,
            _guard: guard,
        });
        if ready {
            self.set_ready(now);
        }
    }

    /// What it said. True if it became ready by that.
    pub(crate) fn report(&mut self, report: Report, now: Instant) -> bool {
        if report.says.is_some() {
            self.says = report.says;
        }
        let became_ready = report.ready && self.set_ready(now);
        if report.alive {
            self.expect_life(now);
        }
        if report.stopping {
            self.leave(Why::OwnWill, now + self.patience());
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
        self.expect_life(now);
        true
    }

    fn expect_life(&mut self, now: Instant) {
        let every = Duration::from_millis(self.spec.watchdog_ms);
        let lives = |process: &&mut Process| process.ready.is_some() && process.ending.is_none();
        if let Some(process) = self.process_mut().filter(lives) {
            process.alive_by = (!every.is_zero()).then(|| now + every);
        }
    }

    /// Gets ready, or shows life, within its whole time from now on.
    pub(crate) fn wait_anew(&mut self, now: Instant) {
        let ready_by = now + self.start_time();
        if let Some(process) = self.process_mut() {
            process.ready_by = process.ready_by.map(|_| ready_by);
        }
        self.expect_life(now);
    }

    fn start_time(&self) -> Duration {
        Duration::from_millis(self.spec.ready_timeout_ms)
    }

    /// From TERM to KILL.
    fn patience(&self) -> Duration {
        Duration::from_millis(self.spec.stop_timeout_ms)
    }

    /// Tells its whole group to end.
    pub(crate) fn end(&mut self, now: Instant) {
        if let Some(pid) = self.leave(Why::Asked, now + self.patience()) {
            let _ = killpg(pid, Signal::SIGTERM);
        }
    }

    /// Ends it for a fault: one that never got ready like any other, one that went silent with ABRT, for it alone.
    pub(crate) fn end_for(&mut self, alarm: &Alarm, now: Instant) -> String {
        if *alarm == Alarm::Silent {
            let fault = format!("no sign of life for {} ms", self.spec.watchdog_ms);
            if let Some(pid) = self.leave(Why::Fault(fault.clone()), now + ABORT) {
                let _ = kill(pid, Signal::SIGABRT);
            }
            return fault;
        }
        let fault = format!("not ready within {} ms", self.spec.ready_timeout_ms);
        if let Some(pid) = self.leave(Why::Fault(fault.clone()), now + self.patience()) {
            let _ = killpg(pid, Signal::SIGTERM);
        }
        fault
    }

    /// Its process is on its way out: which one, unless it was before.
    fn leave(&mut self, why: Why, kill_at: Instant) -> Option<Pid> {
        let process = self.process_mut().filter(|process| process.ending.is_none())?;
        process.ready_by = None;
        process.alive_by = None;
        process.ending = Some(Ending {
            why,
            kill_at: Some(kill_at),
        });
        Some(process.pid)
    }

    /// Its patience is over.
    pub(crate) fn kill(&mut self) {
        if let Some(process) = self.process_mut() {
            let _ = killpg(process.pid, Signal::SIGKILL);
            if let Some(ending) = &mut process.ending {
                ending.kill_at = None;
            }
        }
    }

    /// The next instant that matters.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Backoff { until } => Some(*until),
            State::Up(process) => {
                let kill_at = process.ending.as_ref().and_then(|ending| ending.kill_at);
                [process.ready_by, process.alive_by, kill_at]
                    .into_iter()
                    .flatten()
                    .min()
            }
            _ => None,
        }
    }

    /// What is due now.
    pub(crate) fn alarm(&self, now: Instant) -> Option<Alarm> {
        let passed = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        match &self.state {
            State::Backoff { until } if *until <= now => Some(Alarm::Due),
            State::Up(process) => match &process.ending {
                Some(ending) => passed(ending.kill_at).then_some(Alarm::Stubborn),
                None if passed(process.ready_by) => Some(Alarm::NotReady),
                None if passed(process.alive_by) => Some(Alarm::Silent),
                None => None,
            },
            _ => None,
        }
    }

    pub(crate) fn remember(&mut self, death: Death) {
        if self.deaths.len() == DEATHS {
            self.deaths.pop_front();
        }
        self.deaths.push_back(death);
    }
}
