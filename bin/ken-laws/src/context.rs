//! The context: statements and values that the text must not contradict.

use serde_json::Value as Json;

use crate::acronym::is_acronym;
use crate::claim::Claim;
use crate::contradiction::{self, Clause};
use crate::lexicon::{self as lex, hash, look_up};
use crate::quantity::{self, Quantity};
use crate::scan::Scan;

/// The context in the normal forms that the rules compare.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) clauses: Vec<Clause>,
    pub(crate) quantities: Vec<Quantity>,
    pub(crate) acronyms: Vec<u64>,
}

impl Context {
    /// Adds another context.
    pub(crate) fn merge(&mut self, other: &Context) {
        self.clauses.extend_from_slice(&other.clauses);
        self.quantities.extend_from_slice(&other.quantities);
        self.acronyms.extend_from_slice(&other.acronyms);
    }

    /// Adds a JSON value. Every text of three words or more is a statement; every other value is the value of its key:
    /// `{"retry limit": 3}` means "The retry limit is 3.", and `{"disk": {"encrypted": false}}` "The disk is not encrypted."
    pub(crate) fn add(&mut self, json: &Json) {
        let mut text = String::new();
        say(json, &mut Vec::new(), &mut text);
        let scan = Scan::new(&text);
        for sentence in &scan.sentences {
            let tokens = scan.tokens_of(sentence);
            let claim = Claim::new(tokens, sentence);
            if !(claim.question || claim.any(lex::OR)) {
                self.clauses.extend(contradiction::in_sentence(tokens));
                self.quantities.extend(quantity::in_sentence(tokens));
            }
        }
        let acronyms = scan.tokens().iter().filter(|token| is_acronym(token));
        self.acronyms.extend(acronyms.map(|token| token.stem));
    }
}

/// Appends the statements of `json` to `text`, each as a paragraph. `path` contains the words of the enclosing keys.
fn say(json: &Json, path: &mut Vec<String>, text: &mut String) {
    match json {
        Json::Object(fields) => {
            for (key, value) in fields {
                let length = path.len();
                path.extend(words_of_key(key));
                say(value, path, text);
                path.truncate(length);
            }
        }
        Json::Array(items) => items.iter().for_each(|item| say(item, path, text)),
        Json::String(value) if value.split_whitespace().nth(2).is_some() => push(text, value),
        Json::String(value) => say_value(path, value, text),
        Json::Number(value) => say_value(path, &value.to_string(), text),
        Json::Bool(value) => say_truth(path, *value, text),
        Json::Null => {}
    }
}

fn push(text: &mut String, statement: &str) {
    text.push_str(statement.trim());
    if !statement.trim_end().ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text.push_str("\n\n");
}

/// Splits "retryLimit", "retry_limit" and "retry-limit" into "retry" and "limit".
fn words_of_key(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut after_small = false;
    for char in key.chars() {
        let parts = !char.is_alphanumeric() || char.is_uppercase() && after_small;
        if parts {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.extend(char.to_lowercase());
        }
        after_small = char.is_lowercase() || char.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn say_value(path: &[String], value: &str, text: &mut String) {
    match path {
        [] => push(text, value),
        // "timeout_s": 30
        [subject @ .., unit] if !subject.is_empty() && is_unit(unit) && value.parse::<f64>().is_ok() => {
            push(text, &format!("The {} is {value} {unit}.", subject.join(" ")));
        }
        [subject @ .., state] if !subject.is_empty() && matches!(state.as_str(), "state" | "status") => {
            push(text, &format!("The {} is {value}.", subject.join(" ")));
        }
        subject => push(text, &format!("The {} is {value}.", subject.join(" "))),
    }
}

fn is_unit(word: &str) -> bool {
    word.len() <= 3 && look_up(hash(word.as_bytes())).is_some_and(|entry| entry.classes & lex::UNIT != 0)
}

fn say_truth(path: &[String], value: bool, text: &mut String) {
    let Some((state, subject)) = path.split_last().filter(|(_, subject)| !subject.is_empty()) else {
        return;
    };
    let not = if value { "" } else { "not " };
    push(text, &format!("The {} is {not}{state}.", subject.join(" ")));
}
