//! Strict parsing of untrusted JSON: limited depth, no duplicate keys, no NUL in text, exactly one value. serde_json
//! alone accepts duplicate keys (the last one wins) and recurses to a depth of 128. With both, two readers of the same
//! document can read different values.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::Error;

/// The maximum nesting depth of a wire line or HTTP body (ken-wire(5)).
pub const MAX_DEPTH: usize = 64;

/// Parses one document. Fails with `invalid`, naming line and column.
pub fn parse(bytes: &[u8], max_depth: usize) -> Result<Value, Error> {
    parse_with(Nul::Refuse, bytes, max_depth)
}

/// Like [`parse`], but shows NUL as [`visible_nul`] does, and half a surrogate pair as [`whole_characters`] does. For the
/// output of a program that has done its work already: if it were refused, its result would be lost.
pub fn parse_output(bytes: &[u8], max_depth: usize) -> Result<Value, Error> {
    parse_with(Nul::Show, whole_characters(text(bytes)?).as_bytes(), max_depth)
}

/// Replaces the escape of half a surrogate pair by that of U+FFFD. Programs that cut texts by units of UTF-16, as JavaScript
/// does, write such halves, and serde_json refuses the whole document for one. All other bytes stay as and where they are:
/// JSON has backslashes only in strings, so that nothing else has to be understood.
pub fn whole_characters(document: &str) -> Cow<'_, str> {
    let (mut whole, mut at) = (Cow::Borrowed(document), 0);
    while let Some(plain) = memchr::memchr(b'\\', document.as_bytes().get(at..).unwrap_or_default()) {
        let start = at + plain;
        at = match (escaped_surrogate(document, start), escaped_surrogate(document, start + ESCAPE)) {
            (Some(..0xdc00), Some(0xdc00..)) => start + 2 * ESCAPE,
            (Some(_), _) => {
                whole.to_mut().replace_range(start..start + ESCAPE, "\\ufffd");
                start + ESCAPE
            }
            (None, _) => start + 2,
        };
    }
    whole
}

/// The length of an escape such as `\ud83d`.
const ESCAPE: usize = 6;

fn escaped_surrogate(document: &str, at: usize) -> Option<u16> {
    let digits = document.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| (0xd800..0xe000).contains(unit))
}

/// Like [`parse`], for the arguments of a call: refuses a whole number beyond 64 bits, too. It would become the nearest
/// floating-point number, and the tool would do something else.
pub fn parse_arguments(bytes: &[u8], max_depth: usize) -> Result<Value, Error> {
    let arguments = parse(bytes, max_depth)?;
    check_whole_numbers(text(bytes)?)?;
    Ok(arguments)
}

/// Parses one document that a part of ken has written, such as an event. Texts of others stand in it, and what is stored
/// already has to stay readable, so that NUL is accepted.
pub fn parse_own(bytes: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(bytes).map_err(malformed)
}

/// Replaces NUL by its picture U+2400, because ken accepts no text with NUL, and PostgreSQL stores none.
pub fn visible_nul(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{2400}") } else { text }
}

/// Removes the white space between the tokens of a document. Unlike a parsed value, the rest stays as it is written:
/// large and precise numbers, escapes, and the order of keys.
pub fn compact(document: &str) -> String {
    let (mut compact, mut rest) = (String::with_capacity(document.len()), document);
    while !rest.is_empty() {
        let start = memchr::memchr(b'"', rest.as_bytes());
        let (tokens, quoted) = rest.split_at_checked(start.unwrap_or(rest.len())).unwrap_or((rest, ""));
        compact.extend(tokens.chars().filter(|c| !matches!(c, ' ' | '\t' | '\n' | '\r')));
        let (string, behind) = quoted.split_at_checked(text_end(quoted.as_bytes(), 1)).unwrap_or((quoted, ""));
        compact.push_str(string);
        rest = behind;
    }
    compact
}

/// What becomes of NUL in texts and keys.
#[derive(Clone, Copy)]
enum Nul {
    Refuse,
    Show,
}

fn parse_with(nul: Nul, bytes: &[u8], max_depth: usize) -> Result<Value, Error> {
    let text = text(bytes)?;
    check_depth(text.as_bytes(), max_depth)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    // check_depth has already limited the recursion. Its limit may be higher than serde_json's own limit of 128.
    reader.disable_recursion_limit();
    let value = Strict(nul).deserialize(&mut reader).map_err(malformed)?;
    reader.end().map_err(malformed)?;
    Ok(value)
}

