//! Which parts require which, directly or indirectly, and cycles among them. All functions are pure.

use std::collections::{BTreeMap, BTreeSet};

use ken_types::config::Part;

type Parts = BTreeMap<String, Part>;

/// Returns `name` and every part that must be ready before it can start.
pub(crate) fn required_by<'a>(parts: &'a Parts, name: &'a str) -> BTreeSet<&'a str> {
    closure(name, |at| {
        let requires = parts.get(at).map(|part| part.requires.as_slice());
        requires.unwrap_or_default().iter().map(String::as_str).collect()
    })
}

/// Returns `name` and every part that needs it to be ready.
pub(crate) fn requirers_of<'a>(parts: &'a Parts, name: &'a str) -> BTreeSet<&'a str> {
    closure(name, |at| {
        let requires_it = |part: &Part| part.requires.iter().any(|other| other == at);
        let rows = parts.iter().filter(|(_, part)| requires_it(part));
        rows.map(|(name, _)| name.as_str()).collect()
    })
}

fn closure<'a>(name: &'a str, next: impl Fn(&str) -> Vec<&'a str>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::from([name]);
    let mut open = vec![name];
    while let Some(at) = open.pop() {
        open.extend(next(at).into_iter().filter(|other| found.insert(other)));
    }
    found
}

/// Returns a cycle of parts that wait for each other, if there is one: `a`, `b`, `a`.
pub(crate) fn cycle(parts: &Parts) -> Option<Vec<&str>> {
    let mut clear = BTreeSet::new();
    parts.keys().find_map(|name| walk(parts, name, &mut Vec::new(), &mut clear))
}

fn walk<'a>(
    parts: &'a Parts,
    name: &'a str,
    path: &mut Vec<&'a str>,
    clear: &mut BTreeSet<&'a str>,
) -> Option<Vec<&'a str>> {
    if let Some(from) = path.iter().position(|seen| *seen == name) {
        return Some(path.iter().skip(from).copied().chain([name]).collect());
    }
    if clear.contains(name) {
        return None;
    }
    path.push(name);
    let part = parts.get(name)?;
    let before = part.requires.iter().chain(&part.after);
    let found = before.into_iter().find_map(|other| walk(parts, parts.get_key_value(other)?.0, path, clear));
    path.pop();
    clear.insert(name);
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(edges: &[(&str, &[&str])]) -> Parts {
        let part = |requires: &[&str]| Part {
            requires: requires.iter().map(|name| (*name).to_owned()).collect(),
            ..Part::default()
        };
        edges.iter().map(|(name, requires)| ((*name).to_owned(), part(requires))).collect()
    }

    #[test]
    fn a_cycle_is_named() {
        let circle = parts(&[("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])]);
        assert_eq!(cycle(&circle), Some(vec!["b", "c", "b"]));
        assert_eq!(cycle(&parts(&[("a", &["a"])])), Some(vec!["a", "a"]));
        let tree = parts(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])]);
        assert_eq!(cycle(&tree), None);
    }

    #[test]
    fn what_goes_down_and_up_together() {
        let tree = parts(&[("agent", &["store", "model"]), ("gateway", &["store"]), ("model", &[]), ("store", &[])]);
        assert_eq!(required_by(&tree, "agent"), BTreeSet::from(["agent", "model", "store"]));
        assert_eq!(requirers_of(&tree, "store"), BTreeSet::from(["agent", "gateway", "store"]));
        assert_eq!(requirers_of(&tree, "gateway"), BTreeSet::from(["gateway"]));
    }

    proptest! {
        /// Edges that all lead from a later name to an earlier one form no cycle. An additional edge in the other
        /// direction can close one.
        #[test]
        fn a_cycle_is_found_exactly_when_there_is_one(pairs in prop::collection::vec((0usize..8, 0usize..8), 0..20)) {
            let name = |index: usize| format!("p{index}");
            let mut graph: Parts = (0..8).map(|index| (name(index), Part::default())).collect();
            for (a, b) in pairs.iter().filter(|(a, b)| a != b) {
                let (high, low) = (a.max(b), a.min(b));
                if let Some(part) = graph.get_mut(&name(*high)) { part.after.push(name(*low)); }
            }
            prop_assert_eq!(cycle(&graph), None);
            if let Some((a, b)) = pairs.iter().find(|(a, b)| a != b) {
                let (high, low) = (a.max(b), a.min(b));
                if let Some(part) = graph.get_mut(&name(*low)) { part.requires.push(name(*high)); }
                let found = cycle(&graph).unwrap_or_default();
                prop_assert!(found.len() > 2);
                prop_assert_eq!(found.first(), found.last());
            }
        }
    }
}
