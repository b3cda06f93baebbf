//! The data files that are installed with the running program, and the data files of its user.

use std::path::{Path, PathBuf};

/// Returns the existing folders of data files, as canonical paths: `share/ken` next to the folder of this program if it
/// is installed, and `share` in the checkout from which it was built.
pub fn folders() -> Vec<PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    beside
        .into_iter()
        .flat_map(|folder| ["../share/ken", "../../share"].map(|share| folder.join(share)))
        .filter_map(|share| share.canonicalize().ok())
        .collect()
}

/// Returns the path of `name` in the user's configuration folder: `$KEN_HOME`, else `$XDG_CONFIG_HOME/ken`, else
/// `~/.config/ken`. Returns `None` if none of these variables is set.
pub fn of_user(name: &str) -> Option<PathBuf> {
    let set = |variable| {
        let value = std::env::var_os(variable).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let config = || set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let folder = set("KEN_HOME").or_else(|| Some(config()?.join("ken")))?;
    Some(folder.join(name))
}

/// Returns the paths of `name` in those of the [`folders`] that contain it.
pub fn find(name: &str) -> impl Iterator<Item = PathBuf> {
    folders().into_iter().filter_map(move |folder| folder.join(name).canonicalize().ok())
}
