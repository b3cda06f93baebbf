//! Decides which calls need approval, by the operator's rules in `[workspace]` of ken.toml. Nothing else can permit a
//! call.

use std::ffi::OsStr;
use std::path::Path;

use ken_types::config::WorkspacePolicy;
pub(crate) use ken_types::ops::tools::Need as Approval;

use crate::read_only::is_read_only;
use crate::rel_path::RelPath;
use crate::rules::Rules;
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
pub(crate) fn of_files<'a>(rules: &Rules, places: impl Iterator<Item = &'a RelPath>) -> Requirement {
    let strictest = places.map(|place| (rules.policy(place), place)).max_by_key(|(policy, _)| *policy);
    match strictest {
        None => without_approval("nothing changes"),
        Some((WorkspacePolicy::AutoEdit, _)) => without_approval("a rule of the operator lets these files be edited"),
        Some((WorkspacePolicy::Ask, _)) => with_approval("files are changed"),
        Some((WorkspacePolicy::Deny, place)) => denied(place),
    }
}

/// Decides on a change of a folder whose files are not known beforehand, as with git.
pub(crate) fn of_folder(rules: &Rules, folder: &RelPath, why: &str) -> Requirement {
    of_git(rules, [folder], why)
}

/// Decides on a change by git of these folders. The strictest of their rules applies.
pub(crate) fn of_git<'a>(rules: &Rules, folders: impl IntoIterator<Item = &'a RelPath>, why: &str) -> Requirement {
    folders.into_iter().find(|folder| rules.denies_below(folder)).map_or_else(|| with_approval(why), denied)
}

/// A command line, with what a rule of the operator must match.
pub(crate) struct CommandLine<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) stdin: Option<&'a str>,
    pub(crate) cwd: &'a RelPath,
    pub(crate) has_network: bool,
    /// Whether a program that is named without a path is one of the system ([`is_path_safe`]).
    pub(crate) is_path_safe: bool,
}

/// Decides on a command that can change the folders of `scope`.
pub(crate) fn of_command(settings: &Settings, line: &CommandLine<'_>, scope: &[RelPath]) -> CommandRequirement {
    let is_read_only = !line.has_network && is_read_only(line.argv) && line.is_path_safe;
    let forbidden = scope.iter().find(|folder| settings.rules.denies_below(folder));
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
    let Some(rule) = settings.rules.first(line.cwd) else {
        return false;
    };
    let is_known = rule.commands.iter().any(|known| known.allows(line.argv, line.stdin, line.has_network));
    let has_path = line.argv.first().is_some_and(|program| program.contains('/'));
    is_known && (has_path || line.is_path_safe)
}

/// Whether PATH has no folder in the workspace, where a program named without a path could have been replaced.
pub(crate) fn is_path_safe(settings: &Settings) -> bool {
    leads_elsewhere(&std::env::var_os("PATH").unwrap_or_default(), &settings.root)
}

