//! The programs that ken's own git consists of.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
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
        let loader =
            ken_walls::part::loader(&git).map_err(|error| Error::unavailable(format!("{}: {error}", git.display())))?;
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
