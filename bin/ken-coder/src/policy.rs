//! Decides which calls need approval, by the operator's rules in `[workspace]` of ken.toml. Nothing else can permit a
//! call.

use ken_types::config::{Workspace, WorkspacePolicy, WorkspaceRule};
pub(crate) use ken_types::ops::tools::Need as Approval;

use crate::read_only::is_read_only;
use crate::rel_path::RelPath;
use crate::settings::Settings;

/// Whether a call needs approval, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    pub(crate) approval: Approval,
    pub(crate) reason: String,
}

/// Whether a command needs approval, and how it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandRequirement {
    pub(crate) verdict: Requirement,
    /// Whether the kernel prevents it from changing anything.
    pub(crate) is_read_only: bool,
}

/// Who has let a call go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permit {
    /// A person, by approving it or by calling this program in a shell.
    Person,
    /// A rule of the operator, without anybody seeing the call.
    Rule,
}

/// Decides on a change of these files. The strictest of their rules applies.
pub(crate) fn of_files<'a>(workspace: &Workspace, places: impl Iterator<Item = &'a RelPath>) -> Requirement {
    let strictest = places.map(|place| (policy_of(workspace, place), place)).max_by_key(|(policy, _)| *policy);
    match strictest {
        None => without_approval("nothing changes"),
        Some((WorkspacePolicy::AutoEdit, _)) => without_approval("a rule of the operator lets these files be edited"),
        Some((WorkspacePolicy::Ask, _)) => with_approval("files are changed"),
        Some((WorkspacePolicy::Deny, place)) => denied(place),
    }
}

/// Decides on a change of a folder whose files are not known beforehand, as with git.
pub(crate) fn of_folder(workspace: &Workspace, folder: &RelPath, why: &str) -> Requirement {
    if denied_below(workspace, folder) { denied(folder) } else { with_approval(why) }
}

/// A command line, with what a rule of the operator must match.
pub(crate) struct CommandLine<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) stdin: Option<&'a str>,
    pub(crate) cwd: &'a RelPath,
    pub(crate) has_network: bool,
}

/// Decides on a command that can change the folders of `scope`.
pub(crate) fn of_command(settings: &Settings, line: &CommandLine<'_>, scope: &[RelPath]) -> CommandRequirement {
    let is_read_only = !line.has_network && is_read_only(line.argv) && is_path_safe(settings);
    let forbidden = scope.iter().find(|folder| denied_below(&settings.workspace, folder));
    let verdict = match forbidden {
        _ if is_read_only => without_approval("the command only reads"),
        Some(folder) => denied(folder),
        None if is_listed(settings, line) => without_approval("a rule of the operator names this command"),
        None if line.has_network => with_approval("a command is run that reaches the network"),
        None => with_approval("a command is run"),
    };
    CommandRequirement { verdict, is_read_only }
}

/// Whether the rule of the folder lists this command, with this standard input and this network. A program that is
/// named without a path must be one of the system.
pub(crate) fn is_listed(settings: &Settings, line: &CommandLine<'_>) -> bool {
    let Some(rule) = rule_of(&settings.workspace, line.cwd) else {
        return false;
    };
    let is_known = rule.commands.iter().any(|known| known.allows(line.argv, line.stdin, line.has_network));
    let has_path = line.argv.first().is_some_and(|program| program.contains('/'));
    is_known && (has_path || is_path_safe(settings))
}

/// Whether PATH has no folder in the workspace, where a program named without a path could have been replaced.
fn is_path_safe(settings: &Settings) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).all(|folder| folder.is_absolute() && !folder.starts_with(&settings.root))
}

pub(crate) fn without_approval(reason: &str) -> Requirement {
    Requirement { approval: Approval::None, reason: reason.to_owned() }
}

pub(crate) fn with_approval(reason: &str) -> Requirement {
    Requirement { approval: Approval::Ask, reason: reason.to_owned() }
}

fn denied(place: &RelPath) -> Requirement {
    Requirement { approval: Approval::Deny, reason: format!("a rule of the operator forbids changes of {place}") }
}

pub(crate) fn rule_of<'a>(workspace: &'a Workspace, place: &RelPath) -> Option<&'a WorkspaceRule> {
    workspace.rules.iter().find(|rule| folder_of(rule).is_some_and(|folder| place.is_in(&folder)))
}

fn policy_of(workspace: &Workspace, place: &RelPath) -> WorkspacePolicy {
    rule_of(workspace, place).map_or(WorkspacePolicy::Ask, |rule| rule.policy)
}

/// Whether a command that can change a folder could change a denied path: the folder itself or a path below it.
fn denied_below(workspace: &Workspace, folder: &RelPath) -> bool {
    let below = workspace
        .rules
        .iter()
        .any(|rule| rule.policy == WorkspacePolicy::Deny && folder_of(rule).is_some_and(|denied| denied.is_in(folder)));
    below || policy_of(workspace, folder) == WorkspacePolicy::Deny
}

fn folder_of(rule: &WorkspaceRule) -> Option<RelPath> {
    RelPath::parse(&rule.path).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn workspace() -> Workspace {
        serde_json::from_str(
            r#"{"rules":[{"path":"repos/site/secret","policy":"deny"},{"path":"repos/site","policy":"auto-edit",
                "commands":[["make","test"]]},{"path":"projects/x","policy":"ask"}]}"#,
        )
        .unwrap()
    }

    fn files(names: &[&str]) -> Approval {
        let places: Vec<RelPath> = names.iter().map(|name| RelPath::parse(name).unwrap()).collect();
        of_files(&workspace(), places.iter()).approval
    }

    #[test]
    fn the_first_rule_counts_and_the_strictest_file() {
        assert_eq!(files(&["repos/site/a"]), Approval::None);
        assert_eq!(files(&["repos/sites/a"]), Approval::Ask);
        assert_eq!(files(&["repos/site/a", "projects/x/b"]), Approval::Ask);
        assert_eq!(files(&["repos/site/a", "repos/site/secret/b"]), Approval::Deny);
    }

    #[test]
    fn a_command_that_could_change_what_is_denied_is_denied() {
        let folder = |name| RelPath::parse(name).unwrap();
        assert_eq!(of_folder(&workspace(), &folder("repos/site"), "").approval, Approval::Deny);
        assert_eq!(of_folder(&workspace(), &folder("projects/x"), "").approval, Approval::Ask);
    }
}
