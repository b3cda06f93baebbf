//! Runs kend from the command line to its end: prepares the system, runs the loop, cleans up.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ken_types::Code;
use ken_types::config::WallsMode;
use ken_types::places::{Places, check_socket_path};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::sys::time::TimeSpec;
use nix::unistd::{Pid, dup2_stderr, dup2_stdout, geteuid, setsid};
use sd_notify::NotifyState;

use crate::cli::Cli;
use crate::config::Loaded;
use crate::control::Control;
use crate::descriptor::adopt;
use crate::group;
use crate::handover::{self, Handover};
use crate::lock::Locks;
use crate::notify::{Notify, notify_systemd};
use crate::reap;
use crate::signals::Signals;
use crate::sockets::Sockets;
use crate::source::ConfigSource;
use crate::spawn::Spawner;
use crate::system::{Failure, System};
use crate::system_files::SystemFiles;
use crate::upgrade::{DISK_STALLED, UPGRADE_FLUSH_TIMEOUT};
use crate::watch::Watch;

/// How long the end of kend waits for a disk that stands still.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of files that kend itself may open for logs, sockets and callers. The parts have their own limits.
const NOFILE: u64 = 4096;
/// With the parts of ken it has 70 files open, and some more for each connection.
const MIN_NOFILE: u64 = 128;

pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    if let Some(fd) = cli.takeover {
        return take_over(fd, cli.check);
    }
    let places = places(&cli)?;
    if cli.check {
        // Root can read what the system itself cannot.
        let checked = ken_trusted::work_as_owner(&places, std::env::args_os().skip(1));
        checked.map_err(|error| Failure::new(error.code, error.to_string()))?;
    }
    let source = ConfigSource { named: cli.config.is_some(), port: cli.port, cognitive_port: cli.cognitive_port };
    let loaded = load(&source, &places)?;
    if cli.check {
        return print_checked(&places, &loaded);
    }
    if cli.background {
        let _ = setsid();
    }
    let signals = become_supervisor()?;
    let grouped = group::enter();
    // A shell that has replaced itself by kend may have left children.
    let earlier = reap::adopted(&[]);
    let folders = Folders::make(&places)?;
    let prepared = prepare(&cli, &places, source, loaded);
    let (mut system, mut control, notify) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => {
            folders.remove();
            return Err(Failure::new(Code::Unavailable, message));
        }
    };
    if let Err(why) = grouped {
        system.journal.warn(None, &why);
    }
    let mut turn = Loop::new(&mut system, signals, notify, cli.background);
    turn.run(&mut system, &mut control);
    finish(system, control, &places, &folders, &earlier)
}

/// Continues the system of the kend that has run in this process until now. With `check`, only says whether that is possible.
fn take_over(fd: RawFd, check: bool) -> Result<ExitCode, Failure> {
    let state = Handover::read(fd)?;
    let places = state.places.clone();
    let loaded = load(&state.source, &places)?;
    if let Some(name) = state.parts.keys().find(|name| !loaded.config.part.contains_key(*name)) {
        let line = format!("the part {name} is unknown to this kend; upgrade by `ken down; ken up -d`");
        return Err(Failure::new(Code::Conflict, line));
    }
    if check {
        let written = writeln!(stdout(), "{}", env!("CARGO_PKG_VERSION"));
        return written.map(|()| ExitCode::SUCCESS).map_err(|error| Failure::new(Code::Unavailable, error.to_string()));
    }
    let signals = become_supervisor()?;
    handover::unblock_signals();
    let background = state.background;
    let (mut system, mut control, notify) =
        restore(state, loaded).map_err(|message| Failure::new(Code::Internal, message))?;
    let mut turn = Loop { reported_ready: true, ..Loop::new(&mut system, signals, notify, background) };
    turn.run(&mut system, &mut control);
    finish(system, control, &places, &Folders { made: Vec::new() }, &[])
}

