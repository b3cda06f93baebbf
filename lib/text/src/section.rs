//! Splits a file into pieces that can be found and shown separately: Markdown at its headings, other text at blank
//! lines.

use std::borrow::Cow;

use crate::front_matter::split;
use crate::{Fence, head};

/// The maximum length of a piece in bytes. A Markdown file that is not longer than this is a single piece.
const MAX_PIECE_BYTES: usize = 4 * 1024;
/// The maximum length of a title in characters.
const MAX_TITLE_CHARACTERS: usize = 200;
/// The maximum number of tags of a file, and the maximum length of a tag in characters.
const MAX_TAGS: usize = 32;
const TAG_CHARACTERS: usize = 64;

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// The title, 1 to 200 characters long.
    pub title: String,
    /// The number of its first line in the file, counted from 1.
    pub line: usize,
    /// The content, at most 4 KiB. It is never blank.
    pub text: String,
    /// The tags that the front matter of the file contains.
    pub tags: Vec<String>,
}

/// Splits a Markdown file. The title of each piece consists of the title of the file and the headings above the piece.
/// The title of the file and its tags come from the front matter. Without one, the title is the first heading, or else
/// `name`.
pub fn sections(name: &str, text: &str) -> Vec<Section> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (front, body) = title_and_tags(text);
    let first_line = 1 + text.len().checked_sub(body.len()).map_or(0, |end| lines(head(text, end)));
    let first_heading = || headings(body).next().map(|heading| heading.text);
    let title = front.title.or_else(first_heading).unwrap_or_else(|| name.to_owned());
    let mut found = Vec::new();
    let mut add = |title: &str, line, text| {
        if !is_bare_heading(text) {
            push(&mut found, title, line, text, &front.tags);
        }
    };
    if body.len() <= MAX_PIECE_BYTES {
        add(&title, first_line, body);
        return found;
    }
    // The headings above the current line, each with its level.
    let mut path: Vec<(usize, String)> = Vec::new();
    let (mut start, mut start_line) = (0, first_line);
    let mut titled = title.clone();
    for Heading { at, line, level, text } in headings(body) {
        add(&titled, start_line, part(body, start, at));
        (start, start_line) = (at, first_line + line);
        path.retain(|(above, _)| *above < level);
        if text != title {
            path.push((level, text));
        }
        let names = path.iter().map(|(_, name)| name.as_str());
        titled = std::iter::once(title.as_str()).chain(names).collect::<Vec<_>>().join(" › ");
    }
    add(&titled, start_line, part(body, start, body.len()));
    found
}

/// Splits any other text. `name` is the title of each piece.
pub fn lines_of_text(name: &str, text: &str) -> Vec<Section> {
    let mut found = Vec::new();
    push(&mut found, name, 1, text, &[]);
    found
}

/// Whether a text contains nothing but its heading, which stands above other pieces, too.
fn is_bare_heading(text: &str) -> bool {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    heading(first).is_some() && rest.trim().is_empty()
}

/// Adds a text as one or more pieces, and a blank one as none.
fn push(found: &mut Vec<Section>, title: &str, line: usize, text: &str, tags: &[String]) {
    let (mut rest, mut line) = (text, line);
    while !rest.trim().is_empty() {
        let (piece, after) = rest.split_at(cut(rest));
        let blank = head(piece, piece.len() - piece.trim_start().len());
        let begin = blank.rfind('\n').map_or(0, |end| end + 1);
        if !piece.trim().is_empty() {
            found.push(Section {
                title: shortened(title).into_owned(),
                line: line + lines(blank),
                text: part(piece, begin, piece.len()).trim_end().to_owned(),
                tags: tags.to_vec(),
            });
        }
        line += lines(piece);
        rest = after;
    }
}

/// Returns the length in bytes of the first piece of a text: up to the last blank line that fits, or else the last line
/// break, or else the last character.
fn cut(text: &str) -> usize {
    if text.len() <= MAX_PIECE_BYTES {
        return text.len();
    }
    let fitting = head(text, MAX_PIECE_BYTES);
    // Prevents pieces of only a few lines, which would not be useful.
    let late = |end: &usize| *end > MAX_PIECE_BYTES / 4;
    let blank = fitting.rfind("\n\n").map(|at| at + 2).filter(late);
    let end = blank.or_else(|| fitting.rfind('\n').map(|at| at + 1)).filter(late);
    end.unwrap_or(fitting.len()).max(1)
}

