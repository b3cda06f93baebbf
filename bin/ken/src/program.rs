//! Programs of ken: beside this one first, then on PATH.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

pub(crate) fn find(name: &OsStr) -> Option<PathBuf> {
    let exe = std::env::current_exe().ok();
    let beside = exe.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    let runnable = |path: &PathBuf| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
    folders.map(|folder| folder.join(name)).find(runnable)
}
