//! Checks what the rules derive together: conflicts, rules that cannot apply, and unreachable goals.

use std::collections::{BTreeSet, HashSet};
use std::fmt::{self, Write};

use ken_logic::{Closure, Exhausted, Inference, Literal, Theory};
use ken_tool::Error;
use serde::Serialize;

use crate::issue::{Issue, Severity};
use crate::reach::suspects;
use crate::rulebase::{Claim, Rule, RuleBase, variable};

/// Maximum number of rules whose premises are assumed in turn, and maximum work of all these derivations.
const MOST_SUPPOSED: usize = 1_000;
const MOST_WORK: usize = 20_000_000;

/// Maximum number of steps of a proof, and of conflicts with proofs.
const LONGEST_PROOF: usize = 1_000;
const MOST_CONFLICTS: usize = 1_000;

/// A statement that can be derived, and whose negation can be derived too.
#[derive(Serialize)]
pub(crate) struct Conflict {
    statements: [String; 2],
    /// Assumptions in addition to the facts.
    assuming: Vec<String>,
    /// The proof of each statement; empty for a fact or an assumption, and for a proof of more than 1000 steps.
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
    /// The number of rules that never apply, given the facts.
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
    found.suppose(base, &mut seen)?;
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
    /// Adds the contradictions of a closure that do not merely follow from others, each pair of statements once.
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
            if !seen.insert(atom) || self.conflicts.len() >= MOST_CONFLICTS {
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
        // The conclusion may also follow by other rules, so there need not be a step that shows that this rule applies.
        let mut holds = |premise: &&'v str| {
            let premise = theory.statement(premise);
            premise.is_ok_and(|literal| closure.holds(literal))
        };
        for (rule, applies) in base.rules.iter().zip(&mut applies) {
            *applies = *applies || !rule.has_variables && rule.premises.iter().all(&mut holds);
        }
        if applies.contains(&false) && base.rules.iter().any(|rule| rule.has_variables) {
            let held: Vec<Literal> = closure.held().collect();
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

    /// Goals that do not follow or, if there are no facts, that no rule can conclude.
    fn goals<'v>(&mut self, base: &RuleBase<'v>, theory: &mut Theory<'v>, closure: &Closure) -> Result<(), Error> {
        let concluded = base.concluded();
        let is_concluded = |text| base.claim(text).and_then(|claim| concluded.get(claim.index())) == Some(&true);
        let matched = match base.facts.is_empty() {
            true => matched(base)?,
            false => HashSet::new(),
        };
        for goal in &base.goals {
            let reached = match base.facts.is_empty() {
                true => matched.contains(&goal.number) || is_concluded(goal.text),
                false => theory.statement(goal.text).is_ok_and(|literal| closure.holds(literal)),
            };
            if !reached {
                let message = format!("\"{}\" cannot be reached", goal.text);
                self.issues.push(Issue::warning("unreachable_goal", format!("/goals/{}", goal.number), message));
            }
        }
        Ok(())
    }

    /// Assumes the premises of each rule that may contradict itself. A contradiction that follows occurs whenever the rule applies;
    /// it is an error if there are no facts, since then every input is possible.
    fn suppose(&mut self, base: &RuleBase<'_>, seen: &mut HashSet<String>) -> Result<(), Error> {
        let severity = if base.facts.is_empty() { Severity::Error } else { Severity::Warning };
        let suspects = suspects(base);
        // Impossible rules are reported separately.
        let can_apply = |rule: &&&Rule<'_>| !rule.is_impossible();
        let sets: BTreeSet<Vec<String>> =
            suspects.rules.iter().filter(can_apply).map(|rule| examples(base, rule)).collect();
        let mut is_cut = suspects.is_cut || sets.len() > MOST_SUPPOSED;
        let mut left = MOST_WORK;
        let mut theory = base.theory();
        for assuming in sets.iter().take(MOST_SUPPOSED) {
            if left == 0 {
                is_cut = true;
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
        if is_cut {
            self.issues.push(Issue::warning("search_cut", "/rules", "too many rules to assume the premises of each"));
        }
        Ok(())
    }

    /// Rules with opposite conclusions and unrelated premises, which are a problem only if both apply.
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

/// The indices of the goals that match a conclusion with variables.
fn matched(base: &RuleBase<'_>) -> Result<HashSet<usize>, Error> {
    let mut theory = Theory::new();
    for rule in base.rules.iter().filter(|rule| rule.has_variables) {
        // The rule was checked when it was read.
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

/// Marks the rules whose premises all hold according to the steps.
fn note_applied(applies: &mut [bool], closure: &Closure) {
    let forward = |step: &&ken_logic::Step| step.inference != Inference::ModusTollens;
    for step in closure.steps.iter().filter(forward) {
        if let Some(applies) = applies.get_mut(step.rule as usize) {
            *applies = true;
        }
    }
}

/// For each claim, the first rule with premises that concludes it.
fn first_concluding<'b, 'v>(base: &'b RuleBase<'v>) -> Vec<Option<&'b Rule<'v>>> {
    let mut first = vec![None; base.claims()];
    for rule in base.rules.iter().filter(|rule| !rule.body.is_empty()) {
        if let Some(place @ None) = first.get_mut(rule.head.index()) {
            *place = Some(rule);
        }
    }
    first
}

/// The premises of a rule, each once, with placeholders for its variables.
fn examples(base: &RuleBase<'_>, rule: &Rule<'_>) -> Vec<String> {
    let mut known = HashSet::new();
    let premises = rule.body.iter().filter(|&&premise| known.insert(premise));
    premises.map(|&premise| example(&base.text(premise))).collect()
}

/// A premise in normal form with placeholders for its variables, which are the same for rules that differ only in the names of
/// their variables.
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

/// The place of the second side: the rule that derives it, or the fact.
fn place(base: &RuleBase<'_>, closure: &Closure, sides: [Literal; 2]) -> String {
    let rule =
        sides.iter().rev().find_map(|&literal| closure.steps.get(closure.step_of(literal)?)).map(|step| step.rule);
    let rule = rule.and_then(|id| base.rules.get(id as usize));
    rule.map_or_else(|| "/facts".to_owned(), Rule::at)
}

fn proof(base: &RuleBase<'_>, theory: &Theory<'_>, closure: &Closure, literal: Literal) -> Vec<Step> {
    let numbers = closure.proof(literal, LONGEST_PROOF).unwrap_or_default();
    let steps = numbers.iter().filter_map(|&number| closure.steps.get(number));
    let worded = |literal: Literal| theory.wording(literal).into_owned();
    let step = |step: &ken_logic::Step| Step {
        rule: base.rules.get(step.rule as usize).map_or(0, |rule| rule.number),
        inference: match step.inference {
            Inference::Axiom => "axiom",
            Inference::ModusPonens => "modus_ponens",
            Inference::ModusTollens => "modus_tollens",
        },
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
