//! A JSON value with its JSON pointer, for errors that name the place.

use ken_types::Error;
use ken_types::json::{escape_pointer, kind_of};
use serde_json::{Map, Value};

/// A value, and the JSON pointer that leads to it.
#[derive(Clone)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    pub(crate) at: String,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Node<'a> {
        Node { value, at: String::new() }
    }

    pub(crate) fn error(&self, message: impl Into<String>) -> Error {
        Error::invalid(self.at.clone(), message)
    }

    fn expected(&self, what: &str) -> Error {
        self.error(format!("must be {what}, not {}", describe(self.value)))
    }

    fn child(&self, name: &str, value: &'a Value) -> Node<'a> {
        Node { value, at: format!("{}/{}", self.at, escape_pointer(name)) }
    }

    pub(crate) fn fields(&self) -> Result<&'a Map<String, Value>, Error> {
        self.value.as_object().ok_or_else(|| self.expected("an object"))
    }

    /// The named field, if it is present.
    pub(crate) fn field(&self, name: &str) -> Result<Option<Node<'a>>, Error> {
        let value = self.fields()?.get(name);
        Ok(value.map(|value| self.child(name, value)))
    }

    /// The value of the named field, if it is present.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&Node<'a>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.field(name)?.map(|field| read(&field)).transpose()
    }

    /// The named field, which must be present.
    pub(crate) fn required(&self, name: &str) -> Result<Node<'a>, Error> {
        let missing = || Error::invalid(format!("{}/{name}", self.at), format!("missing field `{name}`"));
        self.field(name)?.ok_or_else(missing)
    }

    /// Refuses fields that are not `known`.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Error> {
        let unknown = self.fields()?.keys().find(|key| !known.contains(&key.as_str()));
        match unknown {
            None => Ok(()),
            Some(key) => {
                Err(Error::invalid(format!("{}/{}", self.at, escape_pointer(key)), format!("unknown field `{key}`"))
                    .hint(format!("known: {}", known.join(", "))))
            }
        }
    }

    /// The fields of an object, each with its name.
    pub(crate) fn entries(&self) -> Result<impl Iterator<Item = (&'a str, Node<'a>)> + '_, Error> {
        let fields = self.fields()?.iter();
        Ok(fields.map(|(name, value)| (name.as_str(), self.child(name, value))))
    }

    pub(crate) fn items(&self) -> Result<Vec<Node<'a>>, Error> {
        let items = self.value.as_array().ok_or_else(|| self.expected("a list"))?;
        let child = |(place, value): (usize, &'a Value)| self.child(&place.to_string(), value);
        Ok(items.iter().enumerate().map(child).collect())
    }

    pub(crate) fn text(&self) -> Result<&'a str, Error> {
        self.value.as_str().ok_or_else(|| self.expected("text"))
    }

    pub(crate) fn flag(&self) -> Result<bool, Error> {
        self.value.as_bool().ok_or_else(|| self.expected("true or false"))
    }

    /// The node's value, which must be a whole number from 1 to `max`.
    pub(crate) fn count(&self, max: u64) -> Result<u64, Error> {
        let number = self.value.as_u64().filter(|number| (1..=max).contains(number));
        number.ok_or_else(|| self.expected(&format!("a whole number from 1 to {max}")))
    }
}

/// For an error message: a number's value, or the kind of any other value.
fn describe(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => kind_of(other).to_owned(),
    }
}
