use std::borrow::Cow;
use std::fmt;

use ken_logic::{Invalid, Theory, normalise};
use ken_tool::{Error, MAX_DEPTH};
use ken_types::json;
use serde::de::{self, DeserializeSeed, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A text that is borrowed from the document where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

/// `[[premise…], conclusion]`, any number of times; all premises in one list.
#[derive(Default)]
pub(crate) struct Rules<'a> {
    premises: Vec<Cow<'a, str>>,
    /// By rule: where its premises end.
    ends: Vec<u32>,
    conclusions: Vec<Cow<'a, str>>,
}

impl<'a> Rules<'a> {
    /// The rules of a JSON text, as the flag gives them.
    pub(crate) fn read(text: &'a str) -> Result<Rules<'a>, Error> {
        let value = json::parse(text.as_bytes(), MAX_DEPTH).map_err(|error| error.at("--rules"))?;
        Rules::of(&value)
    }

    /// The rules of a JSON value; the error points at what is wrong.
    pub(crate) fn of(value: &Value) -> Result<Rules<'a>, Error> {
        let mut rules = Rules::default();
        for (number, rule) in list(value, "/rules")?.iter().enumerate() {
            let at = format!("/rules/{number}");
            let Some([premises, conclusion]) = rule.as_array().map(Vec::as_slice) else {
                return Err(Error::invalid(
                    at,
                    "a rule is a pair: [[premise, ...], conclusion]",
                ));
            };
            for (place, premise) in list(premises, &format!("{at}/0"))?.iter().enumerate() {
                rules
                    .premises
                    .push(text(premise, &format!("{at}/0/{place}"))?.into());
            }
            rules.end_rule(text(conclusion, &format!("{at}/1"))?.into());
        }
        Ok(rules)
    }

    fn end_rule(&mut self, conclusion: Cow<'a, str>) {
        self.ends.push(self.premises.len() as u32);
        self.conclusions.push(conclusion);
    }

    pub(crate) fn len(&self) -> usize {
        self.conclusions.len()
    }

    pub(crate) fn premises(&self, rule: usize) -> &[Cow<'a, str>] {
        let end = |rule: usize| self.ends.get(rule).map_or(0, |&end| end as usize);
        let start = rule.checked_sub(1).map_or(0, end);
        self.premises.get(start..end(rule)).unwrap_or_default()
    }

    pub(crate) fn conclusion(&self, rule: usize) -> &str {
        self.conclusions.get(rule).map_or("", Cow::as_ref)
    }

    /// Adds all rules to a theory, which numbers them as they are numbered here.
    pub(crate) fn add_to<'t>(&'t self, theory: &mut Theory<'t>) -> Result<(), Error> {
        for rule in 0..self.len() {
            let premises = self.premises(rule).iter().map(Cow::as_ref);
            theory
                .add_rule(premises, self.conclusion(rule))
                .map_err(|invalid| Error::invalid(self.place_of(rule, &invalid), invalid.to_string()))?;
        }
        Ok(())
    }

    fn place_of(&self, rule: usize, invalid: &Invalid) -> String {
        let is_empty = |text: &str| normalise(text).atom.is_empty();
        match invalid {
            Invalid::Empty => match self.premises(rule).iter().position(|premise| is_empty(premise)) {
                Some(place) => format!("/rules/{rule}/0/{place}"),
                None => format!("/rules/{rule}/1"),
            },
            Invalid::Unbound(_) => format!("/rules/{rule}/1"),
            _ => format!("/rules/{rule}"),
        }
    }
}

/// The items of a list; an absent field is an empty one.
pub(crate) fn list<'v>(value: &'v Value, at: &str) -> Result<&'v [Value], Error> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(Error::invalid(
            at,
            format!("must be a list, not {}", kind_of(other)),
        )),
    }
}

pub(crate) fn text(value: &Value, at: &str) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(Error::invalid(
            at,
            format!("must be text, not {}", kind_of(other)),
        )),
    }
}

pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl Serialize for Rules<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.len()))?;
        for rule in 0..self.len() {
            list.serialize_element(&(self.premises(rule), self.conclusion(rule)))?;
        }
        list.end()
    }
}

// Reading straight from the text, without a tree in between. Whatever these refuse is read again by `of`, which knows
// where it is; so the errors here need no words.

impl<'de> Deserialize<'de> for Rules<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rules<'de>, D::Error> {
        deserializer.deserialize_seq(RulesVisitor)
    }
}

struct RulesVisitor;

impl<'de> Visitor<'de> for RulesVisitor {
    type Value = Rules<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of rules")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Rules<'de>, A::Error> {
        let mut rules = Rules::default();
        while items.next_element_seed(OneRule(&mut rules))?.is_some() {}
        Ok(rules)
    }
}

/// Reads a pair into the rules.
struct OneRule<'r, 'a>(&'r mut Rules<'a>);

impl<'de> DeserializeSeed<'de> for OneRule<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for OneRule<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pair")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<(), A::Error> {
        let premises = parts.next_element_seed(Texts(&mut self.0.premises))?;
        let conclusion = parts.next_element::<Text<'de>>()?;
        match (premises, conclusion, parts.next_element::<de::IgnoredAny>()?) {
            (Some(()), Some(conclusion), None) => {
                self.0.end_rule(conclusion.0);
                Ok(())
            }
            _ => Err(de::Error::custom("not a pair")),
        }
    }
}

/// Reads a list of texts to the end of another.
pub(crate) struct Texts<'r, 'a>(pub(crate) &'r mut Vec<Cow<'a, str>>);

impl<'de> DeserializeSeed<'de> for Texts<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Texts<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(text) = items.next_element::<Text<'de>>()? {
            self.0.push(text.0);
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text<'de>, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}
