//! Texts that a command takes from its arguments or from standard input.

use std::io::{IsTerminal, Read};

use ken_types::Error;

/// The words of the command line, or standard input where there are none or only `-`. At most one byte more than `limit` is
/// read: whoever checks the text refuses one that is too long. `field` and `hint` are those of the error for a missing text.
pub(crate) fn words_or_stdin(
    words: &[String],
    limit: usize,
    field: &str,
    hint: &str,
) -> Result<String, Error> {
    if words.iter().any(|word| word != "-") {
        return Ok(words.join(" "));
    }
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(
            Error::invalid(field, "the text is missing").hint(format!("{hint}, or a text on standard input"))
        );
    }
    let mut text = String::new();
    let read = input.take(limit as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| Error::invalid("-", format!("standard input: {error}")))?;
    Ok(text)
}
