//! Where skills and project rules are, and reading all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ken_types::Error;
use ken_types::share;

use crate::{Accepted, Broken, Listing, Project, Skill};

/// The most skills of a folder; more would not fit into what a model is told.
const MAX_SKILLS: usize = 256;
const SKILL_FILE: &str = "SKILL.md";

/// The copies in the program of what ken ships.
const SHIPPED: [(&str, &str); 2] = [
    ("greeting", include_str!("../../../share/skills/greeting/SKILL.md")),
    ("research", include_str!("../../../share/skills/research/SKILL.md")),
];

/// The folders and files that decide.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `skills` beside `ken.toml`, then that of the installation.
    folders: Vec<PathBuf>,
    accepted: PathBuf,
    workspace: PathBuf,
}

impl Sources {
    /// Those of a system, for a program of ken: its installation is found from where the program lies.
    /// `config` is the path of `ken.toml`.
    pub fn of(config: &Path, workspace: PathBuf) -> Sources {
        Sources {
            folders: std::iter::once(config.with_file_name("skills")).chain(share::find("skills")).collect(),
            accepted: config.with_file_name("accepted.json"),
            // As one path, however it is reached.
            workspace: workspace.canonicalize().unwrap_or(workspace),
        }
    }

    /// What was accepted.
    pub fn accepted(&self) -> Result<Accepted, Error> {
        Accepted::read(&self.accepted)
    }

    /// Puts it in force.
    pub fn accept(&self, accepted: &Accepted) -> Result<(), Error> {
        accepted.write(&self.accepted)
    }

    /// All skills that there are.
    pub fn skills(&self, accepted: &Accepted) -> Listing {
        let mut broken = Vec::new();
        let copies = SHIPPED.iter().map(|(name, text)| Skill::new(name, (*text).to_owned(), None));
        let shipped: Vec<Skill> = copies.filter_map(Result::ok).collect();
        let mut skills = Vec::new();
        for file in self.folders.iter().flat_map(|folder| files(folder)) {
            match Skill::read(&file) {
                Ok(skill) => skills.push(skill),
                Err(error) => broken.push(Broken { file, error }),
            }
        }
        // A shipped file that is there as it was shipped stands for the copy.
        let there: BTreeSet<String> = skills.iter().map(|skill| skill.sha256.clone()).collect();
        let missing = shipped.iter().filter(|copy| !there.contains(&copy.sha256));
        let mut skills: Vec<Skill> = skills.into_iter().chain(missing.cloned()).collect();
        // Stable: of one name the user's own stays first.
        skills.sort_by(|one, other| one.name.cmp(&other.name));
        let judged = skills.into_iter().map(|skill| skill.judged(&shipped, accepted));
        Listing { skills: judged.collect(), broken }
    }

    /// The rules of the project in the workspace, if it has some.
    pub fn project(&self, accepted: &Accepted) -> Result<Option<Project>, Error> {
        Project::of(&self.workspace, accepted)
    }
}

/// The files `NAME/SKILL.md` of a folder, in order.
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
        sources.accept(&accepted).unwrap();
        let listing = sources.skills(&sources.accepted().unwrap());
        assert!(listing.in_force().next().unwrap().body().contains("forty"));
        // Changed again, it is not in force again.
        put(&folder.path().join("shipped"), "greeting", &changed.replace("forty", "fifty"));
        let listing = sources.skills(&accepted);
        assert!(listing.in_force().next().unwrap().body().contains("two or three"));
    }

    #[test]
    fn project_rules_count_by_file_and_content() {
        let folder = tempfile::tempdir().unwrap();
        let sources = sources(folder.path());
        let mut accepted = Accepted::default();
        assert_eq!(sources.project(&accepted), Ok(None));
        let file = folder.path().join("AGENTS.md");
        fs::write(&file, "Use tabs.").unwrap();
        let project = sources.project(&accepted).unwrap().unwrap();
        assert_eq!(project.state, State::New);
        accepted.projects.insert(file.display().to_string(), project.sha256);
        assert_eq!(sources.project(&accepted).unwrap().unwrap().state, State::Accepted);
        fs::write(&file, "Use blanks.").unwrap();
        assert_eq!(sources.project(&accepted).unwrap().unwrap().state, State::Changed);
        fs::write(&file, "x".repeat(33 * 1024)).unwrap();
        let error = sources.project(&accepted).unwrap_err();
        assert!(error.at.unwrap().ends_with("AGENTS.md") && error.message.contains("32768"));
    }
}
