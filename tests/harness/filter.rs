//! Runs a program as a filter: passes all its input and collects all its output.

use std::io::{ErrorKind, Write};
use std::process::{Command, Output, Stdio};

/// Runs a program with this standard input, and its errors as JSON. The program need not read its input to the end.
#[track_caller]
pub fn run_with_input(command: &mut Command, stdin: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("KEN_ERRORS", "json");
    let mut child = loop {
        match command.spawn() {
            // Another test has forked while the program was being copied, and its child keeps the file open until it calls
            // exec.
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            child => break child.expect("a program"),
        }
    };
    let mut to = child.stdin.take().expect("its standard input");
    std::thread::scope(|scope| {
        scope.spawn(move || to.write_all(stdin)); // in a thread, so that reading and writing do not block each other
        child.wait_with_output().expect("its output")
    })
}
