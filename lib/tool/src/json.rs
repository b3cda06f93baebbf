//! How an answer is written as JSON: the layout of `--format json` and `compact`, and the field that names the input of an
//! answer.

use std::io::{self, Write};

use serde::ser::{Serialize, Serializer};
use serde_json::ser::Formatter;

use crate::mark::Mark;
use crate::output::Output;

/// The number of outer levels whose values each begin a new line; deeper values stay on one line. Each field of an answer
/// and each item of its lists is then one line, which is easy to read and to find with `grep`, and indentation does not
/// make a long proof four times as large.
const OPEN_LEVELS: usize = 2;

/// Text that is JSON already and is written unchanged. serde_json's `RawValue` does the same, but parses the text first,
/// which takes longer than to write it.
///
/// It is serialised as bytes, which no answer contains otherwise: both layouts of this file write bytes as they are. Any
/// other serialiser writes a list of numbers.
pub struct Raw<'a>(pub &'a str);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_bytes())
    }
}

/// Writes a document on one line. The output reports errors.
pub(crate) fn compact(value: &(impl Serialize + ?Sized), mark: Option<&Mark>, to: &mut Output) {
    match mark {
        Some(mark) => write(value, Layout::new(0, Some(mark)), to),
        None => write(value, Compact, to), // many answers of a co-process
    }
}

/// Writes a document with its outer two levels indented by two spaces each.
pub(crate) fn open(value: &(impl Serialize + ?Sized), mark: Option<&Mark>, to: &mut Output) {
    write(value, Layout::new(OPEN_LEVELS, mark), to);
}

fn write(value: &(impl Serialize + ?Sized), layout: impl Formatter, to: &mut Output) {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *to, layout);
    if let Err(error) = value.serialize(&mut serializer) {
        to.fail(error.into());
    }
}

/// serde_json's own layout, which [`Layout`] with no open level is too, but slower.
struct Compact;

impl Formatter for Compact {
    fn write_byte_array<W: Write + ?Sized>(&mut self, to: &mut W, json: &[u8]) -> io::Result<()> {
        to.write_all(json)
    }
}

struct Layout<'m> {
    open_levels: usize,
    depth: usize,
    /// Whether the innermost list or object has a value yet.
    is_filled: bool,
    mark: Option<&'m Mark>,
}

impl<'m> Layout<'m> {
    fn new(open_levels: usize, mark: Option<&'m Mark>) -> Layout<'m> {
        Layout { open_levels, depth: 0, is_filled: false, mark }
    }

    fn is_open(&self) -> bool {
        self.depth <= self.open_levels
    }

    fn begin(&mut self, to: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.is_filled = false;
        to.write_all(bracket)
    }

    /// Called before each value of a list and each key of an object.
    fn next(&mut self, to: &mut (impl Write + ?Sized), is_first: bool) -> io::Result<()> {
        if !is_first {
            to.write_all(b",")?;
        }
        if self.is_open() { self.line(to) } else { Ok(()) }
    }

    fn end(&mut self, to: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        let has_lines = self.is_open() && self.is_filled;
        self.depth -= 1;
        if has_lines {
            self.line(to)?;
        }
        self.is_filled = true;
        to.write_all(bracket)
    }

    fn line(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        to.write_all(match self.depth {
            0 => b"\n",
            1 => b"\n  ",
            _ => b"\n    ",
        })
    }

    fn colon(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        to.write_all(if self.is_open() { b": " } else { b":" })
    }
}

impl Formatter for Layout<'_> {
    fn write_byte_array<W: Write + ?Sized>(&mut self, to: &mut W, json: &[u8]) -> io::Result<()> {
        to.write_all(json)
    }

    fn begin_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"[")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        self.next(to, is_first)
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }

    fn end_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"]")
    }

    fn begin_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"{")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        self.next(to, is_first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.colon(to)
    }

    fn end_object_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.is_filled = true;
        Ok(())
    }

    fn end_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        if self.depth == 1
            && let Some(mark) = self.mark
        {
            self.next(to, !self.is_filled)?;
            write!(to, "\"{}\"", mark.name())?;
            self.colon(to)?;
            to.write_all(mark.json().as_bytes())?;
            self.is_filled = true;
        }
        self.end(to, b"}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn written(write: impl FnOnce(&mut Output)) -> String {
        let mut output = Output::to_memory();
        write(&mut output);
        String::from_utf8(output.memory().to_vec()).unwrap()
    }

    #[test]
    fn two_levels_are_open() {
        let value = json!({"a": [], "b": [1, {"x": [2, 3], "y": {}}], "c": {"d": {"e": 1}}, "f": {}});
        let text = written(|output| open(&value, None, output));
        let expected = r#"{
  "a": [],
  "b": [
    1,
    {"x":[2,3],"y":{}}
  ],
  "c": {
    "d": {"e":1}
  },
  "f": {}
}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn compact_is_what_serde_json_writes_and_raw_text_stays_as_it_is() {
        let value = json!({"a": [1.5, -0.0, "é\"\n"], "b": {"c": null}, "d": []});
        assert_eq!(written(|output| compact(&value, None, output)), value.to_string());
        let raw = [Raw("{\"a\": 1.50}"), Raw("2")];
        assert_eq!(written(|output| compact(&raw, None, output)), "[{\"a\": 1.50},2]");
        assert_eq!(written(|output| open(&raw, None, output)), "[\n  {\"a\": 1.50},\n  2\n]");
    }

    #[test]
    fn a_mark_is_the_last_field_of_the_outer_object() {
        let mark = Mark::id("[7]");
        for (value, expected) in
            [(json!({"a": {"b": 1}}), r#"{"a":{"b":1},"id":[7]}"#), (json!({}), r#"{"id":[7]}"#), (json!([{}]), "[{}]")]
        {
            assert_eq!(written(|output| compact(&value, Some(&mark), output)), expected);
        }
        let mark = Mark::file("a \"b\".md");
        let expected = "{\n  \"a\": 1,\n  \"file\": \"a \\\"b\\\".md\"\n}";
        assert_eq!(written(|output| open(&json!({"a": 1}), Some(&mark), output)), expected);
        assert_eq!(mark.field(), r#""file":"a \"b\".md""#);
    }
}
