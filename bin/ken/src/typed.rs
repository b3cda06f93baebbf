//! What a person types at the terminal, and a key without an echo.

use std::io::{IsTerminal, Read};
use std::os::fd::AsFd;

use ken_types::Error;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use crate::output::print_on_stderr;

/// Whether a person is there who can be asked.
pub(crate) fn is_person() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks, and returns what was typed without blanks around it. Fails with `cancelled` at the end of the input.
pub(crate) fn line(question: &str) -> Result<String, Error> {
    match answer(question)?.as_str() {
        "" => Err(cancelled()),
        text => Ok(text.trim().to_owned()),
    }
}

/// Asks whether to do something. The end of the input is a no.
pub(crate) fn is_agreed(question: &str) -> Result<bool, Error> {
    Ok(matches!(answer(question)?.trim(), "y" | "Y" | "yes"))
}

fn answer(question: &str) -> Result<String, Error> {
    print_on_stderr(question);
    let mut text = String::new();
    let read = std::io::stdin().read_line(&mut text);
    read.map_err(|error| Error::internal(format!("standard input: {error}")))?;
    Ok(text)
}

/// Asks for a secret. The terminal shows nothing of it.
pub(crate) fn hidden(question: &str) -> Result<String, Error> {
    print_on_stderr(question);
    let hidden = Hidden::start()?;
    let mut text = Vec::new();
    for byte in std::io::stdin().lock().bytes() {
        let byte = byte.map_err(|error| Error::internal(format!("standard input: {error}")))?;
        match byte {
            b'\r' | b'\n' => break,
            // Ctrl+C and Ctrl+D, which are no signals while nothing is shown: a signal would leave the terminal as it is.
            3 | 4 => {
                drop(hidden);
                print_on_stderr("\n");
                return Err(cancelled());
            }
            // Backspace and Ctrl+U.
            8 | 127 => _ = text.pop(),
            21 => text.clear(),
            byte => text.push(byte),
        }
    }
    drop(hidden);
    print_on_stderr("\n");
    String::from_utf8(text).map_err(|_| Error::invalid("key", "this is no key: it is not text in UTF-8"))
}

fn cancelled() -> Error {
    Error::cancelled("nothing was changed")
}

/// The terminal without echo and signals, until this is dropped.
struct Hidden(Termios);

impl Hidden {
    fn start() -> Result<Hidden, Error> {
        let failed = |error| Error::internal(format!("the terminal cannot be made silent: {error}"));
        let before = tcgetattr(std::io::stdin().as_fd()).map_err(failed)?;
        let mut silent = before.clone();
        silent.local_flags &= !(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG);
        tcsetattr(std::io::stdin().as_fd(), SetArg::TCSAFLUSH, &silent).map_err(failed)?;
        Ok(Hidden(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        _ = tcsetattr(std::io::stdin().as_fd(), SetArg::TCSANOW, &self.0);
    }
}
