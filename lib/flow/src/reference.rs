//! A reference of a template or a condition: `/data/…`, `/results/ID/…` or `/issues`.

use ken_types::Error;
use serde_json::Value;

use crate::data::{push_flat, value_of};
use crate::node::Node;
use crate::scope::Scope;

/// A JSON pointer (RFC 6901) into the input, a result or the issues.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reference {
    pub(crate) root: Root,
    /// The rest of the pointer: empty, or from its `/` on.
    rest: String,
}

/// References, each with a JSON pointer to its position in the file.
pub(crate) type References = Vec<(Reference, String)>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Root {
    Data,
    /// The newest result of the step with this id.
    Result(String),
    /// The issues of the step's first result, while it runs for the second time.
    Issues,
}

/// A value that a reference refers to.
pub(crate) enum Found<'a> {
    /// JSON text as it was written.
    Raw(&'a str),
    Value(&'a Value),
    Issues(&'a [String]),
}

impl Reference {
    /// Parses a pointer; `node` gives the position for errors.
    pub(crate) fn parse(pointer: &str, node: &Node<'_>) -> Result<Reference, Error> {
        let unknown = || {
            node.error(format!("`{pointer}` is not a valid reference")).hint("/data/FIELD/…, /results/ID/… or /issues")
        };
        let (root, rest) = split(pointer.strip_prefix('/').ok_or_else(unknown)?);
        let (root, rest) = match root {
            "data" => (Root::Data, rest),
            "issues" => (Root::Issues, rest),
            "results" => {
                let (id, rest) = split(rest.strip_prefix('/').ok_or_else(unknown)?);
                (Root::Result(id.to_owned()), rest)
            }
            _ => return Err(unknown()),
        };
        Ok(Reference { root, rest: rest.to_owned() })
    }

    /// Looks up the value; `None` if there is none.
    pub(crate) fn find<'a>(&self, scope: &'a Scope<'_>) -> Option<Found<'a>> {
        match &self.root {
            Root::Issues => {
                let issues = scope.progress.issues.as_slice();
                (!issues.is_empty() && self.rest.is_empty()).then_some(Found::Issues(issues))
            }
            Root::Data => match self.top() {
                Some(name) if scope.data.is_object() => scope.data.get(name).map(|raw| Found::Raw(raw.get())),
                _ => scope.data.tree().pointer(&self.rest).map(Found::Value),
            },
            Root::Result(id) => {
                let answer = scope.result(id)?;
                match (self.rest.as_str(), self.top()) {
                    ("", _) => Some(Found::Raw(answer.text())),
                    (_, Some(name)) => answer.field(name).map(Found::Raw),
                    (rest, None) => answer.tree().pointer(rest).map(Found::Value),
                }
            }
        }
    }

    /// The name of a top-level field, when the pointer leads to one.
    fn top(&self) -> Option<&str> {
        let name = self.rest.strip_prefix('/')?;
        (!name.contains(['/', '~'])).then_some(name)
    }
}

impl Found<'_> {
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Found::Raw(raw) => value_of(raw),
            Found::Value(value) => (*value).clone(),
            Found::Issues(issues) => Value::from(issues.to_vec()),
        }
    }

    /// Appends the value as JSON without line feeds.
    pub(crate) fn push_json(&self, to: &mut String) {
        match self {
            Found::Raw(raw) => push_flat(to, raw),
            Found::Value(value) => to.push_str(&value.to_string()),
            Found::Issues(_) => to.push_str(&self.to_value().to_string()),
        }
    }

    /// Appends the value as text: a string as it is, a list of strings one per line, anything else as JSON.
    pub(crate) fn push_words(&self, to: &mut String) {
        match self.to_value() {
            Value::String(text) => to.push_str(&text),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                for (number, item) in items.iter().filter_map(Value::as_str).enumerate() {
                    to.push_str(if number == 0 { "- " } else { "\n- " });
                    to.push_str(item);
                }
            }
            other => to.push_str(&other.to_string()),
        }
    }
}

/// Splits a pointer before its first `/`.
fn split(pointer: &str) -> (&str, &str) {
    pointer.split_at(pointer.find('/').unwrap_or(pointer.len()))
}