/// Restores the system from what was handed over.
fn restore(state: Handover, loaded: Loaded) -> Result<Prepared, String> {
    let now = Instant::now();
    let lost = |errno: nix::Error| format!("a descriptor was not handed over: {}", errno.desc());
    let [kend, parts] = state.locks;
    let locks = Locks::over(&state.places, [adopt(kend).map_err(lost)?, adopt(parts).map_err(lost)?]);
    let control = Control::over(adopt(state.control).map_err(lost)?);
    let notify = Notify::over(adopt(state.notify).map_err(lost)?);
    let sockets = Sockets::unpack(state.sockets).map_err(lost)?;
    let mut system = System::new(state.places, state.source, loaded, (sockets, locks))?;
    system.spawner = Spawner::after(state.next_mark);
    system.make_parts(state.parts, now)?;
    let text =
        format!("kend {} has taken over from {}, pid {}", env!("CARGO_PKG_VERSION"), state.version, std::process::id());
    system.journal.note(None, &text);
    // A socket of the new configuration that is not bound yet; the others are the same.
    if let Err(why) = system.sockets.open(&system.loaded.config, &system.places) {
        system.journal.warn(None, &why);
    }
    system.begin_replacing();
    Ok((system, control, notify))
}

/// Reads the configuration. Fails if it has errors, or if the kernel lacks walls that it requires.
fn load(source: &ConfigSource, places: &Places) -> Result<Loaded, Failure> {
    let loaded = source.load(places).map_err(|lines| Failure { code: Code::Invalid, lines })?;
    let missing = ken_walls::kernel::missing();
    if loaded.config.kend.walls == WallsMode::Auto || missing.is_empty() {
        return Ok(loaded);
    }
    let lacks = |what: &str| format!("this kernel cannot keep the parts from {what}");
    let mut lines: Vec<String> = missing.into_iter().map(lacks).collect();
    lines.push(String::from(
        "use a newer kernel, or set [kend] walls = \"auto\" in ken.toml to start without these walls",
    ));
    Err(Failure { code: Code::Unavailable, lines })
}

