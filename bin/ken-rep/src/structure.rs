//! A case as a structure: attributes with values, and relations over them.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

use ken_logic::normalise;
use ken_tool::Error;
use ken_types::json::kind_of;
use serde_json::{Map, Number, Value};

use crate::rules::{list, text};

pub(crate) struct Case {
    pub(crate) name: String,
    /// The attributes, by their path in normal form. `limbs/legs` is the field `legs` of the object `limbs`.
    pub(crate) attributes: BTreeMap<String, Attribute>,
    pub(crate) relations: Vec<Relation>,
}

/// A value of a case, and its path.
pub(crate) struct Attribute {
    /// The path and the value in the words of the document.
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether the name itself is a negation, such as "not red".
    is_denial: bool,
    /// The value in normal form. If the name is a negation, it is the value of the affirmative name.
    normal: String,
}

/// A relation between attributes, things or other relations, such as `["causes", "gravity", "orbit"]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relation {
    /// The name without a negation.
    pub(crate) name: Name,
    is_denied: bool,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Thing(Name),
    Relation(Relation),
}

/// A name in the words of the document. Names are compared in the normal form of statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Name {
    pub(crate) display: String,
    normal: String,
}

/// Fields that contain the name of a case. They are not attributes.
const NAMES: [&str; 3] = ["name", "id", "label"];

/// Fields with an object whose fields count as attributes of the case itself.
const CONTAINERS: [&str; 3] = ["attributes", "properties", "features"];

/// The maximum number of relations of a case, because each relation is compared with each one of the other case.
const MAX_RELATIONS: usize = 2_000;

impl Case {
    /// Reads a case: an object of attributes (with `name` and `relations`), or a list of statements. A statement is an
    /// attribute with the value true.
    pub(crate) fn of(value: &Value, field: &str) -> Result<Case, Error> {
        let at = format!("/{field}");
        let mut case = Case { name: field.replace("_case", ""), attributes: BTreeMap::new(), relations: Vec::new() };
        match value {
            Value::Object(fields) => case.take_fields(fields, &at)?,
            Value::Array(items) => case.take_statements(items, &at)?,
            Value::Null => return Err(Error::invalid(at, format!("analogy needs a {field}"))),
            other => {
                let message =
                    format!("must be an object of attributes or a list of statements, not {}", kind_of(other));
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
                    if relations.len() > MAX_RELATIONS {
                        let message = format!("more than {MAX_RELATIONS} relations");
                        return Err(Error::too_large(message).at(at));
                    }
                    self.relations = relations
                        .iter()
                        .enumerate()
                        .map(|(number, item)| Relation::of(item, &format!("{at}/{number}")))
                        .collect::<Result<_, _>>()?;
                }
                (container, Value::Object(inner)) if CONTAINERS.contains(&container) => {
                    self.flatten(&Name::default(), inner)
                }
                (container, Value::Array(items)) if CONTAINERS.contains(&container) => {
                    self.take_statements(items, &format!("{at}/{container}"))?;
                }
                _ => self.attribute(&Name::default(), key, value),
            }
        }
        Ok(())
    }

    fn take_statements(&mut self, items: &[Value], at: &str) -> Result<(), Error> {
        for (number, item) in items.iter().enumerate() {
            self.add_truth_value(&Name::default(), &text(item, &format!("{at}/{number}"))?, true);
        }
        Ok(())
    }

    fn flatten(&mut self, path: &Name, fields: &Map<String, Value>) {
        for (key, value) in fields {
            self.attribute(path, key, value);
        }
    }

    /// Adds an attribute. If the value is a list, its order does not matter.
    fn attribute(&mut self, path: &Name, key: &str, value: &Value) {
        match value {
            Value::Object(fields) => self.flatten(&path.join(&Name::of(key)), fields),
            Value::Array(items) => {
                let path = path.join(&Name::of(key));
                for item in items {
                    self.add_truth_value(&path, &Name::of_value(item).display, true);
                }
            }
            other => self.add_value(path, key, Name::of_value(other)),
        }
    }

    fn add_value(&mut self, path: &Name, key: &str, value: Name) {
        match value.normal.as_str() {
            "true" => self.add_truth_value(path, key, true),
            "false" => self.add_truth_value(path, key, false),
            _ => {
                let path = path.join(&Name::of(key));
                let attribute =
                    Attribute { name: path.display, value: value.display, is_denial: false, normal: value.normal };
                self.attributes.insert(path.normal, attribute);
            }
        }
    }

    /// Adds a truth value. "not red" with the value true becomes "red" with the value false.
    fn add_truth_value(&mut self, path: &Name, key: &str, holds: bool) {
        let statement = normalise(key);
        let attribute = Attribute {
            name: joined(&path.display, key.trim()),
            value: holds.to_string(),
            is_denial: statement.negated,
            normal: (holds != statement.negated).to_string(),
        };
        self.attributes.insert(joined(&path.normal, &statement.atom), attribute);
    }
}

impl Attribute {
    pub(crate) fn agrees(&self, other: &Attribute) -> bool {
        self.normal == other.normal
    }

    /// Returns the attribute as a statement. If its value is true, the statement is just its name.
    pub(crate) fn statement(&self) -> String {
        let name = self.name.replace('/', " ");
        match self.value.as_str() {
            "true" => name,
            "false" => format!("not {name}"),
            value => format!("{name} is {value}"),
        }
    }

    /// Returns a text that says how two cases, given by their names, differ in this attribute.
    pub(crate) fn difference(&self, name: &str, other: &Attribute, other_name: &str) -> String {
        if self.is_denial == other.is_denial {
            let Attribute { name: path, value, .. } = self;
            format!("{path}: {value} in {name}, {} in {other_name}", other.value)
        } else {
            format!("{} in {name}, {} in {other_name}", self.statement(), other.statement())
        }
    }
}

