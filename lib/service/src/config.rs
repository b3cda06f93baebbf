//! Reads the configuration: that which `kend` passes to a daemon, or the file for a command of a person.

use std::io;
use std::path::Path;

use ken_types::Error;
use ken_types::config::Config;

use crate::descriptor;

const VARIABLE: &str = "KEN_CONFIG_FD";
/// The maximum size of the memory file. kend reads less than this of a file.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// Reads the configuration that kend has in force. The file can have changed since, and be wrong: a daemon that read it would not
/// start again, or would use settings that nobody has loaded. A daemon that is started by hand reads the file.
pub(crate) fn in_force(path: &Path) -> Result<Config, Error> {
    match descriptor::text(VARIABLE, MAX_FILE_BYTES)? {
        Some(text) => parse(path, &text),
        None => load(path),
    }
}

/// Reads `ken.toml`. Every key has a default, so a missing file gives the default configuration. Fails with `invalid`, with the file
/// and the line in `at`.
pub fn load(path: &Path) -> Result<Config, Error> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => {
            let message = format!("the configuration cannot be read: {error}");
            return Err(Error::invalid(path.display().to_string(), message));
        }
    };
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Config, Error> {
    toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = 1 + before.unwrap_or_default().matches('\n').count();
        Error::invalid(format!("{}:{line}", path.display()), error.message().to_owned())
            .hint("`kend --check` reports all errors")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_defaults_apply_and_errors_name_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ken.toml");
        assert_eq!(load(&path).unwrap(), Config::default());
        std::fs::write(&path, "# a comment\n[gateway]\nprot = 1\n").unwrap();
        let error = load(&path).unwrap_err();
        assert_eq!(error.at, Some(format!("{}:3", path.display())));
        assert!(error.message.contains("prot"), "{error}");
    }
}
