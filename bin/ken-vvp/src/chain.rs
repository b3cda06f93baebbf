//! The proofs of a result of ken-rep: each step must rest on what is given or was concluded before it.

use std::collections::BTreeSet;

use ken_logic::normalise;
use serde_json::Value;

use crate::answer::Issue;
use crate::rulebase::RuleBase;

pub(crate) fn check(base: &RuleBase, value: &Value) -> Vec<Issue> {
    let Some(steps) = value.get("reasoning_chain").and_then(Value::as_array) else {
        return Vec::new();
    };
    let mut held: BTreeSet<(String, bool)> = base.facts.iter().map(|fact| key(&fact.text)).collect();
    let mut issues = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let premises = step
            .get("premises")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        for (place, premise) in premises.iter().enumerate() {
            let is_held = premise.as_str().is_some_and(|text| held.contains(&key(text)));
            if !is_held {
                let at = format!("/reasoning_chain/{number}/premises/{place}");
                issues.push(Issue::error(
                    "unproved",
                    at,
                    format!("step {number} rests on {premise}, which nothing before it proves"),
                ));
            }
        }
        held.extend(step.get("conclusion").and_then(Value::as_str).map(key));
    }
    let conclusions = value
        .get("conclusions")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    for (number, conclusion) in conclusions.iter().enumerate() {
        if !conclusion.as_str().is_some_and(|text| held.contains(&key(text))) {
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

fn key(text: &str) -> (String, bool) {
    let statement = normalise(text);
    (statement.atom.into_owned(), statement.negated)
}
