//! The governing rules in force for a turn: those that its stored event selects. The runtime enforces them for every
//! agent of the turn, independently of the text that a model writes.

use std::collections::BTreeMap;

use ken_types::Error;
use ken_types::ops::rules::StoredRule;
use ken_types::ops::store::Claim;
use ken_types::rule::{Directive, Facts, Law, Patterns, Rule};
use serde_json::Value;

use crate::names::TASK;

/// The rules in force; empty by default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Governance {
    /// Sorted by priority, the highest first.
    rules: Vec<Rule>,
}

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
            Directive::DelegateOnly(_) if agent.is_root && tool != TASK => {
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

#[derive(Debug, Clone, Copy)]
pub(crate) struct Agent<'a> {
    pub(crate) name: &'a str,
    /// The orchestrator, which talks with people.
    pub(crate) is_root: bool,
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

    fn governed(claim: &Claim, rules: Value) -> Governance {
        Governance::of(claim, &serde_json::from_value::<Vec<Rule>>(rules).unwrap(), Vec::new()).unwrap()
    }

    /// Which of the rules of a turn forbids what to whom: each agent, each tool, each of two rules.
    #[test]
    fn what_an_agent_may_call_and_whom_it_may_give_tasks() {
        let rules = governed(
            &claim("hello"),
            json!([
                {"name": "deny", "priority": 1, "when": {"agent": "coding-worker"}, "directives": [{"deny_tool": ["push", "run_*"]}]},
                {"name": "delegate", "directives": [{"delegate_only": "coding-worker"}]},
                {"name": "ask", "when": {"agent": ["orchestrator", "research-worker"]}, "directives": [
                    {"text": "first"}, {"require_approval": "fetch"}, {"require_approval": "s*h"}]},
            ]),
        );
        for (name, is_root) in
            [("orchestrator", true), ("coding-worker", false), ("research-worker", false), ("coding-worker", true)]
        {
            for tool in ["task", "push", "run_tests", "run", "fetch", "search", "read"] {
                let denied = name == "coding-worker" && ["push", "run_tests"].contains(&tool);
                let by = if denied { Some("deny") } else { Some("delegate").filter(|_| is_root && tool != "task") };
                let refusal = rules.refusal(&Agent { name, is_root }, tool);
                assert_eq!(refusal.is_some(), by.is_some(), "{name} {is_root} {tool}");
                assert!(by.is_none_or(|by| refusal.unwrap().starts_with(&format!("the rule {by} "))), "{name} {tool}");
                let asks = name != "coding-worker" && ["fetch", "search"].contains(&tool);
                assert_eq!(rules.asks(name, tool), asks.then_some("ask"), "{name} {tool}");
            }
            for worker in ["coding-worker", "research-worker"] {
                let is_refused = rules.refusal_of_worker(&Agent { name, is_root }, worker).is_some();
                assert_eq!(is_refused, is_root && worker == "research-worker", "{name} {is_root} {worker}");
            }
            assert_eq!(rules.text(name), if name == "coding-worker" { "" } else { "\nfirst\n" });
        }
    }

    #[test]
    fn each_field_of_the_event_selects_a_rule() {
        let mut turn = claim("hello");
        turn.scope =
            serde_json::from_value(json!({"connector": "tui", "actorId": "ada", "conversationId": "c"})).unwrap();
        turn.context =
            Some(json!({"clientId": "cli", "projectId": "pro", "task": "tas", "workflow": "wor", "other": "oth"}));
        for (field, value) in [
            ("connector", "tui"),
            ("messageKind", "chat.message"),
            ("actor", "ada"),
            ("client", "cli"),
            ("project", "pro"),
            ("task", "tas"),
            ("workflow", "wor"),
        ] {
            for (wanted, applies) in [(value, true), ("*", true), ("oth", false)] {
                let rule = json!([{"name": "r", "when": {field: wanted}, "directives": [{"text": "x"}]}]);
                assert_eq!(!governed(&turn, rule.clone()).text("orchestrator").is_empty(), applies, "{field} {wanted}");
                // A turn without the field is selected by no pattern.
                let bare = Claim { message_kind: String::new(), ..claim("hello") };
                assert!(governed(&bare, rule).text("orchestrator").is_empty(), "{field} {wanted}");
            }
        }
    }

    #[test]
    fn rules_stand_by_priority_and_name_and_the_strictest_counts() {
        let time = ken_types::Timestamp::default();
        let user = |name: &str, rule: Value| StoredRule {
            name: name.to_owned(),
            rule,
            enabled: true,
            created_at: time,
            updated_at: time,
        };
        let base = json!([
            {"name": "b", "directives": [{"text": "b"}, {"max_cost": 2.0}, {"require_tool": ["x", "y"]}]},
            {"name": "a", "directives": [{"text": "a"}, {"max_cost": 1.0}]},
            {"name": "c", "priority": 1, "directives": [{"text": "c"}, {"max_cost": 3.0}, {"require_tool": "z"}]},
        ]);
        let base: Vec<Rule> = serde_json::from_value(base).unwrap();
        let of = |users| Governance::of(&claim("hello"), &base, users);
        let rules = of(vec![user("u", json!({"name": "u", "priority": 2, "directives": [{"text": "u"}]}))]).unwrap();
        assert_eq!(rules.text("orchestrator"), "\nu\n\nc\n\na\n\nb\n");
        assert_eq!(rules.max_cost(), Some(Requirement { rule: "a".to_owned(), value: 1.0 }));
        let required = rules.required().into_iter().map(|each| (each.rule, each.value.0.concat()));
        assert_eq!(
            required.collect::<Vec<_>>(),
            [("c", "z"), ("b", "x"), ("b", "y")].map(|(rule, tool)| (rule.into(), tool.into()))
        );
        // No turn may run with fewer rules than were set.
        assert!(of(vec![user("odd", json!({"name": "odd"}))]).unwrap_err().message.contains("odd"));
        assert!(Governance::default().validation().is_none() && Governance::default().max_cost().is_none());
    }

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
