//! Where a program of ken is.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The program of this name beside the running one, else on `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let exe = std::env::current_exe().ok();
    let beside = exe.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders
        .map(|folder| folder.join(name))
        .find(|path| is_runnable(path))
}

fn is_runnable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
}
