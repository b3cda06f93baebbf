//! The operator's rules as they apply below one root: the workspace, or a trusted folder.

use std::path::{Path, PathBuf};

use ken_types::Error;
use ken_types::config::{WorkspacePolicy, WorkspaceRule};

use crate::rel_path::{Layout, RelPath};

/// How many links to nothing are followed, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// The rules that apply below a root, in the order of ken.toml.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    /// The place that the path of the rule names as it is written.
    written: Option<RelPath>,
    /// The place to which links in the path lead. There the rule forbids and asks as it does at the written one, but it permits
    /// nothing: a command can make a link, and must not widen a permission by that.
    led: Option<RelPath>,
    terms: WorkspaceRule,
}

impl Rule {
    fn names(&self, is_named: impl Fn(&RelPath) -> bool) -> bool {
        [&self.written, &self.led].into_iter().flatten().any(is_named)
    }
}

impl Rules {
    /// Returns the rules for the root of a call. `configured` is its path as the operator knows it, which a link can be part of.
    /// Fails if a place that a rule names cannot be compared with those of calls.
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

    /// Returns the first rule whose path contains a place. There is none if an earlier rule applies by a link, because that
    /// permits nothing.
    pub(crate) fn first(&self, place: &RelPath) -> Option<&WorkspaceRule> {
        let rule = self.0.iter().find(|rule| rule.names(|named| place.is_in(named)))?;
        rule.written.as_ref().filter(|written| place.is_in(written)).map(|_| &rule.terms)
    }

    /// Returns the policy for changes of a place: the stricter one of the first rule for it as written, and of the first one
    /// that counts links as well. So no link can put a rule before another one that is stricter.
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
        let place = |path: &Path, root: &Path| match path.strip_prefix(root) {
            Ok(below) => Some(below.to_str().ok_or_else(|| "is not UTF-8".to_owned()).and_then(RelPath::parse)),
            // A rule for all trusted folders below a place is not meant for the workspace, wherever that is; but what must not
            // be changed must not be changed there either.
            Err(_) => {
                let is_meant = layout == Layout::Folder || terms.policy == WorkspacePolicy::Deny;
                (is_meant && root.starts_with(path)).then(|| Ok(RelPath::default()))
            }
        };
        let wrong = |why| Error::invalid("workspace.rules", format!("the rule for {:?}: {why}", terms.path));
        let written = place(&whole, configured).or_else(|| place(&whole, root)).transpose().map_err(wrong)?;
        let led = led(&whole, MAX_LINKS);
        // A link can lead to a name that no call has. Then the rule restricts the folder around it.
        let led = led.ancestors().find(|led| !matches!(place(led, root), Some(Err(_))));
        let led = led.and_then(|led| place(led, root)?.ok()).filter(|led| written.as_ref() != Some(led));
        let applies = written.is_some() || led.is_some();
        Ok(applies.then(|| Rule { written, led, terms: terms.clone() }))
    }
}

/// Returns the path to which the links in a path lead, also those to something that is not there yet: a call can make it.
fn led(path: &Path, max_links: usize) -> PathBuf {
    let path = ken_trusted::resolved(path);
    let next = path.ancestors().filter(|_| max_links > 0).find_map(|link| {
        let (folder, target, rest) = (link.parent()?, link.read_link().ok()?, path.strip_prefix(link).ok()?);
        Some(folder.join(target).join(rest))
    });
    next.map_or(path, |next| led(&next, max_links - 1))
}
