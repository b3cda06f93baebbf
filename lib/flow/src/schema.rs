//! The schema of a workflow's input: the part of JSON Schema (2020-12) that inputs need.

use ken_types::Error;
use ken_types::json::escape_pointer;
use serde_json::Value;

use crate::node::Node;

/// A schema that has been read. A keyword that this module does not implement is refused, so that none is silently ignored.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    source: Value,
    rule: Rule,
}

#[derive(Debug, Clone, Default)]
struct Rule {
    types: Vec<String>,
    allowed: Option<Vec<Value>>,
    properties: Vec<(String, Rule)>,
    required: Vec<String>,
    /// Whether fields beside the properties are refused.
    is_closed: bool,
    items: Option<Box<Rule>>,
    /// The rules of the first items of an array, in order.
    prefix: Vec<Rule>,
    /// Subschemas of which at least one must hold; empty: no condition.
    any: Vec<Rule>,
    /// Subschemas that must all hold.
    all: Vec<Rule>,
    /// The schemas of `if` and `then`. Where the first one holds, the second one must hold too.
    condition: Option<Box<(Rule, Rule)>>,
    is_not_blank: bool,
    minimum: Option<f64>,
    above: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
}

const KEYWORDS: [&str; 23] = [
    "type", "enum", "properties", "required", "additionalProperties", "items", "prefixItems", "anyOf", "allOf", "if",
    "then", "pattern", "minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "title", "description", "default", "$schema",
];
/// The only supported value of `pattern`: at least one character that is not white space.
const NOT_BLANK: &str = "\\S";
const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

impl Schema {
    pub(crate) fn parse(node: &Node<'_>) -> Result<Schema, Error> {
        Ok(Schema { source: node.value.clone(), rule: Rule::parse(node)? })
    }

    pub(crate) fn source(&self) -> &Value {
        &self.source
    }

    /// Returns `invalid` for a value that the schema refuses, with a pointer to the first wrong part as `at`.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Error> {
        self.rule.check(value, "")
    }
}

impl Rule {
    fn parse(node: &Node<'_>) -> Result<Rule, Error> {
        node.only(&KEYWORDS)?;
        let items = node.optional("items", Rule::parse)?;
        Ok(Rule {
            types: node.optional("type", types)?.unwrap_or_default(),
            allowed: node.optional("enum", values)?,
            properties: node.optional("properties", properties)?.unwrap_or_default(),
            required: node.optional("required", texts)?.unwrap_or_default(),
            is_closed: node.optional("additionalProperties", Node::flag)? == Some(false),
            items: items.map(Box::new),
            prefix: node.optional("prefixItems", rules)?.unwrap_or_default(),
            any: node.optional("anyOf", rules)?.unwrap_or_default(),
            all: node.optional("allOf", rules)?.unwrap_or_default(),
            condition: condition(node)?,
            is_not_blank: node.optional("pattern", not_blank)?.unwrap_or_default(),
            minimum: node.optional("minimum", number)?,
            above: node.optional("exclusiveMinimum", number)?,
            maximum: node.optional("maximum", number)?,
            min_length: node.optional("minLength", whole)?,
            max_length: node.optional("maxLength", whole)?,
            min_items: node.optional("minItems", whole)?,
            max_items: node.optional("maxItems", whole)?,
        })
    }

