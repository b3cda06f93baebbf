//! What a command will run and read, as far as it can be known beforehand: the program, the environment, the files that
//! the command line names, those that build tools read, and those that were changed without anybody seeing it. A
//! fingerprint covers all of it, so an approval of `make test` is one of this Makefile. Files that are read by those
//! files are not known; the lock of the journal keeps the agent from changing them while the command runs.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ken_types::Error;
use rustix::fs::{FileType, Stat};
use serde::Serialize;

use crate::rel_path::{RelPath, pieces};
use crate::settings::Settings;
use crate::tree::{Links, Tree, digest};
use crate::unseen;

/// Files in the folder of a command, and in folders that it names, that build tools and test runners execute or that
/// say what they execute.
pub(crate) const BUILD_FILES: [&str; 32] = [
    ".cargo/config.toml", ".envrc", ".gitattributes", ".npmrc", "BUILD", "CMakeLists.txt", "Cargo.toml", "Dockerfile",
    "GNUmakefile", "Justfile", "Makefile", "Rakefile", "Taskfile.yml", "build.gradle", "build.gradle.kts",
    "build.ninja", "build.rs", "conftest.py", "go.mod", "justfile", "makefile", "meson.build", "noxfile.py",
    "package.json", "pom.xml", "pyproject.toml", "pytest.ini", "rust-toolchain.toml", "setup.cfg", "setup.py",
    "test.sh", "tox.ini",
];
/// Files and folders from which editors, hosting services and git hooks run commands, but builds do not.
const TOOL_FILES: [&str; 3] = [".gitlab-ci.yml", ".pre-commit-config.yaml", "Jenkinsfile"];
const TOOL_FOLDERS: [&str; 6] = [".circleci", ".devcontainer", ".github", ".husky", ".idea", ".vscode"];
/// How many bytes of all files together are compared by their content. Of the files beyond, size, times and number are
/// compared, because a preview must not take long.
const CONTENT_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum number of folders in which build files are looked for.
const MAX_FOLDERS: usize = 64;

/// Whether build tools, editors or hosting services execute this file.
pub(crate) fn is_executed_by_tools(place: &RelPath) -> bool {
    let is_one =
        |name: &str| place.as_str().strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    let is_below = |name: &str| TOOL_FOLDERS.contains(&name) || name.ends_with(".sh");
    BUILD_FILES.iter().chain(&TOOL_FILES).any(|name| is_one(name)) || place.names().any(is_below)
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Inputs {
    program: String,
    /// A digest of the variables that the operator passes on, with their values.
    environment: String,
    /// The files that the command line names or that build tools read, each with its state.
    pub(crate) files: BTreeMap<RelPath, String>,
    /// The files of the same project that were changed without a decision of a person, each with its state.
    pub(crate) unseen: BTreeMap<RelPath, String>,
}

impl Inputs {
    pub(crate) fn of(settings: &Settings, tree: &Tree, cwd: &RelPath, argv: &[String]) -> Result<Inputs, Error> {
        let (mut files, mut left) = (BTreeMap::new(), CONTENT_BYTES);
        let mut state = |place: &RelPath| state(tree, place, &mut left);
        let mut folders = BTreeSet::from([cwd.clone()]);
        folders.extend(settings.layout.project(cwd));
        for place in named(settings, cwd, argv) {
            match tree.stat(&place, Links::Follow) {
                Ok(Some(stat)) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                    _ = folders.len() < MAX_FOLDERS && folders.insert(place);
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => {
                    files.insert(place.clone(), state(&place));
                }
            }
        }
        for place in folders.iter().flat_map(|folder| BUILD_FILES.map(|name| folder.join(name))) {
            if !matches!(tree.stat(&place, Links::Follow), Ok(None)) {
                files.insert(place.clone(), state(&place));
            }
        }
        let scope = settings.layout.project(cwd).unwrap_or_default();
        let unseen = unseen::read(settings).into_iter().filter(|place| place.is_in(&scope));
        let unseen = unseen.map(|place| (place.clone(), state(&place))).collect();
        Ok(Inputs { program: program(settings, cwd, argv), environment: environment(settings), files, unseen })
    }
}

/// Returns the places of the workspace that the words of a command line could name.
fn named(settings: &Settings, cwd: &RelPath, argv: &[String]) -> BTreeSet<RelPath> {
    let words: BTreeSet<&str> = argv.iter().flat_map(|word| pieces(word)).collect();
    words.iter().filter(|word| !word.is_empty()).filter_map(|word| cwd.led(&settings.root, word)).collect()
}

/// Returns a text that changes with the content of a file. `left` is how many bytes may still be read.
fn state(tree: &Tree, place: &RelPath, left: &mut u64) -> String {
    if let Ok(Some(node)) = tree.read(place, Links::Follow, *left) {
        *left -= node.bytes.len() as u64;
        return format!("{} {:o}", node.version.digest, node.version.mode);
    }
    // A file that this program does not read can still be read by the command.
    match tree.stat(place, Links::Follow) {
        Ok(Some(stat)) => stamp(&stat),
        Ok(None) => "absent".to_owned(),
        Err(error) => error.message,
    }
}

fn stamp(stat: &Stat) -> String {
    let Stat { st_ino, st_size, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec, st_mode, .. } = stat;
    format!("{st_ino} {st_size} {st_mtime}.{st_mtime_nsec} {st_ctime}.{st_ctime_nsec} {st_mode:o}")
}

/// Returns the program that the first word means, with its size and time. One that a path names and that lies in the workspace is among the
/// files, unless a link there leads out of it.
fn program(settings: &Settings, cwd: &RelPath, argv: &[String]) -> String {
    let Some(name) = argv.first() else {
        return String::new();
    };
    let found = if name.contains('/') {
        let path = settings.root.join(cwd.as_str()).join(name);
        if path.canonicalize().is_ok_and(|path| path.starts_with(&settings.root)) {
            return String::new();
        }
        installed(&path)
    } else {
        let set = settings.workspace.env.iter().find_map(|variable| variable.strip_prefix("PATH="));
        let path = set.map(OsStr::new).map(OsStr::to_owned).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        std::env::split_paths(&path).find_map(|folder| installed(&folder.join(name)))
    };
    found.unwrap_or_else(|| format!("{name} is not installed"))
}

fn installed(path: &Path) -> Option<String> {
    let about = std::fs::metadata(path).ok().filter(|about| about.is_file() && about.mode() & 0o111 != 0)?;
    Some(format!("{} {} {} {}.{}", path.display(), about.ino(), about.len(), about.mtime(), about.mtime_nsec()))
}

/// Returns a digest of the variables that commands get. Their values can be secrets, so only the digest is kept.
fn environment(settings: &Settings) -> String {
    let mut all = Vec::new();
    for variable in &settings.workspace.env {
        all.extend_from_slice(variable.as_bytes());
        all.push(0);
        if !variable.contains('=') {
            all.extend_from_slice(std::env::var_os(variable).unwrap_or_default().as_bytes());
        }
        all.push(0);
    }
    digest(&all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::BUILD_FILES;

    #[test]
    fn the_list_is_sorted() {
        assert!(BUILD_FILES.is_sorted());
    }
}
