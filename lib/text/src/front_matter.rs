//! The front matter of a Markdown file: named texts between two lines `---` at the beginning of the file.
//!
//! This reads only the part of YAML that such files use: plain and quoted texts, also over several lines, and the
//! blocks `|` and `>`. It ignores other values (lists, maps, numbers), so that files of other programs can be read.

use std::collections::BTreeMap;

/// The texts in the front matter, and the rest of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct FrontMatter<'a> {
    /// The texts by key, at the outermost level. A value that is not a text is an empty text.
    pub texts: BTreeMap<&'a str, String>,
    pub body: &'a str,
}

/// Reads the front matter; `None` if the file does not begin with one. An error consists of the line, counted from 1,
/// and the reason.
pub fn front_matter(file: &str) -> Result<Option<FrontMatter<'_>>, (usize, &'static str)> {
    let file = file.strip_prefix('\u{feff}').unwrap_or(file);
    let Some((lines, body)) = split(file) else {
        return if file.lines().next().is_some_and(is_mark) {
            Err((1, "the line `---` at its end is missing"))
        } else {
            Ok(None)
        };
    };
    let mut texts = BTreeMap::new();
    let mut open: Option<(&str, usize, Vec<&str>)> = None;
    let lines = (2..).zip(lines.lines().map(str::trim_end));
    for (number, line) in lines {
        if line.is_empty() || line.starts_with([' ', '\t']) || line.starts_with("- ") {
            match &mut open {
                Some((_, _, more)) => more.push(line),
                None if line.is_empty() => {}
                None => return Err((number, "a line before the first `key: value` is indented")),
            }
            continue;
        }
        close(&mut texts, open.take())?;
        if line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once(':').ok_or((number, "this is not `key: value`"))?;
        if !value.is_empty() && !value.starts_with([' ', '\t']) {
            return Err((number, "a blank is missing after the colon"));
        }
        open = Some((key.trim_end(), number, vec![value]));
    }
    close(&mut texts, open)?;
    Ok(Some(FrontMatter { texts, body }))
}

/// Splits a file that begins with a line `---`. Returns the lines up to the next `---` (or `...`), and the text after
/// it; `None` if there are no two such lines.
pub(crate) fn split(file: &str) -> Option<(&str, &str)> {
    let mut lines = file.split_inclusive('\n');
    let start = lines.next().filter(|line| is_mark(line))?.len();
    let mut end = start;
    for line in lines {
        if is_mark(line) || line.trim_end() == "..." {
            return Some((file.get(start..end)?, file.get(end + line.len()..)?));
        }
        end += line.len();
    }
    None
}

fn is_mark(line: &str) -> bool {
    line.trim_end() == "---"
}

/// Adds a key whose lines have all been read.
fn close<'a>(
    texts: &mut BTreeMap<&'a str, String>,
    open: Option<(&'a str, usize, Vec<&'a str>)>,
) -> Result<(), (usize, &'static str)> {
    let Some((key, first, value)) = open else {
        return Ok(());
    };
    let value = text(&value).map_err(|what| (first, what))?;
    match texts.insert(key, value) {
        None => Ok(()),
        Some(_) => Err((first, "this key occurs twice")),
    }
}

/// Returns the text of a value that is written in these lines.
fn text(lines: &[&str]) -> Result<String, &'static str> {
    let first = lines.first().map_or("", |line| line.trim());
    let following = lines.get(1..).unwrap_or_default();
    match first.chars().next() {
        Some('|') => Ok(block(following, "\n")),
        Some('>') => Ok(block(following, " ")),
        Some('"') => double_quoted(&joined(lines)),
        Some('\'') => single_quoted(&joined(lines)),
        // These characters begin lists, maps, anchors, aliases and tags.
        Some('[' | '{' | '&' | '*' | '!') => Ok(String::new()),
        None if following.iter().any(|line| is_structure(line)) => Ok(String::new()),
        _ => Ok(joined(lines).split(" #").next().unwrap_or_default().trim_end().to_owned()),
    }
}

