use std::borrow::Cow;

use clap::ValueEnum;
use ken_logic::{Literal, Theory};
use ken_tool::Error;
use ken_types::json::kind_of;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::rules::{Rules, list, text};

/// The input of the program.
pub(crate) struct Document<'a> {
    pub(crate) kind: Kind,
    pub(crate) facts: Vec<Cow<'a, str>>,
    pub(crate) rules: Rules<'a>,
    pub(crate) observations: Vec<Cow<'a, str>>,
    pub(crate) hypotheses: Vec<Hypothesis>,
    pub(crate) source_case: Value,
    pub(crate) target_case: Value,
    pub(crate) events: Vec<Value>,
    /// The factor by which each step of a deduction reduces the confidence: above 0, at most 1.
    pub(crate) decay: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Kind {
    #[default]
    Deductive,
    Inductive,
    Abductive,
    Analogical,
    Causal,
}

#[derive(Serialize)]
pub(crate) struct Hypothesis {
    pub(crate) statement: String,
    pub(crate) cost: f64,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Deductive => "deductive",
            Kind::Inductive => "inductive",
            Kind::Abductive => "abductive",
            Kind::Analogical => "analogical",
            Kind::Causal => "causal",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Kind> {
        Kind::value_variants().iter().copied().find(|kind| kind.name() == name)
    }
}

impl Default for Document<'_> {
    fn default() -> Self {
        Document {
            kind: Kind::default(),
            facts: Vec::new(),
            rules: Rules::default(),
            observations: Vec::new(),
            hypotheses: Vec::new(),
            source_case: Value::Null,
            target_case: Value::Null,
            events: Vec::new(),
            decay: 1.0,
        }
    }
}

impl<'a> Document<'a> {
    /// Reads a document from a JSON value. Unknown fields are ignored, because other programs may use them, but a field whose
    /// name is almost that of a known one is an error: without it, a typing mistake would look like an answer.
    pub(crate) fn of(value: Value) -> Result<Document<'a>, Error> {
        let fields = match value {
            Value::Object(fields) => fields,
            other => {
                return Err(Error::invalid("", format!("the document must be an object, not {}", kind_of(&other))));
            }
        };
        check_names(&fields)?;
        let mut document = Document::default();
        if let Some(name) = fields.get("reasoning_type") {
            document.kind = kind(name)?;
        }
        document.facts = texts(&fields, "facts")?.into_iter().map(Cow::Owned).collect();
        document.observations = texts(&fields, "observations")?.into_iter().map(Cow::Owned).collect();
        if let Some(rules) = fields.get("rules") {
            document.rules = Rules::of(rules)?;
        }
        document.hypotheses = hypotheses(&fields)?;
        document.source_case = fields.get("source_case").cloned().unwrap_or_default();
        document.target_case = fields.get("target_case").cloned().unwrap_or_default();
        if let Some(events) = fields.get("events") {
            document.events = list(events, "/events")?.to_vec();
        }
        if let Some(options) = fields.get("options") {
            document.decay = decay(options)?;
        }
        Ok(document)
    }

    /// Adds the facts to a theory, and returns their literals.
    pub(crate) fn facts_in<'t>(&'t self, theory: &mut Theory<'t>) -> Result<Vec<Literal>, Error> {
        statements(theory, &self.facts, "/facts")
    }
}

/// Adds wordings to a theory, and returns their literals. An error points to the wrong wording.
pub(crate) fn statements<'t>(
    theory: &mut Theory<'t>,
    wordings: &'t [impl AsRef<str>],
    at: &str,
) -> Result<Vec<Literal>, Error> {
    let one = |(number, wording): (usize, &'t _)| {
        let statement = theory.statement(AsRef::<str>::as_ref(wording));
        statement.map_err(|invalid| Error::invalid(format!("{at}/{number}"), invalid.to_string()))
    };
    wordings.iter().enumerate().map(one).collect()
}

const FIELDS: [&str; 9] = [
    "reasoning_type", "facts", "rules", "observations", "hypotheses", "source_case", "target_case", "events", "options",
];

fn check_names(fields: &Map<String, Value>) -> Result<(), Error> {
    let misspelt = fields.keys().find_map(|name| Some((name, meant(name)?)));
    match misspelt {
        Some((name, meant)) => Err(Error::invalid(format!("/{name}"), format!("unknown field `{name}`"))
            .hint(format!("did you mean `{meant}`?"))),
        None => Ok(()),
    }
}

/// Returns the known field that an unknown name is close to: it differs in capitals, in `-` for `_`, or in one letter, or in
/// two of a long name.
fn meant(name: &str) -> Option<&'static str> {
    if FIELDS.contains(&name) {
        return None;
    }
    let plain = |name: &str| name.to_ascii_lowercase().replace(['-', '_', ' '], "");
    let name = plain(name);
    let is_close = |field: &&&str| {
        let max = if field.len() >= 10 { 2 } else { 1 };
        strsim::damerau_levenshtein(&plain(field), &name) <= max
    };
    FIELDS.iter().find(is_close).copied()
}

fn kind(value: &Value) -> Result<Kind, Error> {
    let name = text(value, "/reasoning_type")?;
    Kind::of(&name).ok_or_else(|| {
        let known: Vec<&str> = Kind::value_variants().iter().map(|kind| kind.name()).collect();
        Error::invalid("/reasoning_type", format!("unknown type `{name}`; known: {}", known.join(", ")))
    })
}

fn texts(fields: &Map<String, Value>, field: &str) -> Result<Vec<String>, Error> {
    let Some(value) = fields.get(field) else {
        return Ok(Vec::new());
    };
    let items = list(value, &format!("/{field}"))?.iter().enumerate();
    items.map(|(number, item)| text(item, &format!("/{field}/{number}"))).collect()
}

/// Reads the hypotheses. Each is a text, or an object with a `statement` and an optional `cost`, which is 1 by default.
fn hypotheses(fields: &Map<String, Value>) -> Result<Vec<Hypothesis>, Error> {
    let Some(value) = fields.get("hypotheses") else {
        return Ok(Vec::new());
    };
    let items = list(value, "/hypotheses")?.iter().enumerate();
    items.map(|(number, item)| hypothesis(item, &format!("/hypotheses/{number}"))).collect()
}

fn hypothesis(item: &Value, at: &str) -> Result<Hypothesis, Error> {
    let Value::Object(fields) = item else {
        return Ok(Hypothesis { statement: text(item, at)?, cost: 1.0 });
    };
    let statement = text(fields.get("statement").unwrap_or(&Value::Null), &format!("{at}/statement"))?;
    let cost = match fields.get("cost") {
        None => Some(1.0),
        Some(cost) => cost.as_f64().filter(|&cost| cost > 0.0),
    };
    let cost = cost.ok_or_else(|| Error::invalid(format!("{at}/cost"), "must be a number above 0"))?;
    Ok(Hypothesis { statement, cost })
}

fn decay(options: &Value) -> Result<f64, Error> {
    let Value::Object(fields) = options else {
        return Err(Error::invalid("/options", format!("must be an object, not {}", kind_of(options))));
    };
    let Some(decay) = fields.get("decay") else {
        return Ok(1.0);
    };
    let number = decay.as_f64().filter(|&decay| decay > 0.0 && decay <= 1.0);
    number.ok_or_else(|| Error::invalid("/options/decay", "must be a number above 0, at most 1"))
}
