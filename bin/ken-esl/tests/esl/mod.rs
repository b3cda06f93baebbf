//! Runs the real program.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

pub(crate) fn run(args: &[&str], stdin: &[u8]) -> Outcome {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ken-esl"))
        .env("KEN_ERRORS", "json")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = to.write_all(&stdin); // the tool can end before it has read everything
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Outcome {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        status: output.status.code().unwrap(),
    }
}

/// Returns the answer of the tool to a text.
#[allow(dead_code)] // not every test file needs it
pub(crate) fn feel(text: &str) -> Value {
    let outcome = run(&["--text", text], b"");
    assert_eq!((outcome.status, outcome.stderr.as_str()), (0, ""), "{text}");
    serde_json::from_str(&outcome.stdout).unwrap()
}

/// Returns the answer of the tool to each line.
#[allow(dead_code)]
pub(crate) fn feel_lines(lines: &[String]) -> Vec<Value> {
    let outcome = run(&["--lines"], (lines.join("\n") + "\n").as_bytes());
    assert_eq!(outcome.status, 0);
    let answers: Vec<Value> = outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), lines.len());
    answers
}
