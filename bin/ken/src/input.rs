//! Reads text from the arguments of a command, from files or from standard input.

use std::io::{IsTerminal, Read};
use std::path::Path;

use ken_tool::open_regular;
use ken_types::Error;

/// Returns the words of the command line joined by blanks, or standard input if there are no words or only `-`. Reads
/// at most `limit` + 1 bytes of standard input, so that the caller can see that a text is too long. `field` and `hint`
/// are those of the error for a missing text.
pub(crate) fn words_or_stdin(words: &[String], limit: usize, field: &str, hint: &str) -> Result<String, Error> {
    if words.iter().any(|word| word != "-") {
        return Ok(words.join(" "));
    }
    if std::io::stdin().is_terminal() {
        return Err(Error::invalid(field, "the text is missing").hint(format!("{hint}, or a text on standard input")));
    }
    stdin_text(limit as u64 + 1)
}

/// Returns the text of standard input, at most `max` bytes of it.
pub(crate) fn stdin_text(max: u64) -> Result<String, Error> {
    let text = std::io::read_to_string(std::io::stdin().take(max));
    text.map_err(|error| unreadable_stdin(&error))
}

/// Returns the bytes of standard input, at most `max` of them.
pub(crate) fn stdin_bytes(max: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    std::io::stdin().take(max).read_to_end(&mut bytes).map_err(|error| unreadable_stdin(&error))?;
    Ok(bytes)
}

fn unreadable_stdin(error: &std::io::Error) -> Error {
    Error::invalid("-", format!("standard input: {error}"))
}

/// Reads the file that a flag names as UTF-8 text. Fails if it has more than `max` bytes.
pub(crate) fn read_text(flag: &str, path: &Path, max: u64) -> Result<String, Error> {
    let bytes = read_bytes(flag, path, max)?;
    String::from_utf8(bytes).map_err(|_| Error::invalid(flag, format!("{}: is not text in UTF-8", path.display())))
}

/// Reads the file that a flag names. Fails if it has more than `max` bytes.
pub(crate) fn read_bytes(flag: &str, path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let wrong = |what: String| Error::invalid(flag, format!("{}: {what}", path.display()));
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes));
    read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > max { Err(wrong(format!("has more than {max} bytes"))) } else { Ok(bytes) }
}
