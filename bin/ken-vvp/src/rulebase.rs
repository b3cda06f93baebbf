use std::collections::BTreeMap;

use ken_logic::{Statement, Theory, normalise};
use ken_tool::Error;
use serde_json::Value;

use crate::answer::Issue;

/// The well-formed rules of a document, and what else it says.
pub(crate) struct RuleBase {
    /// How many rules the document has, malformed ones included.
    pub(crate) total: usize,
    pub(crate) rules: Vec<Rule>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) goals: Vec<Fact>,
}

pub(crate) struct Rule {
    /// The rule's place in the document.
    pub(crate) number: usize,
    pub(crate) premises: Vec<String>,
    pub(crate) conclusion: String,
    /// Normal forms, with the variables named by the order in which the rule has them.
    pub(crate) body: Vec<String>,
    pub(crate) head: String,
    pub(crate) has_variables: bool,
}

/// A fact or a goal, and its place in the document.
pub(crate) struct Fact {
    pub(crate) number: usize,
    pub(crate) text: String,
}

impl RuleBase {
    /// Reads a document. What is wrong with single rules, facts and goals is an issue each, and they are left out; only a
    /// document without a list of rules is an error.
    pub(crate) fn of(value: &Value) -> Result<(RuleBase, Vec<Issue>), Error> {
        let Value::Object(fields) = value else {
            return Err(Error::invalid(
                "",
                format!("the document must be an object, not {}", kind_of(value)),
            ));
        };
        let rules = match fields.get("rules") {
            Some(Value::Array(rules)) => rules,
            Some(other) => {
                return Err(Error::invalid(
                    "/rules",
                    format!("must be a list, not {}", kind_of(other)),
                ));
            }
            None => return Err(Error::invalid("/rules", "missing field `rules`")),
        };
        let mut issues = Vec::new();
        let mut base = RuleBase {
            total: rules.len(),
            rules: Vec::new(),
            facts: Vec::new(),
            goals: Vec::new(),
        };
        for (number, value) in rules.iter().enumerate() {
            let before = issues.len();
            let rule = Rule::of(value, number, &mut issues);
            base.rules.extend(rule.filter(|_| issues.len() == before));
        }
        // A result of ken-rep may well be without rules: induction needs none.
        if rules.is_empty() && !fields.contains_key("reasoning_chain") {
            issues.push(Issue::warning("empty", "/rules", "there is no rule"));
        }
        base.facts = statements(fields.get("facts"), "facts", &mut issues)?;
        base.goals = statements(fields.get("goals"), "goals", &mut issues)?;
        Ok((base, issues))
    }

    /// The rules in a theory; its rule ids are places in `rules`.
    pub(crate) fn theory(&self) -> Theory<'_> {
        let mut theory = Theory::with_capacity(self.rules.len());
        for rule in &self.rules {
            // Each was added to a theory of its own when it was read.
            let _ = theory.add_rule(rule.premises.iter().map(String::as_str), &rule.conclusion);
        }
        theory
    }
}

impl Rule {
    fn of(value: &Value, number: usize, issues: &mut Vec<Issue>) -> Option<Rule> {
        let at = format!("/rules/{number}");
        let mut malformed = |at: String, message: String| issues.push(Issue::error("malformed", at, message));
        let Some([premises, conclusion]) = value.as_array().map(Vec::as_slice) else {
            malformed(at, "a rule is a pair: [[premise, ...], conclusion]".to_owned());
            return None;
        };
        let Some(items) = premises.as_array() else {
            malformed(
                format!("{at}/0"),
                format!("premises must be a list, not {}", kind_of(premises)),
            );
            return None;
        };
        let mut texts = Vec::with_capacity(items.len());
        for (place, premise) in items.iter().enumerate() {
            match text(premise) {
                Ok(text) => texts.push(text),
                Err(message) => malformed(format!("{at}/0/{place}"), format!("a premise {message}")),
            }
        }
        let conclusion = match text(conclusion) {
            Ok(text) => text,
            Err(message) => {
                malformed(format!("{at}/1"), format!("a conclusion {message}"));
                return None;
            }
        };
        if let Err(invalid) = Theory::new().add_rule(texts.iter().map(String::as_str), &conclusion) {
            malformed(at, invalid.to_string());
            return None;
        }
        Some(Rule::new(number, texts, conclusion))
    }

    fn new(number: usize, premises: Vec<String>, conclusion: String) -> Rule {
        let mut names = BTreeMap::new();
        let body: Vec<String> = premises
            .iter()
            .map(|premise| canonical(premise, &mut names))
            .collect();
        let head = canonical(&conclusion, &mut names);
        Rule {
            number,
            premises,
            conclusion,
            body,
            head,
            has_variables: !names.is_empty(),
        }
    }

    pub(crate) fn at(&self) -> String {
        format!("/rules/{}", self.number)
    }
}

/// The normal form as text, its variables renamed in the order of `names`.
fn canonical(wording: &str, names: &mut BTreeMap<String, usize>) -> String {
    let Statement { atom, negated } = normalise(wording);
    let mut text = String::from(if negated { "not " } else { "" });
    for (place, word) in atom.split(' ').enumerate() {
        if place > 0 {
            text.push(' ');
        }
        match variable(word) {
            Some(name) => {
                let next = names.len();
                let number = *names.entry(name.to_owned()).or_insert(next);
                text.push_str(&format!(
                    "?{number}{}",
                    word.get(name.len()..).unwrap_or_default()
                ));
            }
            None => text.push_str(word),
        }
    }
    text
}

/// The variable that a word is, without punctuation after it.
pub(crate) fn variable(word: &str) -> Option<&str> {
    let is_variable = word.len() > 1 && word.starts_with('?') && !word.starts_with("??");
    is_variable.then(|| word.trim_end_matches(|char: char| char.is_ascii_punctuation() && char != '_'))
}

/// The negation of a canonical text.
pub(crate) fn opposite(text: &str) -> String {
    text.strip_prefix("not ")
        .map_or_else(|| format!("not {text}"), str::to_owned)
}

fn statements(value: Option<&Value>, field: &str, issues: &mut Vec<Issue>) -> Result<Vec<Fact>, Error> {
    let items = match value {
        None => return Ok(Vec::new()),
        Some(Value::Array(items)) => items,
        Some(other) => {
            return Err(Error::invalid(
                format!("/{field}"),
                format!("must be a list, not {}", kind_of(other)),
            ));
        }
    };
    let mut facts = Vec::with_capacity(items.len());
    for (number, item) in items.iter().enumerate() {
        let checked = text(item).and_then(|text| match Theory::new().statement(&text) {
            Ok(_) => Ok(text),
            Err(invalid) => Err(format!("is not valid: {invalid}")),
        });
        match checked {
            Ok(text) => facts.push(Fact { number, text }),
            Err(message) => issues.push(Issue::error(
                "malformed",
                format!("/{field}/{number}"),
                format!("a statement {message}"),
            )),
        }
    }
    Ok(facts)
}

/// A text that says something, or what is wrong with it.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if normalise(text).atom.is_empty() => Err("is empty".to_owned()),
        Value::String(text) => Ok(text.clone()),
        other => Err(format!("must be text, not {}", kind_of(other))),
    }
}

pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
