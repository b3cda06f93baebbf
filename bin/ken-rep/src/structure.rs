//! A case as a structure: attributes with values, and relations over them.

use std::collections::{BTreeMap, HashMap};

use ken_tool::Error;
use ken_types::json::kind_of;
use serde_json::{Map, Value};

use crate::rules::{list, text};

pub(crate) struct Case {
    pub(crate) name: String,
    /// Path to value, in the order of paths: `limbs/legs` is what an object `limbs` says of `legs`.
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) relations: Vec<Relation>,
}

/// A relation between attributes, things or relations: `["causes", "gravity", "orbit"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) name: String,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Thing(String),
    Relation(Relation),
}

/// What the fields of a case that are not attributes are called.
const NAMES: [&str; 3] = ["name", "id", "label"];

/// Attributes in an object of their own count like those beside it.
const CONTAINERS: [&str; 3] = ["attributes", "properties", "features"];

/// The most relations of a case: each of the one is compared with each of the other.
const MOST_RELATIONS: usize = 2_000;

impl Case {
    /// An object of attributes (with `name` and `relations`), or a list of statements, each an attribute that is true.
    pub(crate) fn of(value: &Value, field: &str) -> Result<Case, Error> {
        let at = format!("/{field}");
        let mut case = Case {
            name: field.replace("_case", ""),
            attributes: BTreeMap::new(),
            relations: Vec::new(),
        };
        match value {
            Value::Object(fields) => case.take_fields(fields, &at)?,
            Value::Array(items) => case.take_statements(items, &at)?,
            Value::Null => return Err(Error::invalid(at, format!("analogy needs a {field}"))),
            other => {
                let message = format!(
                    "must be an object of attributes or a list of statements, not {}",
                    kind_of(other)
                );
                return Err(Error::invalid(at, message));
            }
        }
        Ok(case)
    }

    fn take_fields(&mut self, fields: &Map<String, Value>, at: &str) -> Result<(), Error> {
        for (key, value) in fields {
            match (key.as_str(), value) {
                (name, Value::String(text)) if NAMES.contains(&name) => self.name = text.clone(),
                ("relations", value) => {
                    let at = format!("{at}/relations");
                    let relations = list(value, &at)?;
                    if relations.len() > MOST_RELATIONS {
                        let message = format!("more than {MOST_RELATIONS} relations");
                        return Err(Error::too_large(message).at(at));
                    }
                    self.relations = relations
                        .iter()
                        .enumerate()
                        .map(|(number, item)| Relation::of(item, &format!("{at}/{number}")))
                        .collect::<Result<_, _>>()?;
                }
                (container, Value::Object(inner)) if CONTAINERS.contains(&container) => {
                    self.flatten("", inner)
                }
                (container, Value::Array(items)) if CONTAINERS.contains(&container) => {
                    self.take_statements(items, &format!("{at}/{container}"))?;
                }
                _ => self.attribute(&ken_text::fold(key), value),
            }
        }
        Ok(())
    }

    fn take_statements(&mut self, items: &[Value], at: &str) -> Result<(), Error> {
        for (number, item) in items.iter().enumerate() {
            let statement = text(item, &format!("{at}/{number}"))?;
            let statement = ken_logic::normalise(&statement);
            self.attributes
                .insert(statement.atom.into_owned(), (!statement.negated).to_string());
        }
        Ok(())
    }

    fn flatten(&mut self, path: &str, fields: &Map<String, Value>) {
        for (key, value) in fields {
            let key = ken_text::fold(key);
            let path = if path.is_empty() {
                key.into_owned()
            } else {
                format!("{path}/{key}")
            };
            self.attribute(&path, value);
        }
    }

    /// A list says several things at once, in any order.
    fn attribute(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(fields) => self.flatten(path, fields),
            Value::Array(items) => {
                for item in items {
                    self.attributes
                        .insert(format!("{path}/{}", shown(item)), "true".to_owned());
                }
            }
            other => {
                self.attributes.insert(path.to_owned(), shown(other));
            }
        }
    }
}

/// A value for comparing and for showing: "Fur " and "fur" are one.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => ken_text::fold(text).into_owned(),
        other => other.to_string(),
    }
}

impl Relation {
    fn of(value: &Value, at: &str) -> Result<Relation, Error> {
        let Some((name, parts)) = value
            .as_array()
            .and_then(|items| items.split_first())
            .filter(|(_, parts)| !parts.is_empty())
        else {
            return Err(Error::invalid(at, "a relation is a list: [name, part, ...]"));
        };
        let name = ken_text::fold(&text(name, &format!("{at}/0"))?).into_owned();
        let part = |(number, item): (usize, &Value)| {
            let at = format!("{at}/{}", number + 1);
            match item {
                Value::Array(_) => Relation::of(item, &at).map(Part::Relation),
                other => text(other, &at).map(|text| Part::Thing(ken_text::fold(&text).into_owned())),
            }
        };
        Ok(Relation {
            name,
            parts: parts.iter().enumerate().map(part).collect::<Result<_, _>>()?,
        })
    }

