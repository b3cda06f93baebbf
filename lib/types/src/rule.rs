//! Governing rules: which turns a rule applies to, and what it requires of an agent there (ken-rules(5)).
//!
//! A directive forbids or requires something; none allows anything. Therefore no rule can cancel another.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::Error;

/// One rule, as it is in a file of `share/protocols` or in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// 1 to 64 lower-case letters, digits and dashes.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// If absent, the rule applies to every turn.
    #[serde(default, skip_serializing_if = "Selector::is_empty")]
    pub when: Selector,
    /// Texts of rules with a higher priority come first.
    #[serde(default)]
    pub priority: i32,
    pub directives: Vec<Directive>,
}

/// The turns that a rule applies to. Each given field must match the stored event; a pattern may contain `*`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    pub connector: Option<Patterns>,
    pub message_kind: Option<Patterns>,
    pub actor: Option<Patterns>,
    pub client: Option<Patterns>,
    pub project: Option<Patterns>,
    pub task: Option<Patterns>,
    pub workflow: Option<Patterns>,
    /// The agent to which the rule applies: `orchestrator`, `research-worker`, `coding-worker`.
    pub agent: Option<Patterns>,
}

/// One requirement of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Each of these tools must have been called successfully before an answer is accepted.
    RequireTool(Patterns),
    /// These tools are neither offered to the model nor run.
    DenyTool(Patterns),
    /// A person has to approve each call of these tools.
    RequireApproval(Patterns),
    /// The orchestrator calls no tool itself, and delegates tasks only to these workers.
    DelegateOnly(Patterns),
    /// The answer is checked, and must reach at least these scores, in percent.
    RequireValidation(BTreeMap<Law, f64>),
    /// The maximum cost of a submission and its workers, in US dollars.
    MaxCost(f64),
    /// Text that is added to the prompt of the model.
    Text(String),
}

crate::named! {
    /// One of the scores that ken-laws computes.
    #[derive(PartialOrd, Ord)]
    pub enum Law {
        Architecture = "law1_architectural_intelligence",
        Governance = "law2_cognitive_governance",
        Truth = "law3_truth_foundation",
        Energy = "law4_energy_stewardship",
        Reliability = "law5_deterministic_reliability",
        OverallCompliance = "overall_compliance",
    }
}

/// Patterns, one of which must match. In JSON a string or a list of strings. `*` matches any characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Patterns(pub Vec<String>);

impl Patterns {
    pub fn match_text(&self, text: &str) -> bool {
        self.0.iter().any(|pattern| pattern_matches(pattern, text))
    }
}

