//! How `--format json` lays a document out.

use std::io::{self, Write};

use serde_json::ser::Formatter;

/// Levels that get a line for each of their values; what lies deeper stays on its line. So every field of an answer and
/// every item of its lists is one line: a person reads it, `grep` finds it, and a long proof is not four times its size.
const OPEN_LEVELS: usize = 2;

/// Indents the outer [`OPEN_LEVELS`] levels by two blanks each.
#[derive(Default)]
pub(crate) struct Layout {
    depth: usize,
    /// Whether the innermost open list or object has a value.
    filled: bool,
}

impl Layout {
    fn is_open(&self) -> bool {
        self.depth <= OPEN_LEVELS
    }

    fn begin(&mut self, writer: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(bracket)
    }

    fn end(&mut self, writer: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        if self.is_open() && self.filled {
            self.depth -= 1;
            self.line(writer)?;
        } else {
            self.depth -= 1;
        }
        self.filled = true;
        writer.write_all(bracket)
    }

    fn value(&mut self, writer: &mut (impl Write + ?Sized), first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        if self.is_open() { self.line(writer) } else { Ok(()) }
    }

    fn line(&self, writer: &mut (impl Write + ?Sized)) -> io::Result<()> {
        const INDENTS: [&[u8]; OPEN_LEVELS + 1] = [b"\n", b"\n  ", b"\n    "];
        writer.write_all(INDENTS.get(self.depth).copied().unwrap_or(b"\n"))
    }
}

impl Formatter for Layout {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.begin(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.value(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.is_open() { b": " } else { b":" })
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde_json::{Serializer, Value, json};

    use super::*;

    #[test]
    fn two_levels_are_open() {
        let value = json!({"a": [], "b": [1, {"x": [2, 3], "y": {}}], "c": {"d": {"e": 1}}, "f": {}});
        let mut text = Vec::new();
        value
            .serialize(&mut Serializer::with_formatter(&mut text, Layout::default()))
            .unwrap();
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
        assert_eq!(String::from_utf8(text.clone()).unwrap(), expected);
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
    }
}
