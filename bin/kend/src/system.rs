//! All parts together: decides which may start, which must stop, and what follows when one has ended.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ken_types::ops::kend::{Death, Listener, Reloaded, system_stopping};
use ken_types::places::Places;
use ken_types::{Code, Error, Timestamp};
use ken_walls::part::Files;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;

use crate::commands::Commands;
use crate::config::Loaded;
use crate::descriptor::adopt;
use crate::handover::{PartState, Upgrade};
use crate::journal::Journal;
use crate::launch::Launch;
use crate::lock::Locks;
use crate::logs::{CHUNK, Log};
use crate::notify::Report;
use crate::order;
use crate::part::{Alarm, Part, Spawned, State, Why, describe, millis};
use crate::policy::Next;
use crate::reap::{self, Exit};
use crate::rotating::LogFiles;
use crate::sockets::Sockets;
use crate::source::ConfigSource;
use crate::spawn::{Inherit, Spawner};
use crate::writer::{Outlet, Writer};

/// The reason why kend fails: lines for standard error, and the code that determines the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) lines: Vec<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, line: impl Into<String>) -> Failure {
        Failure { code, lines: vec![line.into()] }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(error.code, error.to_string())
    }
}

pub(crate) struct System {
    pub(crate) places: Places,
    pub(crate) source: ConfigSource,
    pub(crate) loaded: Loaded,
    /// The errors of the configuration files at the last reload. While there are any, `loaded` stays in force.
    pub(crate) config_errors: Vec<String>,
    pub(crate) parts: BTreeMap<String, Part>,
    pub(crate) writer: Writer,
    pub(crate) journal: Journal,
    pub(crate) sockets: Sockets,
    pub(crate) locks: Locks,
    pub(crate) null: File,
    pub(crate) spawner: Spawner,
    pub(crate) commands: Commands,
    pub(crate) chunk: Vec<u8>,
    /// `--announce` was given, and the ready line has not been printed yet.
    pub(crate) announcing: bool,
    /// Set if kend must stop and exit with a failure.
    pub(crate) fatal: Option<Failure>,
    pub(crate) stopping: bool,
    /// Parts that had to be killed when everything was stopped.
    pub(crate) killed: Vec<String>,
    pub(crate) upgrade: Upgrade,
}

impl System {
    /// A system without parts.
    pub(crate) fn new(
        places: Places,
        source: ConfigSource,
        loaded: Loaded,
        (sockets, locks): (Sockets, Locks),
    ) -> Result<System, String> {
        let kend = &loaded.config.kend;
        let writer = Writer::start()?;
        let log = LogFiles::new(places.log("kend"), kend.log_max_bytes, kend.log_keep);
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        Ok(System {
            places,
            source,
            journal: Journal { out: writer.outlet(log, false) },
            writer,
            loaded,
            config_errors: Vec::new(),
            parts: BTreeMap::new(),
            sockets,
            locks,
            null: null.map_err(|error| format!("/dev/null: {error}"))?,
            spawner: Spawner::new(),
            commands: Commands::default(),
            chunk: vec![0; CHUNK],
            announcing: false,
            fatal: None,
            stopping: false,
            killed: Vec::new(),
            upgrade: Upgrade::of_this_program(),
        })
    }

    /// Fails if the system is stopping, in which nothing is started any more.
    pub(crate) fn check_not_stopping(&self) -> Result<(), Error> {
        if self.stopping { Err(system_stopping()) } else { Ok(()) }
    }

    /// Creates a part for each entry, without starting it. `states` are those in which the earlier program of this process left them.
    pub(crate) fn make_parts(&mut self, mut states: BTreeMap<String, PartState>, now: Instant) -> Result<(), String> {
        let config = self.loaded.config.clone();
        let lost = |errno: Errno| format!("a descriptor was not handed over: {}", errno.desc());
        for (name, spec) in &config.part {
            let launch = Launch::new(name, spec, &self.loaded, &self.places)?;
            let part = match states.remove(name) {
                None => Part::new(spec.clone(), launch, self.new_log(name)?),
                Some(state) => {
                    let ends = [adopt(state.log_read).map_err(lost)?, adopt(state.log_write).map_err(lost)?];
                    let log = Log::over(ends, state.is_in_a_line, self.outlet(name, state.is_in_a_line));
                    Part::unpack(spec.clone(), launch, log, state, now).map_err(lost)?
                }
            };
            self.parts.insert(name.clone(), part);
        }
        Ok(())
    }