    fn check(&self, value: &Value, at: &str) -> Result<(), Error> {
        let refuse = |message: String| Err(Error::invalid(at, message));
        if !self.types.is_empty() && !self.types.iter().any(|name| is_of(value, name)) {
            return refuse(format!("must be of type {}", self.types.join(" or ")));
        }
        if let Some(allowed) = self.allowed.as_ref().filter(|allowed| !allowed.contains(value)) {
            let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
            return refuse(format!("must be one of {}", allowed.join(", ")));
        }
        match value {
            Value::Object(fields) => self.check_fields(fields, at)?,
            Value::Array(items) => self.check_items(items, at)?,
            Value::String(text) => self.check_text(text, at)?,
            Value::Number(number) => self.check_number(number.as_f64().unwrap_or_default(), at)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.check_subschemas(value, at)
    }

    fn check_subschemas(&self, value: &Value, at: &str) -> Result<(), Error> {
        self.all.iter().try_for_each(|rule| rule.check(value, at))?;
        if let Some((condition, then)) = self.condition.as_deref()
            && condition.check(value, at).is_ok()
        {
            then.check(value, at)?;
        }
        let mut refusals = Vec::with_capacity(self.any.len());
        for rule in &self.any {
            match rule.check(value, at) {
                Ok(()) => return Ok(()),
                Err(refusal) => refusals.push(refusal),
            }
        }
        if refusals.is_empty() { Ok(()) } else { Err(self.no_alternative(refusals, at)) }
    }

    /// The error for a value that no alternative of `anyOf` accepts.
    fn no_alternative(&self, refusals: Vec<Error>, at: &str) -> Error {
        let names: Option<Vec<&str>> = self.any.iter().map(Rule::single_field).collect();
        let message = match names {
            Some(names) => format!("needs one of the fields {}", names.join(", ")),
            None => {
                let messages: Vec<String> = refusals.into_iter().map(|error| error.message).collect();
                messages.join("; or ")
            }
        };
        Error::invalid(at, message)
    }

    /// The field that an alternative requires, if it requires exactly one field and nothing else.
    fn single_field(&self) -> Option<&str> {
        match self.required.as_slice() {
            [name] if self.types.is_empty() && self.properties.is_empty() => Some(name),
            _ => None,
        }
    }

    fn check_fields(&self, fields: &serde_json::Map<String, Value>, at: &str) -> Result<(), Error> {
        let place = |name: &str| format!("{at}/{}", escape_pointer(name));
        if let Some(name) = self.required.iter().find(|name| !fields.contains_key(*name)) {
            return Err(Error::invalid(place(name), format!("missing field `{name}`")));
        }
        for (name, value) in fields {
            match self.properties.iter().find(|(known, _)| known == name) {
                Some((_, rule)) => rule.check(value, &place(name))?,
                None if self.is_closed => {
                    return Err(Error::invalid(place(name), format!("unknown field `{name}`")));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn check_items(&self, items: &[Value], at: &str) -> Result<(), Error> {
        let count = items.len() as u64;
        if self.min_items.is_some_and(|min| count < min) {
            return Err(Error::invalid(at, "has too few items"));
        }
        if self.max_items.is_some_and(|max| count > max) {
            return Err(Error::invalid(at, "has too many items"));
        }
        for (place, item) in items.iter().enumerate() {
            if let Some(rule) = self.prefix.get(place).or(self.items.as_deref()) {
                rule.check(item, &format!("{at}/{place}"))?;
            }
        }
        Ok(())
    }

    fn check_text(&self, text: &str, at: &str) -> Result<(), Error> {
        let characters = text.chars().count() as u64;
        if self.is_not_blank && text.trim().is_empty() {
            return Err(Error::invalid(at, "is blank"));
        }
        if self.min_length.is_some_and(|min| characters < min) {
            return Err(Error::invalid(at, "is too short"));
        }
        if self.max_length.is_some_and(|max| characters > max) {
            Err(Error::invalid(at, "is too long"))
        } else {
            Ok(())
        }
    }

    fn check_number(&self, number: f64, at: &str) -> Result<(), Error> {
        let is_low = self.minimum.is_some_and(|min| number < min) || self.above.is_some_and(|bound| number <= bound);
        if is_low {
            return Err(Error::invalid(at, "is too low"));
        }
        if self.maximum.is_some_and(|max| number > max) { Err(Error::invalid(at, "is too high")) } else { Ok(()) }
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Number(number) => {
            let is_whole = number.as_f64().is_some_and(|number| number.fract() == 0.0);
            name == "number" || (name == "integer" && is_whole)
        }
        Value::String(_) => name == "string",
        Value::Array(_) => name == "array",
        Value::Object(_) => name == "object",
    }
}

/// One type, or a list of them.
fn types(node: &Node<'_>) -> Result<Vec<String>, Error> {
    let nodes = if node.value.is_string() { vec![node.clone()] } else { node.items()? };
    let one = |node: &Node<'_>| match node.text()? {
        name if TYPES.contains(&name) => Ok(name.to_owned()),
        name => Err(node.error(format!("unknown type `{name}`; known: {}", TYPES.join(", ")))),
    };
    nodes.iter().map(one).collect()
}

fn whole(node: &Node<'_>) -> Result<u64, Error> {
    let number = node.value.as_u64();
    number.ok_or_else(|| node.error("must be a whole number"))
}

fn number(node: &Node<'_>) -> Result<f64, Error> {
    node.value.as_f64().ok_or_else(|| node.error("must be a number"))
}

fn values(node: &Node<'_>) -> Result<Vec<Value>, Error> {
    Ok(node.items()?.iter().map(|item| item.value.clone()).collect())
}

fn texts(node: &Node<'_>) -> Result<Vec<String>, Error> {
    let items = node.items()?;
    items.iter().map(|item| item.text().map(str::to_owned)).collect()
}

fn properties(node: &Node<'_>) -> Result<Vec<(String, Rule)>, Error> {
    let fields = node.entries()?;
    fields.map(|(name, field)| Ok((name.to_owned(), Rule::parse(&field)?))).collect()
}

/// A list of subschemas.
fn rules(node: &Node<'_>) -> Result<Vec<Rule>, Error> {
    match node.items()?.as_slice() {
        [] => Err(node.error("must have at least one schema")),
        items => items.iter().map(Rule::parse).collect(),
    }
}

/// `if` and `then`; one without the other would be without effect.
fn condition(node: &Node<'_>) -> Result<Option<Box<(Rule, Rule)>>, Error> {
    match (node.field("if")?, node.field("then")?) {
        (None, None) => Ok(None),
        (Some(condition), Some(then)) => Ok(Some(Box::new((Rule::parse(&condition)?, Rule::parse(&then)?)))),
        (Some(alone), None) | (None, Some(alone)) => Err(alone.error("`if` and `then` need each other")),
    }
}

fn not_blank(node: &Node<'_>) -> Result<bool, Error> {
    match node.text()? {
        NOT_BLANK => Ok(true),
        _ => Err(node.error(format!("the only supported pattern is {NOT_BLANK}"))),
    }
}
