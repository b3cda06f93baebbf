//! The processes of one tool.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ken_tool::find_program;
use ken_types::Error;
use ken_types::error::reported;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::answer::Answer;
use crate::process::{Fault, Launch, MAX_ANSWER, Process, Reply};
use crate::protocol::Protocol;

/// Environment variables that every tool inherits. None of them is a secret.
pub const ENVIRONMENT: [&str; 11] = [
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "KEN_HOME", "KEN_RUN_DIR", "KEN_STATE_DIR",
    "CUDA_VISIBLE_DEVICES",
];

/// Maximum number of processes of one tool. It exceeds the number of cores, so that slow requests do not block quick
/// ones.
const MAX_PROCESSES: usize = 16;
/// How long an idle process is kept.
const MAX_IDLE: Duration = Duration::from_secs(60);

/// The processes of one tool. A process is started when none is idle, and kept afterwards if the tool supports tags. Processes
/// that were idle for a minute are ended when another one becomes idle.
pub(crate) struct Pool {
    protocol: Protocol,
    launch: OnceLock<Launch>,
    /// Limits the number of processes.
    slots: Semaphore,
    /// The most recently used one is last.
    idle: Mutex<Vec<(Process, Instant)>>,
    /// Counts the calls of `restart`. A process of an earlier generation is not used again.
    generation: AtomicU64,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    at_work: AtomicUsize,
    started: AtomicU64,
    crashed: AtomicU64,
}

/// The state of a tool's processes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ToolState {
    pub protocol: String,
    pub program: PathBuf,
    /// Whether the program was found.
    pub is_there: bool,
    pub idle: usize,
    pub at_work: usize,
    /// Number of processes started since the engine was made.
    pub started: u64,
    /// Number of processes that ended or were killed instead of answering, except those that took too long.
    pub crashed: u64,
}

impl Pool {
    pub(crate) fn new(protocol: Protocol) -> Pool {
        Pool {
            slots: Semaphore::new(MAX_PROCESSES),
            protocol,
            launch: OnceLock::new(),
            idle: Mutex::default(),
            generation: AtomicU64::new(0),
            counts: Counts::default(),
        }
    }

    /// Sends a line to a process and returns its answer. If the process ends without an answer, a new one is tried once.
    /// Dropping the future kills the process.
    pub(crate) async fn ask(&self, line: &str) -> Result<Answer, Error> {
        let _slot = self.slots.acquire().await; // never closed
        let _at_work = CountGuard::begin(&self.counts.at_work);
        let launch = self.launch()?;
        match self.ask_once(launch, line).await {
            Err(Fault::Ended { .. } | Fault::Unsolicited) => self.ask_once(launch, line).await,
            result => result,
        }
        .map_err(|fault| self.error(fault))
    }

    async fn ask_once(&self, launch: &Launch, line: &str) -> Result<Answer, Fault> {
        let generation = self.generation.load(Ordering::Relaxed);
        let mut process = self.take(launch)?;
        let reply = process.ask(line).await;
        let reply = reply.and_then(|Reply { text, is_clean }| match Answer::read(text) {
            Ok(answer) => Ok((answer, is_clean)),
            Err(error) => Err(Fault::NotJson(error)),
        });
        match reply {
            Ok((_, true)) if generation == self.generation.load(Ordering::Relaxed) => self.give_back(process),
            Ok(_) => drop(process),
            Err(_) => _ = self.counts.crashed.fetch_add(1, Ordering::Relaxed),
        }
        reply.map(|(answer, _)| answer)
    }

    /// The most recently used idle process that is usable, else a new one.
    fn take(&self, launch: &Launch) -> Result<Process, Fault> {
        while let Some(process) = self.pop() {
            if process.is_quiet() {
                return Ok(process);
            }
            self.counts.crashed.fetch_add(1, Ordering::Relaxed);
        }
        self.counts.started.fetch_add(1, Ordering::Relaxed);
        Process::start(launch).map_err(Fault::NotStarted)
    }

    /// A separate function, so that the lock is released before the process is used.
    fn pop(&self) -> Option<Process> {
        self.idle.lock().pop().map(|(process, _)| process)
    }

    fn give_back(&self, process: Process) {
        let now = Instant::now();
        let mut idle = self.idle.lock();
        let expired = idle.partition_point(|(_, since)| now.duration_since(*since) > MAX_IDLE);
        let ended: Vec<_> = idle.drain(..expired).collect();
        idle.push((process, now));
        drop(idle); // release the lock before killing processes
        drop(ended);
    }

    fn launch(&self) -> Result<&Launch, Error> {
        if let Some(launch) = self.launch.get() {
            return Ok(launch);
        }
        let launch = Launch {
            program: find_program(&self.protocol.program).ok_or_else(|| self.missing())?,
            args: self.protocol.args.clone(),
            environment: std::env::vars_os()
                .filter(|(name, _)| name.to_str().is_some_and(|name| is_passed(name, &self.protocol)))
                .collect(),
        };
        Ok(self.launch.get_or_init(|| launch))
    }

    fn missing(&self) -> Error {
        let program = self.protocol.program.display();
        Error::unavailable(format!("program {program} not found beside this program or on PATH"))
    }

    pub(crate) fn state(&self) -> ToolState {
        ToolState {
            protocol: self.protocol.name.clone(),
            program: self.protocol.program.clone(),
            is_there: self.launch().is_ok(),
            idle: self.idle.lock().len(),
            at_work: self.counts.at_work.load(Ordering::Relaxed),
            started: self.counts.started.load(Ordering::Relaxed),
            crashed: self.counts.crashed.load(Ordering::Relaxed),
        }
    }

    /// Ends idle processes now and busy ones after their answer. New ones are started when they are needed.
    pub(crate) fn restart(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    fn error(&self, fault: Fault) -> Error {
        let program = self.protocol.program.display();
        match fault {
            Fault::NotStarted(error) => Error::unavailable(format!("cannot start {program}: {error}")),
            Fault::Ended { how, stderr: Some(stderr) } => {
                Error::unavailable(format!("{program} {how}: {}", message_of(&stderr)))
            }
            Fault::Ended { how, stderr: None } => {
                Error::unavailable(format!("{program} {how} without an error message"))
            }
            Fault::Unsolicited => Error::unavailable(format!("{program} wrote an unsolicited line")),
            Fault::TooLong => Error::too_large(format!("the answer of {program} is longer than {MAX_ANSWER} bytes")),
            Fault::NotJson(error) => Error::internal(format!("the answer of {program} is not JSON: {}", error.message)),
            Fault::NotText => Error::internal(format!("the answer of {program} is not UTF-8")),
        }
    }
}

/// Counts a line as being processed until it is dropped, which also happens when the caller gives up.
struct CountGuard<'a>(&'a AtomicUsize);

impl CountGuard<'_> {
    fn begin(count: &AtomicUsize) -> CountGuard<'_> {
        count.fetch_add(1, Ordering::Relaxed);
        CountGuard(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The message of an error line that the tool wrote; any other line is returned unchanged.
fn message_of(line: &str) -> String {
    reported(line.as_bytes()).map_or_else(|| line.to_owned(), |error| error.message)
}

fn is_passed(name: &str, protocol: &Protocol) -> bool {
    let own = protocol.environment.iter().any(|known| match known.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *known,
    });
    own || ENVIRONMENT.contains(&name)
}
