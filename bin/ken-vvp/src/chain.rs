//! The proofs of a result of ken-rep: each step must rest on what is given or was concluded before it.

use ken_logic::{Interner, normalise};
use serde_json::Value;

use crate::answer::Issue;
use crate::rulebase::RuleBase;

pub(crate) fn check(base: &RuleBase<'_>, value: &Value) -> Vec<Issue> {
    let Some(steps) = value.get("reasoning_chain").and_then(Value::as_array) else {
        return Vec::new();
    };
    let mut held = Held::default();
    base.facts.iter().for_each(|fact| held.add(fact.text));
    let mut issues = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let premises = step
            .get("premises")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        for (place, premise) in premises.iter().enumerate() {
            let is_held = premise.as_str().is_some_and(|text| held.has(text));
            if !is_held {
                let at = format!("/reasoning_chain/{number}/premises/{place}");
                issues.push(Issue::error(
                    "unproved",
                    at,
                    format!("step {number} rests on {premise}, which nothing before it proves"),
                ));
            }
        }
        if let Some(conclusion) = step.get("conclusion").and_then(Value::as_str) {
            held.add(conclusion);
        }
    }
    let conclusions = value
        .get("conclusions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    for (number, conclusion) in conclusions.iter().enumerate() {
        if !conclusion.as_str().is_some_and(|text| held.has(text)) {
            let at = format!("/conclusions/{number}");
            issues.push(Issue::error(
                "unproved",
                at,
                format!("{conclusion} has no proof in the reasoning chain"),
            ));
        }
    }
    issues
}

/// The statements that are given or proved: by number, whether they hold and whether they are denied.
#[derive(Default)]
struct Held {
    statements: Interner,
    sides: Vec<[bool; 2]>,
}

impl Held {
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
