//! secrets.env as its owner has written it. Only the line of a name that is set changes.

use std::path::{Path, PathBuf};

use ken_trusted::Owner;
use ken_types::places::Places;
use ken_types::{Error, secrets};

use crate::input::stdin_text;

/// The maximum size of a key, in bytes. Tokens of some providers have a few thousand.
const MAX_KEY_BYTES: usize = 16 * 1024;

pub(crate) struct SecretFile {
    path: PathBuf,
    text: String,
    is_changed: bool,
    /// The user who has to read it, if root keeps it for the system of another user.
    owner: Option<Owner>,
}

impl SecretFile {
    /// Reads the file. One that does not exist is empty. Fails if others can read it, and for a symbolic link: a key would be written
    /// where nobody looks for one.
    pub(crate) fn open(places: &Places) -> Result<SecretFile, Error> {
        SecretFile::open_for(&places.secrets(), Owner::other(&places.state))
    }

    fn open_for(path: &Path, owner: Option<Owner>) -> Result<SecretFile, Error> {
        if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
            let error =
                Error::invalid(path.display().to_string(), "is a symbolic link, and no key is written through one");
            return Err(error.hint("put a regular file with mode 0600 in its place, or remove it"));
        }
        let text = ken_trusted::secrets_of(path, owner.as_ref())?;
        Ok(SecretFile { path: path.to_owned(), text, is_changed: false, owner })
    }

    /// Returns the value of a name. An empty one counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        secrets::find(&self.text, name).filter(|value| !value.is_empty())
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        if self.get(name) == Some(value) {
            return;
        }
        let is_own = |line: &str| secrets::parse(line).flatten().any(|setting| setting.name == name);
        let line = format!("{name}={value}");
        let mut lines: Vec<&str> = self.text.lines().collect();
        // If several lines set it, the last one applies.
        match lines.iter_mut().rev().find(|line| is_own(line)) {
            Some(old) => *old = &line,
            None => lines.push(&line),
        }
        self.text = lines.join("\n") + "\n";
        self.is_changed = true;
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Writes the file, if anything has changed. A new one has mode 0600.
    pub(crate) fn save(&self) -> Result<(), Error> {
        if !self.is_changed {
            return Ok(());
        }
        ken_trusted::rewrite(&self.path, self.text.as_bytes(), 0o600, self.owner.as_ref())
    }
}

pub(crate) fn piped_key() -> Result<String, Error> {
    checked_key(&stdin_text(MAX_KEY_BYTES as u64 + 1)?)
}

/// Checks a key that a person has typed or a program has sent. The error does not contain it.
pub(crate) fn checked_key(text: &str) -> Result<String, Error> {
    let key = text.trim();
    let why = match key {
        "" => "it is empty",
        key if key.len() > MAX_KEY_BYTES => "it is too long",
        key if key.chars().any(|letter| letter.is_control() || letter.is_whitespace()) => {
            "it has a blank, a line end or a control character in it"
        }
        key if key.starts_with(['"', '\'']) => "it begins with a quotation mark",
        _ => return Ok(key.to_owned()),
    };
    Err(Error::invalid("key", format!("this is no key: {why}")).hint("nothing was changed"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn only_the_line_of_the_name_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.env");
        let set = |name: &str, value: &str| {
            let mut file = SecretFile::open_for(&path, None).unwrap();
            file.set(name, value);
            file.save().unwrap();
            std::fs::read_to_string(&path).unwrap()
        };
        assert_eq!(set("A", "1"), "A=1\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "# mine\nA = 'x'\nB=2").unwrap();
        assert_eq!(set("A", "3"), "# mine\nA=3\nB=2\n");
        assert_eq!(set("C", "4"), "# mine\nA=3\nB=2\nC=4\n");
        std::fs::remove_file(&path).unwrap();
        symlink(dir.path().join("elsewhere"), &path).unwrap();
        let error = SecretFile::open_for(&path, None).err().unwrap();
        assert!(error.message.contains("symbolic link"), "{error}");
    }

    #[test]
    fn what_cannot_be_a_key_is_refused_without_being_shown() {
        assert_eq!(checked_key(" sk-1 \n").unwrap(), "sk-1");
        for text in ["", " \n", "sk-1 sk-2", "sk-1\nsk-2", "\"sk-1\"", "sk\u{1b}-1", &"x".repeat(MAX_KEY_BYTES + 1)] {
            let error = checked_key(text).unwrap_err();
            assert!(!error.to_string().contains("sk"), "{error}");
        }
    }
}
