//! Files that decide what runs or what an agent is told: ordinary files of a bounded size that, where it matters, nobody
//! but root and this user can change.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ken_types::Error;

/// Reads a file of at most `most` bytes that belongs to root or to this user and that nobody else can change. `invalid`
/// says what is wrong with it, without its name; `too_large` for a longer one.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let file = open(path)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.uid() != 0 && about.uid() != nix::unistd::geteuid().as_raw() {
        let error = Error::invalid("", format!("belongs to user {}", about.uid()));
        return Err(error.hint(format!(
            "{} has to belong to you or to root: chown it",
            path.display()
        )));
    }
    if about.mode() & 0o022 != 0 {
        let error = Error::invalid(
            "",
            format!("others can change it (mode {:o})", about.mode() & 0o7777),
        );
        return Err(error.hint(format!("chmod go-w {}", path.display())));
    }
    bounded(file, most)
}

/// The same whoever can change it, for a file whose content is compared with one that was approved before.
pub fn read_any(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    bounded(open(path)?, most)
}

fn unreadable(error: std::io::Error) -> Error {
    Error::invalid("", format!("cannot be read: {error}"))
}

fn open(path: &Path) -> Result<File, Error> {
    // A FIFO must not make the reader wait.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(nix::libc::O_NONBLOCK);
    options.open(path).map_err(unreadable)
}

fn bounded(file: File, most: u64) -> Result<Vec<u8>, Error> {
    let about = file.metadata().map_err(unreadable)?;
    if !about.is_file() {
        return Err(Error::invalid("", "not an ordinary file"));
    }
    let too_large = |size| Error::too_large(format!("has {size} bytes, at most {most} are allowed"));
    if about.len() > most {
        return Err(too_large(about.len()));
    }
    let mut bytes = Vec::new();
    // It may have grown meanwhile.
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > most {
        true => Err(too_large(bytes.len() as u64)),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_others_can_change_is_refused_unless_its_content_is_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        assert_eq!(read(&path, 4), Ok(b"text".to_vec()));
        let error = read(&path, 3).unwrap_err();
        assert_eq!(error.message, "has 4 bytes, at most 3 are allowed");
        mode(0o664);
        let error = read(&path, 4).unwrap_err();
        assert_eq!(error.message, "others can change it (mode 664)");
        assert_eq!(read_any(&path, 4), Ok(b"text".to_vec()));
    }

    #[test]
    fn a_fifo_or_a_folder_is_no_file_and_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&fifo, folder.path()] {
            assert_eq!(read(path, 9).unwrap_err().message, "not an ordinary file");
        }
        assert!(
            read(&folder.path().join("none"), 9)
                .unwrap_err()
                .message
                .starts_with("cannot be read")
        );
    }
}
