//! The programs that ken's own git consists of.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ken_tool::Error;

use crate::settings::Settings;

/// git, and the loader that starts it.
#[derive(Debug)]
pub(crate) struct GitPrograms {
    pub(crate) git: PathBuf,
    loader: Option<PathBuf>,
}

impl GitPrograms {
    /// Finds git in PATH. A folder of the workspace does not count, because a command could have put a program there.
    pub(crate) fn find(settings: &Settings) -> Result<GitPrograms, Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        let programs = folders.filter_map(|folder| folder.join("git").canonicalize().ok());
        let git = programs.into_iter().find(|git| git.is_file() && !git.starts_with(&settings.root));
        let git = git.ok_or_else(|| Error::unavailable("the program git is not installed"))?;
        let loader = loader(&git).map_err(|error| Error::unavailable(format!("{}: {error}", git.display())))?;
        Ok(GitPrograms { git, loader })
    }

    /// Returns the files that git needs to execute for everything but the network.
    pub(crate) fn alone(&self) -> Vec<PathBuf> {
        std::iter::once(&self.git).chain(&self.loader).cloned().collect()
    }

    /// Returns the files and folders that git needs to execute to reach a server.
    pub(crate) fn with_helpers(&self) -> Result<Vec<PathBuf>, Error> {
        let output =
            Command::new(&self.git).arg("--exec-path").env_clear().current_dir("/").stdin(Stdio::null()).output();
        let output = output.map_err(|error| Error::unavailable(format!("{}: {error}", self.git.display())))?;
        let folder = PathBuf::from(OsStr::from_bytes(output.stdout.trim_ascii()));
        let mut programs = self.alone();
        programs.push(folder);
        Ok(programs)
    }
}

/// Returns the loader that a program names (PT_INTERP of elf(5)), which the kernel executes with it. A program without one
/// is linked statically.
fn loader(program: &Path) -> std::io::Result<Option<PathBuf>> {
    const INTERPRETER: u64 = 3;
    let mut file = File::open(program)?;
    let header = bytes::<64>(&mut file, 0)?;
    if !header.starts_with(b"\x7fELF\x02") {
        return Err(std::io::Error::other("this is not a 64-bit ELF program, so its loader is unknown"));
    }
    let (table, size, count) = (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2));
    for entry in 0..count {
        let entry = bytes::<56>(&mut file, table.saturating_add(entry * size))?;
        if number(&entry, 0, 4) == INTERPRETER {
            let mut path = Vec::new();
            file.seek(SeekFrom::Start(number(&entry, 8, 8)))?;
            file.take(number(&entry, 32, 8).min(4096)).read_to_end(&mut path)?;
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            path.truncate(end);
            return Ok(Some(PathBuf::from(OsStr::from_bytes(&path))));
        }
    }
    Ok(None)
}

fn bytes<const N: usize>(file: &mut File, at: u64) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Returns a number of the machine's own byte order.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let part = bytes.get(at..at + size).unwrap_or_default();
    let is_little = cfg!(target_endian = "little");
    let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    if is_little { part.iter().rev().fold(0, digit) } else { part.iter().fold(0, digit) }
}