    /// Puts the things of both side by side; false when the relations have not the same form.
    fn align<'r>(&'r self, other: &'r Relation, pairs: &mut Vec<(&'r str, &'r str)>) -> bool {
        let parts = || self.parts.iter().zip(&other.parts);
        self.name == other.name
            && self.parts.len() == other.parts.len()
            && parts().all(|parts| match parts {
                (Part::Thing(one), Part::Thing(two)) => {
                    pairs.push((one, two));
                    true
                }
                (Part::Relation(one), Part::Relation(two)) => one.align(two, pairs),
                _ => false,
            })
    }

    /// How many relations it is made of: a relation between relations says more than one between things.
    pub(crate) fn size(&self) -> usize {
        let inner = self.parts.iter().map(|part| match part {
            Part::Relation(relation) => relation.size(),
            Part::Thing(_) => 0,
        });
        1 + inner.sum::<usize>()
    }

    /// The names and things that it is about, at any depth.
    pub(crate) fn terms(&self) -> Vec<&str> {
        let inner = self.parts.iter().flat_map(|part| match part {
            Part::Thing(thing) => vec![thing.as_str()],
            Part::Relation(relation) => relation.terms(),
        });
        std::iter::once(self.name.as_str()).chain(inner).collect()
    }

    pub(crate) fn shown(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Thing(thing) => thing.clone(),
            Part::Relation(relation) => relation.shown(),
        });
        format!("{}({})", self.name, parts.collect::<Vec<_>>().join(", "))
    }
}

/// Things of the source and what they are in the target, one to one.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) pairs: Vec<(String, String)>,
    targets: HashMap<String, String>,
    sources: HashMap<String, String>,
}

impl Mapping {
    /// Adds the pairs that make the relations one. Where a thing would be two, false, and nothing is added.
    fn join(&mut self, source: &Relation, target: &Relation) -> bool {
        let mut pairs = Vec::new();
        if !source.align(target, &mut pairs) {
            return false;
        }
        let known = self.pairs.len();
        let joined = pairs.into_iter().all(|(source, target)| self.add(source, target));
        if !joined {
            for (source, target) in self.pairs.drain(known..) {
                self.targets.remove(&source);
                self.sources.remove(&target);
            }
        }
        joined
    }

    /// Whether the two can be one; adds the pair if it is new.
    fn add(&mut self, source: &str, target: &str) -> bool {
        match (self.targets.get(source), self.sources.get(target)) {
            (Some(known), Some(_)) => known == target,
            (None, None) => {
                self.targets.insert(source.to_owned(), target.to_owned());
                self.sources.insert(target.to_owned(), source.to_owned());
                self.pairs.push((source.to_owned(), target.to_owned()));
                true
            }
            _ => false,
        }
    }

    /// The relation as it would be in the target; `None` while a thing of it has no counterpart.
    pub(crate) fn carry(&self, relation: &Relation) -> Option<Relation> {
        let part = |part: &Part| match part {
            Part::Thing(thing) => self.targets.get(thing).cloned().map(Part::Thing),
            Part::Relation(relation) => self.carry(relation).map(Part::Relation),
        };
        let parts = relation.parts.iter().map(part).collect::<Option<_>>()?;
        Some(Relation {
            name: relation.name.clone(),
            parts,
        })
    }
}

/// Which relations of the source match which of the target, greedily: those that say most first, each only if it agrees
/// with what is mapped already (the greedy merge of Forbus and Oblinger, "Making SME greedy and pragmatic", 1990).
pub(crate) fn map(source: &Case, target: &Case) -> (Mapping, Vec<(usize, usize)>) {
    let mut largest: Vec<(usize, &Relation)> = source.relations.iter().enumerate().collect();
    largest.sort_by_key(|(_, relation)| std::cmp::Reverse(relation.size()));
    let mut mapping = Mapping::default();
    let mut free: Vec<(usize, &Relation)> = target.relations.iter().enumerate().collect();
    let mut matched: Vec<(usize, usize)> = Vec::new();
    for (number, relation) in largest {
        if let Some(place) = free.iter().position(|(_, other)| mapping.join(relation, other)) {
            matched.push((number, free.remove(place).0));
        }
    }
    (mapping, matched)
}
