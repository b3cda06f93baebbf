//! The data files of the installation that the running program belongs to, and those of its user.

use std::path::{Path, PathBuf};

/// The folders of data files that exist, as canonical paths: `share/ken` beside the folder of this program in an installation,
/// `share` in the checkout that it was built in.
pub fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    beside
        .into_iter()
        .flat_map(|folder| ["../share/ken", "../../share"].map(|share| folder.join(share)))
        .filter_map(|share| share.canonicalize().ok())
        .collect()
}

/// `name` in the user's configuration folder: `$KEN_HOME`, else `$XDG_CONFIG_HOME/ken`, else `~/.config/ken`. `None` without
/// any of these variables.
pub fn of_user(name: &str) -> Option<PathBuf> {
    let set = |variable| {
        let value = std::env::var_os(variable).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let config = || set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let folder = set("KEN_HOME").or_else(|| Some(config()?.join("ken")))?;
    Some(folder.join(name))
}

/// `name` below each of [`folders`] that has it.
pub fn find(name: &str) -> impl Iterator<Item = PathBuf> {
    folders().into_iter().filter_map(move |folder| folder.join(name).canonicalize().ok())
}
