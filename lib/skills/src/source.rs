//! The folders of skills and project rules, and reading everything in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ken_types::Error;
use ken_types::share;

use crate::files::MAX_DEPTH;
use crate::project::PROJECT_FILE;
use crate::{Accepted, Listing, Project, Skill, Stamp, UnreadableSkill};

/// The maximum number of skills in a folder. The list of more skills would not fit into a prompt.
const MAX_SKILLS: usize = 256;
pub(crate) const SKILL_FILE: &str = "SKILL.md";

/// The skills that ken ships, as copies in the program, parsed once.
static COPIES: LazyLock<Vec<Skill>> = LazyLock::new(|| {
    let copies = SHIPPED.iter().map(|(name, text)| Skill::new(name, (*text).to_owned(), None));
    copies.filter_map(Result::ok).collect()
});

const SHIPPED: [(&str, &str); 2] = [
    ("greeting", include_str!("../../../share/skills/greeting/SKILL.md")),
    ("research", include_str!("../../../share/skills/research/SKILL.md")),
];

/// The folders and files from which skills and project rules are read.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `skills` beside `ken.toml`, then `skills` of the installation.
    folders: Vec<PathBuf>,
    accepted: PathBuf,
    /// The folder of the workspace, where agents work that work in no trusted folder.
    pub workspace: PathBuf,
}

impl Sources {
    /// Returns the sources of a system. The installation is found by the location of the running
    /// program. `config` is the path of `ken.toml`.
    pub fn of(config: &Path, workspace: PathBuf) -> Sources {
        Sources {
            folders: std::iter::once(config.with_file_name("skills")).chain(share::find("skills")).collect(),
            accepted: config.with_file_name("accepted.json"),
            // The canonical path, because accepted rules are looked up by path.
            workspace: workspace.canonicalize().unwrap_or(workspace),
        }
    }

    /// Reads the accepted texts.
    pub fn accepted(&self) -> Result<Accepted, Error> {
        Accepted::read(&self.accepted)
    }

    /// Changes which texts are accepted, which puts them in force or takes them out of it. If the change fails, nothing is written.
    pub fn accept(&self, change: impl FnOnce(&mut Accepted) -> Result<(), Error>) -> Result<(), Error> {
        ken_trusted::locked(&self.accepted, || {
            let mut accepted = self.accepted()?;
            change(&mut accepted)?;
            accepted.write(&self.accepted)
        })
    }

    /// Reads all skills.
    pub fn skills(&self, accepted: &Accepted) -> Listing {
        let mut broken = Vec::new();
        let shipped = COPIES.as_slice();
        let mut skills = Vec::new();
        for file in self.folders.iter().flat_map(|folder| files(folder)) {
            match Skill::read_or_copy(&file, shipped) {
                Ok(skill) => skills.push(skill),
                Err(error) => broken.push(UnreadableSkill { file, error }),
            }
        }
        // If a file with the unchanged shipped text exists, it replaces the copy in the program.
        let there: BTreeSet<String> = skills.iter().map(|skill| skill.sha256.clone()).collect();
        let missing = shipped.iter().filter(|copy| !there.contains(&copy.sha256));
        let mut skills: Vec<Skill> = skills.into_iter().chain(missing.cloned()).collect();
        // The sort is stable, so the user's own skill stays before others with the same name.
        skills.sort_by(|one, other| one.name.cmp(&other.name));
        let judged = skills.into_iter().map(|skill| skill.with_state(shipped, accepted));
        Listing { skills: judged.collect(), broken }
    }

    /// Reads the rules of the project in a trusted folder, or else in the workspace. Returns `None` if there are none.
    pub fn project(&self, folder: Option<&Path>, accepted: &Accepted) -> Result<Option<Project>, Error> {
        Project::of(folder.unwrap_or(&self.workspace), accepted)
    }

    /// Looks at all files from which [`Sources::accepted`], [`Sources::skills`] and [`Sources::project`] without a folder read.
    pub fn stamp(&self) -> Option<Stamp> {
        let project = self.workspace.join(PROJECT_FILE);
        let files = [self.accepted.as_path(), project.as_path()];
        Stamp::of(self.folders.iter().map(PathBuf::as_path).chain(files), 1 + MAX_DEPTH)
    }

