//! The program under test: one call, or a co-process for many texts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::set::is_defect;

pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

pub(crate) fn laws() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ken-laws"));
    command.env("KEN_ERRORS", "json");
    command
}

pub(crate) fn run_with(args: &[&str], stdin: &[u8]) -> Outcome {
    let mut command = laws();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin); // the tool may exit before it has read everything
    let output = child.wait_with_output().unwrap();
    Outcome {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap(),
    }
}

pub(crate) fn run(args: &[&str]) -> Outcome {
    run_with(args, b"")
}

/// The answer to one text.
pub(crate) fn judge(text: &str) -> Value {
    serde_json::from_str(&run_with(&["--format", "compact"], text.as_bytes()).stdout).unwrap()
}

pub(crate) fn overall(answer: &Value) -> f64 {
    answer["scores"]["overall_compliance"].as_f64().unwrap()
}

/// The kinds of the defects found: evidence with a cost.
pub(crate) fn defects(answer: &Value) -> Vec<String> {
    let evidence = answer["evidence"].as_array().unwrap();
    let costs = evidence.iter().filter(|item| is_defect(item));
    costs.map(|item| item["kind"].as_str().unwrap().to_owned()).collect()
}

/// A process of `ken-laws --lines` that judges one text after the other.
pub(crate) struct CoProcess {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl CoProcess {
    pub(crate) fn start(args: &[&str]) -> CoProcess {
        let mut command = laws();
        let mut child = command.arg("--lines").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        CoProcess { to: child.stdin.take(), child, from }
    }

    /// The answer line, unparsed. The text may contain line feeds.
    pub(crate) fn ask_raw(&mut self, text: &str) -> String {
        let to = self.to.as_mut().unwrap();
        writeln!(to, "{}", json!({ "text": text })).unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn ask(&mut self, text: &str) -> Value {
        let line = self.ask_raw(text);
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer to {text:?}: {line:?}"))
    }
}

impl Drop for CoProcess {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}