/// Converts a parsed value to a type. The error names the field as a JSON pointer.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let message = error.inner().to_string();
        Error::invalid(pointer(error.path(), &message), reword(&message))
    })
}

/// Rewrites serde's message about a wrong value for a user who does not know Rust's types: `invalid type: string "x",
/// expected u32` becomes `must be a whole number from 0 to 4294967295, not text`. Returns any other message unchanged.
pub fn reword(message: &str) -> String {
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("must be {}, not {}", expected_kind(expected), given_kind(found));
    }
    let variant = message.strip_prefix("unknown variant `");
    if let Some((found, expected)) = variant.and_then(|rest| rest.split_once("`, expected ")) {
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        return format!("must be {}, not `{found}`", one_of(&names));
    }
    message.to_owned()
}

fn expected_kind(expected: &str) -> String {
    let first = expected.split(' ').next().unwrap_or_default();
    match first {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" | "usize" => "a whole number that is not negative".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "struct" | "map" => "an object".to_owned(),
        "sequence" | "tuple" => "a list".to_owned(),
        _ => match expected {
            "a string" | "a borrowed string" | "string" => "text".to_owned(),
            "a sequence" | "an array" => "a list".to_owned(),
            "a map" => "an object".to_owned(),
            other => other.to_owned(),
        },
    }
}

fn given_kind(found: &str) -> String {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    match kind {
        "string" => "text".to_owned(),
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        "integer" | "boolean" => value.trim_matches('`').to_owned(),
        "floating" => value.trim_start_matches("point ").trim_matches('`').to_owned(),
        _ => found.to_owned(),
    }
}

fn one_of(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Fails if values are nested deeper than `max_depth`. Makes one pass without recursion or allocation, and skips
/// strings.
pub fn check_depth(bytes: &[u8], max_depth: usize) -> Result<(), Error> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = text_end(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                if depth > max_depth {
                    let message = format!("JSON is nested deeper than {max_depth} levels at byte {}", at - 1);
                    return Err(Error::invalid("", message));
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn check_whole_numbers(document: &str) -> Result<(), Error> {
    let bytes = document.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let rest = document.get(at..).unwrap_or_default();
        at += 1;
        if *byte == b'"' {
            at = text_end(bytes, at);
        } else if byte.is_ascii_digit() || *byte == b'-' {
            let is_in_number = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
            let number = rest.split(|letter| !is_in_number(letter)).next().unwrap_or_default();
            at += number.len() - 1;
            let is_whole = !number.contains(['.', 'e', 'E']);
            if is_whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                let shown: String = number.chars().take(SHOWN_DIGITS).collect();
                let message = format!("the number {shown} at byte {} has more than 64 bits", at - number.len());
                return Err(Error::invalid("", message).hint("give it as text, if the tool takes that"));
            }
        }
    }
    Ok(())
}

/// The number of digits of a refused number that are shown.
const SHOWN_DIGITS: usize = 40;

/// Returns the position after the quote that ends the string around `at`, or the end of the input if there is no such
/// quote.
fn text_end(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at += plain_prefix(bytes.get(at..).unwrap_or_default());
        match bytes.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1, // a control character; the parser refuses it
            None => return bytes.len(),
        }
    }
}

/// Returns the number of bytes before the next quote or backslash. It may also stop at a control character. Only long
/// texts use memchr: before its first search it queries the processor, which traps in a virtual machine and takes a
/// tenth of the time of a short call.
fn plain_prefix(bytes: &[u8]) -> usize {
    const NEAR: usize = 256;
    let (near, far) = bytes.split_at(bytes.len().min(NEAR));
    match plain(near) {
        NEAR => NEAR + memchr::memchr2(b'"', b'\\', far).unwrap_or(far.len()),
        found => found,
    }
}

/// Returns the number of leading bytes that need no escape in a JSON string: those before a quote, a backslash or a
/// control character. It tests eight bytes at a time, as in Warren's "Hacker's Delight" (find a zero byte, find a byte
/// below a number). The lowest byte found is always correct.
pub fn plain(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let odd = bytes_to_escape(*word);
        if odd != 0 {
            return at * 8 + odd.trailing_zeros() as usize / 8;
        }
    }
    // The last eight bytes may overlap the words before them; in four to seven bytes the two halves may overlap.
    let last = bytes.last_chunk::<8>().copied().or_else(|| first_and_last_four(bytes));
    if last.is_some_and(|word| bytes_to_escape(word) == 0) {
        return bytes.len();
    }
    let first = tail.iter().position(|byte| needs_escape(*byte));
    words.len() * 8 + first.unwrap_or(tail.len())
}

