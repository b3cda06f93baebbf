//! Secrets that kend passes: in a sealed memory file behind the descriptor `KEN_SECRETS_FD`, not in the environment, which
//! every child process inherits and which /proc shows. Each entry is `NAME=value` and a NUL.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use ken_types::Error;

use crate::descriptor;

const VARIABLE: &str = "KEN_SECRETS_FD";
/// More than kend ever passes.
const LIMIT_BYTES: u64 = 1024 * 1024;

static PASSED: OnceLock<HashMap<String, String>> = OnceLock::new();

/// The secret of this name: the one that kend has passed to this process, else the environment variable, which a program
/// that is run by hand uses. An empty value counts as absent. Passed values are read once, when the daemon starts.
pub fn secret(name: &str) -> Option<String> {
    let passed = PASSED.get().and_then(|passed| passed.get(name).cloned());
    passed.or_else(|| std::env::var(name).ok()).filter(|value| !value.is_empty())
}

/// Shorter values, such as `test`, occur in texts that have nothing to do with them.
const LEAST_REDACTED: usize = 8;

/// The text with `[redacted]` in place of each secret of at least 8 bytes that kend has passed to this process, as it is and as in a JSON
/// string.
pub fn redacted(text: String) -> String {
    let secrets = PASSED.get().into_iter().flat_map(HashMap::values);
    redact(text, secrets.map(String::as_str))
}

fn redact<'a>(mut text: String, secrets: impl Iterator<Item = &'a str>) -> String {
    for secret in secrets.filter(|secret| secret.len() >= LEAST_REDACTED) {
        let quoted = secret.replace('\\', "\\\\").replace('"', "\\\"");
        for form in [secret, &quoted] {
            if text.contains(form) {
                text = text.replace(form, "[redacted]");
            }
        }
    }
    text
}

/// Reads and closes the inherited descriptor, if there is one. Call once, at the start; [`crate::run`] does.
pub fn inherit() -> Result<(), Error> {
    let Some(fd) = descriptor::inherited(VARIABLE)? else {
        return Ok(());
    };
    let mut text = String::new();
    let read = File::from(fd).take(LIMIT_BYTES).read_to_string(&mut text);
    read.map_err(|error| Error::invalid(VARIABLE, format!("it cannot be read: {error}")))?;
    PASSED.get_or_init(|| parse(&text));
    Ok(())
}

fn parse(text: &str) -> HashMap<String, String> {
    let entries = text.split('\0').filter_map(|entry| entry.split_once('='));
    entries.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_taken_out_of_a_text() {
        let secrets = ["number-1", "with\"and\\", "test", ""];
        let text = r#"number-1, {"x":"with\"and\\"}, with"and\, test"#;
        assert_eq!(redact(text.to_owned(), secrets.into_iter()), r#"[redacted], {"x":"[redacted]"}, [redacted], test"#);
    }

    #[test]
    fn a_value_may_contain_anything_except_nul() {
        let found = parse("A=1\0B=x=y\nz\0C=\0");
        let value = |name: &str| found.get(name).map(String::as_str);
        assert_eq!([value("A"), value("B"), value("C")], [Some("1"), Some("x=y\nz"), Some("")]);
        assert_eq!(found.len(), 3);
    }
}
