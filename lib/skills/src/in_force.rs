//! The skills and project rules that a person has accepted, for agents. They are read at each call; a caller who keeps the list sees by its
//! stamp whether it is still the current one.

use std::path::Path;

use ken_types::Error;
use ken_types::ops::agent::SkillHead;
use ken_types::ops::texts::{OtherFile, ProjectRules, SkillInForce, Texts};

use crate::{Accepted, Project, Skill, Sources};

/// The maximum size of a file that a model is shown, in bytes.
const MAX_SHOWN_BYTES: u64 = 64 * 1024;

/// The texts in force of some folders.
#[derive(Debug)]
pub struct InForce {
    sources: Sources,
}

struct Known {
    skills: Vec<Skill>,
    /// That of the root.
    project: Option<Project>,
    left_out: Vec<String>,
}

impl InForce {
    pub fn new(sources: Sources) -> InForce {
        InForce { sources }
    }

    /// Returns the skills, and the rules of the project in a trusted folder, or else in the workspace.
    pub fn texts(&self, folder: Option<&Path>) -> Texts {
        // Before the files are read, so that a change in between shows the next time.
        let stamp = if folder.is_none() { self.sources.stamp() } else { None };
        let known = Known::read(&self.sources, folder);
        let head = |skill: &Skill| SkillHead { name: skill.name.clone(), description: skill.description.clone() };
        Texts {
            skills: known.skills.iter().map(head).collect(),
            project: known.project.as_ref().map(|project| rules(project, String::new())),
            left_out: known.left_out,
            // A path that is not UTF-8 has no JSON; its files are then read each time.
            stamp: stamp.and_then(|stamp| serde_json::to_value(stamp).ok()).unwrap_or_default(),
        }
    }

    /// Returns the skill with this name, or another file of it in place of its text.
    pub fn skill(&self, name: &str, file: Option<&str>) -> Result<SkillInForce, Error> {
        let known = Known::read(&self.sources, None);
        let skill = known.skills.iter().find(|skill| skill.name == name);
        let skill = skill.ok_or_else(|| Error::not_found(format!("no skill `{name}` is in force")).at("/name"))?;
        let text = match file {
            None => skill.body().to_owned(),
            Some(path) => text_of(skill, path).map_err(|error| error.at("/file"))?,
        };
        let other = |file: &crate::SkillFile| OtherFile { path: file.path.clone(), bytes: file.bytes };
        Ok(SkillInForce {
            name: skill.name.clone(),
            description: skill.description.clone(),
            sha256: skill.sha256.clone(),
            text,
            files: skill.files.iter().map(other).collect(),
        })
    }

    /// Returns the rules of the folders below the trusted folder, or else the workspace, that lead to one of these paths: the outermost
    /// first.
    pub fn below(&self, folder: Option<&Path>, paths: &[String]) -> Vec<ProjectRules> {
        let root = folder.unwrap_or(&self.sources.workspace);
        let entered: Vec<_> = paths.iter().map(|path| root.join(path)).collect();
        // Without accepted rules nothing is read but the list of them, and a list that cannot be read has been reported.
        let accepted = self.sources.accepted().unwrap_or_default();
        let projects = self.sources.projects_below(folder, &accepted).into_iter();
        let rules = projects.filter(|project| project.state.is_in_force()).filter_map(|project| {
            let around = project.file.parent()?;
            let is_entered = entered.iter().any(|path| path.starts_with(around));
            let place = around.strip_prefix(root).ok().filter(|_| is_entered)?.display().to_string();
            Some(rules(&project, place))
        });
        rules.collect()
    }
}

fn rules(project: &Project, place: String) -> ProjectRules {
    ProjectRules {
        file: project.file.display().to_string(),
        place,
        sha256: project.sha256.clone(),
        text: project.text.clone(),
    }
}

fn text_of(skill: &Skill, path: &str) -> Result<String, Error> {
    let found = skill.files.iter().find(|file| file.path == path);
    if let Some(file) = found.filter(|file| file.bytes > MAX_SHOWN_BYTES) {
        let message = format!("{path} has {} bytes; files of at most {MAX_SHOWN_BYTES} bytes can be read", file.bytes);
        return Err(Error::too_large(message));
    }
    String::from_utf8(skill.open(path)?).map_err(|_| Error::invalid("", format!("{path} is not text")))
}