/// Returns the first four bytes and the last four bytes as one word.
fn first_and_last_four(bytes: &[u8]) -> Option<[u8; 8]> {
    let (&[a, b, c, d], &[e, f, g, h]) = (bytes.first_chunk()?, bytes.last_chunk()?);
    Some([a, b, c, d, e, f, g, h])
}

/// Whether a byte needs an escape in a JSON string.
#[inline]
pub fn needs_escape(byte: u8) -> bool {
    byte < b' ' || matches!(byte, b'"' | b'\\')
}

/// Writes a text between quotation marks, with the escapes that serde_json uses.
pub fn escape(text: &str, mut write: impl FnMut(&[u8])) {
    let mut rest = text.as_bytes();
    while let Some((plain, odd)) = rest.split_at_checked(plain(rest)) {
        write(plain);
        let Some((&byte, behind)) = odd.split_first() else {
            return;
        };
        match byte {
            b'"' => write(b"\\\""),
            b'\\' => write(b"\\\\"),
            b'\n' => write(b"\\n"),
            b'\r' => write(b"\\r"),
            b'\t' => write(b"\\t"),
            0x08 => write(b"\\b"),
            0x0c => write(b"\\f"),
            _ => write(format!("\\u{byte:04x}").as_bytes()),
        }
        rest = behind;
    }
}

/// Returns a word in which the top bit of a byte is set if that byte needs an escape. Only the lowest set bit is
/// reliable.
#[inline]
fn bytes_to_escape(word: [u8; 8]) -> u64 {
    const EACH_BYTE_ONE: u64 = u64::from_le_bytes([1; 8]);
    let word = u64::from_le_bytes(word);
    let below = |word: u64, limit: u64| word.wrapping_sub(EACH_BYTE_ONE * limit) & !word;
    let is = |byte: u8| below(word ^ (EACH_BYTE_ONE * u64::from(byte)), 1);
    (below(word, 0x20) | is(b'"') | is(b'\\')) & (EACH_BYTE_ONE << 7)
}

/// Returns the path to the value that failed. serde names a missing or unknown field only in its message, so the field
/// is taken from there.
fn pointer(path: &serde_path_to_error::Path, message: &str) -> String {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    let mut last = String::new();
    for segment in path.iter() {
        last = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } | Segment::Enum { variant: key } => escape_pointer(key),
            Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&last);
    }
    let names_a_field = message.starts_with("missing field") || message.starts_with("unknown field");
    match message.split('`').nth(1).map(escape_pointer) {
        Some(name) if names_a_field && name != last => format!("{pointer}/{name}"),
        _ => pointer,
    }
}

/// Returns the kind of a value as errors name it: "must be text, not a list".
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Escapes one reference token of a JSON pointer (RFC 6901).
pub fn escape_pointer(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}

/// Returns the bytes as text. Fails with `invalid` if they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|error| Error::invalid("", format!("not UTF-8 at byte {}", error.valid_up_to())))
}

pub(crate) fn malformed(error: serde_json::Error) -> Error {
    Error::invalid("", format!("malformed JSON: {error}"))
}

struct Strict(Nul);

