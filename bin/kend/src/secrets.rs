//! Reads `secrets.env`, a file of `NAME=value` lines that no other user can read, and `client.secret`.

use std::collections::BTreeMap;
use std::path::Path;

use ken_trusted::Others;
use ken_types::secrets;

use crate::files;
use crate::problem::Problem;

pub(crate) type Secrets = BTreeMap<String, String>;

/// Reads the file if it exists. The text of a problem never contains a value.
pub(crate) fn read(path: &Path) -> Result<Secrets, Vec<Problem>> {
    match files::read(path, Others::Nothing) {
        Ok(text) => parse(path, text.as_deref().unwrap_or_default()),
        Err(problem) => Err(vec![problem]),
    }
}

/// Adds the secret of the gateway from `client.secret`, unless `secrets.env` has one. It is in a file of its own where a group
/// of users may read it, and not the other secrets.
pub(crate) fn with_client_secret(mut secrets: Secrets, path: &Path) -> Result<Secrets, Problem> {
    let text = files::read(path, Others::GroupMayRead)?.unwrap_or_default();
    if !text.trim().is_empty() {
        secrets.entry("API_SECRET".to_owned()).or_insert_with(|| text.trim().to_owned());
    }
    Ok(secrets)
}

fn parse(path: &Path, text: &str) -> Result<Secrets, Vec<Problem>> {
    let (settings, wrong): (Vec<_>, Vec<_>) = secrets::parse(text).partition(Result::is_ok);
    if wrong.is_empty() {
        let settings = settings.into_iter().flatten();
        return Ok(settings.map(|one| (one.name.to_owned(), one.value.to_owned())).collect());
    }
    let problem = |line| Problem { line: Some(line), ..Problem::whole(path, "not of the form NAME=value") };
    Err(wrong.into_iter().filter_map(Result::err).map(problem).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named_and_not_shown() {
        let problems = parse(Path::new("f"), "A=1\nsecret-value\n2X=3").unwrap_err();
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["f:2: not of the form NAME=value", "f:3: not of the form NAME=value"]);
    }
}
