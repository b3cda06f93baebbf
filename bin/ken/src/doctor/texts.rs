//! Reports skills and project rules that agents do not get: broken ones, and ones that nobody has accepted.

use ken_skills::{PROJECT_FILE, Project};
use ken_trusted::Folders;
use ken_types::Error;
use ken_types::places::Places;

use super::Findings;
use crate::skills::sources;

pub(super) fn check(places: &Places, findings: &mut Findings) {
    let sources = sources(places);
    let accepted = match sources.accepted() {
        Ok(accepted) => accepted,
        Err(Error { at, message, .. }) => {
            let fix = "repair the file, or remove it and accept the texts again";
            return findings.error("accepted-file", at.unwrap_or_default(), message, fix);
        }
    };
    let listing = sources.skills(&accepted);
    for broken in &listing.broken {
        let place = broken.file.display();
        findings.warning("skill-broken", place, broken.error.to_string(), "repair it; `ken skills check` checks it");
    }
    for skill in listing.waiting() {
        let name = &skill.name;
        let why = format!("the skill is {} and not used", skill.state.name());
        let fix = format!("ken skills show {name}, then ken skills accept {name}");
        findings.warning("skill-waits", name, why, fix);
    }
    check_project(sources.project(None, &accepted), "AGENTS.md", findings);
    let folders = match Folders::read(&places.state) {
        Ok(folders) => folders,
        Err(Error { at, message, .. }) => {
            let fix = "repair the file, or remove it and trust the folders again";
            return findings.error("trusted-folders", at.unwrap_or_default(), message, fix);
        }
    };
    for folder in folders.trusted.keys() {
        let name = folder.display();
        match folders.open(folder) {
            Ok(_) => {
                let file = folder.join(PROJECT_FILE).display().to_string();
                check_project(sources.project(Some(folder), &accepted), &file, findings);
            }
            Err(error) => {
                let fix = format!("`ken workspace forget {name}`, or, if it is yours, `ken workspace trust {name}`");
                findings.warning("trusted-folder", name, error.message, fix);
            }
        }
    }
}

fn check_project(project: Result<Option<Project>, Error>, name: &str, findings: &mut Findings) {
    match project {
        Ok(Some(project)) if !project.state.is_in_force() => {
            let why = format!("the project rules are {} and not used", project.state.name());
            let fix = format!("ken skills show {name}, then ken skills accept {name}");
            findings.warning("project-rules-wait", project.file.display(), why, fix);
        }
        Ok(_) => {}
        Err(Error { at, message, .. }) => {
            findings.warning("project-rules-broken", at.unwrap_or_default(), message, "shorten or repair the file");
        }
    }
}