impl Known {
    fn read(sources: &Sources, folder: Option<&Path>) -> Known {
        let mut left_out = Vec::new();
        let accepted = sources.accepted().unwrap_or_else(|error| {
            left_out.push(format!("nothing counts as accepted: {error}"));
            Accepted::default()
        });
        let listing = sources.skills(&accepted);
        for broken in &listing.broken {
            left_out.push(format!("{} is left out: {}", broken.file.display(), broken.error));
        }
        for skill in listing.waiting() {
            let (name, state) = (&skill.name, skill.state.name());
            left_out.push(format!("the skill {name} is {state} and left out: ken skills show {name}"));
        }
        let project = sources.project(folder, &accepted).unwrap_or_else(|error| {
            left_out.push(format!("the project rules are left out: {error}"));
            None
        });
        if let Some(project) = project.as_ref().filter(|project| !project.state.is_in_force()) {
            let (file, state) = (project.file.display(), project.state.name());
            left_out.push(format!("{file} is {state} and left out: ken skills show AGENTS.md"));
        }
        Known {
            skills: listing.in_force().cloned().collect(),
            project: project.filter(|project| project.state.is_in_force()),
            left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use serde::Deserialize;

    use super::*;
    use crate::{Stamp, sha256_hex};

    fn put(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    /// A folder with the configuration and the workspace, in which these texts are accepted.
    fn accepting(projects: &[&str], skill: Option<&str>) -> (tempfile::TempDir, InForce) {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let sources = Sources::of(&folder.path().join("ken.toml"), workspace.clone());
        let mut accepted = Accepted::default();
        for place in projects {
            let file = sources.workspace.join(place).join("AGENTS.md");
            put(&file, place);
            accepted.projects.insert(file.display().to_string(), sha256_hex(place.as_bytes()));
        }
        if let Some(other) = skill {
            let file = folder.path().join("skills/own/SKILL.md");
            put(&file, "---\nname: own\ndescription: Mine.\n---\nDo it.");
            put(&file.with_file_name("other.txt"), other);
            let listing = sources.skills(&accepted);
            let own = listing.skills.iter().find(|skill| skill.name == "own").unwrap();
            accepted.skills.insert("own".to_owned(), own.sha256.clone());
        }
        let all = |now: &mut Accepted| {
            now.clone_from(&accepted);
            Ok(())
        };
        sources.accept(all).unwrap();
        (folder, InForce::new(sources))
    }

    #[test]
    fn a_skill_and_its_other_files_are_read_up_to_a_size() {
        let (_folder, texts) = accepting(&[], Some("more"));
        let skill = texts.skill("own", None).unwrap();
        assert_eq!((skill.text.as_str(), skill.files.len(), skill.files[0].bytes), ("Do it.", 1, 4));
        assert_eq!(texts.skill("own", Some("other.txt")).unwrap().text, "more");
        let error = |texts: &InForce, name: &str, file: Option<&str>| {
            let error = texts.skill(name, file).unwrap_err();
            (error.code, error.at.unwrap())
        };
        use ken_types::Code::{NotFound, TooLarge};
        assert_eq!(error(&texts, "absent", None), (NotFound, "/name".to_owned()));
        assert_eq!(error(&texts, "own", Some("../../secrets.env")), (NotFound, "/file".to_owned()));
        let (_folder, texts) = accepting(&[], Some(&"x".repeat(64 * 1024)));
        assert!(texts.skill("own", Some("other.txt")).is_ok());
        let (_folder, texts) = accepting(&[], Some(&"x".repeat(64 * 1024 + 1)));
        assert_eq!(error(&texts, "own", Some("other.txt")), (TooLarge, "/file".to_owned()));
    }

    #[test]
    fn rules_of_folders_hold_for_what_is_in_them() {
        let (folder, texts) = accepting(&["a", "a/b", "c"], None);
        put(&folder.path().join("workspace/new/AGENTS.md"), "nobody has accepted this");
        let places = |paths: &[&str]| -> Vec<String> {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            texts.below(None, &paths).into_iter().map(|rules| rules.place).collect()
        };
        assert_eq!(places(&["a/b/file"]), ["a", "a/b"]);
        assert_eq!(places(&["a", "c/file"]), ["a", "c"]);
        assert!(places(&["new/file", "elsewhere"]).is_empty() && places(&[]).is_empty());
    }

    /// Another process sees by the stamp whether the list that it has is the current one.
    #[test]
    fn the_stamp_of_a_list_holds_until_a_file_changes() {
        let (folder, texts) = accepting(&[], Some("more"));
        // What has just been changed may change again unseen.
        assert!(texts.texts(None).stamp.is_null());
        std::thread::sleep(Duration::from_millis(1_200));
        let given = texts.texts(None);
        let stamp = Stamp::deserialize(&given.stamp).unwrap();
        assert!(stamp.holds());
        fs::write(folder.path().join("skills/own/other.txt"), "less").unwrap();
        assert!(!stamp.holds());
        let skills = |texts: &InForce| texts.texts(None).skills.into_iter().map(|skill| skill.name).collect::<Vec<_>>();
        assert_eq!(given.skills.len(), skills(&texts).len() + 1, "it is left out until it is accepted again");
    }
}
