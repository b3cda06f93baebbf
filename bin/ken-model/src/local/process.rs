//! The process `ken-textgen --lines`. It is kept between texts, because starting it takes as long as a few dozen tokens.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use ken_types::error::JSON_ERRORS;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::timeout;

const PROGRAM: &str = "ken-textgen";

/// The only environment variables that the process inherits, so that it gets no keys. `LISTEN_PID` tells kend to which part the process
/// belongs.
const ENVIRONMENT: [&str; 13] = [
    "ACTIVE_MVLM_MODEL", "CUDA_VISIBLE_DEVICES", "HOME", "KEN_HOME", "KEN_STATE_DIR", "LANG", "LD_LIBRARY_PATH",
    "LISTEN_PID", "MVLM_MODEL_DIRS", "PATH", "PYTORCH_FORCE_CPU", "XDG_CACHE_HOME", "XDG_STATE_HOME",
];

/// A running process. It is killed when this is dropped, even in the middle of a text.
#[derive(Debug)]
pub(super) struct Process {
    model: Option<String>,
    child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
    /// The end of its standard error. It is read all the time, because the process would stop when the pipe is full.
    errors: JoinHandle<Vec<u8>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Piece { delta: String },
    Vector { vector: Vec<f32>, tokens: u64 },
    Error { error: Error },
    End(End),
}

#[derive(Debug, Deserialize)]
pub(super) struct End {
    pub(super) stop_reason: String,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

impl Process {
    /// Starts the process with these flags. If the model cannot be used, the first [`Process::next`] returns the error.
    fn start(model: Option<&str>, flags: &[&str]) -> Result<Process, Error> {
        let mut child = command(model)?
            .arg("--lines")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::unavailable(format!("{PROGRAM} cannot be started: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(to), Some(from), Some(errors)) = pipes else {
            return Err(Error::internal("a started process has no pipes"));
        };
        let errors = tokio::spawn(end_of(errors));
        Ok(Process { model: model.map(str::to_owned), child, to, from: BufReader::new(from).lines(), errors })
    }

    /// Requests a text. If the process has ended, [`Process::next`] returns the reason.
    pub(super) async fn ask(&mut self, request: &Value) {
        let line = format!("{request}\n");
        _ = self.to.write_all(line.as_bytes()).await;
    }

    pub(super) async fn next(&mut self) -> Result<Line, Error> {
        let broken = |error: String| Error::unavailable(format!("{PROGRAM}: {error}"));
        match self.from.next_line().await.map_err(|error| broken(error.to_string()))? {
            Some(line) => serde_json::from_str(&line).map_err(|error| broken(error.to_string())),
            None => Err(self.exit_error().await),
        }
    }

    /// Returns the reason why the process ended, which is the line that it wrote to standard error.
    async fn exit_error(&mut self) -> Error {
        // A process that it has started may keep the pipe open.
        let errors = timeout(ERRORS_TIMEOUT, &mut self.errors).await;
        let errors = errors.ok().and_then(Result::ok).unwrap_or_default();
        match String::from_utf8_lossy(&errors).lines().last().map(serde_json::from_str) {
            Some(Ok(Line::Error { error })) => error,
            _ => Error::unavailable(format!("{PROGRAM} ended without an answer")),
        }
    }
}

/// How long the rest of standard error is waited for after standard output has ended.
const ERRORS_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads to the end and returns the last bytes.
async fn end_of(mut errors: ChildStderr) -> Vec<u8> {
    const MAX_ERROR_BYTES: usize = 64 * 1024;
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
        kept.drain(..kept.len().saturating_sub(MAX_ERROR_BYTES));
    }
    kept
}

/// How long a process is kept for the next text before it is ended to release its memory.
const MAX_IDLE: Duration = Duration::from_secs(120);

/// Holds a process between two texts, with the task that ends it after [`MAX_IDLE`].
#[derive(Debug, Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Option<(AbortHandle, Process)>>>);

impl Idle {
    /// Returns the kept process if it runs this model and has not ended in the meantime, or else starts one with these flags.
    pub(super) fn process(&self, model: Option<&str>, flags: &[&str]) -> Result<Process, Error> {
        let (timer, kept) = self.0.lock().take().unzip();
        // Otherwise an import of many texts would leave a sleeping task for each of them.
        timer.inspect(AbortHandle::abort);
        if let Some(mut process) = kept
            && process.model.as_deref() == model
            && matches!(process.child.try_wait(), Ok(None))
        {
            return Ok(process);
        }
        Process::start(model, flags)
    }

    pub(super) fn keep(&self, process: Process) {
        let idle = self.clone();
        let timer = tokio::spawn(async move {
            tokio::time::sleep(MAX_IDLE).await;
            idle.0.lock().take();
        });
        *self.0.lock() = Some((timer.abort_handle(), process));
    }
}

/// Returns the default model. Another one may have been activated since the last text.
pub(super) async fn active() -> Option<String> {
    #[derive(Deserialize)]
    struct Alias {
        alias: String,
        active: bool,
    }
    let output = command(None).ok()?.arg("--list-models").stdin(Stdio::null()).output().await.ok()?;
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let mut aliases = lines.filter_map(|line| serde_json::from_slice::<Alias>(line).ok());
    aliases.find(|alias| alias.active).map(|alias| alias.alias)
}

/// Returns the maximum number of tokens of prompt and text together, as reported by `ken-textgen --check`.
pub(super) fn positions(model: Option<&str>) -> Result<u64, Error> {
    #[derive(Deserialize)]
    struct Checked {
        positions: u64,
    }
    let mut check = command(model)?;
    check.arg("--check").stdin(Stdio::null());
    let output = check.into_std().output();
    let output = output.map_err(|error| Error::unavailable(format!("{PROGRAM} cannot be started: {error}")))?;
    if let Ok(checked) = serde_json::from_slice::<Checked>(&output.stdout) {
        return Ok(checked.positions);
    }
    match serde_json::from_slice(&output.stderr) {
        Ok(Line::Error { error }) => Err(error),
        _ => Err(Error::unavailable(format!("{PROGRAM} --check ended with {}", output.status))),
    }
}

fn command(model: Option<&str>) -> Result<Command, Error> {
    let program = ken_tool::find_program(PROGRAM)
        .ok_or_else(|| Error::not_found(format!("{PROGRAM} is neither beside ken-model nor on PATH")))?;
    let mut command = Command::new(program);
    let given = ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(given).env(JSON_ERRORS.0, JSON_ERRORS.1);
    command.args(model.into_iter().flat_map(|alias| ["--model", alias]));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_is_used_again_and_again_has_one_timer() {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let errors = tokio::spawn(end_of(child.stderr.take().unwrap()));
        let idle = Idle::default();
        idle.keep(Process { model: None, child, to, from: BufReader::new(from).lines(), errors });
        for _ in 0..100 {
            idle.keep(idle.process(None, &[]).unwrap());
            // The task that is no longer needed ends.
            tokio::task::yield_now().await;
        }
        // The other task reads the standard error of the process.
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 2);
        assert!(idle.0.lock().is_some());
    }
}
