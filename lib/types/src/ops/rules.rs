//! Governing rules of users, in the store, and those that ken-agent has from files.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use crate::Timestamp;
use crate::rule::Rule;

crate::operations! {
    /// Adds a rule, or puts it in place of the one of the same name. Turns that begin from now on are held to it.
    RulesPut, "rules.put": PutRule => Nothing;
    /// By name.
    RulesList, "rules.list": Nothing => Rules;
    /// Switches a rule on or off; `not_found` for an unknown name.
    RulesSwitch, "rules.switch": SwitchRule => Nothing;
    RulesDelete, "rules.delete": NamedRule => Nothing;
    /// Of ken-agent: the rules from files, which nobody can switch off.
    RulesBase, "rules.base": Nothing => BaseRules;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutRule {
    /// As ken-rules(5) describes it.
    pub rule: Rule,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchRule {
    pub name: String,
    pub enabled: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedRule {
    pub name: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rules {
    pub rules: Vec<StoredRule>,
}

/// A rule as the store holds it. Whether it can be read is up to who uses it: a newer ken may know more directives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredRule {
    pub name: String,
    pub rule: Value,
    pub enabled: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BaseRules {
    pub rules: Vec<BaseRule>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaseRule {
    pub rule: Rule,
    /// Absent for the copy in the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
