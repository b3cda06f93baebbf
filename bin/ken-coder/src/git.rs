//! `ken-coder status`, `changes` and `log`: what git says about a repository.

use std::fmt;

use ken_tool::{Answer, Error};
use serde::{Deserialize, Serialize};

use crate::call::Operation;
use crate::confine::{Access, run_confined};
use crate::preview::Preview;
use crate::rel_path::RelPath;
use crate::repository::{GitCall, Output, Repository};
use crate::settings::Settings;
use crate::walk::{Ignored, place_of, walk};

const COMMITS: usize = 20;
const MAX_COMMITS: usize = 200;

/// The output of git.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Printed {
    repo: RelPath,
    text: String,
    /// The length of the whole output, in bytes.
    bytes: u64,
}

impl Printed {
    pub(crate) fn of_text(repo: &RelPath, text: String) -> Printed {
        Printed { repo: repo.clone(), bytes: text.len() as u64, text }
    }
}

impl Answer for Printed {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(to, "{}", self.text.trim_end())
    }
}

/// Refuses a name that git would interpret as an option or as something other than a name. What it does not allow in a name,
/// and characters that a person does not see, are refused too.
pub(crate) fn check_name(at: &str, name: &str) -> Result<(), Error> {
    let plain = |letter: char| letter.is_alphanumeric() || letter.is_ascii_graphic() && !":?*[\\".contains(letter);
    if !name.is_empty() && !name.starts_with('-') && name.len() <= 200 && name.chars().all(plain) {
        return Ok(());
    }
    Err(Error::invalid(at, format!("{name:?} is not the name of a branch, commit or remote")))
}

/// Fails if git would wait for a writer when it reads one of its own files in the work tree.
pub(crate) fn check_special_files(settings: &Settings, repository: &Repository<'_>) -> Result<(), Error> {
    const NAMES: [&str; 3] = [".gitignore", ".gitattributes", ".gitmodules"];
    run_confined(settings, Access::Read, || {
        let walk = walk(settings, &repository.work, Some(Ignored::on_disk(settings)?));
        let is_special = |entry: &ignore::DirEntry| {
            let kind = entry.file_type().is_some_and(|kind| !kind.is_file() && !kind.is_symlink() && !kind.is_dir());
            kind && NAMES.iter().any(|name| entry.file_name() == *name)
        };
        let Some(found) = walk.build().flatten().find(is_special) else {
            return Ok(());
        };
        let place = place_of(settings, found.path()).unwrap_or_default();
        Err(Error::conflict(format!("{place} is not a regular file, and git would wait for it")).at("/repo"))
    })
}

/// Implements a command that prints something and changes nothing.
macro_rules! read_only_command {
    ($type:ty, $command:literal, $action:literal, $about:literal, $fields:literal) => {
        impl Operation for $type {
            const NAME: &'static str = concat!("ken-coder ", $command);
            const ABOUT: &'static str = $about;
            const FIELDS: &'static str = $fields;
            type Answer = Printed;

            fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
                Ok(Preview::of_read(settings, $action, &self.repo))
            }

            fn run(&self, settings: &Settings) -> Result<Printed, Error> {
                let repository = Repository::open(settings, &self.repo)?;
                let words = self.words(&repository)?;
                check_special_files(settings, &repository)?;
                let Output { text, bytes, .. } = repository.read(&GitCall { words, ..GitCall::default() })?;
                Ok(Printed { repo: self.repo.clone(), text, bytes })
            }
        }
    };
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    repo: RelPath,
}

read_only_command!(
    Status,
    "status",
    "git.status",
    "Show the state of a git repository",
    "Fields: repo (such as repos/site)."
);

impl Status {
    fn words(&self, _: &Repository<'_>) -> Result<Vec<String>, Error> {
        Ok(GitCall::new(&["status", "--porcelain=v1", "--branch", "--untracked-files=all"]).words)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    repo: RelPath,
    #[serde(default)]
    staged: bool,
    base: Option<String>,
    #[serde(default)]
    paths: Vec<RelPath>,
}

read_only_command!(
    Changes,
    "changes",
    "git.diff",
    "Show what differs in a git repository",
    "Fields: repo, staged (true: what is staged), base (a commit to compare with), paths."
);

impl Changes {
    fn words(&self, repository: &Repository<'_>) -> Result<Vec<String>, Error> {
        let mut words = GitCall::new(&["diff", "--no-color", "--no-ext-diff", "--no-textconv"]).words;
        if self.staged {
            words.push("--cached".to_owned());
        }
        if let Some(base) = &self.base {
            check_name("/base", base)?;
            words.push(base.clone());
        }
        words.push("--".to_owned());
        words.extend(self.paths.iter().map(|path| repository.relative(&self.repo, path)));
        Ok(words)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    repo: RelPath,
    commits: Option<usize>,
    from: Option<String>,
    #[serde(default)]
    paths: Vec<RelPath>,
}

read_only_command!(
    Log,
    "log",
    "git.log",
    "Show the history of a git repository",
    "Fields: repo, commits (how many; default 20), from (a branch or commit), paths."
);

impl Log {
    fn count(&self) -> usize {
        self.commits.unwrap_or(COMMITS).clamp(1, MAX_COMMITS)
    }

    fn words(&self, repository: &Repository<'_>) -> Result<Vec<String>, Error> {
        let max = self.count();
        let format = "--format=%h %ad %an: %s";
        let mut words = GitCall::new(&["log", "--no-color", "--no-show-signature", "--date=iso-strict", format]).words;
        words.push(format!("--max-count={max}"));
        if let Some(from) = &self.from {
            check_name("/from", from)?;
            words.push(from.clone());
        }
        words.push("--".to_owned());
        words.extend(self.paths.iter().map(|path| repository.relative(&self.repo, path)));
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_option_and_nothing_else() {
        let [longest, longer] = [200, 201].map(|length| "a".repeat(length));
        for (name, is) in [
            ("main", true),
            ("feature/x-1_2", true),
            ("HEAD~3^2", true),
            ("stash@{1}", true),
            (&longest, true),
            (&longer, false),
            ("", false),
            ("-x", false),
            ("--output=x", false),
            ("a b", false),
            ("a:b", false),
            ("ext::sh", false),
            ("fix/#12+x", true),
            ("ä", true),
            ("a\u{202e}b", false),
            ("a\nb", false),
            ("a*", false),
            ("a?", false),
            ("a[b", false),
            ("a\\b", false),
        ] {
            assert_eq!(check_name("/x", name).is_ok(), is, "{name}");
        }
    }

    #[test]
    fn a_log_has_between_one_and_so_many_commits() {
        let log = |commits| Log { repo: RelPath::default(), commits, from: None, paths: Vec::new() };
        for (commits, count) in [
            (None, COMMITS),
            (Some(0), 1),
            (Some(1), 1),
            (Some(MAX_COMMITS), MAX_COMMITS),
            (Some(MAX_COMMITS + 1), MAX_COMMITS),
        ] {
            assert_eq!(log(commits).count(), count, "{commits:?}");
        }
    }
}
