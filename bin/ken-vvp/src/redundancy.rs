//! Finds rules that are redundant: tautologies, duplicates, and rules that are subsumed by another one.

use std::collections::{BTreeSet, HashMap};

use crate::issue::Issue;
use crate::rulebase::{Claim, Rule, RuleBase};

/// The maximum number of comparisons in the search for subsumed rules. The search takes quadratic time if very many
/// rules with the same conclusion share a premise.
const MAX_WORK: usize = 20_000_000;

pub(crate) fn find(base: &RuleBase<'_>) -> Vec<Issue> {
    let mut issues: Vec<Issue> = base.rules.iter().flat_map(own_issues).collect();
    let mut rivals = SameConclusion::of(base);
    issues.extend(rivals.remove_duplicates());
    issues.extend(rivals.subsumed());
    issues
}

/// Returns the problems of a rule that do not depend on other rules.
fn own_issues(rule: &Rule<'_>) -> Vec<Issue> {
    let mut issues = Vec::new();
    if rule.body.contains(&rule.head) {
        let message = format!("\"{}\" is among its own premises", rule.conclusion);
        issues.push(Issue::warning("self_reference", rule.at(), message));
    }
    let body = sorted(rule);
    if body.len() == rule.body.len() && !body.windows(2).any(is_opposite) {
        return issues;
    }
    let mut seen = BTreeSet::new();
    for (premise, wording) in rule.body.iter().zip(&rule.premises) {
        if !seen.insert(*premise) {
            let message = format!("\"{wording}\" is a premise twice");
            issues.push(Issue::warning("repeated_premise", rule.at(), message));
        } else if seen.contains(&premise.opposite()) {
            let message = format!("\"{wording}\" is a premise, and so is its negation: the rule never applies");
            issues.push(Issue::warning("impossible", rule.at(), message));
        }
    }
    issues
}

/// Returns the premises without repetition, sorted so that a claim and its negation are next to each other.
fn sorted(rule: &Rule<'_>) -> Vec<Claim> {
    let mut body = rule.body.clone();
    body.sort_unstable();
    body.dedup();
    body
}

fn is_opposite(pair: &[Claim]) -> bool {
    matches!(pair, [one, other] if one.opposite() == *other)
}

/// The rules that have the same conclusion as another rule. Only these can be duplicates or subsumed.
struct SameConclusion<'b, 'v> {
    rules: Vec<Rival<'b, 'v>>,
}

struct Rival<'b, 'v> {
    rule: &'b Rule<'v>,
    body: Vec<Claim>,
}

impl<'b, 'v> SameConclusion<'b, 'v> {
    fn of(base: &'b RuleBase<'v>) -> SameConclusion<'b, 'v> {
        let mut counts = vec![0u32; base.claims()];
        for rule in &base.rules {
            if let Some(count) = counts.get_mut(rule.head.index()) {
                *count += 1;
            }
        }
        let has_rivals = |rule: &&Rule<'_>| counts.get(rule.head.index()).is_some_and(|&count| count > 1);
        let rival = |rule| Rival { rule, body: sorted(rule) };
        SameConclusion { rules: base.rules.iter().filter(has_rivals).map(rival).collect() }
    }

    /// Removes the rules that have the same premises and conclusion as an earlier one, and reports them.
    fn remove_duplicates(&mut self) -> Vec<Issue> {
        let mut first: HashMap<(Vec<Claim>, Claim), usize> = HashMap::new();
        let mut issues = Vec::new();
        self.rules.retain(|Rival { rule, body }| {
            let known = *first.entry((body.clone(), rule.head)).or_insert(rule.number);
            if known != rule.number {
                let message = format!("rule {} says the same as rule {known}", rule.number);
                issues.push(Issue::warning("duplicate", rule.at(), message));
            }
            known == rule.number
        });
        issues
    }

    /// Reports the rules whose conclusion another rule derives from a proper subset of their premises.
    fn subsumed(&self) -> Vec<Issue> {
        let mut search = Search::of(&self.rules);
        let mut issues = Vec::new();
        for (place, Rival { rule, .. }) in self.rules.iter().enumerate() {
            if search.work > MAX_WORK {
                issues.push(Issue::warning("search_cut", "/rules", "too many alike rules to compare them all"));
                break;
            }
            issues.extend(search.smaller(place).map(|by| {
                let (number, by) = (rule.number, by.number);
                let message = format!("rule {number} adds nothing: rule {by} concludes the same from less");
                Issue::warning("subsumed", rule.at(), message)
            }));
        }
        issues
    }
}

/// Finds rules whose premises are a subset of another rule's, by counting shared premises.
struct Search<'r, 'b, 'v> {
    rules: &'r [Rival<'b, 'v>],
    /// The indices of the rules that have a conclusion and a premise, by conclusion and premise.
    by_parts: HashMap<(Claim, Claim), Vec<usize>>,
    /// The index of the rule without premises for a conclusion.
    axioms: HashMap<Claim, usize>,
    /// For each rule, the number of premises that it shares with the rule of the current search. All are 0 between two
    /// searches.
    shared: Vec<usize>,
    work: usize,
}

impl<'r, 'b, 'v> Search<'r, 'b, 'v> {
    fn of(rules: &'r [Rival<'b, 'v>]) -> Search<'r, 'b, 'v> {
        let mut search =
            Search { rules, by_parts: HashMap::new(), axioms: HashMap::new(), shared: vec![0; rules.len()], work: 0 };
        for (place, Rival { rule, body }) in rules.iter().enumerate() {
            if body.is_empty() {
                search.axioms.insert(rule.head, place);
            }
            for &premise in body {
                let parts = (rule.head, premise);
                search.by_parts.entry(parts).or_default().push(place);
            }
        }
        search
    }

    /// Returns the first rule that has the same conclusion and a proper subset of the premises, or else the rule
    /// without premises that has that conclusion.
    fn smaller(&mut self, place: usize) -> Option<&'b Rule<'v>> {
        let Rival { rule, body } = self.rules.get(place)?;
        let sharing = self.count(rule.head, body);
        let is_within = |other: &usize| {
            let length = self.rules.get(*other).map(|rival| rival.body.len());
            self.shared.get(*other).copied() == length && length < Some(body.len())
        };
        let smaller = sharing.iter().copied().filter(is_within).min();
        for other in sharing {
            if let Some(count) = self.shared.get_mut(other) {
                *count = 0;
            }
        }
        let axiom = || self.axioms.get(&rule.head).copied().filter(|_| !body.is_empty());
        let by = smaller.or_else(axiom)?;
        self.rules.get(by).map(|rival| rival.rule)
    }

    /// Counts in `shared` the premises that other rules with this conclusion share with `body`. Returns the rules that
    /// share any, each once.
    fn count(&mut self, head: Claim, body: &[Claim]) -> Vec<usize> {
        let mut counted = Vec::new();
        let lists = body.iter().filter_map(|&premise| self.by_parts.get(&(head, premise)));
        for &other in lists.flatten() {
            let Some(count) = self.shared.get_mut(other) else {
                continue;
            };
            if *count == 0 {
                counted.push(other);
            }
            *count += 1;
            self.work += 1;
        }
        counted
    }
}