fn print_checked(places: &Places, loaded: &Loaded) -> Result<ExitCode, Failure> {
    let line = match loaded.source.path() {
        Some(path) => format!("{}: no errors", path.display()),
        None => format!("{}: no such file, the defaults are in force", places.config.display()),
    };
    let written = writeln!(stdout(), "{line}");
    written.map_err(|error| Failure::new(Code::Unavailable, format!("standard output: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

fn finish(
    mut system: System,
    control: Control,
    places: &Places,
    folders: &Folders,
    earlier: &[Pid],
) -> Result<ExitCode, Failure> {
    for name in system.parts.keys().cloned().collect::<Vec<_>>() {
        system.pump(&name);
    }
    let left = reap::sweep(earlier);
    if !left.is_empty() {
        let text = format!("still alive, though killed: {}", left.join(", "));
        system.journal.warn(None, &text);
    }
    system.journal.note(None, "ended");
    if !system.writer.flush(FLUSH_TIMEOUT) {
        let _ = writeln!(stderr(), "kend: the disk stands still, so the last lines of the logs are missing");
    }
    let _ = std::fs::remove_file(places.socket("kend"));
    let _ = std::fs::remove_file(places.socket("notify"));
    system.sockets.unlink_all();
    system.locks.remove();
    let fatal = system.fatal.take();
    // Connections are closed last, because a caller that waits for this may start the next kend at once.
    drop(system);
    drop(control);
    match fatal {
        Some(failure) => {
            folders.remove();
            Err(failure)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn places(cli: &Cli) -> Result<Places, Failure> {
    let mut places = Places::here(cli.home.as_deref())?;
    if let Some(config) = &cli.config {
        let wrong = |error| Failure::new(Code::Invalid, format!("{}: {error}", config.display()));
        places.config = std::path::absolute(config).map_err(wrong)?;
    }
    check_socket_path(&places.socket("notify"))?;
    Ok(places)
}

/// Prepares this process: signals are read from a pipe, orphaned descendants become its children, and no other user can
/// read its memory or the files that it creates.
fn become_supervisor() -> Result<Signals, Failure> {
    let wrong = |errno: nix::Error| Failure::new(Code::Internal, format!("cannot start: {}", errno.desc()));
    let signals =
        Signals::catch().map_err(|error| Failure::new(Code::Internal, format!("cannot catch signals: {error}")))?;
    nix::sys::prctl::set_child_subreaper(true).map_err(wrong)?;
    nix::sys::prctl::set_dumpable(false).map_err(wrong)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(wrong)?;
    if let Ok((soft, max)) = getrlimit(Resource::RLIMIT_NOFILE) {
        if max < MIN_NOFILE {
            let why = format!(
                "at most {max} open files are allowed, and kend needs {MIN_NOFILE}; raise the limit: ulimit -Hn 4096"
            );
            return Err(Failure::new(Code::Unavailable, why));
        }
        // Only the soft limit is raised. The hard limit stays as it is for the parts.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(NOFILE.min(max)), max);
    }
    umask(Mode::from_bits_truncate(0o077));
    Ok(signals)
}

/// The folders of a system that did not exist and were created.
struct Folders {
    made: Vec<PathBuf>,
}

impl Folders {
    fn make(places: &Places) -> Result<Folders, Failure> {
        let mut folders = Folders { made: Vec::new() };
        for folder in [&places.run, &places.state, &places.state.join("log")] {
            if let Err(message) = folders.make_one(folder) {
                folders.remove();
                return Err(Failure::new(Code::Unavailable, message));
            }
        }
        Ok(folders)
    }

    fn make_one(&mut self, folder: &Path) -> Result<(), String> {
        let missing: Vec<PathBuf> = folder.ancestors().take_while(|path| !path.exists()).map(Path::to_owned).collect();
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        let result = builder.create(folder);
        self.made.extend(missing.into_iter().rev());
        result.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        private(folder)
    }

    /// Removes the created folders that are empty.
    fn remove(&self) {
        for folder in self.made.iter().rev() {
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// Makes sure that no other user can access a folder with sockets and data.
fn private(folder: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let meta = std::fs::metadata(folder).map_err(wrong)?;
    if meta.uid() != geteuid().as_raw() {
        return Err(format!("{} belongs to another user", folder.display()));
    }
    if meta.mode() & 0o077 != 0 {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(folder, mode).map_err(wrong)?;
    }
    Ok(())
}

type Prepared = (System, Control, Notify);

/// Takes the locks, binds the sockets and creates the parts. After an error, nothing of this is left behind.
fn prepare(cli: &Cli, places: &Places, source: ConfigSource, loaded: Loaded) -> Result<Prepared, String> {
    let mut locks = Locks::take(places)?;
    // With the lock: a restore writes this file before it looks whether anybody holds the lock.
    if places.unfinished_restore().exists() {
        locks.remove();
        return Err(String::from(
            "a restore was interrupted while it replaced the data; finish it: ken restore --finish",
        ));
    }
    let mut sockets = Sockets::default();
    let bound = sockets
        .open(&loaded.config, places)
        .and_then(|_| Control::bind(&places.socket("kend")))
        .and_then(|control| Ok((control, Notify::bind(&places.socket("notify"))?)));
    let (control, notify) = bound.inspect_err(|_| {
        sockets.unlink_all();
        let _ = std::fs::remove_file(places.socket("kend"));
        locks.remove();
    })?;
    locks.describe(&sockets.listeners(&loaded.config));
    let mut system = System::new(places.clone(), source, loaded, (sockets, locks))?;
    system.announcing = cli.announce;
    // The parts start in the state directory. kend also moves there so that it does not keep its start directory in
    // use.
    std::env::set_current_dir(&places.state).map_err(|error| format!("{}: {error}", places.state.display()))?;
    system.make_parts(BTreeMap::new(), Instant::now())?;
    let text = format!("kend {}, pid {}", env!("CARGO_PKG_VERSION"), std::process::id());
    system.journal.note(None, &text);
    Ok((system, control, notify))
}

/// If kend wakes up this much later than planned, the whole system was suspended, as in a paused container. The parts
/// could not report in time either, so their deadlines start again.
const SUSPENDED_AFTER: Duration = Duration::from_secs(1);

struct Loop {
    signals: Signals,
    notify: Notify,
    /// Watches the configuration; `None` when watching is switched off or has failed.
    watch: Option<Watch>,
    system_files: Option<SystemFiles>,
    terminal: bool,
    background: bool,
    reported_ready: bool,
    /// The interval between messages to systemd's watchdog, and the time of the next one.
    watchdog: Option<(Duration, Instant)>,
}

/// The descriptor to which an event belongs.
enum Source {
    Signals,
    Notify,
    Watch,
    SystemFiles,
    Control,
    Caller(usize),
    Log(String),
    /// Something has been written to a log.
    Written,
}

impl Loop {
    fn new(system: &mut System, signals: Signals, notify: Notify, background: bool) -> Loop {
        Loop {
            signals,
            notify,
            watch: watch(system),
            system_files: watch_system_files(system),
            terminal: !background && std::io::stdin().is_terminal(),
            background,
            reported_ready: false,
            watchdog: sd_notify::watchdog_enabled().map(|every| (every / 2, Instant::now())),
        }
    }

    /// Lets the new program go on in this process. Returns only if that fails.
    fn hand_over(&self, system: &mut System, control: &Control) {
        let program = system.upgrade.program.clone();
        // The exec ends the thread that writes, and would wait for it.
        if !system.writer.flush(UPGRADE_FLUSH_TIMEOUT) {
            return system.journal.warn(None, &format!("not upgraded: {DISK_STALLED}"));
        }
        let state = Handover {
            background: self.background,
            control: control.as_fd().as_raw_fd(),
            notify: self.notify.as_fd().as_raw_fd(),
            ..system.handover(Instant::now())
        };
        let own = [control.as_fd(), self.notify.as_fd()];
        let kept: Vec<BorrowedFd<'_>> = system.fds().into_iter().chain(own).collect();
        let error = handover::exec(&program, &state, &kept);
        system.journal.warn(None, &format!("not upgraded: {error}"));
    }

    fn run(&mut self, system: &mut System, control: &mut Control) {
        // A child from before that has ended already was reported when nobody listened yet.
        system.reap(Instant::now());
        system.advance(Instant::now());
        let mut woken = Instant::now();
        loop {
            self.announce(system);
            if system.fatal.is_some() && !system.stopping {
                system.stop("a failure");
                continue;
            }
            if system.stopping {
                system.advance(Instant::now());
                if system.is_down() {
                    control.settle(system, Instant::now());
                    return;
                }
            }
            let due = [
                system.next_deadline(),
                control.next_deadline(),
                self.watch.as_ref().and_then(Watch::next_deadline),
                self.system_files.as_ref().and_then(SystemFiles::next_deadline),
                self.watchdog.map(|(_, next)| next),
            ];
            let due = due.into_iter().flatten().min();
            let events = self.wait(system, control, due);
            let now = Instant::now();
            // What was due before the last round was overdue then already, and says nothing about this one.
            if due.is_some_and(|due| now.duration_since(due.max(woken)) > SUSPENDED_AFTER) {
                system.restart_deadlines(now);
            }
            woken = now;
            self.handle_events(system, control, events);
        }
    }

    /// Handles one round of events: ended processes first and logs last, with at most one chunk of each log.
    fn handle_events(&mut self, system: &mut System, control: &mut Control, events: Vec<(Source, PollFlags)>) {
        let now = Instant::now();
        let mut logs = Vec::new();
        for (source, flags) in events {
            match source {
                Source::Signals => self.signals(system, now),
                Source::Notify => system.reports(self.notify.read(), now),
                Source::Watch => self.watch.iter_mut().for_each(|watch| watch.read(now)),
                Source::SystemFiles => self.system_files.iter_mut().for_each(|files| files.read(now)),
                Source::Control => control.accept(),
                Source::Caller(index) => control.serve(index, flags, now),
                Source::Log(name) => logs.push(name),
                Source::Written => system.writer.acknowledge(),
            }
        }
        if self.watch.as_mut().is_some_and(|watch| watch.is_settled(now)) {
            reload_changed(system);
        }
        if self.system_files.as_mut().is_some_and(|files| files.is_settled(now)) {
            system.follow_files();
        }
        system.alarms(now);
        system.advance(now);
        for name in logs {
            system.pump(&name);
        }
        control.settle(system, now);
        // Again, because callers may have requested starts and stops.
        system.advance(now);
        self.notify_watchdog(now);
        if std::mem::take(&mut system.upgrade.is_due) {
            self.hand_over(system, control);
        }
    }

    fn wait(&self, system: &System, control: &Control, due: Option<Instant>) -> Vec<(Source, PollFlags)> {
        let mut sources = vec![Source::Signals, Source::Notify, Source::Written];
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.notify.as_fd(), PollFlags::POLLIN),
            PollFd::new(system.writer.as_fd(), PollFlags::POLLIN),
        ];
        if let Some(watch) = &self.watch {
            sources.push(Source::Watch);
            fds.push(PollFd::new(watch.as_fd(), PollFlags::POLLIN));
        }
        if let Some(files) = &self.system_files {
            sources.push(Source::SystemFiles);
            fds.push(PollFd::new(files.as_fd(), PollFlags::POLLIN));
        }
        if control.has_room() {
            sources.push(Source::Control);
            fds.push(PollFd::new(control.as_fd(), PollFlags::POLLIN));
        }
        for (index, caller) in control.connections().iter().enumerate() {
            sources.push(Source::Caller(index));
            fds.push(PollFd::new(caller.as_fd(), caller.wants()));
        }
        let now = Instant::now();
        for (name, part) in system.parts.iter().filter(|(_, part)| part.log.out.has_room(now)) {
            sources.push(Source::Log(name.clone()));
            fds.push(PollFd::new(part.log.as_fd(), PollFlags::POLLIN));
        }
        let timeout = due.map(|due| TimeSpec::from(due.saturating_duration_since(now)));
        // If the wait is interrupted, the round has no events.
        let _ = ppoll(&mut fds, timeout, None);
        let seen = sources.into_iter().zip(&fds);
        seen.filter_map(|(source, fd)| Some((source, fd.revents().filter(|flags| !flags.is_empty())?))).collect()
    }

    fn signals(&mut self, system: &mut System, now: Instant) {
        for signal in self.signals.pending() {
            match signal {
                Signal::SIGCHLD => system.reap(now),
                // If the terminal has been closed, a system that runs in its foreground stops.
                Signal::SIGHUP if self.terminal && File::open("/dev/tty").is_err() => {
                    system.stop("the end of its terminal");
                }
                Signal::SIGHUP => reload(system),
                signal => {
                    notify_systemd(&[NotifyState::Stopping]);
                    system.stop(signal.as_str());
                }
            }
        }
    }

    /// Reports readiness once. systemd is told as soon as no part is starting for the first time any more, because it
    /// would otherwise end kend for one bad part. The `ready` line on standard output is printed when all parts are
    /// ready.
    fn announce(&mut self, system: &mut System) {
        if system.stopping || system.fatal.is_some() {
            return;
        }
        if !self.reported_ready && system.is_settled() {
            self.reported_ready = true;
            notify_systemd(&[NotifyState::Ready]);
        }
        if system.announcing && system.is_ready() {
            system.announcing = false;
            self.print_ready(system);
        }
    }

    fn print_ready(&self, system: &mut System) {
        let listeners = system.listeners();
        let mut line = String::from("ready");
        for listener in &listeners {
            line.push_str(&format!(" {}={}", listener.name, listener.url));
        }
        let written = writeln!(stdout(), "{line}").and_then(|()| stdout().flush());
        // For the person at the terminal. Programs read the line above.
        if let Some(gateway) = listeners.iter().find(|one| one.name == "gateway").filter(|_| stderr().is_terminal()) {
            let _ = writeln!(stderr(), "the console: {}/ (`ken open`)", gateway.url);
        }
        if self.background {
            if written.is_err() {
                system.fatal = Some(Failure::new(Code::Cancelled, "nobody waits for this system any more"));
            }
            let _ = dup2_stdout(&system.null);
            let _ = dup2_stderr(&system.null);
        }
    }

    fn notify_watchdog(&mut self, now: Instant) {
        if let Some((every, next)) = &mut self.watchdog
            && *next <= now
        {
            notify_systemd(&[NotifyState::Watchdog]);
            *next = now + *every;
        }
    }
}

/// Watches the configuration, unless the configuration disables this.
fn watch(system: &mut System) -> Option<Watch> {
    if !system.loaded.config.kend.watch {
        return None;
    }
    let watch = Watch::new(&system.places.config);
    watch
        .inspect_err(|why| {
            let text = format!("changes of the configuration are not seen: {why}");
            system.journal.note(None, &text);
        })
        .ok()
}

fn watch_system_files(system: &mut System) -> Option<SystemFiles> {
    let files = SystemFiles::watch();
    let failed = |why: &_| system.journal.note(None, &format!("replaced files of the system are not seen: {why}"));
    files.inspect_err(failed).ok()
}

/// Reloads after a change. If the file was deleted, its settings stay in force, because that is more likely a mistake
/// than a request for the defaults.
fn reload_changed(system: &mut System) {
    match system.loaded.source.path() {
        Some(path) if !path.exists() => {
            let text = format!("{} is gone; its settings stay in force until `ken reload`", path.display());
            system.journal.warn(None, &text);
        }
        _ => reload(system),
    }
}

fn reload(system: &mut System) {
    if let Ok(stamp) = NotifyState::monotonic_usec_now() {
        notify_systemd(&[NotifyState::Reloading, stamp]);
    }
    // `reload` has logged the errors, and the status shows them.
    let _ = system.reload();
    notify_systemd(&[NotifyState::Ready]);
}