impl<'de> Deserialize<'de> for Patterns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Patterns, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Patterns;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or a list of texts")
            }

            fn visit_str<E>(self, one: &str) -> Result<Patterns, E> {
                Ok(Patterns(vec![one.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut given: A) -> Result<Patterns, A::Error> {
                let mut many = Vec::new();
                while let Some(pattern) = given.next_element()? {
                    many.push(pattern);
                }
                Ok(Patterns(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

/// Whether a pattern matches a whole text. `*` matches any characters. For each `*`, the time is linear in the length
/// of the text.
pub fn pattern_matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut left) = text.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else {
            return false;
        };
        left = after;
    }
    left.ends_with(end)
}

/// The fields of a turn's stored event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'a> {
    pub connector: Option<&'a str>,
    pub message_kind: Option<&'a str>,
    pub actor: Option<&'a str>,
    pub client: Option<&'a str>,
    pub project: Option<&'a str>,
    pub task: Option<&'a str>,
    pub workflow: Option<&'a str>,
}

impl Selector {
    pub fn is_empty(&self) -> bool {
        *self == Selector::default()
    }

    /// Whether the rule applies to this turn, regardless of the agent that works on it. A field that the event lacks
    /// matches no pattern.
    pub fn selects(&self, facts: &Facts<'_>) -> bool {
        let pairs = [
            (&self.connector, facts.connector),
            (&self.message_kind, facts.message_kind),
            (&self.actor, facts.actor),
            (&self.client, facts.client),
            (&self.project, facts.project),
            (&self.task, facts.task),
            (&self.workflow, facts.workflow),
        ];
        pairs.iter().all(|(wanted, there)| {
            let fits = |wanted: &Patterns| there.is_some_and(|there| wanted.match_text(there));
            wanted.as_ref().is_none_or(fits)
        })
    }

    /// Fails for a selector that can never match, because otherwise nobody would notice that its rule never applies.
    fn check(&self) -> Result<(), Error> {
        let fields = [
            ("connector", &self.connector),
            ("messageKind", &self.message_kind),
            ("actor", &self.actor),
            ("client", &self.client),
            ("project", &self.project),
            ("task", &self.task),
            ("workflow", &self.workflow),
            ("agent", &self.agent),
        ];
        for (name, patterns) in fields {
            let Some(patterns) = patterns else { continue };
            if patterns.0.is_empty() || patterns.0.iter().any(String::is_empty) {
                return Err(Error::invalid(format!("/when/{name}"), "it names nothing"));
            }
        }
        let agents = self.agent.iter().flat_map(|patterns| &patterns.0);
        check_names(agents, &AGENTS).map_err(|error| error.at("/when/agent"))
    }

    /// Whether the rule applies to this agent, in a turn to which the rule applies.
    pub fn is_for(&self, agent: &str) -> bool {
        self.agent.as_ref().is_none_or(|wanted| wanted.match_text(agent))
    }
}

const AGENTS: [&str; 3] = ["orchestrator", "research-worker", "coding-worker"];
const WORKERS: [&str; 2] = ["research-worker", "coding-worker"];

/// Checks that each pattern matches at least one of the names.
fn check_names<'a>(patterns: impl IntoIterator<Item = &'a String>, names: &[&str]) -> Result<(), Error> {
    let mut patterns = patterns.into_iter();
    match patterns.find(|pattern| !names.iter().any(|name| pattern_matches(pattern, name))) {
        Some(unknown) => Err(Error::invalid("", format!("{unknown:?} is none of {}", names.join(", ")))),
        None => Ok(()),
    }
}

/// The maximum length of the text of a directive, in bytes.
const MAX_TEXT_BYTES: usize = 16 * 1024;
const DIRECTIVES: usize = 64;

impl Rule {
    /// Parses a rule. The error for an unknown field or directive names it, its line and the known ones.
    pub fn parse(text: &[u8]) -> Result<Rule, Error> {
        let rule: Rule = serde_json::from_slice(text).map_err(|error| Error::invalid("", error.to_string()))?;
        rule.check()?;
        Ok(rule)
    }

    /// Checks what the types do not ensure.
    pub fn check(&self) -> Result<(), Error> {
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if !(1..=64).contains(&self.name.len()) || !self.name.chars().all(plain) {
            let message = "a name has 1 to 64 lower-case letters, digits and dashes";
            return Err(Error::invalid("/name", message));
        }
        if !(1..=DIRECTIVES).contains(&self.directives.len()) {
            let message = format!("a rule has 1 to {DIRECTIVES} directives");
            return Err(Error::invalid("/directives", message));
        }
        self.when.check()?;
        for (number, directive) in self.directives.iter().enumerate() {
            let wrong = |message: &str| Err(Error::invalid(format!("/directives/{number}"), message));
            match directive {
                Directive::RequireTool(patterns)
                | Directive::DenyTool(patterns)
                | Directive::RequireApproval(patterns)
                | Directive::DelegateOnly(patterns)
                    if patterns.0.is_empty() || patterns.0.iter().any(String::is_empty) =>
                {
                    return wrong("it names nothing");
                }
                Directive::DelegateOnly(workers) => {
                    let place = format!("/directives/{number}/delegate_only");
                    check_names(&workers.0, &WORKERS).map_err(|error| error.at(place))?;
                }
                Directive::RequireValidation(minimums) if !minimums.values().all(|min| (0.0..=100.0).contains(min)) => {
                    return wrong("a minimum is 0 to 100");
                }
                Directive::MaxCost(max) if !(*max >= 0.0 && max.is_finite()) => {
                    return wrong("a cost is 0 or more");
                }
                Directive::Text(text) if text.trim().is_empty() || text.len() > MAX_TEXT_BYTES => {
                    return wrong("a text has 1 byte to 16 KiB");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_a_whole_text() {
        for (pattern, text, wanted) in [
            ("git_push", "git_push", true),
            ("git_push", "git_pushed", false),
            ("git_*", "git_push", true),
            ("*", "", true),
            ("*_file*", "read_files", true),
            ("*_file", "read_files", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(pattern_matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_is_read_and_what_is_unknown_is_named() {
        let text = br#"{"name":"a","when":{"actor":"ann","task":["x*","y"]},"directives":[{"deny_tool":"git_*"},{"max_cost":1},
            {"require_validation":{"law3_truth_foundation":80}},{"text":"Be brief."}]}"#;
        let rule = Rule::parse(text).unwrap();
        assert_eq!(rule.directives.len(), 4);
        let again = Rule::parse(serde_json::to_string(&rule).unwrap().as_bytes()).unwrap();
        assert_eq!(again, rule);
        let facts = Facts { actor: Some("ann"), task: Some("xyz"), ..Facts::default() };
        assert!(rule.when.selects(&facts));
        assert!(!rule.when.selects(&Facts { task: None, ..facts }));
        for (text, wanted) in [
            (r#"{"name":"a","directives":[{"allow_tool":"x"}]}"#, "unknown variant `allow_tool`"),
            (r#"{"name":"a","when":{"user":"x"},"directives":[{"text":"x"}]}"#, "unknown field `user`"),
            (r#"{"name":"a","directives":[{"require_validation":{"law9":1}}]}"#, "law9"),
            (r#"{"name":"A b","directives":[{"text":"x"}]}"#, "lower-case"),
            (r#"{"name":"a","directives":[]}"#, "1 to 64 directives"),
            (r#"{"name":"a","directives":[{"max_cost":-1}]}"#, "0 or more"),
            (r#"{"name":"a","directives":[{"deny_tool":[]}]}"#, "names nothing"),
            (
                r#"{"name":"a","when":{"connector":[]},"directives":[{"text":"x"}]}"#,
                "names nothing (at /when/connector)",
            ),
            (
                r#"{"name":"a","when":{"agent":"coding"},"directives":[{"text":"x"}]}"#,
                "\"coding\" is none of orchestrator, research-worker, coding-worker (at /when/agent)",
            ),
            (
                r#"{"name":"a","directives":[{"delegate_only":"orchestrator"}]}"#,
                "is none of research-worker, coding-worker (at /directives/0/delegate_only)",
            ),
        ] {
            let error = Rule::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
