//! Finds conflicts between rules, rules that cannot apply, and goals that cannot be reached, by deriving what follows
//! from the rules.

use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Write};

use ken_logic::{Closure, Exhausted, Inference, Literal, Theory};
use ken_tool::Error;
use serde::Serialize;

use crate::issue::{Issue, Severity};
use crate::reach::suspects;
use crate::rulebase::{Claim, Rule, RuleBase, variable};

/// The maximum number of sets of premises that are assumed, and the maximum work of all derivations from them.
const MAX_ASSUMED: usize = 1_000;
const MAX_WORK: usize = 20_000_000;

/// The maximum number of steps in a proof that is shown, and the maximum number of conflicts that are reported.
const MAX_PROOF: usize = 1_000;
const MAX_CONFLICTS: usize = 1_000;

/// Two statements that both follow although one is the negation of the other.
#[derive(Serialize)]
pub(crate) struct Conflict {
    statements: [String; 2],
    /// The assumptions, in addition to the facts, from which the statements follow.
    assuming: Vec<String>,
    /// The proof of each statement. A proof is empty for a fact and an assumption, and if it has more than 1000 steps.
    proofs: [Vec<Step>; 2],
}

#[derive(Serialize)]
struct Step {
    rule: usize,
    inference: &'static str,
    premises: Vec<String>,
    conclusion: String,
}

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) conflicts: Vec<Conflict>,
    pub(crate) issues: Vec<Issue>,
    /// The number of rules whose premises do not all follow from the facts.
    pub(crate) idle: usize,
}

pub(crate) fn find(base: &RuleBase<'_>) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut seen = HashSet::new();
    let mut theory = base.theory();
    let mut given = Vec::new();
    for fact in &base.facts {
        given.extend(theory.statement(fact.text));
    }
    let closure = derive(&mut theory, &given)?;
    found.add(base, &theory, &closure, &[], Severity::Error, &mut seen);
    if !base.facts.is_empty() {
        found.idle_rules(base, &mut theory, &closure)?;
    }
    found.goals(base, &mut theory, &closure)?;
    found.assume_premises(base, &mut seen)?;
    found.possible(base, &seen);
    Ok(found)
}

fn derive(theory: &mut Theory<'_>, given: &[Literal]) -> Result<Closure, Error> {
    theory.derive(given).map_err(too_large)
}

fn too_large(limit: Exhausted) -> Error {
    Error::too_large(limit.to_string()).at("/rules")
}

impl Found {
    /// Adds the contradictions of a closure. Those that only follow from another contradiction are left out, and each
    /// pair of statements is added once.
    fn add(
        &mut self,
        base: &RuleBase<'_>,
        theory: &Theory<'_>,
        closure: &Closure,
        assuming: &[String],
        severity: Severity,
        seen: &mut HashSet<String>,
    ) {
        for contradiction in closure.contradictions().iter().filter(|contradiction| contradiction.is_root) {
            let sides = [contradiction.first, contradiction.second];
            let statements = sides.map(|literal| theory.wording(literal).into_owned());
            let affirmed = sides.iter().find(|literal| !literal.is_negated());
            let atom = affirmed.map(|&literal| atom_of(theory, literal)).unwrap_or_default();
            if !seen.insert(atom) || self.conflicts.len() >= MAX_CONFLICTS {
                continue;
            }
            let at = place(base, closure, sides);
            let [one, other] = &statements;
            let when = match assuming {
                [] => String::new(),
                some => format!("given \"{}\", ", some.join("\" and \"")),
            };
            let message = format!("{when}\"{one}\" and \"{other}\" both follow");
            self.issues.push(Issue { severity, ..Issue::error("conflict", at, message) });
            let proofs = sides.map(|literal| proof(base, theory, closure, literal));
            self.conflicts.push(Conflict { statements, assuming: assuming.to_vec(), proofs });
        }
    }

