//! The condition of a step, `when`.

use ken_types::Error;
use serde_json::Value;

use crate::node::Node;
use crate::reference::{Found, Reference, References};
use crate::scope::Scope;

/// An expression over the input and the results. A comparison with a missing value is false.
///
/// ```json
/// {"exists": "/results/ESL/valence"}
/// {"equals": ["/results/check/pass_fail_status", "FAIL"]}
/// {"compare": ["/results/ESL/intensity", ">=", 0.5]}
/// {"not": {…}}   {"all": [{…}, …]}   {"any": [{…}, …]}
/// ```
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    Exists(Reference),
    Equals(Reference, Value),
    Compare(Reference, Order, f64),
    Not(Box<Condition>),
    All(Vec<Condition>),
    Any(Vec<Condition>),
}

/// Compares two numbers, such as by `<`.
type Order = fn(&f64, &f64) -> bool;

const KNOWN: [&str; 6] = ["exists", "equals", "compare", "not", "all", "any"];

/// Maximum nesting of conditions.
const MAX_NESTED: usize = 8;

impl Condition {
    pub(crate) fn parse(node: &Node<'_>, references: &mut References) -> Result<Condition, Error> {
        Condition::nested(node, references, 0)
    }

    fn nested(node: &Node<'_>, references: &mut References, depth: usize) -> Result<Condition, Error> {
        if depth > MAX_NESTED {
            return Err(node.error(format!("conditions are nested deeper than {MAX_NESTED}")));
        }
        node.only(&KNOWN)?;
        let mut entries = node.entries()?;
        let (Some((name, value)), None) = (entries.next(), entries.next()) else {
            return Err(node.error(format!("a condition is one of {}", KNOWN.join(", "))));
        };
        let mut list = || -> Result<Vec<Condition>, Error> {
            let items = value.items()?;
            items.iter().map(|item| Condition::nested(item, references, depth + 1)).collect()
        };
        match name {
            "all" => Ok(Condition::All(list()?)),
            "any" => Ok(Condition::Any(list()?)),
            "not" => Ok(Condition::Not(Box::new(Condition::nested(&value, references, depth + 1)?))),
            "exists" => Ok(Condition::Exists(reference(&value, references)?)),
            "equals" => Condition::equals(&value, references),
            _ => Condition::compare(&value, references),
        }
    }

    fn equals(node: &Node<'_>, references: &mut References) -> Result<Condition, Error> {
        match node.items()?.as_slice() {
            [left, right] => Ok(Condition::Equals(reference(left, references)?, right.value.clone())),
            _ => Err(node.error("equals has two parts: [PLACE, VALUE]")),
        }
    }

    fn compare(node: &Node<'_>, references: &mut References) -> Result<Condition, Error> {
        let items = node.items()?;
        let [left, order, right] = items.as_slice() else {
            return Err(node.error("compare has three parts: [PLACE, ORDER, NUMBER]"));
        };
        let number = right.value.as_f64().ok_or_else(|| right.error("must be a number"))?;
        Ok(Condition::Compare(reference(left, references)?, self::order(order)?, number))
    }

    /// Evaluates the condition.
    pub(crate) fn holds(&self, scope: &Scope<'_>) -> bool {
        let found = |reference: &Reference| reference.find(scope).map(|found: Found<'_>| found.to_value());
        match self {
            Condition::Exists(reference) => reference.find(scope).is_some(),
            Condition::Equals(reference, value) => found(reference).is_some_and(|found| equal(&found, value)),
            Condition::Compare(reference, order, number) => {
                found(reference).and_then(|found| found.as_f64()).is_some_and(|found| order(&found, number))
            }
            Condition::Not(condition) => !condition.holds(scope),
            Condition::All(conditions) => conditions.iter().all(|condition| condition.holds(scope)),
            Condition::Any(conditions) => conditions.iter().any(|condition| condition.holds(scope)),
        }
    }
}

fn order(node: &Node<'_>) -> Result<Order, Error> {
    match node.text()? {
        "<" => Ok(f64::lt),
        "<=" => Ok(f64::le),
        ">" => Ok(f64::gt),
        ">=" => Ok(f64::ge),
        other => Err(node.error(format!("unknown order `{other}`; known: <, <=, >, >="))),
    }
}

/// Whether two values are equal. Numbers are compared by value, so 1 equals 1.0.
fn equal(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

fn reference(node: &Node<'_>, references: &mut References) -> Result<Reference, Error> {
    let reference = Reference::parse(node.text()?, node)?;
    references.push((reference.clone(), node.at.clone()));
    Ok(reference)
}
