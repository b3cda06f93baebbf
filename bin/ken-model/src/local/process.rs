//! `ken-textgen --lines`, kept between two texts: to start it costs as much as a few dozen tokens.

use std::process::Stdio;

use ken_types::Error;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

const PROGRAM: &str = "ken-textgen";

/// All that it is given of this process's environment: it needs none of its keys. `LISTEN_PID` tells kend whose it is.
const ENVIRONMENT: [&str; 13] = [
    "ACTIVE_MVLM_MODEL",
    "CUDA_VISIBLE_DEVICES",
    "HOME",
    "KEN_HOME",
    "KEN_STATE_DIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "LISTEN_PID",
    "MVLM_MODEL_DIRS",
    "PATH",
    "PYTORCH_FORCE_CPU",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
];

/// A running one. It dies when this is dropped, in the middle of a text too.
#[derive(Debug)]
pub(super) struct Process {
    model: Option<String>,
    child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

/// What it says, a line each.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Piece { delta: String },
    Error { error: Error },
    End(End),
}

/// How a text ended.
#[derive(Debug, Deserialize)]
pub(super) struct End {
    pub(super) stop_reason: String,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
}

impl Process {
    /// Starts it; that the model cannot be used is told by the first [`Process::next`].
    pub(super) fn start(model: Option<&str>) -> Result<Process, Error> {
        let mut child = command(model)?
            .arg("--lines")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::unavailable(format!("{PROGRAM} cannot be started: {error}")))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(to), Some(from)) = pipes else {
            return Err(Error::internal("a started process has no pipes"));
        };
        Ok(Process {
            model: model.map(str::to_owned),
            child,
            to,
            from: BufReader::new(from).lines(),
        })
    }

    /// It, if it has this model, and has not ended while nobody looked.
    pub(super) fn with(mut self, model: Option<&str>) -> Option<Process> {
        let is_fit = self.model.as_deref() == model && matches!(self.child.try_wait(), Ok(None));
        is_fit.then_some(self)
    }

    /// Asks for a text. If it is gone, [`Process::next`] says why.
    pub(super) async fn ask(&mut self, request: &Value) {
        let line = format!("{request}\n");
        _ = self.to.write_all(line.as_bytes()).await;
    }

    pub(super) async fn next(&mut self) -> Result<Line, Error> {
        let broken = |error: String| Error::unavailable(format!("{PROGRAM}: {error}"));
        match self
            .from
            .next_line()
            .await
            .map_err(|error| broken(error.to_string()))?
        {
            Some(line) => serde_json::from_str(&line).map_err(|error| broken(error.to_string())),
            None => Err(self.last_words().await),
        }
    }

    /// Why it ended: the line that it has left on standard error.
    async fn last_words(&mut self) -> Error {
        let mut text = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            const MOST: u64 = 64 * 1024;
            _ = stderr.take(MOST).read_to_string(&mut text).await;
        }
        match text.lines().last().map(serde_json::from_str) {
            Some(Ok(Line::Error { error })) => error,
            _ => Error::unavailable(format!("{PROGRAM} ended without an answer")),
        }
    }
}

/// The model that is meant where none is named. Another one may have been activated since the last text.
pub(super) async fn active() -> Option<String> {
    #[derive(Deserialize)]
    struct Alias {
        alias: String,
        active: bool,
    }
    let output = command(None)
        .ok()?
        .arg("--list-models")
        .stdin(Stdio::null())
        .output()
        .await
        .ok()?;
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let mut aliases = lines.filter_map(|line| serde_json::from_slice::<Alias>(line).ok());
    aliases.find(|alias| alias.active).map(|alias| alias.alias)
}

/// The tokens that prompt and text may have together, as `ken-textgen --check` has them.
pub(super) fn positions(model: Option<&str>) -> Result<u64, Error> {
    #[derive(Deserialize)]
    struct Checked {
        positions: u64,
    }
    let mut check = command(model)?;
    check.arg("--check").stdin(Stdio::null());
    let output = check.into_std().output();
    let output =
        output.map_err(|error| Error::unavailable(format!("{PROGRAM} cannot be started: {error}")))?;
    if let Ok(checked) = serde_json::from_slice::<Checked>(&output.stdout) {
        return Ok(checked.positions);
    }
    match serde_json::from_slice(&output.stderr) {
        Ok(Line::Error { error }) => Err(error),
        _ => Err(Error::unavailable(format!(
            "{PROGRAM} --check ended with {}",
            output.status
        ))),
    }
}

fn command(model: Option<&str>) -> Result<Command, Error> {
    let program = ken_tool::find_program(PROGRAM)
        .ok_or_else(|| Error::not_found(format!("{PROGRAM} is neither beside ken-model nor on PATH")))?;
    let mut command = Command::new(program);
    let given = ENVIRONMENT
        .iter()
        .filter_map(|name| Some((name, std::env::var_os(name)?)));
    command.env_clear().envs(given);
    command.args(model.into_iter().flat_map(|alias| ["--model", alias]));
    Ok(command)
}
