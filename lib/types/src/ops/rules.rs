//! Governing rules: those of users, which the store keeps, and those that ken-agent reads from files.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use crate::Timestamp;
use crate::rule::Rule;

crate::operations! {
    /// Adds a rule, or replaces the one of the same name. It applies to turns that begin from now on.
    RulesPut, "rules.put": PutRule => Nothing;
    /// By name.
    RulesList, "rules.list": Nothing => Rules;
    /// Switches a rule on or off; `not_found` for an unknown name.
    RulesSwitch, "rules.switch": SwitchRule => Nothing;
    RulesDelete, "rules.delete": NamedRule => Nothing;
    /// Served by ken-agent: the rules from files, which cannot be switched off.
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

/// A rule as the store keeps it. It may be one that this version cannot read, because a newer one knows more directives.
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
    /// Absent for a rule that is built into the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}
