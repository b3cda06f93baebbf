//! `secrets.env`: lines `NAME=value`, in a file that nobody else can read.

use std::collections::BTreeMap;
use std::path::Path;

use crate::files::{self, Others};
use crate::problem::Problem;

pub(crate) type Secrets = BTreeMap<String, String>;

/// Reads the file if there is one. A problem never shows a value.
pub(crate) fn read(path: &Path) -> Result<Secrets, Vec<Problem>> {
    match files::read(path, Others::Nothing) {
        Ok(text) => parse(path, text.as_deref().unwrap_or_default()),
        Err(problem) => Err(vec![problem]),
    }
}

fn parse(path: &Path, text: &str) -> Result<Secrets, Vec<Problem>> {
    let mut secrets = Secrets::new();
    let mut problems = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some((name, value)) if is_name(name.trim()) && !value.contains('\0') => {
                secrets.insert(name.trim().to_owned(), unquote(value.trim()).to_owned());
            }
            _ => problems.push(Problem::at_line(path, index + 1, "not of the form NAME=value")),
        }
    }
    if problems.is_empty() {
        Ok(secrets)
    } else {
        Err(problems)
    }
}

/// Whether every shell takes this for the name of a variable.
pub(crate) fn is_name(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(word) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

fn unquote(value: &str) -> &str {
    let inside = |quote| value.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_values_quotes_and_comments() {
        let secrets = parse(Path::new("f"), "# c\nA=1\n B = \"x y\" \nC='='\nD=\n\n").unwrap();
        let pairs: Vec<_> = secrets.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(pairs, [("A", "1"), ("B", "x y"), ("C", "="), ("D", "")]);
    }

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        let problems = parse(Path::new("f"), "A=1\nsecret-value\n2X=3").unwrap_err();
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "f:2: not of the form NAME=value",
                "f:3: not of the form NAME=value"
            ]
        );
    }
}
