//! Finds rules that may contradict themselves as soon as they apply.
//!
//! This is an approximation by a graph of claims that considers each premise of a rule separately. The graph has an
//! edge from each premise of a rule to its conclusion, and one from the negated conclusion to each negated premise.
//! Everything that follows from a claim can therefore be reached from it. For each path there is also the reverse path
//! between the negations. So if the premises of a rule, together with the axioms, lead to a statement and to its
//! negation, there is a path from a premise to the negation of a premise or of an axiom. Only rules with such a path
//! are examined with a real derivation.

use ken_logic::Grouped;

use crate::rulebase::{Claim, Rule, RuleBase};

/// The maximum number of steps in all searches together.
const MAX_WORK: usize = 20_000_000;

pub(crate) struct Suspects<'b, 'v> {
    pub(crate) rules: Vec<&'b Rule<'v>>,
    /// Whether the search was stopped before all rules were examined.
    pub(crate) is_truncated: bool,
}

/// Returns the rules with premises that may lead to a contradiction. If a rule has variables and a statement is
/// negated, these are all rules, because with variables the wording alone does not show what follows.
pub(crate) fn suspects<'b, 'v>(base: &'b RuleBase<'v>) -> Suspects<'b, 'v> {
    let mut suspects = Suspects { rules: Vec::new(), is_truncated: false };
    let with_premises = || base.rules.iter().filter(|rule| !rule.body.is_empty());
    let denies = |rule: &Rule<'_>| rule.head.is_denial() || rule.body.iter().any(|claim| claim.is_denial());
    if !base.rules.iter().any(denies) {
        return suspects;
    }
    if base.rules.iter().any(|rule| rule.has_variables) {
        suspects.rules = with_premises().collect();
        return suspects;
    }
    let mut ways = ImplicationGraph::of(base);
    let crossing = ways.before_crossings(base);
    for rule in with_premises() {
        if ways.work > MAX_WORK {
            suspects.is_truncated = true;
            break;
        }
        let crosses = |claim: &Claim| crossing.get(claim.index()) == Some(&true);
        if (ways.is_mixed(&rule.body) || rule.body.iter().any(crosses)) && ways.reach_negation(&rule.body) {
            suspects.rules.push(rule);
        }
    }
    suspects
}

struct ImplicationGraph {
    /// The successors of each claim.
    to: Grouped<Claim>,
    /// For each claim, whether it is an axiom.
    axioms: Vec<bool>,
    /// Whether there is an affirmative axiom, and whether there is a negated one.
    axiom_signs: [bool; 2],
    /// For each claim, the number of the last search that visited it.
    seen: Vec<u32>,
    walks: u32,
    work: usize,
}

impl ImplicationGraph {
    fn of(base: &RuleBase<'_>) -> ImplicationGraph {
        let edges = base.rules.iter().flat_map(edges_of);
        let to = Grouped::of(base.claims(), edges.map(|(from, to)| (from.index(), to)));
        let mut axioms = vec![false; base.claims()];
        let mut axiom_signs = [false; 2];
        for rule in base.rules.iter().filter(|rule| rule.body.is_empty()) {
            axiom_signs[usize::from(rule.head.is_denial())] = true;
            if let Some(is_axiom) = axioms.get_mut(rule.head.index()) {
                *is_axiom = true;
            }
        }
        ImplicationGraph { to, axioms, axiom_signs, seen: vec![0; base.claims()], walks: 0, work: 0 }
    }

    /// Returns all claims that can be reached from the given ones, which are included.
    fn walk(&mut self, from: impl IntoIterator<Item = Claim>) -> Vec<Claim> {
        self.walks += 1;
        let mut reached = Vec::new();
        for claim in from {
            self.visit(claim, &mut reached);
        }
        let mut next = 0;
        while let Some(&claim) = reached.get(next) {
            next += 1;
            let places = self.to.places(claim.index());
            self.work += 1 + places.len();
            for place in places {
                if let Some(claim) = self.to.at(place) {
                    self.visit(claim, &mut reached);
                }
            }
        }
        reached
    }

    fn visit(&mut self, claim: Claim, reached: &mut Vec<Claim>) {
        if let Some(seen) = self.seen.get_mut(claim.index())
            && *seen != self.walks
        {
            *seen = self.walks;
            reached.push(claim);
        }
    }

    /// Returns for each claim whether a path from it leads from an affirmative to a negated claim, or the other way
    /// round. Such a step does not count if it ends at a claim without successors whose negation is neither a premise
    /// nor an axiom, because it cannot cause a contradiction.
    fn before_crossings(&mut self, base: &RuleBase<'_>) -> Vec<bool> {
        let mut is_premise = vec![false; base.claims()];
        for premise in base.rules.iter().flat_map(|rule| &rule.body) {
            if let Some(place) = is_premise.get_mut(premise.index()) {
                *place = true;
            }
        }
        let is_live = |claim: Claim| {
            let denied = claim.opposite().index();
            is_premise.get(denied) == Some(&true)
                || self.axioms.get(denied) == Some(&true)
                || !self.to.of_key(claim.index()).is_empty()
        };
        let sources: Vec<Claim> = base
            .rules
            .iter()
            .flat_map(edges_of)
            .filter(|(from, to)| from.is_denial() != to.is_denial() && is_live(*to))
            .map(|(from, _)| from.opposite())
            .collect();
        let mut before = vec![false; base.claims()];
        for claim in self.walk(sources) {
            if let Some(place) = before.get_mut(claim.opposite().index()) {
                *place = true;
            }
        }
        before
    }

    /// Returns whether there are both affirmative and negated claims among the premises and the axioms.
    fn is_mixed(&self, body: &[Claim]) -> bool {
        let mut signs = self.axiom_signs;
        for claim in body {
            signs[usize::from(claim.is_denial())] = true;
        }
        signs == [true; 2]
    }

    /// Returns whether a path leads from a premise to the negation of a premise or of an axiom.
    fn reach_negation(&mut self, body: &[Claim]) -> bool {
        let reached = self.walk(body.iter().copied());
        let walk = self.walks;
        let is_axiom = |claim: Claim| self.axioms.get(claim.index()) == Some(&true);
        let is_reached = |claim: Claim| self.seen.get(claim.index()) == Some(&walk);
        body.iter().any(|claim| is_reached(claim.opposite()))
            || (self.axiom_signs != [false; 2] && reached.iter().any(|claim| is_axiom(claim.opposite())))
    }
}

/// Returns the edges of a rule: two for each premise, from the premise to the conclusion and from the negated
/// conclusion to the negated premise.
fn edges_of<'r>(rule: &'r Rule<'_>) -> impl Iterator<Item = (Claim, Claim)> + Clone + 'r {
    let head = rule.head;
    rule.body.iter().flat_map(move |&premise| [(premise, head), (head.opposite(), premise.opposite())])
}
