//! Reports rules of `[workspace]` that apply to nothing, or not as they are meant.

use std::path::Path;

use ken_trusted::{Folders, resolved};
use ken_types::config::{Workspace, WorkspacePolicy, WorkspaceRule};
use ken_types::places::Places;

use super::Findings;

/// Reports rules with absolute paths that lead to none of the folders in which ken-coder works.
pub(super) fn check(places: &Places, workspace: &Workspace, findings: &mut Findings) {
    // An error is reported with the texts of these folders.
    let Ok(folders) = Folders::read(&places.state) else { return };
    let root = workspace.folder(&places.state, None);
    let roots = [resolved(&root), root];
    let applies = |rule: &WorkspaceRule, path: &Path| {
        roots.iter().any(|root| rule.place_below(path, root, true).is_some())
            || folders.trusted.keys().any(|folder| rule.place_below(path, folder, false).is_some())
    };
    let file = places.config.display();
    for rule in workspace.rules.iter().filter(|rule| Path::new(&rule.path).is_absolute()) {
        let path = Path::new(&rule.path);
        let target = resolved(path);
        let permits = rule.policy == WorkspacePolicy::AutoEdit || !rule.commands.is_empty() || !rule.hosts.is_empty();
        if applies(rule, path) {
            continue;
        }
        if applies(rule, &target) {
            if permits {
                let why = format!(
                    "the rule for {} permits nothing, because links lead from there to {}",
                    path.display(),
                    target.display()
                );
                findings.warning("rule-by-link", &file, why, format!("write path = {target:?} in [workspace]"));
            }
            continue;
        }
        let why = format!("the rule for {} applies neither to the workspace nor to a trusted folder", path.display());
        let fix = "correct its path in [workspace], or `ken workspace trust DIR`";
        match rule.policy {
            WorkspacePolicy::Deny => findings.error("rule-without-folder", &file, why, fix),
            _ => findings.warning("rule-without-folder", &file, why, fix),
        }
    }
}
