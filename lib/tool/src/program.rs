//! Finds the programs of ken.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

/// Looks for an executable beside the running program, then on `PATH`; a path with a slash is taken as it is.
pub fn find_program(program: impl AsRef<Path>) -> Option<PathBuf> {
    let program = program.as_ref();
    if program.components().count() > 1 {
        return is_runnable(program).then(|| program.to_owned());
    }
    let exe = std::env::current_exe().ok();
    let beside = exe.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(program)).find(|path| is_runnable(path))
}

/// Returns the socket of a part of the system that this program belongs to. `None` if neither `KEN_RUN_DIR` nor `KEN_HOME`
/// names that system.
pub fn part_socket(part: &str) -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let run = set("KEN_RUN_DIR").or_else(|| Some(set("KEN_HOME")?.join("run")))?;
    Some(run.join(format!("{part}.sock")))
}

fn is_runnable(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}
