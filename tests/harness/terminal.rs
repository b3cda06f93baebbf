//! Runs a command on a pseudo-terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::openpty;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};

/// Runs a command with a terminal as its standard output and standard error, and its errors as sentences. Returns its output, which the terminal passes
/// on unchanged, and its exit status.
pub fn on_terminal(mut command: Command) -> (String, i32) {
    let terminal = openpty(None, None).expect("a terminal");
    let mut modes = tcgetattr(&terminal.slave).expect("modes");
    cfmakeraw(&mut modes);
    tcsetattr(&terminal.slave, SetArg::TCSANOW, &modes).expect("modes");
    let output = terminal.slave.try_clone().expect("a descriptor");
    let mut child = command
        .env_remove("KEN_ERRORS")
        .stdin(Stdio::null())
        .stdout(Stdio::from(output))
        .stderr(Stdio::from(terminal.slave))
        .spawn()
        .expect("a command");
    // The command has the other descriptors of the terminal. Reading ends only when they are closed.
    drop(command);
    let mut printed = Vec::new();
    let mut master = File::from(terminal.master);
    let mut buffer = [0; 4096];
    // When the last writer has closed the terminal, Linux returns EIO (pty(7)).
    while let Ok(bytes @ 1..) = master.read(&mut buffer) {
        printed.extend(buffer.iter().take(bytes));
    }
    let status = child.wait().expect("an end").code().expect("an exit status");
    (String::from_utf8_lossy(&printed).into_owned(), status)
}