/// Returns whether a line below a key begins a list or a map.
fn is_structure(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("- ") || line.split_once(':').is_some_and(|(key, _)| !key.contains(' ')) && !line.is_empty()
}

fn joined(lines: &[&str]) -> String {
    let words = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

fn block(lines: &[&str], between: &str) -> String {
    let indents = lines.iter().filter(|line| !line.trim().is_empty());
    let indent = indents.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
    let lines = lines.iter().map(|line| line.get(indent..).unwrap_or_default());
    lines.collect::<Vec<_>>().join(between).trim().to_owned()
}

const UNCLOSED: &str = "a quotation mark is not closed";

fn single_quoted(text: &str) -> Result<String, &'static str> {
    let inner = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).ok_or(UNCLOSED)?;
    if inner.replace("''", "").contains('\'') {
        Err("a quotation mark inside is not doubled")
    } else {
        Ok(inner.replace("''", "'"))
    }
}

fn double_quoted(text: &str) -> Result<String, &'static str> {
    let mut found = String::new();
    let mut characters = text.get(1..).unwrap_or_default().chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return ended(found, characters.as_str()),
            '\\' => found.push(match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(escaped @ ('"' | '\\' | '/')) => escaped,
                _ => return Err("this escape is not known: \\n, \\t, \\\" and \\\\ are"),
            }),
            plain => found.push(plain),
        }
    }
    Err(UNCLOSED)
}

/// Returns the quoted text. Fails if anything other than a comment follows the closing quotation mark.
fn ended(text: String, rest: &str) -> Result<String, &'static str> {
    match rest.trim_start() {
        rest if rest.is_empty() || rest.starts_with('#') => Ok(text),
        _ => Err("something follows the quotation mark"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(file: &str) -> Result<String, (usize, &'static str)> {
        let found = front_matter(file)?.expect("front matter");
        Ok(found.texts["a"].clone())
    }

    #[test]
    fn texts_in_every_form() {
        for (written, read) in [
            ("a: plain text: with a colon", "plain text: with a colon"),
            ("a: text # a comment", "text"),
            ("a: over\n  two lines", "over two lines"),
            ("a:\n  below", "below"),
            ("a: \"q \\\"x\\\" \\\\ \\n\"", "q \"x\" \\ \n"),
            ("a: 'it''s'", "it's"),
            ("a: >\n  folded\n  text", "folded text"),
            ("a: |-\n  two\n   lines", "two\n lines"),
            ("# comment\na: x\nlist:\n- y\n- z\nmap:\n  k: v", "x"),
            ("a: [x, y]", ""),
            ("a:\n  k: v", ""),
            ("a: é…", "é…"),
        ] {
            assert_eq!(value(&format!("---\n{written}\n---\nbody")), Ok(read.to_owned()), "{written}");
        }
    }

    #[test]
    fn the_body_is_what_follows() {
        let found = front_matter("---\r\na: x\r\n---\r\n\r\n# Body\n").unwrap().unwrap();
        assert_eq!((found.body, found.texts["a"].as_str()), ("\r\n# Body\n", "x"));
        assert_eq!(front_matter("# No front matter\n"), Ok(None));
        assert_eq!(front_matter(""), Ok(None));
    }

    #[test]
    fn errors_name_the_line() {
        for (file, line) in [
            ("---\na: x\n", 1),
            ("---\na: x\nwords\n---\n", 3),
            ("---\na:x\n---\n", 2),
            ("---\n  a: x\n---\n", 2),
            ("---\na: 'x\n---\n", 2),
            ("---\nb: y\na: \"x\" y\n---\n", 3),
            ("---\na: x\na: y\n---\n", 3),
        ] {
            assert_eq!(front_matter(file).unwrap_err().0, line, "{file}");
        }
    }
}
