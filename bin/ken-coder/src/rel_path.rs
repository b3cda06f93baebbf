//! A path below the workspace, in the form in which a call can name it.

use std::fmt;
use std::path::Path;

use ken_types::Error;
use serde::{Deserialize, Serialize};

/// The maximum length of a path, in bytes. The kernel allows longer ones, but calls do not need them.
const MAX_PATH_BYTES: usize = 1024;
/// The maximum length of a file name, in bytes (NAME_MAX of <limits.h>).
const MAX_NAME_BYTES: usize = 255;
/// The folders of the workspace whose files can be changed.
pub(crate) const FOLDERS: [&str; 2] = ["repos", "projects"];

/// A relative path without `.` and `..`. The empty path is the workspace itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RelPath(String);

impl RelPath {
    /// Parses a path; the error says what is wrong with the text.
    pub(crate) fn parse(text: &str) -> Result<RelPath, String> {
        let quoted = || format!("{:?}", shortened(text, 60));
        if text.len() > MAX_PATH_BYTES {
            return Err(format!("{} has {} bytes, a path may have {MAX_PATH_BYTES}", quoted(), text.len()));
        }
        if let Some(bad) = text.chars().find(|letter| letter.is_control()) {
            return Err(format!("{} holds the control character {bad:?}", quoted()));
        }
        if text.starts_with('/') {
            return Err(format!("{} is absolute; paths are relative to the workspace", quoted()));
        }
        let mut names = Vec::new();
        for name in text.split('/') {
            match name {
                "" | "." => {}
                ".." => return Err(format!("{} holds `..`", quoted())),
                name if name.len() > MAX_NAME_BYTES => {
                    return Err(format!(
                        "{} holds a name of {} bytes, {MAX_NAME_BYTES} are allowed",
                        quoted(),
                        name.len()
                    ));
                }
                name => names.push(name),
            }
        }
        Ok(RelPath(names.join("/")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path for a system call: `.` if it is empty.
    pub(crate) fn or_dot(&self) -> &str {
        if self.0.is_empty() { "." } else { &self.0 }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// Returns the parent folder and the last name, or `None` for the workspace itself.
    pub(crate) fn split(&self) -> Option<(RelPath, &str)> {
        match self.0.rsplit_once('/') {
            _ if self.0.is_empty() => None,
            Some((folder, name)) => Some((RelPath(folder.to_owned()), name)),
            None => Some((RelPath::default(), &self.0)),
        }
    }

    /// Returns the parent folder. That of the workspace is the workspace itself.
    pub(crate) fn around(&self) -> RelPath {
        self.split().map(|(folder, _)| folder).unwrap_or_default()
    }

    /// Returns the folders around it without the workspace itself, the innermost first.
    pub(crate) fn folders(&self) -> impl Iterator<Item = RelPath> {
        let around = |place: &RelPath| Some(place.split()?.0).filter(|folder| !folder.0.is_empty());
        std::iter::successors(around(self), around)
    }

    /// Returns the name of the file or folder; empty for the workspace itself.
    pub(crate) fn name(&self) -> &str {
        self.split().map_or("", |(_, name)| name)
    }

    pub(crate) fn join(&self, name: &str) -> RelPath {
        match self.0.as_str() {
            "" => RelPath(name.to_owned()),
            folder => RelPath(format!("{folder}/{name}")),
        }
    }

    /// Returns the place of a path that is relative to this one.
    pub(crate) fn joined(&self, path: &RelPath) -> RelPath {
        path.names().fold(self.clone(), |folder, name| folder.join(name))
    }

    /// Returns the place to which a path in a file or in a command leads, seen from this folder, or `None` if it is not below `root`. Links
    /// are not followed, so the kernel still has to resolve the place.
    pub(crate) fn led(&self, root: &Path, path: &str) -> Option<RelPath> {
        let (mut names, path) = match Path::new(path).strip_prefix(root) {
            Ok(below) => (Vec::new(), below.to_str()?),
            Err(_) if path.starts_with('/') => return None,
            Err(_) => (self.names().collect(), path),
        };
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()?),
                name => names.push(name),
            }
        }
        RelPath::parse(&names.join("/")).ok()
    }

    /// Like [`RelPath::led`], for a place that is going to be used. Returns `None` also for an absolute path with `..` in it.
    pub(crate) fn led_unambiguously(&self, root: &Path, path: &str) -> Option<RelPath> {
        if RelPath::is_ambiguous(path) { None } else { self.led(root, path) }
    }

    /// Whether an absolute path has `..` in it. It could lead elsewhere than it seems to, because a name before may be a link.
    fn is_ambiguous(path: &str) -> bool {
        path.starts_with('/') && path.split('/').any(|name| name == "..")
    }

    /// Whether it is `folder` itself or below it.
    pub(crate) fn is_in(&self, folder: &RelPath) -> bool {
        let rest = self.0.strip_prefix(folder.as_str());
        folder.0.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Which folders below the root are repositories or projects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    /// Those in the folders of [`FOLDERS`].
    #[default]
    Workspace,
    /// The root itself, and no other: it is a folder that a person trusts.
    Folder,
}

impl Layout {
    pub(crate) fn is_workspace(&self) -> bool {
        *self == Layout::Workspace
    }

    /// Returns the repository or project that contains a place, such as `repos/site`.
    pub(crate) fn project(self, place: &RelPath) -> Option<RelPath> {
        if self == Layout::Folder {
            return Some(RelPath::default());
        }
        let mut names = place.names();
        let folder = names.next().filter(|name| FOLDERS.contains(name))?;
        Some(RelPath(format!("{folder}/{}", names.next()?)))
    }

    /// Returns the folders that a command started in `cwd` can change: its repository or project, or else all of them.
    pub(crate) fn scope(self, cwd: &RelPath) -> Vec<RelPath> {
        match self.project(cwd) {
            Some(project) => vec![project],
            None => FOLDERS.map(|folder| RelPath::default().join(folder)).into(),
        }
    }

    /// Fails for paths that no call can change: files outside repositories and projects, and git's own files.
    pub(crate) fn check_changeable(self, place: &RelPath) -> Result<(), Error> {
        let at = |message: String| Err(Error::forbidden(message).at("/path"));
        if self.project(place).is_none_or(|project| project == *place) {
            return at(match self {
                Layout::Workspace => format!(
                    "{place}: only files of a repository (repos/NAME/…) or project (projects/NAME/…) can be changed"
                ),
                Layout::Folder => format!("{place} is a folder; name a file in it"),
            });
        }
        if place.names().any(|name| name.eq_ignore_ascii_case(".git")) {
            return at(format!("{place}: git's own files are changed by git only"));
        }
        Ok(())
    }
}

/// Returns the first `max` characters of a text, and `…` if there are more.
pub(crate) fn shortened(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

impl TryFrom<String> for RelPath {
    type Error = String;

    fn try_from(text: String) -> Result<RelPath, String> {
        RelPath::parse(&text)
    }
}

impl From<RelPath> for String {
    fn from(place: RelPath) -> String {
        place.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "the workspace" } else { &self.0 })
    }
}

/// The characters between which a word of a command line, or a text for a shell, can name a file.
const SEPARATORS: &[char] = &[';', '|', '&', '<', '>', '(', ')', '{', '}', '"', '\'', '`', '=', ',', '$'];

/// Returns what a word of a command line, or a text for a shell, could name: its parts, and at last the whole.
pub(crate) fn pieces(word: &str) -> Vec<&str> {
    let parts = word.split(|letter: char| letter.is_whitespace() || SEPARATORS.contains(&letter));
    // An option can have its value attached: `-fMakefile`.
    let parts = parts.flat_map(|part| [Some(part), part.strip_prefix('-').and_then(|rest| rest.get(1..))]);
    parts.flatten().chain([word]).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Layout, RelPath};

