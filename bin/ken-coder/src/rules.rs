//! The operator's rules as they apply below one root: the workspace, or a trusted folder.

use std::path::{Path, PathBuf};

use ken_types::Error;
use ken_types::config::{WorkspacePolicy, WorkspaceRule};

use crate::rel_path::{Layout, RelPath};

/// How many links in a row are followed: as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// The rules that apply below a root, in the order of ken.toml.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    /// The place at the path of the rule, as the operator has written it.
    written: Option<RelPath>,
    /// The place to which symbolic links in that path lead. The rule forbids changes there, or asks, as at the written place, but it permits
    /// none: a command can make a link, and must not give itself a permission by that.
    linked: Option<RelPath>,
    terms: WorkspaceRule,
}

impl Rules {
    /// Returns the rules for the root of a call. `configured` is its path as the operator knows it, which a link can be part of.
    /// Fails if the path of a rule is one that no call can name.
    pub(crate) fn of(rules: &[WorkspaceRule], root: &Path, configured: &Path, layout: Layout) -> Result<Rules, Error> {
        let rules = rules.iter().filter_map(|terms| Rule::of(terms, root, configured, layout).transpose());
        rules.collect::<Result<_, _>>().map(Rules)
    }

    /// Returns the rules for a workspace in which there is nothing.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub(crate) fn of_json(rules: &str) -> Rules {
        let (rules, root) = (serde_json::from_str::<Vec<_>>(rules).unwrap(), Path::new("/nothing/here"));
        Rules::of(&rules, root, root, Layout::Workspace).unwrap()
    }

    /// Returns the first rule for a place, whose permissions apply there. There is none if that rule applies only because of a link.
    pub(crate) fn first(&self, place: &RelPath) -> Option<&WorkspaceRule> {
        let rule = self.0.iter().find(|rule| rule.names(|named| place.is_in(named)))?;
        rule.written.as_ref().filter(|written| place.is_in(written)).map(|_| &rule.terms)
    }

    /// Returns the policy for changes of a place. The first rule for it is looked for twice: among the paths as they are written, and with
    /// links followed as well. The stricter result applies, so that a link cannot put a weak rule in front of a strict one.
    pub(crate) fn policy(&self, place: &RelPath) -> WorkspacePolicy {
        let policy = |rule: Option<&Rule>| rule.map_or(WorkspacePolicy::Ask, |rule| rule.terms.policy);
        let is_written = |rule: &&Rule| rule.written.as_ref().is_some_and(|written| place.is_in(written));
        let written = policy(self.0.iter().find(is_written));
        written.max(policy(self.0.iter().find(|rule| rule.names(|named| place.is_in(named)))))
    }

    /// Whether a command that can change a folder could change a denied path: the folder itself or a path below it.
    pub(crate) fn denies_below(&self, folder: &RelPath) -> bool {
        let denies =
            |rule: &Rule| rule.terms.policy == WorkspacePolicy::Deny && rule.names(|named| named.is_in(folder));
        self.0.iter().any(denies) || self.policy(folder) == WorkspacePolicy::Deny
    }

    /// Whether a rule lets files be edited.
    pub(crate) fn let_edit(&self) -> bool {
        self.0.iter().any(|rule| rule.terms.policy == WorkspacePolicy::AutoEdit)
    }

    /// Whether the rule for a target, and every rule for a part of it, also counts in turns that have read outside text.
    pub(crate) fn trusts(&self, target: &RelPath) -> bool {
        let is_trusted_below =
            self.0.iter().all(|rule| rule.terms.trusted || !rule.names(|named| named.is_in(target) && named != target));
        self.first(target).is_some_and(|terms| terms.trusted) && is_trusted_below
    }
}

impl Rule {
    fn of(terms: &WorkspaceRule, root: &Path, configured: &Path, layout: Layout) -> Result<Option<Rule>, Error> {
        let path = Path::new(&terms.path);
        // A relative path is one of the workspace.
        let whole = match layout {
            Layout::Folder if path.is_relative() => return Ok(None),
            _ => configured.join(path),
        };
        let place = |path: &Path, root: &Path| {
            let below = terms.place_below(path, root, layout == Layout::Workspace)?;
            Some(below.to_str().ok_or_else(|| "is not UTF-8".to_owned()).and_then(RelPath::parse))
        };
        let wrong = |why| Error::invalid("workspace.rules", format!("the rule for {:?}: {why}", terms.path));
        let written = place(&whole, configured).or_else(|| place(&whole, root)).transpose().map_err(wrong)?;
        let target = link_target(&whole, MAX_LINKS);
        // A link can lead to a name that no call has. Then the rule restricts the folder around it.
        let target = target.ancestors().find(|path| !matches!(place(path, root), Some(Err(_))));
        let linked = target.and_then(|path| place(path, root)?.ok()).filter(|linked| written.as_ref() != Some(linked));
        let applies = written.is_some() || linked.is_some();
        Ok(applies.then(|| Rule { written, linked, terms: terms.clone() }))
    }

    fn names(&self, is_named: impl Fn(&RelPath) -> bool) -> bool {
        [&self.written, &self.linked].into_iter().flatten().any(is_named)
    }
}

/// Returns the path to which the symbolic links in a path lead, also if there is nothing at it yet: a call can make it.
fn link_target(path: &Path, max_links: usize) -> PathBuf {
    let path = ken_trusted::resolved(path);
    let next = path.ancestors().filter(|_| max_links > 0).find_map(|link| {
        let (folder, target, rest) = (link.parent()?, link.read_link().ok()?, path.strip_prefix(link).ok()?);
        Some(folder.join(target).join(rest))
    });
    next.map_or(path, |next| link_target(&next, max_links - 1))
}
