//! A program as a filter: all of its input given, all that it says kept.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs a program with this on its standard input, which it need not read to the end.
#[track_caller]
pub fn give(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a program");
    let mut to = child.stdin.take().expect("its standard input");
    std::thread::scope(|scope| {
        scope.spawn(move || to.write_all(stdin)); // beside the reading, so that neither waits for the other
        child.wait_with_output().expect("its output")
    })
}
