//! Runs a daemon from `main` to its exit.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ken_types::config::{Calls, Config};
use ken_types::error::wants_json_errors;
use ken_types::places::Places;
use ken_types::{Code, Error};
use ken_walls::part::CALLS_VARIABLE;
use ken_wire::{Daemon, Server, Table, serve};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::options::Options;
use crate::sockets::Sockets;
use crate::{config, guard, log, options, secrets};

/// The time limit for the daemon's tasks after a stop. The process then ends even if they are not finished, which loses
/// nothing because all durable state is in the store. It is shorter than the 10 s after which kend kills a part.
const DRAIN: Duration = Duration::from_secs(9);

/// Name, version and help text of a daemon.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// The name of the program: `ken-` and the name of the part.
    pub name: &'static str,
    pub version: &'static str,
    /// The description of the program in `--help`, one line.
    pub about: &'static str,
    /// How long calls that have begun can continue after SIGTERM.
    pub drain: Duration,
}

impl Program {
    /// Returns the part's name, which is also the name of its socket.
    pub fn part(&self) -> &'static str {
        self.name.strip_prefix("ken-").unwrap_or(self.name)
    }
}

/// What the skeleton passes to a daemon when it starts.
#[derive(Debug)]
pub struct Start<A> {
    pub options: A,
    pub config: Config,
    pub places: Places,
    /// Inherited sockets other than that of the wire.
    pub sockets: Sockets,
    /// Resolves when the daemon must stop.
    pub stop: Stop,
    /// Tasks that the daemon adds here are finished before the process exits. It waits for them for at most 9 s
    /// after `stop`.
    pub tasks: JoinSet<()>,
}

/// Resolves when the process has been asked to stop, by a signal or because kend has ended.
#[derive(Debug, Clone)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    pub async fn stopped(&mut self) {
        // An error means that the sender was dropped, so the daemon is ending as well.
        _ = self.0.wait_for(|stopped| *stopped).await;
    }

    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }
}

