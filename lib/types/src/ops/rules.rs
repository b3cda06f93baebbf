//! Governing rules: the rules of users, which the store keeps, and the rules that ken-agent reads from files.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use crate::Timestamp;
use crate::rule::Rule;

crate::operations! {
    /// Adds a rule, or replaces the one with the same name. It applies to turns that begin later.
    RulesPut, "rules.put": PutRule => Nothing;
    /// Returns the rules of users, ordered by name.
    RulesList, "rules.list": Nothing => Rules;
    /// Switches a rule on or off; `not_found` for an unknown name.
    RulesSwitch, "rules.switch": SwitchRule => Nothing;
    RulesDelete, "rules.delete": NamedRule => Nothing;
    /// Served by ken-agent: returns the rules from files, which cannot be switched off.
    RulesBase, "rules.base": Nothing => BaseRules;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutRule {
    /// The rule, as ken-rules(5) describes it.
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

/// A rule in the store. If a newer version of ken stored it, it may contain directives that this version does not know,
/// and so be unreadable.
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
    /// The file of the rule. Absent for a rule that is built into the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