    /// Reads the rules that were accepted for folders below a trusted folder, or else below the workspace.
    pub fn projects_below(&self, folder: Option<&Path>, accepted: &Accepted) -> Vec<Project> {
        let root = folder.unwrap_or(&self.workspace);
        let folders = accepted.projects.keys().filter_map(|file| Path::new(file).parent());
        let below = folders.filter(|folder| folder.starts_with(root) && *folder != root);
        below.filter_map(|folder| Project::of(folder, accepted).ok().flatten()).collect()
    }
}

/// Returns the files `NAME/SKILL.md` of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = folders.map(|entry| entry.path().join(SKILL_FILE));
    let mut files: Vec<PathBuf> = files.filter(|file| fs::metadata(file).is_ok()).collect();
    files.sort();
    files.truncate(MAX_SKILLS);
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;

    fn sources(folder: &Path) -> Sources {
        Sources {
            folders: vec![folder.join("own"), folder.join("shipped")],
            accepted: folder.join("accepted.json"),
            workspace: folder.to_owned(),
        }
    }

    fn put(folder: &Path, name: &str, text: &str) {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(SKILL_FILE), text).unwrap();
    }

    #[test]
    fn the_copies_are_in_force_until_a_changed_file_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let names = |listing: &Listing| {
            let names = listing.in_force().map(|skill| skill.name.clone());
            names.collect::<Vec<_>>()
        };
        let listing = sources.skills(&Accepted::default());
        assert_eq!((names(&listing), listing.broken.len()), (vec!["greeting".to_owned(), "research".to_owned()], 0));
        let changed = SHIPPED[0].1.replace("two or three", "forty");
        put(&folder.path().join("shipped"), "greeting", &changed);
        put(&folder.path().join("shipped"), "research", SHIPPED[1].1);
        put(&folder.path().join("own"), "broken", "---\nname: x\n");
        let mut accepted = Accepted::default();
        let listing = sources.skills(&accepted);
        let states = listing.skills.iter().map(|skill| (skill.name.as_str(), skill.state, skill.file.is_some()));
        let states: Vec<_> = states.collect();
        assert_eq!(
            states,
            [
                ("greeting", State::Changed, true),
                ("greeting", State::Shipped, false),
                ("research", State::Shipped, true)
            ]
        );
        assert!(listing.broken[0].file.ends_with("broken/SKILL.md"));
        let greeting = listing.waiting().next().unwrap();
        accepted.skills.insert(greeting.name.clone(), greeting.sha256.clone());
        let all = |now: &mut Accepted| {
            now.clone_from(&accepted);
            Ok(())
        };
        sources.accept(all).unwrap();
        let listing = sources.skills(&sources.accepted().unwrap());
        assert!(listing.in_force().next().unwrap().body().contains("forty"));
        // After another change, the skill is not in force until it is accepted again.
        put(&folder.path().join("shipped"), "greeting", &changed.replace("forty", "fifty"));
        let listing = sources.skills(&accepted);
        assert!(listing.in_force().next().unwrap().body().contains("two or three"));
    }

    #[test]
    fn project_rules_count_by_file_and_content() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let mut accepted = Accepted::default();
        assert_eq!(sources.project(None, &accepted), Ok(None));
        let file = folder.path().join("AGENTS.md");
        fs::write(&file, "Use tabs.").unwrap();
        let project = sources.project(None, &accepted).unwrap().unwrap();
        assert_eq!(project.state, State::New);
        accepted.projects.insert(file.display().to_string(), project.sha256);
        assert_eq!(sources.project(None, &accepted).unwrap().unwrap().state, State::Accepted);
        fs::write(&file, "Use blanks.").unwrap();
        assert_eq!(sources.project(None, &accepted).unwrap().unwrap().state, State::Changed);
        fs::write(&file, "x".repeat(33 * 1024)).unwrap();
        let error = sources.project(None, &accepted).unwrap_err();
        assert!(error.at.unwrap().ends_with("AGENTS.md") && error.message.contains("32768"));
    }
}