fn part(text: &str, start: usize, end: usize) -> &str {
    text.get(start..end).unwrap_or_default()
}

fn lines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn shortened(title: &str) -> Cow<'_, str> {
    match title.char_indices().nth(MAX_TITLE_CHARACTERS) {
        None => Cow::Borrowed(title),
        Some(_) => Cow::Owned(title.chars().take(MAX_TITLE_CHARACTERS - 1).chain(['…']).collect()),
    }
}

struct Heading {
    /// The offset of its line in bytes, and the number of that line counted from 0.
    at: usize,
    line: usize,
    level: usize,
    text: String,
}

/// Returns the headings of a Markdown text. A line such as `# comment` in a code block is not one.
fn headings(body: &str) -> impl Iterator<Item = Heading> {
    let (mut end, mut fence) = (0, None::<Fence<'_>>);
    body.split_inclusive('\n').enumerate().filter_map(move |(line, content)| {
        let at = end;
        end += content.len();
        let is_open = fence.is_some();
        fence = match fence {
            Some(open) => Some(open).filter(|open| !open.is_closed_by(content)),
            None => Fence::opened_by(content),
        };
        let (level, text) = heading(content).filter(|_| !is_open && fence.is_none())?;
        Some(Heading { at, line, level, text })
    })
}

/// Returns the level and the text of a heading such as `## Deploy` or `## Deploy ##`; `None` if the line is not a heading.
fn heading(line: &str) -> Option<(usize, String)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let rest = line.get(level..).filter(|_| (1..=6).contains(&level))?;
    let text = rest.strip_prefix([' ', '\t'])?.trim();
    // The `#` of `C#` belongs to the text.
    let before = text.trim_end_matches('#');
    let text = if before.is_empty() || before.ends_with([' ', '\t']) { before.trim_end() } else { text };
    (!text.is_empty()).then(|| (level, text.to_owned()))
}

#[derive(Default)]
struct Front {
    title: Option<String>,
    tags: Vec<String>,
}

/// Returns the title and the tags in the front matter, and the text after it. Unlike [`crate::front_matter`], this
/// skips what it cannot read, because a folder of notes contains all kinds of files. Tags are written as `[a, b]` or as
/// lines `- a` below the key.
fn title_and_tags(text: &str) -> (Front, &str) {
    let mut front = Front::default();
    let Some((lines, body)) = split(text) else {
        return (front, text);
    };
    let mut key = "";
    for line in lines.lines() {
        let item = line.trim_start().strip_prefix("- ").filter(|_| key == "tags");
        if let Some(item) = item {
            front.add(item);
        } else if let Some((name, value)) = line.split_once(':').filter(|_| !line.starts_with([' ', '\t', '#'])) {
            key = name.trim();
            match key {
                "title" => front.title = Some(plain(value).to_owned()).filter(|title| !title.is_empty()),
                "tags" => {
                    let list = value.trim().trim_start_matches('[').trim_end_matches(']');
                    list.split(',').for_each(|tag| front.add(tag));
                }
                _ => {}
            }
        }
    }
    (front, body)
}

impl Front {
    fn add(&mut self, tag: &str) {
        let tag = plain(tag).trim_start_matches('#');
        let fits = !tag.is_empty() && tag.chars().count() <= TAG_CHARACTERS && self.tags.len() < MAX_TAGS;
        if fits && !self.tags.iter().any(|known| known == tag) {
            self.tags.push(tag.to_owned());
        }
    }
}

