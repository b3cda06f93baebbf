//! Verifies the proofs in a result of ken-rep. Each premise of a step must be given or be the conclusion of an earlier
//! step, and its conclusion must follow by the rule that the step names.

use std::collections::HashSet;

use ken_logic::{Interner, Theory, normalise};
use ken_tool::Error;
use serde_json::Value;

use crate::issue::Issue;
use crate::rulebase::{Claim, Rule, RuleBase, list};

/// The types of steps whose conclusion must follow by a rule. Steps of other types are not deductions.
const DEDUCTIONS: [&str; 3] = ["axiom", "modus_ponens", "modus_tollens"];

pub(crate) fn check(base: &RuleBase<'_>, value: &Value) -> Result<Vec<Issue>, Error> {
    let (steps, conclusions) = (list(value, "reasoning_chain")?, list(value, "conclusions")?);
    let Some(steps) = steps else {
        return Ok(Vec::new());
    };
    let mut held = KnownStatements::default();
    base.facts.iter().for_each(|fact| held.add(fact.text));
    let mut issues = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let step = Step::of(number, step);
        issues.extend(step.premises.iter().enumerate().filter_map(|(place, premise)| {
            let is_held = premise.as_str().is_some_and(|text| held.has(text));
            let message = || format!("step {number} rests on {premise}, which no earlier step proves");
            (!is_held).then(|| unproved(format!("{}/premises/{place}", step.at()), message()))
        }));
        issues.extend(step.problem(base).map(|what| unproved(step.at(), what)));
        step.conclusion.into_iter().for_each(|conclusion| held.add(conclusion));
    }
    for (number, conclusion) in conclusions.unwrap_or_default().iter().enumerate() {
        if !conclusion.as_str().is_some_and(|text| held.has(text)) {
            let message = format!("{conclusion} has no proof in the reasoning chain");
            issues.push(unproved(format!("/conclusions/{number}"), message));
        }
    }
    Ok(issues)
}

fn unproved(at: String, message: String) -> Issue {
    Issue::error("unproved", at, message)
}

struct Step<'v> {
    number: usize,
    kind: Option<&'v str>,
    rule: Option<&'v Value>,
    premises: &'v [Value],
    conclusion: Option<&'v str>,
}

impl<'v> Step<'v> {
    fn of(number: usize, value: &'v Value) -> Step<'v> {
        let text = |field| value.get(field).and_then(Value::as_str);
        let premises = value.get("premises").and_then(Value::as_array);
        Step {
            number,
            kind: text("type"),
            rule: value.get("rule").filter(|rule| !rule.is_null()),
            premises: premises.map_or(&[], Vec::as_slice),
            conclusion: text("conclusion"),
        }
    }

    fn at(&self) -> String {
        format!("/reasoning_chain/{}", self.number)
    }

    /// Returns why the conclusion of a deduction does not follow by its rule; `None` if it follows.
    fn problem(&self, base: &RuleBase<'_>) -> Option<String> {
        let number = self.number;
        match self.kind {
            Some(kind) if !DEDUCTIONS.contains(&kind) => return None,
            None if self.rule.is_none() => return None,
            _ => {}
        }
        let Some(rule) = self.rule.and_then(Value::as_u64).and_then(|place| base.rule(place as usize)) else {
            return Some(format!("step {number} names no rule of the document"));
        };
        let yields = if rule.has_variables { self.is_instance_of(rule) } else { self.follows_by(base, rule) };
        (!yields).then(|| {
            let conclusion = self.conclusion.unwrap_or_default();
            format!(
                "step {number} concludes \"{conclusion}\", which does not follow from its premises by rule {}",
                rule.number
            )
        })
    }

    fn texts(&self) -> impl Iterator<Item = &'v str> {
        self.premises.iter().filter_map(Value::as_str)
    }

    /// Returns whether the conclusion of the step follows by a rule without variables. A rule means that its premises
    /// and the negation of its conclusion cannot all hold. So if all of these but one are given, the negation of that
    /// one follows.
    fn follows_by(&self, base: &RuleBase<'_>, rule: &Rule<'_>) -> bool {
        let Some(denied) = self.conclusion.and_then(|text| base.claim(text)).map(Claim::opposite) else {
            return false;
        };
        let given: HashSet<Claim> = self.texts().filter_map(|text| base.claim(text)).collect();
        let mut parts = rule.body.iter().copied().chain([rule.head.opposite()]);
        parts.clone().any(|part| part == denied) && parts.all(|part| part == denied || given.contains(&part))
    }

    /// Returns whether the conclusion follows by a rule with variables, that is, whether the rule or one of its
    /// contrapositives applies to the premises.
    fn is_instance_of(&self, rule: &Rule<'_>) -> bool {
        let ways = rule.ways();
        let mut theory = Theory::new();
        for (premises, conclusion) in &ways {
            // The theory refuses a contrapositive whose conclusion has a variable that no premise binds. Such a
            // contrapositive derives nothing.
            let _ = theory.add_rule(premises.iter().map(String::as_str), conclusion);
        }
        let given: Vec<_> = self.texts().filter_map(|text| theory.statement(text).ok()).collect();
        let conclusion = self.conclusion.and_then(|text| theory.statement(text).ok());
        let instances = theory.instances(&given);
        instances.is_ok_and(|found| found.steps.iter().any(|step| Some(step.conclusion) == conclusion))
    }
}

/// The statements that are given or proved so far. `sides` says for each statement whether it holds and whether its
/// negation holds.
#[derive(Default)]
struct KnownStatements {
    statements: Interner,
    sides: Vec<[bool; 2]>,
}

impl KnownStatements {
    fn add(&mut self, text: &str) {
        let statement = normalise(text);
        let (number, is_new) = self.statements.intern(&statement.atom);
        if is_new {
            self.sides.push([false; 2]);
        }
        if let Some(sides) = self.sides.get_mut(number as usize) {
            sides[usize::from(statement.negated)] = true;
        }
    }

    fn has(&self, text: &str) -> bool {
        let statement = normalise(text);
        let number = self.statements.get(&statement.atom);
        let sides = number.and_then(|number| self.sides.get(number as usize));
        sides.is_some_and(|sides| sides[usize::from(statement.negated)])
    }
}