    fn new_log(&self, name: &str) -> Result<Log, String> {
        Log::new(self.outlet(name, false)).map_err(|error| format!("no pipe for the log of {name}: {error}"))
    }

    fn outlet(&self, name: &str, midline: bool) -> Outlet {
        let kend = &self.loaded.config.kend;
        self.writer.outlet(LogFiles::new(self.places.log(name), kend.log_max_bytes, kend.log_keep), midline)
    }

    pub(crate) fn listeners(&self) -> Vec<Listener> {
        self.sockets.listeners(&self.loaded.config)
    }

    /// Starts all parts that can be started, and ends all that must be ended now.
    pub(crate) fn advance(&mut self, now: Instant) {
        self.replace_next();
        while let Some(name) = self.next_start() {
            self.start(&name, now);
        }
        let ending: Vec<String> = self
            .parts
            .iter()
            .filter(|(name, part)| self.has_to_end(name, part))
            .map(|(name, _)| name.clone())
            .collect();
        for name in ending {
            if let Some(part) = self.parts.get_mut(&name) {
                part.end(now);
            }
        }
        for (name, part) in &self.parts {
            if part.is_stopped() {
                self.sockets.close_part(name);
            }
        }
        self.parts.retain(|_, part| !(part.removed && part.process().is_none()));
    }

    fn next_start(&self) -> Option<String> {
        let may_start = |part: &Part| matches!(part.state, State::Down) && part.wanted && self.is_unblocked(part);
        let (name, _) = self.parts.iter().find(|(_, part)| may_start(part))?;
        Some(name.clone())
    }

    fn is_unblocked(&self, part: &Part) -> bool {
        self.blockers(part).next().is_none()
    }

