//! Runs a program as a filter: passes all its input and collects all its output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs a program with this on its standard input, which it need not read to the end.
#[track_caller]
pub fn give(command: &mut Command, stdin: &[u8]) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program");
    let mut to = child.stdin.take().expect("its standard input");
    std::thread::scope(|scope| {
        scope.spawn(move || to.write_all(stdin)); // in a thread, so that writing and reading do not wait for each other
        child.wait_with_output().expect("its output")
    })
}