fn leads_elsewhere(path: &OsStr, root: &Path) -> bool {
    std::env::split_paths(path).all(|folder| folder.is_absolute() && !folder.starts_with(root))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn of_site() -> Rules {
        Rules::of_json(
            r#"[{"path":"repos/site/secret","policy":"deny"},{"path":"repos/site","policy":"auto-edit",
                "commands":[["make","test"]]},{"path":"projects/x","policy":"ask"}]"#,
        )
    }

    fn files(names: &[&str]) -> Approval {
        let places: Vec<RelPath> = names.iter().map(|name| RelPath::parse(name).unwrap()).collect();
        of_files(&of_site(), places.iter()).approval
    }

    #[test]
    fn the_first_rule_counts_and_the_strictest_file() {
        assert_eq!(files(&["repos/site/a"]), Approval::None);
        assert_eq!(files(&["repos/sites/a"]), Approval::Ask);
        assert_eq!(files(&["repos/site/a", "projects/x/b"]), Approval::Ask);
        assert_eq!(files(&["repos/site/a", "repos/site/secret/b"]), Approval::Deny);
    }

    /// All combinations of what decides on a command. What only reads is free, also where changes are denied; with the
    /// network nothing only reads; a rule names a whole call.
    #[test]
    fn a_command_needs_approval_unless_it_only_reads_or_is_listed() {
        let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let text = r#"[{"path":"repos/a","policy":"ask","commands":[["make","test"],
            {"argv":["./fetch"],"network":true}]},{"path":"repos/no","policy":"deny","commands":[["make","test"]]}]"#;
        let settings =
            Settings { rules: Rules::of_json(text), ..Settings::of_folders(root.path(), state.path()).unwrap() };
        let (reads, other) = (&["ls", "-l"][..], &["make"][..]);
        let (listed, fetch) = (&["make", "test"][..], &["./fetch"][..]);
        for (argv, stdin, has_network, of_a, of_no, of_b) in [
            (reads, None, false, Approval::None, Approval::None, Approval::None),
            (reads, None, true, Approval::Ask, Approval::Deny, Approval::Ask),
            (listed, None, false, Approval::None, Approval::Deny, Approval::Ask),
            (listed, None, true, Approval::Ask, Approval::Deny, Approval::Ask),
            (listed, Some("x"), false, Approval::Ask, Approval::Deny, Approval::Ask),
            (fetch, None, false, Approval::None, Approval::Deny, Approval::Ask),
            (fetch, None, true, Approval::None, Approval::Deny, Approval::Ask),
            (other, None, false, Approval::Ask, Approval::Deny, Approval::Ask),
        ] {
            let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
            for (folder, expected) in [("repos/a", of_a), ("repos/no", of_no), ("repos/b", of_b)] {
                let cwd = RelPath::parse(folder).unwrap();
                for is_path_safe in [true, false] {
                    let line = CommandLine { argv: &argv, stdin, cwd: &cwd, has_network, is_path_safe };
                    let found = of_command(&settings, &line, std::slice::from_ref(&cwd));
                    let about = format!("{argv:?} {stdin:?} {has_network} {folder} {is_path_safe}");
                    // Where PATH leads into the workspace, only a program that is named with its path is free.
                    let is_free = expected == Approval::None && (is_path_safe || argv[0].contains('/'));
                    let denied = if folder == "repos/no" { Approval::Deny } else { Approval::Ask };
                    let wanted = if expected == Approval::None && !is_free { denied } else { expected };
                    assert_eq!(found.verdict.approval, wanted, "{about}");
                    assert_eq!(found.is_read_only, argv[0] == "ls" && !has_network && is_path_safe, "{about}");
                    let says_network = found.verdict.reason.contains("reaches the network");
                    assert_eq!(says_network, wanted == Approval::Ask && has_network, "{about}");
                }
            }
        }
    }

    #[test]
    fn path_must_not_lead_into_the_workspace() {
        let root = Path::new("/w");
        for (path, safe) in [
            ("/usr/bin:/bin", true),
            ("/usr/bin:/w/bin", false),
            ("/w", false),
            ("/ww/bin", true),
            ("/usr/bin:bin", false),
            ("/usr/bin:", false), // an empty folder is the current one
        ] {
            assert_eq!(leads_elsewhere(OsStr::new(path), root), safe, "{path}");
        }
    }

    #[test]
    fn a_command_that_could_change_what_is_denied_is_denied() {
        let folder = |name| RelPath::parse(name).unwrap();
        // Above the denied folder, the folder itself, and below it.
        for (name, expected) in [
            ("repos", Approval::Deny),
            ("repos/site/secret", Approval::Deny),
            ("repos/site/secret/deep", Approval::Deny),
            ("repos/site/public", Approval::Ask),
        ] {
            assert_eq!(of_folder(&of_site(), &folder(name), "").approval, expected, "{name}");
        }
        assert_eq!(of_folder(&of_site(), &folder("repos/site"), "").approval, Approval::Deny);
        assert_eq!(of_folder(&of_site(), &folder("projects/x"), "").approval, Approval::Ask);
    }
}
