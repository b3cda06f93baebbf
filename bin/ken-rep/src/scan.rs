//! Reads documents. Large documents consist of facts and rules, and are read here without building a JSON tree. If a
//! document contains anything else or an error, it is parsed again into a tree. That parser checks duplicate keys and
//! depth, and gives the position of errors.
//!
//! serde with borrowed texts would be 200 lines shorter, but for a chain of 100,000 rules the whole program then takes 1.4 times
//! the processor time and 1.9 times the memory.

use std::borrow::Cow;

use ken_tool::{Error, MAX_DEPTH};
use ken_types::json::{self, plain};

use crate::document::{Document, Kind};
use crate::rules::Rules;
use crate::wordings::Part;

/// Reads a document. An error contains the JSON pointer to the fault, or its position in the text.
pub(crate) fn read(input: &str) -> Result<Document<'_>, Error> {
    match Scan::document(input) {
        Some(document) => Ok(document),
        None => Document::of(json::parse(input.as_bytes(), MAX_DEPTH)?),
    }
}

/// A position in a document.
struct Scan<'a> {
    document: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn document(text: &'a str) -> Option<Document<'a>> {
        let mut scan = Scan { document: text, at: 0 };
        let mut document = Document::default();
        let mut seen = Vec::new();
        scan.each([b'{', b'}'], |scan| {
            let key = scan.text()?;
            let is_new = !seen.contains(&key);
            scan.byte(b':').filter(|()| is_new)?;
            scan.field(&key, &mut document)?;
            seen.push(key);
            Some(())
        })?;
        scan.blanks();
        (scan.at == text.len()).then_some(document)
    }

    fn field(&mut self, key: &str, document: &mut Document<'a>) -> Option<()> {
        match key {
            "facts" => self.each(LIST, |scan| {
                document.facts.push(scan.text()?);
                Some(())
            }),
            "rules" => {
                document.rules = self.rules()?;
                Some(())
            }
            "reasoning_type" => {
                document.kind = Kind::of(&self.text()?)?;
                Some(())
            }
            _ => None,
        }
    }

    fn rules(&mut self) -> Option<Rules<'a>> {
        let mut rules = Rules::of_document(self.document);
        self.each(LIST, |scan| {
            scan.byte(b'[')?;
            scan.each(LIST, |scan| {
                rules.push(scan.part()?);
                Some(())
            })?;
            scan.byte(b',')?;
            rules.push(scan.part()?);
            rules.end_rule();
            scan.byte(b']')
        })?;
        Some(rules)
    }

    /// Reads the items between two brackets.
    fn each(&mut self, [begin, end]: [u8; 2], mut item: impl FnMut(&mut Scan<'a>) -> Option<()>) -> Option<()> {
        self.byte(begin)?;
        if self.byte(end).is_some() {
            return Some(());
        }
        loop {
            item(self)?;
            if self.byte(b',').is_none() {
                return self.byte(end);
            }
        }
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        match self.part()? {
            Part::Place { start, end } => self.document.get(start..end).map(Cow::Borrowed),
            Part::Own(text) => Some(Cow::Owned(text)),
        }
    }

    fn part(&mut self) -> Option<Part> {
        self.byte(b'"')?;
        let start = self.at;
        self.at += plain(self.rest());
        match self.next() {
            b'"' => {
                self.at += 1;
                let end = self.at - 1;
                Some(Part::Place { start, end })
            }
            b'\\' => self.escaped(start).map(Part::Own),
            _ => None,
        }
    }

    /// Reads the rest of a string that begins at `start`. The next character begins an escape.
    fn escaped(&mut self, start: usize) -> Option<String> {
        while self.next() == b'\\' {
            self.at += 2;
            self.at += plain(self.rest());
        }
        self.byte(b'"')?;
        let quoted = self.document.get(start - 1..self.at)?;
        let text: String = serde_json::from_str(quoted).ok()?;
        (!text.contains('\0')).then_some(text)
    }

    fn rest(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Returns the next byte. At the end this is 0, which cannot occur outside of a string.
    fn next(&self) -> u8 {
        self.document.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while matches!(self.next(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    /// Consumes white space and then this byte; `None` if another byte comes next.
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.blanks();
        (self.next() == byte).then(|| self.at += 1)
    }
}

const LIST: [u8; 2] = [b'[', b']'];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Option<String> {
        let document = Scan::document(text)?;
        let (facts, rules) = (&document.facts, &document.rules);
        let rules = (0..rules.len()).map(|rule| (rules.premises(rule).collect::<Vec<_>>(), rules.conclusion(rule)));
        let rules = serde_json::to_string(&rules.collect::<Vec<_>>()).unwrap();
        Some(serde_json::to_string(facts).unwrap() + &rules)
    }

    #[test]
    fn facts_and_rules_are_read() {
        for (text, expected) in [
            ("{}", "[][]"),
            (" { \"facts\" : [ ] , \"rules\":[\n] } ", "[][]"),
            (r#"{"rules":[[["a","b"],"c"],[[],"d"]],"facts":["e"]}"#, r#"["e"][[["a","b"],"c"],[[],"d"]]"#),
            (
                r#"{"rules":[[["a","b"] ,"c"],[ ["é"],"d"],[["a"],"" ],[["\u0061"],"b"],[["a"],"\u0062"]]}"#,
                r#"[][[["a","b"],"c"],[["é"],"d"],[["a"],""],[["a"],"b"],[["a"],"b"]]"#,
            ),
            (
                r#"{"facts":["a\"b\\","\u00e9\ud83e\udd80"],"rules":[[["é\n"],"🦀"]]}"#,
                r#"["a\"b\\","é🦀"][[["é\n"],"🦀"]]"#,
            ),
        ] {
            assert_eq!(rules(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_left_to_the_tree() {
        for text in [
            "",
            "[]",
            "{} {}",
            "{,}",
            r#"{"facts":["a",]}"#,
            r#"{"facts":["a" "b"]}"#,
            r#"{"facts":["a"],"facts":["b"]}"#,
            r#"{"facts":["a"],"f\u0061cts":["b"]}"#,
            r#"{"facts":["\u0000"]}"#,
            "{\"facts\":[\"\u{1}\"]}",
            r#"{"facts":["\x"]}"#,
            r#"{"facts":["\é"]}"#,
            r#"{"facts":["a\"#,
            r#"{"facts":["\ud800"]}"#,
            r#"{"facts":[1]}"#,
            r#"{"rules":[[["a"],"b","c"]]}"#,
            r#"{"rules":[["a","b"]]}"#,
            r#"{"options":{}}"#,
            r#"{"reasoning_type":"guess"}"#,
        ] {
            assert!(Scan::document(text).is_none(), "{text}");
        }
    }
}