    /// Returns the parts for which this one has to wait before it can start.
    pub(crate) fn blockers<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = &'a String> {
        let is_ready = |name: &&String| self.parts.get(*name).is_some_and(Part::is_ready);
        let has_had_its_chance = |name: &&String| {
            self.parts
                .get(*name)
                .is_none_or(|other| other.is_ready() || !other.wanted || matches!(other.state, State::Failed { .. }))
        };
        let required = part.spec.requires.iter().filter(move |name| !is_ready(name));
        required.chain(part.spec.after.iter().filter(move |name| !has_had_its_chance(name)))
    }

    fn has_to_end(&self, name: &str, part: &Part) -> bool {
        let running = part.process().is_some_and(|process| process.ending.is_none());
        running && (part.restart_wanted || !part.wanted && !self.is_needed(name))
    }

    /// Whether another part that is being stopped depends on this one, and must therefore end first.
    fn is_needed(&self, name: &str) -> bool {
        let names = |list: &[String]| list.iter().any(|other| other == name);
        self.parts.values().any(|other| {
            other.process().is_some() && !other.wanted && (names(&other.spec.requires) || names(&other.spec.after))
        })
    }

    fn start(&mut self, name: &str, now: Instant) {
        let result = self.sockets.open_part(name, &self.loaded.config, &self.places);
        let result = result.and_then(|()| self.spawn(name));
        let Some(part) = self.parts.get_mut(name) else {
            return;
        };
        match result {
            Ok(process) => {
                let text = format!("started, pid {}", process.pid);
                part.started(process, now);
                self.journal.note(Some(name), &text);
            }
            Err(cause) => {
                part.starts += 1;
                part.policy.record_start(now, part.spec.limit);
                let cause = format!("cannot start: {cause}");
                let death = Death { at: Timestamp::now(), cause, ..Death::default() };
                self.follow(name, death, None, now);
            }
        }
    }

    /// Starts the process of a part.
    fn spawn(&mut self, name: &str) -> Result<Spawned, String> {
        let part = self.parts.get_mut(name).ok_or("it has been removed")?;
        // The files of its walls may have come or gone since the configuration was read. If its program is gone, the start says why.
        if let Ok(launch) = Launch::new(name, &part.spec, &self.loaded, &self.places) {
            part.launch = launch;
        }
        let wrong = |step: &str, errno: Errno| format!("{step}: {}", errno.desc());
        let (guard, theirs) = socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC)
            .map_err(|errno| wrong("guard", errno))?;
        let in_memory = |what: &str, bytes: &[u8]| memory_file(what, bytes).map_err(|errno| wrong(what, errno));
        let config = in_memory("configuration", self.loaded.source.text().as_bytes())?;
        let secrets = &part.launch.secrets;
        let secrets = (!secrets.is_empty()).then(|| in_memory("secrets", secrets)).transpose()?;
        let mut passed = self.sockets.of(name);
        passed.extend([theirs.as_raw_fd(), self.locks.parts_fd(), config.as_raw_fd()]);
        passed.extend(secrets.as_ref().map(AsRawFd::as_raw_fd));
        let walls = part
            .launch
            .walls
            .as_ref()
            .map_or(Ok(None), |walls| ruleset(walls, &self.places.state))
            .map_err(|why| format!("walls: {why}"))?;
        let mark = self.spawner.next_mark();
        let inherit = Inherit { stdin: self.null.as_fd(), log: part.log.writer(), passed: &passed, mark, walls };
        let programs = part.installed();
        let spawned = self.spawner.spawn(&part.launch, &inherit);
        let pid = spawned.map_err(|why| wrong(why.step, why.errno))?;
        Ok(Spawned { pid, mark, guard, programs })
    }

    /// Collects ended children. Parts are restarted according to their policy, and the processes that they left behind
    /// are killed.
    pub(crate) fn reap(&mut self, now: Instant) {
        let mut any = false;
        while let Some((pid, exit)) = reap::next() {
            any = true;
            match self.name_of(pid) {
                Some(name) => self.died(&name, pid, exit, now),
                None => self.commands.ended(pid, exit, now),
            }
        }
        if any {
            self.kill_orphans();
        }
    }

    fn name_of(&self, pid: Pid) -> Option<String> {
        let found = self.parts.iter().find(|(_, part)| part.pid() == Some(pid));
        found.map(|(name, _)| name.clone())
    }

    /// Kills processes that dead parts left behind; they have become children of kend. Their own descendants become
    /// children of kend then, and are killed at the next SIGCHLD.
    fn kill_orphans(&self) {
        let parts = self.parts.values().filter_map(Part::process).map(|process| (process.pid, process.mark));
        let (pids, marks): (Vec<Pid>, Vec<u64>) = parts.chain(self.commands.processes()).unzip();
        for orphan in reap::adopted(&pids) {
            let is_left_behind =
                reap::mark(orphan).is_some_and(|mark| self.spawner.is_own(mark) && !marks.contains(&mark));
            if is_left_behind {
                let _ = kill(orphan, Signal::SIGKILL);
            }
        }
    }

    fn died(&mut self, name: &str, pid: Pid, exit: Exit, now: Instant) {
        let Some(part) = self.parts.get_mut(name) else {
            return;
        };
        part.log.drain(&mut self.chunk);
        let State::Up(process) = std::mem::replace(&mut part.state, State::Down) else {
            return;
        };
        let why = process.ending.as_ref().map(|ending| &ending.why);
        let fault = match why {
            Some(Why::Fault(fault)) => Some(fault),
            _ => None,
        };
        let ready = process.ready.map(|since| now.duration_since(since));
        let death = Death {
            at: Timestamp::now(),
            pid: pid.as_raw(),
            cause: match &fault {
                Some(fault) => format!("{fault}, {}", exit.text()),
                None => exit.text(),
            },
            code: exit.code(),
            signal: exit.signal(),
            ran_ms: millis(now.duration_since(process.since)),
            ready: ready.is_some(),
            requested: why == Some(&Why::Requested),
        };
        // A missed deadline counts as a failure, no matter how long the part was ready.
        let credit = ready.filter(|_| fault.is_none());
        self.follow(name, death, credit, now);
    }

    /// Decides what follows when a process has ended or could not be started.
    fn follow(&mut self, name: &str, death: Death, ready: Option<Duration>, now: Instant) {
        let spread = spread(now);
        let Some(part) = self.parts.get_mut(name) else {
            return;
        };
        let early = !death.ready;
        let text = describe(&death);
        let requested = death.requested;
        part.record_death(death);
        part.state = State::Down;
        if requested || !part.wanted || part.restart_wanted {
            part.restart_wanted = false;
            return self.journal.note(Some(name), &text);
        }
        let last = part.last_line();
        let next = match part.policy.next_after_death(now, ready, part.spec.limit, spread) {
            Next::Now => String::from("starting again at once"),
            Next::After(delay) => {
                part.state = State::Backoff { until: now + delay };
                format!("next start in {} ms", delay.as_millis())
            }
            Next::GiveUp(cause) => {
                let text = format!("given up: {cause}");
                part.state = State::Failed { cause };
                text
            }
        };
        if self.announcing && early && !part.ever_ready && part.cannot_become_ready() {
            return self.give_up(name, &format!("{text}{last}"));
        }
        self.journal.warn(Some(name), &format!("{text}; {next}{last}"));
    }

    /// Applies the reports of the parts.
    pub(crate) fn reports(&mut self, reports: Vec<(Pid, Report)>, now: Instant) {
        for (leader, report) in reports {
            let found = self.parts.iter_mut().find(|(_, part)| part.pid() == Some(leader));
            if let Some((name, part)) = found
                && part.report(report, now)
            {
                let took = part.process().map_or(0, |process| millis(now.duration_since(process.since)));
                self.journal.note(Some(name), &format!("ready after {took} ms"));
            }
        }
    }

    /// Handles every deadline that has passed.
    pub(crate) fn alarms(&mut self, now: Instant) {
        let due: Vec<(String, Alarm)> =
            self.parts.iter().filter_map(|(name, part)| Some((name.clone(), part.alarm(now)?))).collect();
        for (name, alarm) in due {
            self.handle_alarm(&name, &alarm, now);
        }
        self.commands.kill_late(now);
    }

    /// Restarts the time limits of all parts.
    pub(crate) fn restart_deadlines(&mut self, now: Instant) {
        self.parts.values_mut().for_each(|part| part.restart_deadlines(now));
    }

    fn handle_alarm(&mut self, name: &str, alarm: &Alarm, now: Instant) {
        let announcing = self.announcing;
        let Some(part) = self.parts.get_mut(name) else {
            return;
        };
        match alarm {
            Alarm::Due => part.state = State::Down,
            Alarm::NotEnded => {
                let left = members(part.pid());
                part.kill();
                let text = format!("did not end within its time; killed: {}", left.join(", "));
                if self.stopping {
                    self.killed.push(name.to_owned());
                }
                self.journal.warn(Some(name), &text);
            }
            Alarm::NotReady | Alarm::Silent => {
                let first = !part.ever_ready;
                let fault = part.end_for(alarm, now);
                let last = part.last_line();
                if announcing && first {
                    return self.give_up(name, &format!("{fault}{last}"));
                }
                self.journal.warn(Some(name), &format!("{fault}{last}"));
            }
        }
    }

    fn give_up(&mut self, name: &str, why: &str) {
        self.journal.note(Some(name), why);
        let hint = format!("; log: {}", self.places.log(name).display());
        self.fatal.get_or_insert(Failure::new(Code::Unavailable, format!("{name}: {why}{hint}")));
    }

    /// Returns the next deadline of any part or command, or of the disk.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let others = [self.commands.next_deadline(), self.writer.next_deadline(Instant::now())];
        self.parts.values().filter_map(Part::next_deadline).chain(others.into_iter().flatten()).min()
    }

    /// Whether every wanted part is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.parts.values().all(|part| !part.wanted || part.is_ready())
    }

    /// Whether no part is starting for the first time.
    pub(crate) fn is_settled(&self) -> bool {
        let first = |part: &Part| !part.ever_ready && part.deaths.is_empty() && part.process().is_some();
        !self.parts.values().any(|part| part.wanted && first(part))
    }

    pub(crate) fn is_down(&self) -> bool {
        self.parts.values().all(|part| part.process().is_none())
    }

    /// Moves a chunk from a part's pipe to its log.
    pub(crate) fn pump(&mut self, name: &str) {
        if let Some(part) = self.parts.get_mut(name) {
            part.log.pump(&mut self.chunk);
        }
    }

    /// Marks a part and all that it requires to be started. Failed parts are started again.
    pub(crate) fn want(&mut self, name: &str) {
        for name in names(order::required_by(&self.loaded.config.part, name)) {
            if let Some(part) = self.parts.get_mut(&name).filter(|part| !part.removed) {
                part.wanted = true;
                part.setbacks = 0;
                if part.process().is_none() {
                    part.policy.reset();
                    part.state = State::Down;
                }
            }
        }
    }

    /// Marks a part to be stopped, and with `dependents` also the parts that require it. Returns the other parts that
    /// are stopped by this.
    pub(crate) fn unwant(&mut self, name: &str, dependents: bool) -> Vec<String> {
        let all =
            if dependents { names(order::requirers_of(&self.loaded.config.part, name)) } else { vec![name.to_owned()] };
        let mut also = Vec::new();
        for other in all {
            if let Some(part) = self.parts.get_mut(&other) {
                if part.wanted && other != name {
                    also.push(other);
                }
                part.stop_wanting();
            }
        }
        also
    }

    /// Requests a new process for a part.
    pub(crate) fn restart(&mut self, name: &str) {
        self.want(name);
        if let Some(part) = self.parts.get_mut(name) {
            part.restart_wanted = part.process().is_some();
        }
    }

    /// Stops everything. A second call kills what is left. `by` names the cause in the error that replaces a `ready`
    /// line not printed yet.
    pub(crate) fn stop(&mut self, by: &str) {
        if self.stopping {
            self.parts.values_mut().for_each(Part::kill);
        }
        if self.announcing && !self.stopping {
            let line = format!("stopped by {by} before all parts were ready");
            self.fatal.get_or_insert(Failure::new(Code::Cancelled, line));
        }
        self.stopping = true;
        self.upgrade.give_up();
        self.commands.kill_all();
        self.parts.values_mut().for_each(Part::stop_wanting);
    }

    /// Reads the configuration again. Applies all of it, or nothing if there is an error.
    pub(crate) fn reload(&mut self) -> Result<Reloaded, Vec<String>> {
        let result = self.source.load(&self.places).and_then(|loaded| {
            let one = |error: String| vec![error];
            let launches = launches(&loaded, &self.places).map_err(one)?;
            // This comes last, because it is the first step with an effect.
            let moved = self.sockets.open(&loaded.config, &self.places).map_err(one)?;
            Ok((loaded, launches, moved))
        });
        match result {
            Ok((loaded, launches, moved)) => {
                self.config_errors.clear();
                self.apply(loaded, launches, &moved).map_err(|error| vec![error])
            }
            Err(errors) => {
                for error in &errors {
                    self.journal.warn(None, &format!("not reloaded: {error}"));
                }
                self.config_errors.clone_from(&errors);
                Err(errors)
            }
        }
    }

    /// Reloads if the files have changed and kend watches them. Somebody who edits a file and then starts or restarts a part
    /// expects the new settings, and the watch only sees a change when the files have been quiet for a moment.
    pub(crate) fn reload_if_changed(&mut self) {
        if self.loaded.config.kend.watch && self.source.has_changed(&self.loaded, &self.places) {
            // The errors are logged, and the status shows them. The part is started with the last good configuration.
            let _ = self.reload();
        }
    }

    fn apply(
        &mut self,
        loaded: Loaded,
        launches: BTreeMap<String, Launch>,
        moved: &BTreeSet<String>,
    ) -> Result<Reloaded, String> {
        self.loaded = loaded;
        self.commands.outdate();
        let config = self.loaded.config.clone();
        self.journal.out.limit(config.kend.log_max_bytes, config.kend.log_keep);
        self.sockets.close_others(&config);
        let mut done = Reloaded::default();
        for (name, part) in &mut self.parts {
            if !config.part.contains_key(name) && !part.removed {
                part.removed = true;
                part.stop_wanting();
                done.removed.push(name.clone());
            }
        }
        for (name, launch) in launches {
            let Some(spec) = config.part.get(&name) else {
                continue;
            };
            if let Some(part) = self.parts.get_mut(&name) {
                let was_wanted = part.wanted;
                let changed = part.set_spec(spec, launch, &config.kend, moved.contains(&name));
                // The entry had been removed and is back before its process has ended.
                if std::mem::take(&mut part.removed) {
                    part.wanted = part.spec.enabled;
                    done.added.push(name);
                    continue;
                }
                let list = match (was_wanted, part.wanted) {
                    (false, true) => &mut done.started,
                    (true, false) => &mut done.stopped,
                    (true, true) if changed => &mut done.restarted,
                    _ => &mut done.unchanged,
                };
                list.push(name);
            } else {
                let log = self.new_log(&name)?;
                self.parts.insert(name.clone(), Part::new(spec.clone(), launch, log));
                done.added.push(name);
            }
        }
        let text = format!(
            "reloaded: {} added, {} removed, {} restarted, {} started, {} stopped, {} unchanged",
            done.added.len(),
            done.removed.len(),
            done.restarted.len(),
            done.started.len(),
            done.stopped.len(),
            done.unchanged.len()
        );
        self.journal.note(None, &text);
        Ok(done)
    }
}

