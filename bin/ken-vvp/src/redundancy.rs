//! Finds redundant rules: tautologies, duplicates and subsumed rules.

use std::collections::{BTreeSet, HashMap};

use crate::issue::Issue;
use crate::rulebase::{Claim, Rule, RuleBase};

/// The most looks at rules while searching for subsumed ones; sharing one premise among very many rules with one
/// conclusion would take the square of their number.
const MOST_WORK: usize = 20_000_000;

pub(crate) fn find(base: &RuleBase<'_>) -> Vec<Issue> {
    let mut issues: Vec<Issue> = base.rules.iter().flat_map(about_itself).collect();
    let mut rivals = Rivals::of(base);
    issues.extend(rivals.remove_duplicates());
    issues.extend(rivals.subsumed());
    issues
}

/// What can be seen in one rule alone.
fn about_itself(rule: &Rule<'_>) -> Vec<Issue> {
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
        }
        if seen.contains(&premise.opposite()) {
            let message =
                format!("\"{wording}\" is a premise, and so is its negation: the rule never applies");
            issues.push(Issue::warning("impossible", rule.at(), message));
        }
    }
    issues
}

/// The premises without repetition; a claim and its opposite are neighbours.
fn sorted(rule: &Rule<'_>) -> Vec<Claim> {
    let mut body = rule.body.clone();
    body.sort_unstable();
    body.dedup();
    body
}

fn is_opposite(pair: &[Claim]) -> bool {
    matches!(pair, [one, other] if one.opposite() == *other)
}

/// Rules that conclude what another concludes too: only those can be duplicates, or say what follows from less.
struct Rivals<'b, 'v> {
    rules: Vec<Rival<'b, 'v>>,
}

struct Rival<'b, 'v> {
    rule: &'b Rule<'v>,
    body: Vec<Claim>,
}

impl<'b, 'v> Rivals<'b, 'v> {
    fn of(base: &'b RuleBase<'v>) -> Rivals<'b, 'v> {
        let mut counts = vec![0u32; base.claims()];
        for rule in &base.rules {
            if let Some(count) = counts.get_mut(rule.head.index()) {
                *count += 1;
            }
        }
        let has_rivals = |rule: &&Rule<'_>| counts.get(rule.head.index()).is_some_and(|&count| count > 1);
        let rival = |rule| Rival {
            rule,
            body: sorted(rule),
        };
        Rivals {
            rules: base.rules.iter().filter(has_rivals).map(rival).collect(),
        }
    }

    /// Rules equal to an earlier one in premises and conclusion.
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

    /// Rules with one more premise than another of the same conclusion needs.
    fn subsumed(&self) -> Vec<Issue> {
        let mut search = Search::of(&self.rules);
        let mut issues = Vec::new();
        for (place, Rival { rule, .. }) in self.rules.iter().enumerate() {
            issues.extend(search.smaller(place).map(|by| {
                let (number, by) = (rule.number, by.number);
                let message = format!("rule {number} adds nothing: rule {by} concludes the same from less");
                Issue::warning("subsumed", rule.at(), message)
            }));
            if search.work > MOST_WORK {
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
}

/// Finds rules within others by counting the premises that they share.
struct Search<'r, 'b, 'v> {
    rules: &'r [Rival<'b, 'v>],
    /// By conclusion and premise: the places of the rules that have both.
    by_parts: HashMap<(Claim, Claim), Vec<usize>>,
    /// Rules without premises, by what they conclude.
    axioms: HashMap<Claim, usize>,
    /// By place: how many premises are shared with the rule that is looked at; 0 in between.
    shared: Vec<usize>,
    work: usize,
}

impl<'r, 'b, 'v> Search<'r, 'b, 'v> {
    fn of(rules: &'r [Rival<'b, 'v>]) -> Search<'r, 'b, 'v> {
        let mut search = Search {
            rules,
            by_parts: HashMap::new(),
            axioms: HashMap::new(),
            shared: vec![0; rules.len()],
            work: 0,
        };
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

    /// The first rule that concludes the same from some of this one's premises, else from none.
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

    /// Counts in `shared`, and gives the places that it counted at, each once.
    fn count(&mut self, head: Claim, body: &[Claim]) -> Vec<usize> {
        let mut counted = Vec::new();
        let lists = body
            .iter()
            .filter_map(|&premise| self.by_parts.get(&(head, premise)));
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