/// Returns a value without the blanks and quotation marks around it.
fn plain(value: &str) -> &str {
    let value = value.trim();
    let quoted = ['"', '\''].iter().find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    quoted.unwrap_or(value).trim()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_file_is_one_piece() {
        let text = "---\ntitle: \"Deploy\"\ntags: [ops, 'web']\nother:\n  - x\n---\n\n# Something\n\nOn Tuesdays.\n";
        let found = sections("a.md", text);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].title.as_str(), found[0].line), ("Deploy", 8));
        assert_eq!(found[0].tags, ["ops", "web"]);
        assert_eq!(found[0].text, "# Something\n\nOn Tuesdays.");
        let list = sections("a.md", "---\ntags:\n- a\n- b\n---\ntext");
        assert_eq!((list[0].title.as_str(), list[0].line), ("a.md", 6));
        assert_eq!(list[0].tags, ["a", "b"]);
        assert_eq!(sections("a.md", "# Only a heading\n"), []);
        let code = sections("a.md", "```sh\n# not the title\n```\n\n## The title\n\nText.\n");
        assert_eq!(code[0].title, "The title");
        assert_eq!(sections("a.md", "~~~\n# no title\n~~~\n")[0].title, "a.md");
        for (text, title) in [
            ("```\n```rust\n# no title\n```\n# The title\n", "The title"),
            ("``` a`b\n# The title\nText.\n", "The title"),
            ("# C#\nText.\n", "C#"),
            ("# C #\nText.\n", "C"),
            ("# C\t##  \nText.\n", "C"),
            ("# ##\n## The title\nText.\n", "The title"),
            ("# \\#\nText.\n", "\\#"),
        ] {
            assert_eq!(sections("a.md", text)[0].title, title, "{text:?}");
        }
        // Front matter that is not closed is ordinary text.
        assert_eq!(sections("a.md", "---\ntitle: x")[0].text, "---\ntitle: x");
    }

    #[test]
    fn a_long_file_is_cut_at_its_headings() {
        let filler = "Words that fill the page.\n".repeat(155);
        let text = format!(
            "# Guide\n\nIntro.\n\n## Install\n\n{filler}\n### Linux\n\nUse make.\n\n```sh\n# not a heading\n```\n\n## Use\n\nRun it.\n"
        );
        let found = sections("guide.md", &text);
        let shown: Vec<(&str, usize)> = found.iter().map(|one| (one.title.as_str(), one.line)).collect();
        assert_eq!(
            shown,
            [("Guide", 1), ("Guide › Install", 5), ("Guide › Install › Linux", 163), ("Guide › Use", 171)]
        );
        assert!(found[2].text.contains("# not a heading"));
    }

    #[test]
    fn a_long_text_is_cut_between_paragraphs() {
        for text in ["# call Anna", "# call Anna\n\n", "#!/bin/sh", "  x"] {
            let found = lines_of_text("todo.txt", text);
            assert_eq!(found.iter().map(|one| one.text.as_str()).collect::<Vec<_>>(), [text.trim_end()]);
        }
        assert_eq!(lines_of_text("todo.txt", " \n\n"), []);
        let text = "A line of some length that says something.\n".repeat(40) + "\n";
        let found = lines_of_text("notes.txt", &text.repeat(5));
        assert!(found.len() >= 3 && found.iter().all(|one| one.text.len() <= MAX_PIECE_BYTES));
        assert_eq!((found[1].line, found[1].title.as_str()), (83, "notes.txt"));
    }

    fn letters<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
        texts.into_iter().flat_map(str::chars).filter(|letter| !letter.is_whitespace()).collect()
    }

    /// Whether the letters of a text stand in the other one, in the same order.
    fn is_within(part: &str, whole: &str) -> bool {
        let mut rest = whole.chars();
        part.chars().all(|letter| rest.any(|one| one == letter))
    }

    proptest! {
        /// No content is lost but headings without a text, no piece is too long, and each begins at its line.
        #[test]
        fn pieces_are_whole_and_in_place(parts in prop::collection::vec("(# |## |```|---\n|é|word |\n|\n\n|x{300}){1,9}", 0..60)) {
            let text: String = parts.concat();
            prop_assert_eq!(letters(lines_of_text("n", &text).iter().map(|one| one.text.as_str())), letters([text.as_str()]));
            let found = sections("n", &text);
            let shown = letters(found.iter().map(|one| one.text.as_str()));
            let (_, body) = title_and_tags(&text);
            prop_assert!(is_within(&letters(body.lines().filter(|line| heading(line).is_none())), &shown));
            prop_assert!(is_within(&shown, &letters([body])));
            for found in [sections("n", &text), lines_of_text("n", &text)] {
                for one in &found {
                    prop_assert!(one.text.len() <= MAX_PIECE_BYTES && !one.text.trim().is_empty());
                    prop_assert!((1..=MAX_TITLE_CHARACTERS).contains(&one.title.chars().count()));
                    let first = one.text.lines().next().unwrap();
                    let there = text.lines().nth(one.line - 1).unwrap_or_default();
                    prop_assert!(there.contains(first), "{:?} is not in {:?}", first, there);
                }
            }
        }
    }
}
