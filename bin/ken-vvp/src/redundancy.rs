//! Rules that say nothing, or nothing that another does not say.

use std::collections::{BTreeSet, HashMap};

use crate::answer::Issue;
use crate::rulebase::{Rule, RuleBase, opposite};

/// The most looks at rules while searching for subsumed ones; sharing one premise among very many rules with one
/// conclusion would take the square of their number.
const MOST_WORK: usize = 20_000_000;

pub(crate) fn find(base: &RuleBase) -> Vec<Issue> {
    let mut issues: Vec<Issue> = base.rules.iter().flat_map(about_itself).collect();
    let bodies: Vec<BTreeSet<&str>> = base
        .rules
        .iter()
        .map(|rule| rule.body.iter().map(String::as_str).collect())
        .collect();
    let (duplicates, is_duplicate) = duplicates(base, &bodies);
    issues.extend(duplicates);
    issues.extend(subsumed(base, &bodies, &is_duplicate));
    issues
}

/// What can be seen in one rule alone.
fn about_itself(rule: &Rule) -> Vec<Issue> {
    let mut issues = Vec::new();
    if rule.body.contains(&rule.head) {
        let message = format!("\"{}\" is among its own premises", rule.conclusion);
        issues.push(Issue::warning("self_reference", rule.at(), message));
    }
    let mut seen = BTreeSet::new();
    for (premise, wording) in rule.body.iter().zip(&rule.premises) {
        if !seen.insert(premise.clone()) {
            issues.push(Issue::warning(
                "repeated_premise",
                rule.at(),
                format!("\"{wording}\" is a premise twice"),
            ));
        }
        if seen.contains(&opposite(premise)) {
            let message =
                format!("\"{wording}\" is a premise, and so is its negation: the rule never applies");
            issues.push(Issue::warning("impossible", rule.at(), message));
        }
    }
    issues
}

/// Rules equal to an earlier one in premises and conclusion.
fn duplicates(base: &RuleBase, bodies: &[BTreeSet<&str>]) -> (Vec<Issue>, Vec<bool>) {
    let mut first: HashMap<(&BTreeSet<&str>, &str), usize> = HashMap::new();
    let mut issues = Vec::new();
    let mut flags = Vec::with_capacity(bodies.len());
    for (rule, body) in base.rules.iter().zip(bodies) {
        let known = first.get(&(body, rule.head.as_str())).copied();
        flags.push(known.is_some());
        match known {
            Some(number) => {
                let message = format!("rule {} says the same as rule {number}", rule.number);
                issues.push(Issue::warning("duplicate", rule.at(), message));
            }
            None => {
                first.insert((body, rule.head.as_str()), rule.number);
            }
        }
    }
    (issues, flags)
}

/// Rules with one more premise than another of the same conclusion needs.
fn subsumed(base: &RuleBase, bodies: &[BTreeSet<&str>], is_duplicate: &[bool]) -> Vec<Issue> {
    let mut by_premise: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
    let mut axioms: HashMap<&str, usize> = HashMap::new();
    let kept = || {
        base.rules
            .iter()
            .zip(bodies)
            .enumerate()
            .filter(|(place, _)| is_duplicate.get(*place) == Some(&false))
    };
    for (place, (rule, body)) in kept() {
        if body.is_empty() {
            axioms.insert(&rule.head, rule.number);
        }
        for premise in body {
            by_premise
                .entry((rule.head.as_str(), premise))
                .or_default()
                .push(place);
        }
    }
    let mut issues = Vec::new();
    let mut work = 0;
    for (place, (rule, body)) in kept() {
        let mut shared: HashMap<usize, usize> = HashMap::new();
        for &other in body
            .iter()
            .filter_map(|premise| by_premise.get(&(rule.head.as_str(), *premise)))
            .flatten()
        {
            *shared.entry(other).or_default() += 1;
            work += 1;
        }
        let is_within = |&(&other, &count): &(&usize, &usize)| {
            other != place
                && bodies
                    .get(other)
                    .is_some_and(|smaller| smaller.len() == count && smaller.len() < body.len())
        };
        let smaller = shared.iter().filter(is_within).map(|(&other, _)| other).min();
        let by = smaller
            .and_then(|other| base.rules.get(other))
            .map(|other| other.number);
        let by = by.or_else(|| {
            axioms
                .get(rule.head.as_str())
                .copied()
                .filter(|_| !body.is_empty())
        });
        issues.extend(by.map(|by| {
            let message = format!(
                "rule {} adds nothing: rule {by} concludes the same from less",
                rule.number
            );
            Issue::warning("subsumed", rule.at(), message)
        }));
        if work > MOST_WORK {
            issues.push(Issue::warning(
                "search_cut",
                "/rules",
                "too many alike rules to compare them all",
            ));
            break;
        }
    }
    issues
}
