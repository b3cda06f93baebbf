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
    read_output(&mut File::from(terminal.master), |bytes| printed.extend(bytes));
    let status = child.wait().expect("an end").code().expect("an exit status");
    (String::from_utf8_lossy(&printed).into_owned(), status)
}

/// Reads the output of a terminal until its last writer has closed it. Linux then returns EIO (pty(7)).
pub(crate) fn read_output(master: &mut File, mut take: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    // Linux first waits for output that is on its way and then looks whether the terminal is closed (`n_tty_read`). What is
    // written and closed between the two is still there after the first EIO.
    for _ in 0..2 {
        while let Ok(count @ 1..) = master.read(&mut buffer) {
            take(buffer.get(..count).unwrap_or_default());
        }
    }
}