    #[test]
    fn a_place_is_a_plain_relative_path() {
        let read = |text: &str| RelPath::parse(text).map(String::from);
        assert_eq!(read("repos//site/./a.txt"), Ok("repos/site/a.txt".to_owned()));
        assert_eq!(read("."), Ok(String::new()));
        for wrong in ["/etc/passwd", "repos/../x", "..", "a\0b", "a\nb"] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
        let (name, path) = ("x".repeat(255), "x/".repeat(512));
        assert!(read(&name).is_ok() && read(&format!("a/{name}x")).is_err());
        assert!(read(&path).is_ok() && read(&format!("{path}x")).is_err());
    }

    #[test]
    fn dots_are_resolved_below_the_root_and_are_ambiguous_in_an_absolute_path() {
        let from = RelPath::parse("repos/site").unwrap();
        let led = |path: &str| from.led(std::path::Path::new("/work"), path).map(String::from);
        for (path, place, is_ambiguous) in [
            ("../lib/./a", Some("repos/lib/a"), false),
            ("../../../a", None, false),
            ("/work/repos/lib", Some("repos/lib"), false),
            ("/work/repos/site/../lib", Some("repos/lib"), true),
            ("/work/../etc", None, true),
            ("/etc/passwd", None, false),
        ] {
            assert_eq!(led(path).as_deref(), place, "{path}");
            assert_eq!(RelPath::is_ambiguous(path), is_ambiguous, "{path}");
        }
    }

    #[test]
    fn a_project_is_a_folder_in_one_of_the_two() {
        let place = |text| RelPath::parse(text).unwrap();
        let project = |text| Layout::Workspace.project(&place(text)).map(String::from);
        assert_eq!(project("repos/site/src/a"), Some("repos/site".to_owned()));
        assert_eq!(project("repos"), None);
        assert_eq!(project("other/site/a"), None);
        assert!(place("repos/site/a").is_in(&place("repos/site")));
        assert!(!place("repos/sites").is_in(&place("repos/site")));
        let is_changeable = |layout: Layout, text| layout.check_changeable(&place(text)).is_ok();
        for (text, workspace, folder) in [
            ("repos/site/.git/config", false, false),
            (".Git/config", false, false),
            ("AGENTS.md", false, true),
            ("repos/site", false, true),
            ("projects/x/a", true, true),
            ("", false, false),
        ] {
            assert_eq!(is_changeable(Layout::Workspace, text), workspace, "{text}");
            assert_eq!(is_changeable(Layout::Folder, text), folder, "{text}");
        }
    }
}
