//! Small files that are replaced atomically: each is written to a temporary file, synced and renamed.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use ken_types::Error;

/// Creates a folder for these files, with mode 0700.
pub(crate) fn folder(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| failed(path, &error))
}

/// Reads a file that only its owner can read. Returns `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Error> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| failed(path, &error))?,
    };
    let mode = std::fs::metadata(path).map_err(|error| failed(path, &error))?.mode();
    if mode & 0o077 != 0 {
        let message = format!("{} is readable by others (mode {:o})", path.display(), mode & 0o777);
        return Err(Error::invalid(path.display().to_string(), message).hint("chmod 600 it"));
    }
    Ok(Some(text))
}

/// Creates or replaces a file with mode 0600. It is on disk when this returns; after an error the old file is unchanged.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    try_write(path, text).map_err(|error| failed(path, &error))
}

fn try_write(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&beside, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn written_read_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/keys.json");
        folder(path.parent().unwrap()).unwrap();
        assert_eq!(read(&path), Ok(None));
        write(&path, "a").unwrap();
        write(&path, "b").unwrap();
        assert_eq!(read(&path), Ok(Some("b".to_owned())));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(write(&dir.path().join("absent/x"), "").is_err());
    }

    #[test]
    fn files_that_others_can_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.json");
        write(&path, "[]").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(read(&path).unwrap_err().message.contains("640"));
    }
}
