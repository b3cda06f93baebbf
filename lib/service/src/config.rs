//! Reads the configuration file. `kend` has checked it before it starts a daemon; nobody has before a command of a person.

use std::io;
use std::path::Path;

use ken_types::Error;
use ken_types::config::Config;

/// Reads `ken.toml`. Every key has a default, so a missing file gives the default configuration. Fails with `invalid`, with the file
/// and the line in `at`.
pub fn load(path: &Path) -> Result<Config, Error> {
    let place = path.display();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => {
            let message = format!("the configuration cannot be read: {error}");
            return Err(Error::invalid(place.to_string(), message));
        }
    };
    toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = 1 + before.unwrap_or_default().matches('\n').count();
        Error::invalid(format!("{place}:{line}"), error.message().to_owned()).hint("`kend --check` reports all errors")
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
