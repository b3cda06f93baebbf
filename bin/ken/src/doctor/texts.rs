//! Reports skills and project rules that agents do not get: broken ones, and ones that nobody has accepted.

use ken_types::places::Places;

use super::Findings;
use crate::skills::sources;

pub(super) fn check(places: &Places, findings: &mut Findings) {
    let sources = sources(places);
    let accepted = match sources.accepted() {
        Ok(accepted) => accepted,
        Err(error) => {
            let place = error.at.clone().unwrap_or_default();
            let fix = "repair the file, or remove it and accept the texts again";
            return findings.error("accepted-file", place, error.message, fix);
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
    match sources.project(None, &accepted) {
        Ok(Some(project)) if !project.state.is_in_force() => {
            let why = format!("the project rules are {} and not used", project.state.name());
            let fix = "ken skills show AGENTS.md, then ken skills accept AGENTS.md";
            findings.warning("project-rules-wait", project.file.display(), why, fix);
        }
        Ok(_) => {}
        Err(error) => {
            let place = error.at.clone().unwrap_or_default();
            findings.warning("project-rules-broken", place, error.message, "shorten or repair the file");
        }
    }
}
