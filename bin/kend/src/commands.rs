//! Commands of ken(1) that kend runs for those who have neither files nor programs, such as ken-gateway(8). Their output is the
//! reply. It goes to a memory file, which is read when the command has ended, so that the loop has no further pipe to watch.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use ken_types::{Error, Timestamp};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::launch::Launch;
use crate::reap::Exit;
use crate::spawn::{Inherit, Spawner};

/// How long a command may run.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of commands that run, and of those that run or whose output is kept.
const MAX_RUNNING: usize = 4;
const MAX_KEPT: usize = 12;
/// The maximum size of an output in bytes. A reply has to fit into a line of the wire (4 MiB), where quotes and line ends take two.
const MAX_OUTPUT: u64 = 2 << 20;
/// An ended command is there for at least this long, so that all who wait for it get its output.
const MIN_KEPT: Duration = Duration::from_secs(1);

/// The end of a command.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    /// `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output and standard error.
    pub(crate) text: String,
    pub(crate) at: Timestamp,
}

struct Command {
    number: u64,
    words: Vec<String>,
    /// How long its output answers the same question.
    keep: Duration,
    progress: Progress,
}

enum Progress {
    Running { pid: Pid, mark: u64, output: File, until: Instant, is_late: bool },
    Ended { at: Instant, result: Result<Output, Error> },
}

#[derive(Default)]
pub(crate) struct Commands {
    last: u64,
    all: Vec<Command>,
}

impl Commands {
    /// Returns the number of the command with these words that runs, or whose output is still worth something.
    pub(crate) fn find(&self, words: &[String], now: Instant) -> Option<u64> {
        let answers = |command: &&Command| match &command.progress {
            Progress::Running { .. } => true,
            Progress::Ended { at, .. } => now < *at + command.keep,
        };
        self.all.iter().filter(|command| command.words == words).find(answers).map(|command| command.number)
    }

    /// Starts a command, and returns its number.
    pub(crate) fn start(
        &mut self,
        words: Vec<String>,
        keep: Duration,
        launch: &Launch,
        (spawner, stdin): (&mut Spawner, &File),
        now: Instant,
    ) -> Result<u64, Error> {
        self.make_room(now)?;
        let failed = |what: &str, errno: nix::Error| Error::unavailable(format!("ken: {what}: {}", errno.desc()));
        let output = memfd_create("output", MFdFlags::MFD_CLOEXEC).map_err(|errno| failed("output", errno))?;
        let mark = spawner.next_mark();
        let inherit = Inherit { stdin: stdin.as_fd(), log: output.as_fd(), passed: &[], mark, walls: None };
        let pid = spawner.spawn(launch, &inherit).map_err(|why| failed(why.step, why.errno))?;
        self.last += 1;
        let progress =
            Progress::Running { pid, mark, output: File::from(output), until: now + TIME_LIMIT, is_late: false };
        self.all.push(Command { number: self.last, words, keep, progress });
        Ok(self.last)
    }

    fn make_room(&mut self, now: Instant) -> Result<(), Error> {
        self.all.retain(|command| match &command.progress {
            Progress::Running { .. } => true,
            Progress::Ended { at, .. } => now < *at + command.keep.max(MIN_KEPT),
        });
        if self.processes().count() >= MAX_RUNNING || self.all.len() >= MAX_KEPT {
            return Err(Error::busy("too many commands run at once", 1_000));
        }
        Ok(())
    }

    /// Takes the end of a process. Does nothing for one that is no command.
    pub(crate) fn ended(&mut self, ended: Pid, exit: Exit, now: Instant) {
        for command in &mut self.all {
            if let Progress::Running { pid, output, is_late, .. } = &command.progress
                && *pid == ended
            {
                let result = if *is_late { Err(late(&command.words)) } else { read(output, exit) };
                command.progress = Progress::Ended { at: now, result };
            }
        }
    }

    /// Returns what a command has written; `None` while it runs.
    pub(crate) fn result(&self, number: u64) -> Option<Result<Output, Error>> {
        match self.all.iter().find(|command| command.number == number) {
            None => Some(Err(Error::unavailable("the output of the command was dropped"))),
            Some(Command { progress: Progress::Ended { result, .. }, .. }) => Some(result.clone()),
            Some(_) => None,
        }
    }

    /// Has the next question answered anew, because what the answers were about has changed.
    pub(crate) fn outdate(&mut self) {
        self.all.iter_mut().for_each(|command| command.keep = Duration::ZERO);
    }

    /// Returns the process and the mark of each running command.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (Pid, u64)> {
        self.all.iter().filter_map(|command| match command.progress {
            Progress::Running { pid, mark, .. } => Some((pid, mark)),
            Progress::Ended { .. } => None,
        })
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.all.iter().filter_map(|command| match command.progress {
            Progress::Running { until, is_late: false, .. } => Some(until),
            _ => None,
        });
        deadlines.min()
    }

    /// Kills the commands whose time is over. They end when their process is collected.
    pub(crate) fn kill_late(&mut self, now: Instant) {
        for command in &mut self.all {
            if let Progress::Running { pid, until, is_late, .. } = &mut command.progress
                && *until <= now
                && !std::mem::replace(is_late, true)
            {
                let _ = killpg(*pid, Signal::SIGKILL);
            }
        }
    }

    pub(crate) fn kill_all(&self) {
        for (pid, _) in self.processes() {
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

fn late(words: &[String]) -> Error {
    let command = words.first().map(String::as_str).unwrap_or_default();
    let message = format!("`ken {command}` was stopped because it took longer than {} s", TIME_LIMIT.as_secs());
    Error::unavailable(message).hint(format!("run `ken {command}` in a terminal"))
}

fn read(output: &File, exit: Exit) -> Result<Output, Error> {
    let failed = |error: std::io::Error| Error::internal(format!("the output of a command: {error}"));
    let length = output.metadata().map_err(failed)?.len();
    if length > MAX_OUTPUT {
        return Err(Error::too_large(format!("the output has {length} bytes, at most {MAX_OUTPUT} are passed on")));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    output.read_exact_at(&mut bytes, 0).map_err(failed)?;
    Ok(Output { code: exit.code(), text: String::from_utf8_lossy(&bytes).into_owned(), at: Timestamp::now() })
}
