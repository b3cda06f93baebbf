//! Bytes on the wire: `{"text":"…"}` if they are UTF-8 text, else `{"base64":"…"}` (ken-wire(5)).

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{self, Visitor};
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Arbitrary bytes. On the wire they take at most 1.7 times their length.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "Read")]
pub struct Octets(pub Vec<u8>);

impl Octets {
    /// Returns the bytes as text if they are UTF-8 and not much longer as a JSON string.
    fn as_text(&self) -> Option<&str> {
        let escaped = |byte: &&u8| crate::json::needs_escape(**byte);
        let is_short = self.0.iter().filter(escaped).count() <= self.0.len() / 8;
        std::str::from_utf8(&self.0).ok().filter(|_| is_short)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Written<'a> {
    Text(&'a str),
    Base64(Box<RawValue>),
}

impl Serialize for Octets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self.as_text() {
            Some(text) => Written::Text(text),
            None => Written::Base64(quoted(&self.0).map_err(S::Error::custom)?),
        };
        written.serialize(serializer)
    }
}

/// Returns base64 as a JSON string. Base64 needs no escapes, so none of its characters is checked
/// for them.
fn quoted(bytes: &[u8]) -> Result<Box<RawValue>, serde_json::Error> {
    let mut text = String::with_capacity(bytes.len() / 3 * 4 + 8);
    text.push('"');
    STANDARD.encode_string(bytes, &mut text);
    text.push('"');
    RawValue::from_string(text)
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", expecting = r#"bytes as {"text":"…"} or {"base64":"…"}"#)]
enum Read {
    Text(String),
    Base64(#[serde(deserialize_with = "decoded")] Vec<u8>),
}

impl From<Read> for Octets {
    fn from(read: Read) -> Octets {
        match read {
            Read::Text(text) => Octets(text.into_bytes()),
            Read::Base64(bytes) => Octets(bytes),
        }
    }
}

/// Decodes directly from the line, without an intermediate copy of the base64.
fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    deserializer.deserialize_str(Base64)
}

struct Base64;

impl Visitor<'_> for Base64 {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64 with its padding")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<u8>, E> {
        STANDARD.decode(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_where_it_is_short_and_base64_elsewhere() {
        for (bytes, json) in [
            (&b""[..], r#"{"text":""}"#),
            (b"a \"line\"\nand a good deal more of it", r#"{"text":"a \"line\"\nand a good deal more of it"}"#),
            (b"\0\0\0", r#"{"base64":"AAAA"}"#),
            (b"\xff\xfe", r#"{"base64":"//4="}"#),
        ] {
            let octets = Octets(bytes.to_vec());
            assert_eq!(serde_json::to_string(&octets).unwrap(), json);
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for json in [
            "{}",
            r#""a""#,
            r#"{"text":1}"#,
            r#"{"base64":"a"}"#,
            r#"{"text":"a","base64":"QQ=="}"#,
            r#"{"bytes":"a"}"#,
        ] {
            assert!(serde_json::from_str::<Octets>(json).is_err(), "{json}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read_and_not_much_longer(bytes: Vec<u8>) {
            let json = serde_json::to_string(&Octets(bytes.clone())).unwrap();
            proptest::prop_assert!(json.len() <= 16 + bytes.len() * 17 / 10);
            proptest::prop_assert_eq!(serde_json::from_str::<Octets>(&json).unwrap().0, bytes);
        }
    }
}
