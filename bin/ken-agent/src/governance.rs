//! The governing rules in force for a turn: those that its stored event selects. The runtime enforces them for every
//! agent of the turn, independently of the text that a model writes.

use std::collections::BTreeMap;

use ken_types::Error;
use ken_types::ops::rules::StoredRule;
use ken_types::ops::store::Claim;
use ken_types::rule::{Directive, Facts, Law, Patterns, Rule};
use serde_json::Value;

/// The rules in force; empty by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Governance {
    /// Sorted by priority, the highest first.
    rules: Vec<Rule>,
}

/// A requirement, and the rule that contains it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Requirement<T> {
    pub(crate) rule: String,
    pub(crate) value: T,
}

impl Governance {
    /// Selects the rules of files and of users that apply to the event of this claim. Fails if a rule cannot be read,
    /// because no turn may run with fewer rules than were set.
    pub(crate) fn of(claim: &Claim, base: &[Rule], users: Vec<StoredRule>) -> Result<Governance, Error> {
        let mut rules = base.to_vec();
        for stored in users {
            let rule: Rule = serde_json::from_value(stored.rule).map_err(|error| {
                Error::invalid("", format!("the governing rule {} cannot be read: {error}", stored.name))
                    .hint(format!("ken rules rm {}", stored.name))
            })?;
            rules.push(rule);
        }
        let facts = facts(claim);
        rules.retain(|rule| rule.when.selects(&facts));
        rules.sort_by(|one, next| (next.priority, &one.name).cmp(&(one.priority, &next.name)));
        Ok(Governance { rules })
    }

    fn directives(&self) -> impl Iterator<Item = (&Rule, &Directive)> {
        self.rules.iter().flat_map(|rule| rule.directives.iter().map(move |directive| (rule, directive)))
    }

    fn for_agent(&self, agent: &str) -> impl Iterator<Item = (&Rule, &Directive)> {
        self.directives().filter(move |(rule, _)| rule.when.is_for(agent))
    }

    /// Returns why an agent may not call a tool, or `None` if it may.
    pub(crate) fn refusal(&self, agent: &Agent<'_>, tool: &str) -> Option<String> {
        self.for_agent(agent.name).find_map(|(rule, directive)| match directive {
            Directive::DenyTool(tools) if tools.match_text(tool) => {
                Some(format!("the rule {} denies the tool {tool}", rule.name))
            }
            Directive::DelegateOnly(_) if agent.is_root && tool != agent.delegates_by => {
                Some(format!("the rule {} lets the {} give tasks only", rule.name, agent.name))
            }
            _ => None,
        })
    }

    /// Returns why an agent may not give a task to a worker, or `None` if it may.
    pub(crate) fn refusal_of_worker(&self, agent: &Agent<'_>, worker: &str) -> Option<String> {
        self.for_agent(agent.name).find_map(|(rule, directive)| match directive {
            Directive::DelegateOnly(workers) if agent.is_root && !workers.match_text(worker) => {
                Some(format!("the rule {} gives no task to {worker}", rule.name))
            }
            _ => None,
        })
    }

    /// Returns the name of the rule that requires a person to approve the calls of a tool.
    pub(crate) fn asks(&self, agent: &str, tool: &str) -> Option<&str> {
        self.for_agent(agent).find_map(|(rule, directive)| match directive {
            Directive::RequireApproval(tools) if tools.match_text(tool) => Some(rule.name.as_str()),
            _ => None,
        })
    }

    /// Returns the tools that must succeed before an answer is accepted.
    pub(crate) fn required(&self) -> Vec<Requirement<Patterns>> {
        let demands = self.directives().filter_map(|(rule, directive)| match directive {
            Directive::RequireTool(tools) => Some(
                tools.0.iter().map(|tool| Requirement { rule: rule.name.clone(), value: Patterns(vec![tool.clone()]) }),
            ),
            _ => None,
        });
        demands.flatten().collect()
    }

    /// Returns the scores that the answer must reach, or `None` if no rule requires validation. If several rules do,
    /// the highest minimum of each score applies.
    pub(crate) fn validation(&self) -> Option<Requirement<BTreeMap<Law, f64>>> {
        let mut found: Option<Requirement<BTreeMap<Law, f64>>> = None;
        for (rule, directive) in self.directives() {
            if let Directive::RequireValidation(minimums) = directive {
                let demand =
                    found.get_or_insert_with(|| Requirement { rule: rule.name.clone(), value: BTreeMap::new() });
                for (law, min) in minimums {
                    let known = demand.value.entry(*law).or_insert(*min);
                    *known = known.max(*min);
                }
            }
        }
        found
    }

    /// Returns the lowest of the maximum costs that rules set, in US dollars.
    pub(crate) fn max_cost(&self) -> Option<Requirement<f64>> {
        let costs = self.directives().filter_map(|(rule, directive)| match directive {
            Directive::MaxCost(max) => Some(Requirement { rule: rule.name.clone(), value: *max }),
            _ => None,
        });
        costs.min_by(|one, other| one.value.total_cmp(&other.value))
    }

    /// Returns the text that rules add to the prompt of an agent.
    pub(crate) fn text(&self, agent: &str) -> String {
        let texts = self.for_agent(agent).filter_map(|(_, directive)| match directive {
            Directive::Text(text) => Some(format!("\n{}\n", text.trim())),
            _ => None,
        });
        texts.collect()
    }
}

/// The agent to which rules are applied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agent<'a> {
    pub(crate) name: &'a str,
    /// The orchestrator, which talks with people.
    pub(crate) is_root: bool,
    /// The name of the tool that gives tasks to workers.
    pub(crate) delegates_by: &'a str,
}

/// Returns the facts of the stored event by which rules are selected. None of them comes from a model.
fn facts(claim: &Claim) -> Facts<'_> {
    let scope = claim.scope.as_ref();
    let context = |name: &str| claim.context.as_ref()?.get(name).and_then(Value::as_str);
    Facts {
        connector: scope.map(|scope| scope.connector.as_str()),
        message_kind: Some(claim.message_kind.as_str()).filter(|kind| !kind.is_empty()),
        actor: scope.map(|scope| scope.actor_id.as_str()),
        client: context("clientId"),
        project: context("projectId"),
        task: context("task"),
        workflow: context("workflow"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::claim;
    use serde_json::json;

    #[test]
    fn of_several_minimums_of_a_score_the_highest_applies() {
        let rule = |name: &str, priority: i32, first: f64, third: f64| {
            let directive = json!({"require_validation": {"law1_architectural_intelligence": first, "law3_truth_foundation": third}});
            serde_json::from_value::<Rule>(json!({"name": name, "priority": priority, "directives": [directive]}))
                .unwrap()
        };
        for (high, low) in [(2, 1), (1, 2)] {
            let rules = [rule("a", high, 90.0, 10.0), rule("b", low, 20.0, 80.0)];
            let demand = Governance::of(&claim("hello"), &rules, Vec::new()).unwrap().validation().unwrap();
            assert_eq!(demand.value.into_values().collect::<Vec<_>>(), [90.0, 80.0]);
        }
    }
}