fn launches(loaded: &Loaded, places: &Places) -> Result<BTreeMap<String, Launch>, String> {
    let rows = loaded.config.part.iter();
    rows.map(|(name, spec)| Ok((name.clone(), Launch::new(name, spec, loaded, places)?))).collect()
}

fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    names.into_iter().map(str::to_owned).collect()
}

/// Makes the folders of a part that are missing, and its ruleset. A folder of the configuration is left to the person if it cannot be
/// made.
fn ruleset(walls: &Files, state: &Path) -> Result<Option<OwnedFd>, String> {
    // mkdir(2) waits for a disk that stands still, even if the folder is there.
    for folder in walls.own.iter().filter(|folder| !folder.is_dir()) {
        let is_needed = folder.starts_with(state);
        let made = DirBuilder::new().recursive(is_needed).mode(0o700).create(folder);
        made.or_else(|error| if is_needed { Err(error) } else { Ok(()) })
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    }
    walls.ruleset()
}

/// Returns a sealed memory file with these bytes, positioned at its start.
pub(crate) fn memory_file(name: &str, bytes: &[u8]) -> Result<File, Errno> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let mut file = File::from(memfd_create(name, flags)?);
    let failed = |error: std::io::Error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
    file.write_all(bytes).and_then(|()| file.rewind()).map_err(failed)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::all()))?;
    Ok(file)
}

/// Returns the processes that are left in a process group, for a message.
fn members(leader: Option<Pid>) -> Vec<String> {
    let Some(leader) = leader else {
        return Vec::new();
    };
    let inside = reap::all().filter(|pid| nix::unistd::getpgid(Some(*pid)) == Ok(leader));
    inside.map(reap::command).collect()
}

/// Returns a number from 0 to 1 that differs from call to call. It need not be a good random number.
fn spread(now: Instant) -> f64 {
    use std::hash::{BuildHasher, RandomState};
    let hash = RandomState::new().hash_one(now);
    f64::from(hash as u32) / f64::from(u32::MAX)
}