impl Name {
    fn of(words: &str) -> Name {
        let statement = normalise(words);
        let normal = if statement.negated { format!("not {}", statement.atom) } else { statement.atom.into_owned() };
        Name { display: words.trim().to_owned(), normal }
    }

    /// Returns the normal form of a value: "Fur ." equals "fur", and 1 equals 1.0.
    fn of_value(value: &Value) -> Name {
        match value {
            Value::String(text) => Name::of(text),
            Value::Number(number) => Name { display: number.to_string(), normal: shortest(number) },
            other => Name::of(&other.to_string()),
        }
    }

    fn join(&self, name: &Name) -> Name {
        Name { display: joined(&self.display, &name.display), normal: joined(&self.normal, &name.normal) }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.normal == other.normal
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.normal.hash(state);
    }
}

fn joined(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

/// Returns a number as text, without a decimal part if that is zero. Numbers beyond the range in which floating point
/// represents all integers are not changed.
fn shortest(number: &Number) -> String {
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(value) if number.is_f64() && value.fract() == 0.0 && value.abs() < WHOLE => (value as i64).to_string(),
        _ => number.to_string(),
    }
}

impl Relation {
    fn of(value: &Value, at: &str) -> Result<Relation, Error> {
        let Some((name, parts)) =
            value.as_array().and_then(|items| items.split_first()).filter(|(_, parts)| !parts.is_empty())
        else {
            return Err(Error::invalid(at, "a relation is a list: [name, part, ...]"));
        };
        let name = text(name, &format!("{at}/0"))?;
        let statement = normalise(&name);
        let part = |(number, item): (usize, &Value)| {
            let at = format!("{at}/{}", number + 1);
            match item {
                Value::Array(_) => Relation::of(item, &at).map(Part::Relation),
                other => text(other, &at).map(|text| Part::Thing(Name::of(&text))),
            }
        };
        Ok(Relation {
            is_denied: statement.negated,
            name: Name { display: name.trim().to_owned(), normal: statement.atom.into_owned() },
            parts: parts.iter().enumerate().map(part).collect::<Result<_, _>>()?,
        })
    }

    /// Adds the pairs of things at the same places of two relations. Returns false if the relations do not have the
    /// same form.
    fn align<'r>(&'r self, other: &'r Relation, pairs: &mut Vec<(&'r Name, &'r Name)>) -> bool {
        let parts = || self.parts.iter().zip(&other.parts);
        self.label() == other.label()
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

    /// Returns the name of the relation, and whether it is negated.
    pub(crate) fn label(&self) -> (&str, bool) {
        (&self.name.normal, self.is_denied)
    }

    /// Returns whether this relation equals the other one or its negation.
    pub(crate) fn answers(&self, other: &Relation) -> bool {
        self.name == other.name && self.parts == other.parts
    }

    pub(crate) fn contradicts(&self, other: &Relation) -> bool {
        self.is_denied != other.is_denied && self.answers(other)
    }

    /// Returns the number of relations in this one, including itself. A relation between relations therefore counts more than
    /// one between things.
    pub(crate) fn size(&self) -> usize {
        let inner = self.parts.iter().map(|part| match part {
            Part::Relation(relation) => relation.size(),
            Part::Thing(_) => 0,
        });
        1 + inner.sum::<usize>()
    }

    /// Returns the names of the things and relations in it, at any depth.
    pub(crate) fn terms(&self) -> Vec<&str> {
        let inner = self.parts.iter().flat_map(|part| match part {
            Part::Thing(thing) => vec![thing.normal.as_str()],
            Part::Relation(relation) => relation.terms(),
        });
        std::iter::once(self.name.normal.as_str()).chain(inner).collect()
    }

    pub(crate) fn text(&self) -> String {
        let parts = self.parts.iter().map(|part| match part {
            Part::Thing(thing) => thing.display.clone(),
            Part::Relation(relation) => relation.text(),
        });
        format!("{}({})", self.name.display, parts.collect::<Vec<_>>().join(", "))
    }
}

/// A one-to-one mapping from things of the source to things of the target.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    pub(crate) pairs: Vec<(Name, Name)>,
    targets: HashMap<Name, Name>,
    sources: HashMap<Name, Name>,
}

impl Mapping {
    /// Adds the pairs of things that make the two relations equal. If a thing would then have two counterparts, adds
    /// nothing and returns false.
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

    /// Adds a pair of things if it is new. Returns false if one of them already has another counterpart.
    fn add(&mut self, source: &Name, target: &Name) -> bool {
        match (self.targets.get(source), self.sources.get(target)) {
            (Some(known), Some(_)) => known == target,
            (None, None) => {
                self.targets.insert(source.clone(), target.clone());
                self.sources.insert(target.clone(), source.clone());
                self.pairs.push((source.clone(), target.clone()));
                true
            }
            _ => false,
        }
    }

    /// Translates a relation to the target; `None` if one of its things has no counterpart.
    pub(crate) fn translate(&self, relation: &Relation) -> Option<Relation> {
        let part = |part: &Part| match part {
            Part::Thing(thing) => self.targets.get(thing).cloned().map(Part::Thing),
            Part::Relation(relation) => self.translate(relation).map(Part::Relation),
        };
        let parts = relation.parts.iter().map(part).collect::<Option<_>>()?;
        Some(Relation { name: relation.name.clone(), is_denied: relation.is_denied, parts })
    }
}

/// Matches relations of the source with relations of the target. It is greedy: larger relations are matched first, and
/// each match must be consistent with the mapping so far (the greedy merge of Forbus and Oblinger, "Making SME greedy
/// and pragmatic", 1990).
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
