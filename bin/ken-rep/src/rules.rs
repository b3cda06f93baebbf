use std::ops::Range;

use ken_logic::{Invalid, Theory, normalise};
use ken_tool::{Error, MAX_DEPTH, Raw};
use ken_types::json::{self, kind_of};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::wordings::{Part, Wordings};

/// Rules of the form `[[premise…], conclusion]`. The texts of all rules are in one list.
#[derive(Default)]
pub(crate) struct Rules<'a> {
    /// The premises of each rule, followed by its conclusion.
    texts: Wordings<'a>,
    /// The index in `texts` at which each rule ends.
    ends: Vec<u32>,
}

impl<'a> Rules<'a> {
    /// Reads rules from the JSON text of the option `--rules`.
    pub(crate) fn read(text: &'a str) -> Result<Rules<'a>, Error> {
        let value = json::parse(text.as_bytes(), MAX_DEPTH).map_err(|error| error.at("--rules"))?;
        Rules::of(&value)
    }

    /// Reads rules from a JSON value. An error points to the wrong part.
    pub(crate) fn of(value: &Value) -> Result<Rules<'a>, Error> {
        let mut rules = Rules::default();
        for (number, rule) in list(value, "/rules")?.iter().enumerate() {
            let at = format!("/rules/{number}");
            let Some([premises, conclusion]) = rule.as_array().map(Vec::as_slice) else {
                return Err(Error::invalid(at, "a rule is a pair: [[premise, ...], conclusion]"));
            };
            for (place, premise) in list(premises, &format!("{at}/0"))?.iter().enumerate() {
                rules.push(Part::Own(text(premise, &format!("{at}/0/{place}"))?));
            }
            rules.push(Part::Own(text(conclusion, &format!("{at}/1"))?));
            rules.end_rule();
        }
        Ok(rules)
    }

    /// Returns an empty list of rules whose texts are parts of this document.
    pub(crate) fn of_document(document: &'a str) -> Rules<'a> {
        Rules { texts: Wordings::of(document), ends: Vec::new() }
    }

    /// Adds a premise to the current rule, or its conclusion, which must be added last.
    pub(crate) fn push(&mut self, part: Part) {
        self.texts.push(part);
    }

    pub(crate) fn end_rule(&mut self) {
        self.ends.push(self.texts.len() as u32);
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn end(&self, rule: usize) -> usize {
        self.ends.get(rule).map_or(0, |&end| end as usize)
    }

    /// Returns the range of the texts of a rule: its premises, followed by its conclusion.
    fn texts_of(&self, rule: usize) -> Range<usize> {
        rule.checked_sub(1).map_or(0, |before| self.end(before))..self.end(rule)
    }

    pub(crate) fn premises(&self, rule: usize) -> impl Iterator<Item = &str> + Clone {
        let Range { start, end } = self.texts_of(rule);
        (start..end.saturating_sub(1)).map(|text| self.texts.get(text))
    }

    pub(crate) fn conclusion(&self, rule: usize) -> &str {
        self.end(rule).checked_sub(1).map_or("", |text| self.texts.get(text))
    }

    /// Adds all rules to a theory. They have the same numbers there.
    pub(crate) fn add_to<'t>(&'t self, theory: &mut Theory<'t>) -> Result<(), Error> {
        for rule in 0..self.len() {
            theory
                .add_rule(self.premises(rule), self.conclusion(rule))
                .map_err(|invalid| Error::invalid(self.place_of(rule, &invalid), invalid.to_string()))?;
        }
        Ok(())
    }

    fn place_of(&self, rule: usize, invalid: &Invalid) -> String {
        let is_empty = |text: &str| normalise(text).atom.is_empty();
        match invalid {
            Invalid::Empty => match self.premises(rule).position(is_empty) {
                Some(place) => format!("/rules/{rule}/0/{place}"),
                None => format!("/rules/{rule}/1"),
            },
            Invalid::Unbound(_) => format!("/rules/{rule}/1"),
            _ => format!("/rules/{rule}"),
        }
    }
}

/// Returns the items of a list. A missing field counts as an empty list.
pub(crate) fn list<'v>(value: &'v Value, at: &str) -> Result<&'v [Value], Error> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(Error::invalid(at, format!("must be a list, not {}", kind_of(other)))),
    }
}

pub(crate) fn text(value: &Value, at: &str) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(Error::invalid(at, format!("must be text, not {}", kind_of(other)))),
    }
}

impl Serialize for Rules<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for rule in 0..self.len() {
            match self.texts.as_written(self.texts_of(rule)) {
                Some(text) => list.serialize_element(&Raw(text))?,
                None => list.serialize_element(&(Premises(self, rule), self.conclusion(rule)))?,
            }
        }
        list.end()
    }
}

struct Premises<'r>(&'r Rules<'r>, usize);

impl Serialize for Premises<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.premises(self.1))
    }
}