    fn idle_rules<'v>(&mut self, base: &RuleBase<'v>, theory: &mut Theory<'v>, closure: &Closure) -> Result<(), Error> {
        let mut applies = vec![false; base.rules.len()];
        note_applied(&mut applies, closure);
        // A rule also applies if its conclusion was derived by another rule, so the steps alone do not show which rules
        // apply.
        let mut holds = |premise: &&'v str| {
            let premise = theory.statement(premise);
            premise.is_ok_and(|literal| closure.holds(literal))
        };
        for (rule, applies) in base.rules.iter().zip(&mut applies) {
            *applies = *applies || !rule.has_variables && rule.premises.iter().all(&mut holds);
        }
        if applies.contains(&false) && base.rules.iter().any(|rule| rule.has_variables) {
            let held: Vec<Literal> = closure.derived().collect();
            let instances = theory.instances(&held).map_err(too_large)?;
            note_applied(&mut applies, &instances);
        }
        for (rule, applies) in base.rules.iter().zip(applies) {
            if !applies {
                self.idle += 1;
                let message = format!("rule {} never applies: not all its premises follow from the facts", rule.number);
                self.issues.push(Issue::warning("unreachable_rule", rule.at(), message));
            }
        }
        Ok(())
    }

    /// Reports the goals that do not follow from the facts or, if there are no facts, that are not the conclusion of
    /// any rule.
    fn goals<'v>(&mut self, base: &RuleBase<'v>, theory: &mut Theory<'v>, closure: &Closure) -> Result<(), Error> {
        let concluded = base.concluded();
        let is_concluded = |text| base.claim(text).and_then(|claim| concluded.get(claim.index())) == Some(&true);
        let matched = if base.facts.is_empty() { matched(base)? } else { HashSet::new() };
        for goal in &base.goals {
            let reached = if base.facts.is_empty() {
                matched.contains(&goal.number) || is_concluded(goal.text)
            } else {
                theory.statement(goal.text).is_ok_and(|literal| closure.holds(literal))
            };
            if !reached {
                let message = format!("\"{}\" cannot be reached", goal.text);
                self.issues.push(Issue::warning("unreachable_goal", format!("/goals/{}", goal.number), message));
            }
        }
        Ok(())
    }

    /// Assumes the premises of each rule that may contradict itself, and reports the contradictions that follow. These
    /// occur whenever the rule applies. Without facts they are errors, because the document then has to be correct for
    /// every input.
    fn assume_premises(&mut self, base: &RuleBase<'_>, seen: &mut HashSet<String>) -> Result<(), Error> {
        let severity = if base.facts.is_empty() { Severity::Error } else { Severity::Warning };
        let suspects = suspects(base);
        // A rule whose premises contradict each other is reported separately.
        let can_apply = |rule: &&&Rule<'_>| !rule.is_impossible();
        let sets: BTreeSet<Vec<String>> =
            suspects.rules.iter().filter(can_apply).map(|rule| examples(base, rule)).collect();
        let mut is_truncated = suspects.is_truncated || sets.len() > MAX_ASSUMED;
        let mut left = MAX_WORK;
        let mut theory = base.theory();
        for assuming in sets.iter().take(MAX_ASSUMED) {
            if left == 0 {
                is_truncated = true;
                break;
            }
            let mut given = Vec::new();
            for text in assuming {
                given.extend(theory.statement(text));
            }
            let closure = derive(&mut theory, &given)?;
            left = left.saturating_sub(base.derivation_work() + closure.work());
            self.add(base, &theory, &closure, assuming, severity, seen);
        }
        if is_truncated {
            self.issues.push(Issue::warning("search_cut", "/rules", "too many rules to assume the premises of each"));
        }
        Ok(())
    }

    /// Warns of rules with opposite conclusions that are not known to conflict, because their premises need not hold
    /// together.
    fn possible(&mut self, base: &RuleBase<'_>, seen: &HashSet<String>) {
        if !base.rules.iter().any(|rule| rule.head.is_denial()) {
            return;
        }
        let first = first_concluding(base);
        let first = |claim: Claim| first.get(claim.index()).copied().flatten();
        for rule in base.rules.iter().filter(|rule| !rule.has_variables) {
            let (Some(known), Some(other)) = (first(rule.head), first(rule.head.opposite())) else {
                continue;
            };
            let is_first = known.number == rule.number;
            if rule.head.is_denial() && is_first && !seen.contains(&base.text(rule.head.opposite())) {
                let message =
                    format!("rules {} and {} reach opposite conclusions if both apply", other.number, rule.number);
                self.issues.push(Issue::warning("possible_conflict", rule.at(), message));
            }
        }
    }
}

