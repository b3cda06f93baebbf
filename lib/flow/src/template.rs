//! The input of a step as its workflow defines it.

use ken_types::Error;
use serde_json::Value;

use crate::data::push_text;
use crate::node::Node;
use crate::reference::{Found, Reference, References};
use crate::scope::Scope;

/// A JSON value with placeholders. A string that is one placeholder, `"{{/data/text}}"`, is replaced by the value it refers
/// to, of any type; in a longer string a placeholder is replaced by text. `{{A|B}}` uses the first reference that has a value.
/// With nothing after the last bar, `{{A|}}`, the field, the item or the text may be omitted.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    /// JSON without placeholders.
    Fixed(String),
    Placeholder(Placeholder),
    Words(Vec<Piece>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
}

#[derive(Debug, Clone)]
pub(crate) struct Placeholder {
    references: Vec<Reference>,
    is_optional: bool,
    /// The source text, for errors.
    written: String,
}

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(String),
    Placeholder(Placeholder),
}

/// The source text of a placeholder that has no value.
#[derive(Debug)]
pub(crate) struct Unfilled(pub(crate) String);

/// Whether a part was written or omitted.
#[derive(PartialEq)]
enum Part {
    Written,
    LeftOut,
}

impl Template {
    /// Parses a template. The references of its placeholders are added to `references`, each with its position.
    pub(crate) fn parse(node: &Node<'_>, references: &mut References) -> Result<Template, Error> {
        match node.value {
            Value::String(text) => Template::of_text(text, node, references),
            Value::Array(_) => {
                let items = node.items()?;
                let items = items.iter().map(|item| Template::parse(item, references));
                Ok(Template::List(items.collect::<Result<_, Error>>()?))
            }
            Value::Object(_) => {
                let fields = node.entries()?;
                let fields = fields.map(|(name, field)| Ok((name.to_owned(), Template::parse(&field, references)?)));
                Ok(Template::Object(fields.collect::<Result<_, Error>>()?))
            }
            other => Ok(Template::Fixed(other.to_string())),
        }
    }

    fn of_text(text: &str, node: &Node<'_>, references: &mut References) -> Result<Template, Error> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{/") {
            let Some((inner, after)) = after.split_once("}}") else {
                return Err(node.error("a placeholder `{{` has no end `}}`"));
            };
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Placeholder(Placeholder::parse(&format!("/{inner}"), node, references)?));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(match pieces.as_slice() {
            [] | [Piece::Text(_)] => Template::Fixed(Value::from(text).to_string()),
            [Piece::Placeholder(hole)] => Template::Placeholder(hole.clone()),
            _ => Template::Words(pieces),
        })
    }

    /// The filled template as one line of JSON.
    pub(crate) fn fill(&self, scope: &Scope<'_>) -> Result<String, Unfilled> {
        let mut line = String::new();
        if self.push(scope, &mut line)? == Part::LeftOut {
            line.push_str("null");
        }
        Ok(line)
    }

    fn push(&self, scope: &Scope<'_>, to: &mut String) -> Result<Part, Unfilled> {
        match self {
            Template::Fixed(json) => to.push_str(json),
            Template::Placeholder(hole) => return hole.push(scope, |found| found.push_json(to)),
            Template::Words(pieces) => push_text(to, &words(pieces, scope)?),
            Template::List(items) => {
                let items = items.iter().map(|item| ("", item));
                push_all(items, ['[', ']'], scope, to)?;
            }
            Template::Object(fields) => {
                let fields = fields.iter().map(|(name, field)| (name.as_str(), field));
                push_all(fields, ['{', '}'], scope, to)?;
            }
        }
        Ok(Part::Written)
    }
}

impl Placeholder {
    fn parse(inner: &str, node: &Node<'_>, references: &mut References) -> Result<Placeholder, Error> {
        let mut hole = Placeholder { references: Vec::new(), is_optional: false, written: inner.to_owned() };
        for pointer in inner.split('|') {
            if hole.is_optional {
                return Err(node.error(format!("`{inner}`: only the last reference of a placeholder can be empty")));
            }
            if pointer.is_empty() {
                hole.is_optional = true;
                continue;
            }
            let reference = Reference::parse(pointer, node)?;
            references.push((reference.clone(), node.at.clone()));
            hole.references.push(reference);
        }
        Ok(hole)
    }

    fn push(&self, scope: &Scope<'_>, push: impl FnOnce(Found<'_>)) -> Result<Part, Unfilled> {
        match self.references.iter().find_map(|reference| reference.find(scope)) {
            Some(found) => {
                push(found);
                Ok(Part::Written)
            }
            None if self.is_optional => Ok(Part::LeftOut),
            None => Err(Unfilled(self.written.clone())),
        }
    }
}

fn words(pieces: &[Piece], scope: &Scope<'_>) -> Result<String, Unfilled> {
    let mut words = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => words.push_str(text),
            Piece::Placeholder(hole) => _ = hole.push(scope, |found| found.push_words(&mut words))?,
        }
    }
    Ok(words)
}

/// Writes the parts of a list or an object, except those that are omitted. Only the parts of an object have names.
fn push_all<'a>(
    parts: impl Iterator<Item = (&'a str, &'a Template)>,
    [open, close]: [char; 2],
    scope: &Scope<'_>,
    to: &mut String,
) -> Result<(), Unfilled> {
    to.push(open);
    let start = to.len();
    for (name, part) in parts {
        let before = to.len();
        if before > start {
            to.push(',');
        }
        if open == '{' {
            push_text(to, name);
            to.push(':');
        }
        if part.push(scope, to)? == Part::LeftOut {
            to.truncate(before);
        }
    }
    to.push(close);
    Ok(())
}