impl Strict {
    fn text<E: serde::de::Error>(&self, text: String, kind: &str) -> Result<String, E> {
        match self.0 {
            Nul::Refuse if text.contains('\0') => Err(E::custom(format!("{kind} holds a NUL character"))),
            Nul::Refuse => Ok(text),
            Nul::Show => Ok(visible_nul(text)),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
        self.text(text, "text").map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Strict(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let key = self.text(key, "a key")?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate key `{key}`")));
            }
            let value = fields.next_value_seed(Strict(self.0))?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_depth_nul_and_trailing_text_are_refused() {
        for bad in [r#"{"a":1,"a":2}"#, r#"{"a":{"b":1,"b":1}}"#, "\"a\\u0000b\"", "1 2", "{", "", "\u{feff}{}", "[1,]"]
        {
            let error = parse(bad.as_bytes(), MAX_DEPTH).expect_err(bad);
            assert_eq!(error.code, crate::Code::Invalid, "{bad}");
        }
        assert!(parse(b"\xff", MAX_DEPTH).is_err());
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(parse(deep(64).as_bytes(), 64).is_ok());
        assert!(parse(deep(65).as_bytes(), 64).is_err());
    }

    #[test]
    fn nul_is_shown_in_an_output_and_stays_in_an_own_document() {
        let text = br#"{"a\u0000":["b\u0000","\\u0000"]}"#;
        assert_eq!(parse_output(text, 2).unwrap(), serde_json::json!({"a\u{2400}": ["b\u{2400}", "\\u0000"]}));
        assert_eq!(parse_own(text).unwrap(), serde_json::json!({"a\0": ["b\0", "\\u0000"]}));
        // A key may not take the place of another one.
        for bad in [r#"{"a\u0000":1,"a\u2400":2}"#, r#"{"a":1,"a":2}"#, "[[[]]]", "1 2"] {
            assert!(parse_output(bad.as_bytes(), 2).is_err(), "{bad}");
        }
        assert!(parse_own(b"1 2").is_err());
        assert!(parse_own("[".repeat(1_000_000).as_bytes()).is_err(), "the depth is limited");
    }

    #[test]
    fn a_whole_number_beyond_64_bits_is_no_argument() {
        let (min, max) = (i64::MIN, u64::MAX);
        for number in [&min.to_string(), &max.to_string(), "-0", "1e400000", "2E+2", "-0.5", "18446744073709551616.0"] {
            for document in [number.to_owned(), format!("[{number},{{\"a\":{number}}}]")] {
                let parsed = parse(document.as_bytes(), 2);
                assert_eq!(parse_arguments(document.as_bytes(), 2).ok(), parsed.ok(), "{document}");
            }
        }
        for number in ["18446744073709551616", "-9223372036854775809", &"9".repeat(300)] {
            for document in [number.to_owned(), format!("[1, {number}]"), format!("{{\"a\":{number}}}")] {
                let error = parse_arguments(document.as_bytes(), 2).expect_err(&document);
                let at = document.find(number).unwrap();
                let shown = number.get(..40).unwrap_or(number);
                assert_eq!(error.message, format!("the number {shown} at byte {at} has more than 64 bits"));
            }
            let texts = format!("{{\"{number}\":\"\\\"{number}\"}}");
            assert!(parse_arguments(texts.as_bytes(), 2).is_ok(), "{texts}");
        }
        assert!(parse_arguments(b"[1", 2).is_err() && parse_arguments(br#"{"a":1,"a":2}"#, 2).is_err());
    }

    #[test]
    fn half_a_surrogate_pair_is_shown_as_unreadable_and_nothing_else_changes() {
        let (high, low, other) = ("\\ud83d", "\\uDE00", "\\ufffd");
        for (text, shown) in [
            (format!("{high}{low}"), "😀"),
            (high.to_owned(), "\u{fffd}"),
            (low.to_owned(), "\u{fffd}"),
            (format!("{low}{high}"), "\u{fffd}\u{fffd}"),
            (format!("{high}{high}{low}{low}"), "\u{fffd}😀\u{fffd}"),
            (format!("{high}x{low}"), "\u{fffd}x\u{fffd}"),
            (format!("é{high}\\n{low}😀"), "é\u{fffd}\n\u{fffd}😀"),
            (format!("\\{high}\\\\{high}"), "\\ud83d\\\u{fffd}"),
            (format!("\\ud7ff{other}\\ue000"), "\u{d7ff}\u{fffd}\u{e000}"),
        ] {
            let document = format!("{{\"k{text}\": [\"{text}\", 18446744073709551616, \"{text}\"]}}");
            let mended = whole_characters(&document);
            assert_eq!(mended.len(), document.len(), "{text}");
            assert_eq!(matches!(mended, Cow::Borrowed(_)), serde_json::from_str::<Value>(&document).is_ok(), "{text}");
            let expected = serde_json::json!({format!("k{shown}"): [shown, 18_446_744_073_709_551_616_f64, shown]});
            assert_eq!(parse_output(document.as_bytes(), 2).unwrap(), expected, "{text}");
            assert_eq!(parse(document.as_bytes(), 2).is_ok(), matches!(mended, Cow::Borrowed(_)), "{text}");
        }
        // What is cut or no JSON stays as it is.
        for text in ["", "\\", "\\u", "\\ud83", "\\ud83é", "\\u+d80", "\\\\"] {
            assert_eq!(whole_characters(text), text);
        }
        assert!(parse_output(br#"{"\ud83d":1,"\ude00":2}"#, 2).is_err(), "a key may not take the place of another one");
    }

    #[test]
    fn only_white_space_between_tokens_is_removed() {
        for (document, expected) in [
            (
                "\r\n{ \"b\" :\t[1.50 ,\n 1E2,18446744073709551616] , \"a\" : \"x  \\\" : y\\\\\" }\n",
                "{\"b\":[1.50,1E2,18446744073709551616],\"a\":\"x  \\\" : y\\\\\"}",
            ),
            ("\" é\u{2028}\u{a0}\"", "\" é\u{2028}\u{a0}\""),
            (" null ", "null"),
            (" \"open", "\"open"),
            ("", ""),
        ] {
            assert_eq!(compact(document), expected);
        }
    }

    #[test]
    fn a_wrong_field_is_named_as_a_pointer() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Inner {
            #[allow(dead_code)]
            size: u8,
        }
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Outer {
            #[allow(dead_code)]
            items: Vec<Inner>,
        }
        for (text, at) in [
            (r#"{}"#, "/items"),
            (r#"{"items":[],"x/y":1}"#, "/x~1y"),
            (r#"{"items":[{"size":1},{"size":"a"}]}"#, "/items/1/size"),
            (r#"{"items":[{}]}"#, "/items/0/size"),
            (r#"{"items":[{"size":300}]}"#, "/items/0/size"),
        ] {
            let error = from_value::<Outer>(parse(text.as_bytes(), MAX_DEPTH).unwrap()).unwrap_err();
            assert_eq!(error.at.as_deref(), Some(at), "{text}");
        }
    }

    #[test]
    fn brackets_in_text_are_not_depth() {
        for length in [0, 250, 251, 252, 253, 254, 255, 256, 257, 258, 500] {
            let text = format!("{{\"a\":\"{}\\\"[[\"}}", "[".repeat(length));
            assert!(parse(text.as_bytes(), 1).is_ok(), "{length}");
            let open = format!("{{\"a\":\"{}\\\"", "[".repeat(length));
            assert!(check_depth(open.as_bytes(), 1).is_ok(), "{length}");
            let deep = format!("[\"{}\u{1}\",[]]", "[".repeat(length));
            assert!(check_depth(deep.as_bytes(), 1).is_err(), "{length}");
        }
    }

    proptest::proptest! {
        #[test]
        fn plain_bytes_end_where_serde_json_escapes(text in "[ -~]{0,20}([\\x00-\\x1f\"\\\\]|\\PC){0,3}[ -~]{0,20}") {
            let escaped = serde_json::to_string(&text).unwrap();
            let same = text.bytes().zip(escaped.bytes().skip(1)).take_while(|(a, b)| a == b && *a != b'"' && *a != b'\\');
            proptest::prop_assert_eq!(plain(text.as_bytes()), same.count());
        }

        #[test]
        fn never_panics_and_agrees_with_serde_json_on_what_it_accepts(text in "[\\[\\]{}\",:a0\\\\ ]{0,40}") {
            if let Ok(value) = parse(text.as_bytes(), MAX_DEPTH) {
                let other: Value = serde_json::from_str(&text).unwrap();
                proptest::prop_assert_eq!(value, other);
            }
        }
    }

    #[test]
    fn errors_describe_a_wrong_value_in_plain_words() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "lowercase", deny_unknown_fields)]
        #[allow(dead_code, reason = "only its errors are of interest")]
        struct Fields {
            count: Option<u32>,
            share: Option<f64>,
            name: Option<String>,
            list: Option<Vec<i64>>,
            fields: Option<Inner>,
            mood: Option<Mood>,
            flag: Option<bool>,
        }
        #[derive(Debug, serde::Deserialize)]
        struct Inner {}
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Mood {
            Good,
            Fair,
            Bad,
        }
        for (text, at, message) in [
            (r#"{"count":"x"}"#, "/count", "must be a whole number from 0 to 4294967295, not text"),
            (r#"{"count":-1}"#, "/count", "must be a whole number from 0 to 4294967295, not -1"),
            (r#"{"count":1.5}"#, "/count", "must be a whole number from 0 to 4294967295, not 1.5"),
            (r#"{"share":[]}"#, "/share", "must be a number, not a list"),
            (r#"{"name":7}"#, "/name", "must be text, not 7"),
            (r#"{"name":{}}"#, "/name", "must be text, not an object"),
            (r#"{"list":true}"#, "/list", "must be a list, not true"),
            (r#"{"list":[null]}"#, "/list/0", "must be a whole number, not null"),
            (r#"{"fields":"a, expected b"}"#, "/fields", "must be an object, not text"),
            (r#"{"mood":"odd"}"#, "/mood", "must be good, fair or bad, not `odd`"),
            (r#"{"flag":"yes"}"#, "/flag", "must be a boolean, not text"),
        ] {
            let error = from_value::<Fields>(serde_json::from_str(text).unwrap()).unwrap_err();
            assert_eq!((error.at.as_deref(), error.message.as_str()), (Some(at), message), "{text}");
        }
    }
}