/// Returns the indices of the goals that match the conclusion of a rule with variables.
fn matched(base: &RuleBase<'_>) -> Result<HashSet<usize>, Error> {
    let mut theory = Theory::new();
    for rule in base.rules.iter().filter(|rule| rule.has_variables) {
        // This cannot fail, because the rule was checked when it was read.
        let _ = theory.add_rule([rule.conclusion].into_iter(), "a goal is met");
    }
    let mut goals: Vec<(Literal, usize)> = Vec::new();
    for goal in &base.goals {
        let literal = theory.statement(goal.text);
        goals.extend(literal.map(|literal| (literal, goal.number)));
    }
    let given: Vec<Literal> = goals.iter().map(|(literal, _)| *literal).collect();
    let instances = theory.instances(&given).map_err(too_large)?;
    let met: HashSet<Literal> =
        instances.steps.iter().flat_map(|step| instances.premises(step).iter().copied()).collect();
    let is_met = |(literal, _): &&(Literal, usize)| met.contains(literal);
    Ok(goals.iter().filter(is_met).map(|(_, number)| *number).collect())
}

/// Marks the rules that a step applies in the forward direction. All premises of these rules hold.
fn note_applied(applies: &mut [bool], closure: &Closure) {
    let forward = |step: &&ken_logic::Step| step.inference != Inference::ModusTollens;
    for step in closure.steps.iter().filter(forward) {
        if let Some(applies) = applies.get_mut(step.rule as usize) {
            *applies = true;
        }
    }
}

/// Returns for each claim the first rule with premises that concludes it.
fn first_concluding<'b, 'v>(base: &'b RuleBase<'v>) -> Vec<Option<&'b Rule<'v>>> {
    let mut first = vec![None; base.claims()];
    for rule in base.rules.iter().filter(|rule| !rule.body.is_empty()) {
        if let Some(place @ None) = first.get_mut(rule.head.index()) {
            *place = Some(rule);
        }
    }
    first
}

/// Returns the premises of a rule, each once, with placeholders in place of its variables.
fn examples(base: &RuleBase<'_>, rule: &Rule<'_>) -> Vec<String> {
    let mut known = HashSet::new();
    let premises = rule.body.iter().filter(|&&premise| known.insert(premise));
    premises.map(|&premise| example(&base.text(premise))).collect()
}

/// Returns a premise in normal form with placeholders in place of its variables. Rules that differ only in the names of
/// their variables get the same placeholders.
fn example(premise: &str) -> String {
    let word = |word: &str| match variable(word) {
        Some(name) => format!("{}{}", thing(name), word.get(name.len()..).unwrap_or_default()),
        None => word.to_owned(),
    };
    premise.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

fn thing(name: &str) -> String {
    match name {
        "?0" => "some-x".to_owned(),
        "?1" => "some-y".to_owned(),
        "?2" => "some-z".to_owned(),
        other => other.replacen('?', "some-", 1),
    }
}

fn atom_of(theory: &Theory<'_>, literal: Literal) -> String {
    ken_logic::normalise(&theory.wording(literal)).atom.into_owned()
}

/// Returns a JSON pointer to the place to report for a contradiction: the rule that derives the second statement, or
/// else the first one; the facts if both statements are given.
fn place(base: &RuleBase<'_>, closure: &Closure, sides: [Literal; 2]) -> String {
    let rule =
        sides.iter().rev().find_map(|&literal| closure.steps.get(closure.step_of(literal)?)).map(|step| step.rule);
    let rule = rule.and_then(|id| base.rules.get(id as usize));
    rule.map_or_else(|| "/facts".to_owned(), Rule::at)
}

fn proof(base: &RuleBase<'_>, theory: &Theory<'_>, closure: &Closure, literal: Literal) -> Vec<Step> {
    let numbers = closure.proof(literal, MAX_PROOF).unwrap_or_default();
    let steps = numbers.iter().filter_map(|&number| closure.steps.get(number));
    let worded = |literal: Literal| theory.wording(literal).into_owned();
    let step = |step: &ken_logic::Step| Step {
        rule: base.rules.get(step.rule as usize).map_or(0, |rule| rule.number),
        inference: step.inference.name(),
        premises: closure.premises(step).iter().map(|&premise| worded(premise)).collect(),
        conclusion: worded(step.conclusion),
    };
    steps.map(step).collect()
}

impl Conflict {
    pub(crate) fn summary(&self, to: &mut dyn Write) -> fmt::Result {
        for (statement, proof) in self.statements.iter().zip(&self.proofs) {
            writeln!(to, "  \"{statement}\":")?;
            for step in proof {
                let from = if step.premises.is_empty() {
                    String::new()
                } else {
                    format!(" from {}", step.premises.join(" and "))
                };
                writeln!(to, "    {} by rule {}{from}", step.conclusion, step.rule)?;
            }
            if proof.is_empty() {
                writeln!(to, "    given")?;
            }
        }
        Ok(())
    }
}