/// Runs a daemon until it is asked to stop. `start` opens what the daemon needs and returns its operations and state;
/// the daemon is ready when `start` returns. If `start` fails, the error is logged in one line, and its code determines
/// the exit status.
pub fn run<A, S, F>(program: Program, start: F) -> ExitCode
where
    A: Args,
    S: Daemon,
    F: AsyncFnOnce(&mut Start<A>) -> Result<(Table<S>, Arc<S>), Error>,
{
    let options = match options::parse::<A>(program.name, program.version, program.about) {
        Ok(options) => options,
        Err(shown) => return print_clap_error(&shown),
    };
    log::start();
    if let Err(error) = protect().and_then(|()| restrict_calls()) {
        return fail(program.name, &error);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(run_daemon(program, options, start)),
        Err(error) => Err(Error::internal(format!("no runtime: {error}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(program.name, &error),
    }
}

async fn run_daemon<A, S, F>(program: Program, options: Options<A>, start: F) -> Result<(), Error>
where
    A: Args,
    S: Daemon,
    F: AsyncFnOnce(&mut Start<A>) -> Result<(Table<S>, Arc<S>), Error>,
{
    // The signal handlers are installed before the first client can connect.
    let told_to_stop = stop_signal()?;
    let _file_size = survive_file_size_limit()?;
    let gone = guard::kend_gone(guard::inherited()?);
    secrets::inherit()?;
    let (stop, stopped) = watch::channel(false);
    let places = places(&options)?;
    let mut sockets = Sockets::inherited()?;
    let listener = sockets.wire(&places.socket(program.part()))?;
    let mut from = Start {
        config: config::in_force(&places.config)?,
        options: options.own,
        places,
        sockets,
        stop: Stop(stopped),
        tasks: JoinSet::new(),
    };
    let work = async {
        let (table, state) = start(&mut from).await?;
        let (server, serving) = open(program, listener, table, state)?;
        notify_kend(&[NotifyState::Ready]);
        tracing::info!(version = program.version, "ready");
        told_to_stop.await;
        notify_kend(&[NotifyState::Stopping]);
        stop.send_replace(true);
        server.stop();
        drain(from.tasks, serving).await;
        Ok(())
    };
    tokio::select! {
        ended = work => ended,
        _ = gone => {
            tracing::warn!("kend has exited; exiting too");
            Ok(())
        }
        never = watchdog() => never,
    }
}

/// Protects secrets in memory: other processes of the same user can neither attach to this one nor read its memory, and
/// a crash writes no core file.
fn protect() -> Result<(), Error> {
    use nix::sys::resource::{Resource, setrlimit};
    nix::sys::prctl::set_dumpable(false)
        .and_then(|()| setrlimit(Resource::RLIMIT_CORE, 0, 0))
        .map_err(|errno| Error::internal(format!("cannot protect this process: {}", errno.desc())))
}

/// Restricts the system calls to the class that kend has set. The filter covers the threads that are started later, so this
/// comes before all of them, and before anything is read that others have written.
fn restrict_calls() -> Result<(), Error> {
    let Ok(name) = std::env::var(CALLS_VARIABLE) else {
        return Ok(());
    };
    let calls =
        Calls::named(&name).ok_or_else(|| Error::invalid(CALLS_VARIABLE, format!("there is no class `{name}`")))?;
    ken_walls::part::restrict_calls(calls)
        .map_err(|why| Error::unavailable(format!("the system calls of this process cannot be restricted: {why}")))
}

fn open<S: Daemon>(
    program: Program,
    listener: UnixListener,
    table: Table<S>,
    state: Arc<S>,
) -> Result<(Server, tokio::task::JoinHandle<()>), Error> {
    let listener = tokio::net::UnixListener::from_std(listener)
        .map_err(|error| Error::internal(format!("the wire socket: {error}")))?;
    let server = Server::new(program.drain);
    let serving = tokio::spawn(serve(server.clone(), listener, table, state));
    Ok((server, serving))
}

async fn drain(mut tasks: JoinSet<()>, serving: tokio::task::JoinHandle<()>) {
    let all = async {
        while tasks.join_next().await.is_some() {}
        _ = serving.await;
    };
    if tokio::time::timeout(DRAIN, all).await.is_err() {
        tracing::warn!("work was still open after {} s and has been dropped", DRAIN.as_secs());
    }
}

/// Installs handlers for SIGTERM and, for a daemon in a terminal, SIGINT. The returned future resolves when one of
/// these signals arrives.
fn stop_signal() -> Result<impl Future<Output = ()>, Error> {
    let mut term = signal(SignalKind::terminate()).map_err(no_handler)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(no_handler)?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Installs a handler for SIGXFSZ. A write beyond the maximum file size (RLIMIT_FSIZE) then fails with EFBIG, as on a
/// full disk, and does not end the process. The signal is not ignored with SIG_IGN, because child processes would
/// inherit that.
fn survive_file_size_limit() -> Result<Signal, Error> {
    const SIGXFSZ: i32 = nix::libc::SIGXFSZ;
    signal(SignalKind::from_raw(SIGXFSZ)).map_err(no_handler)
}

fn no_handler(error: std::io::Error) -> Error {
    Error::internal(format!("no signal handler: {error}"))
}

/// Notifies the watchdog twice in each interval, as long as the event loop is not blocked. Never returns.
async fn watchdog() -> Result<(), Error> {
    let Some(interval) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(interval / 2).await;
        notify_kend(&[NotifyState::Watchdog]);
    }
}

/// Tells kend what `ken status` shows beside the part. An empty text removes it.
pub fn report_status(text: &str) {
    notify_kend(&[NotifyState::Status(text)]);
}

fn notify_kend(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify the supervisor: {error}");
    }
}

fn places<A: Args>(options: &Options<A>) -> Result<Places, Error> {
    let mut places = Places::of_part(options.home.as_deref())?;
    if let Some(config) = &options.config {
        places.config.clone_from(config);
    }
    Ok(places)
}

/// Prints the text of clap: help and version on standard output with exit status 0, a usage error on standard error
/// with exit status 2.
fn print_clap_error(error: &clap::Error) -> ExitCode {
    _ = error.print();
    if error.use_stderr() { ExitCode::from(Code::Invalid.exit_status()) } else { ExitCode::SUCCESS }
}

/// Reports the error in one line: in the log if errors are to be JSON, as they are below kend, otherwise as a sentence.
/// Returns the exit status of its code.
fn fail(name: &str, error: &Error) -> ExitCode {
    if wants_json_errors() {
        tracing::error!(code = error.code.name(), at = error.at, hint = error.hint, "{}", error.message);
    } else {
        _ = writeln!(std::io::stderr(), "{name}: {error}");
    }
    ExitCode::from(error.code.exit_status())
}
