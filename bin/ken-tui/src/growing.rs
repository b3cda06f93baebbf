//! Renders an answer as Markdown while it grows. A finished block keeps its lines: only the open block at the end, and the one
//! before it, which decides what stands between the two, are rendered again.

use pulldown_cmark::{Event, Parser};
use ratatui::text::Line;

use crate::markdown::{self, Rendered};

/// The maximum size of an open block that is rendered each time, in bytes. The lines of a longer one stay unrendered until the
/// answer is complete.
const MAX_OPEN_BYTES: usize = 32 * 1024;

/// How much of a growing text is finished.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    /// Where the last finished block starts.
    last: usize,
    /// Where the open block starts, behind the last finished one.
    open: usize,
    /// The size of all finished blocks, and that of the last one alone.
    finished: Size,
    alone: Size,
    /// For a long open block: how many bytes of the text are complete lines, and how many rows those take.
    plain: Option<(usize, usize)>,
}

/// A number of lines and of code blocks.
#[derive(Debug, Default, Clone, Copy)]
struct Size {
    lines: usize,
    code: usize,
}

impl Size {
    fn of(rendered: &Rendered) -> Size {
        Size { lines: rendered.lines.len(), code: rendered.code.len() }
    }
}

impl Growing {
    /// Brings the lines up to date with the text.
    pub(crate) fn draw(&mut self, text: &str, columns: u16, drawn: &mut Rendered) {
        if self.plain.is_none() && text.len() - self.open > MAX_OPEN_BYTES {
            drawn.lines.truncate(self.finished.lines);
            if !drawn.lines.is_empty() {
                drawn.lines.push(Line::default());
            }
            self.plain = Some((self.open, drawn.lines.len()));
        }
        if let Some(plain) = &mut self.plain {
            return draw_plain(plain, text, columns, drawn);
        }
        let source = text.get(self.last..shown_end(text)).unwrap_or_default();
        let rendered = markdown::without_colours(source, columns);
        drawn.lines.truncate(self.finished.lines);
        drawn.lines.extend(rendered.lines.into_iter().skip(self.alone.lines));
        drawn.code.truncate(self.finished.code);
        drawn.code.extend(rendered.code.into_iter().skip(self.alone.code));
        self.finish(source, columns);
    }

    /// A block is finished when another one has begun behind it.
    fn finish(&mut self, source: &str, columns: u16) {
        let starts = block_starts(source);
        let [.., last, open] = starts[..] else {
            return;
        };
        if self.last + open <= self.open {
            return;
        }
        let size = |from, to| Size::of(&markdown::without_colours(source.get(from..to).unwrap_or_default(), columns));
        let whole = size(0, open);
        self.finished.lines += whole.lines.saturating_sub(self.alone.lines);
        self.finished.code += whole.code.saturating_sub(self.alone.code);
        self.alone = size(last, open);
        self.open = self.last + open;
        self.last += last;
    }
}

/// Wraps only the unfinished last line and the text that was added since.
fn draw_plain((bytes, lines): &mut (usize, usize), text: &str, columns: u16, drawn: &mut Rendered) {
    drawn.lines.truncate(*lines);
    let rest = text.get(*bytes..).unwrap_or_default();
    let whole = rest.rfind('\n').map_or(0, |at| at + 1);
    let (done, open) = rest.split_at_checked(whole).unwrap_or((rest, ""));
    if let Some(done) = done.strip_suffix('\n') {
        drawn.lines.extend(markdown::plain(done, columns).lines);
    }
    (*bytes, *lines) = (*bytes + whole, drawn.lines.len());
    drawn.lines.extend(markdown::plain(open, columns).lines);
}

/// Returns where each block of the outermost level starts.
fn block_starts(source: &str) -> Vec<usize> {
    let (mut depth, mut starts) = (0_usize, Vec::new());
    for (event, range) in Parser::new_ext(source, markdown::extensions()).into_offset_iter() {
        if depth == 0 && !matches!(event, Event::End(_)) {
            starts.push(range.start);
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    starts
}

/// Returns the end of what can be shown. A last line of nothing but marks and digits is held back: "-" below a paragraph makes it a
/// heading until it turns out to be an item, and "2" behind a list may become its next item.
fn shown_end(text: &str) -> usize {
    let start = text.rfind('\n').map_or(0, |at| at + 1);
    let line = text.get(start..).unwrap_or_default().trim_start_matches([' ', '>']);
    let is_mark = |c: char| c.is_ascii_digit() || " \t-=#*_+>`~|:.)".contains(c);
    let is_definition = line.starts_with('[') && (line.contains("]:") || !line.contains(']'));
    if line.chars().all(is_mark) || is_definition { start } else { text.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::highlight::KnownColours;

    const INDENTED: &str = "    indented code\n\n    more of it";
    const BLOCKS: [&str; 16] = [
        "A paragraph of *several* words, **bold** `code`\nand a second line.",
        "# A heading",
        "Underlined\n==========",
        "- one\n- two\n  continued\n  - below",
        "1. first\n2. second\n\n3. third after a blank line",
        "```rust\nfn main() {\n\n    let x = \"1\";\n}\n```",
        "```\n- no list\n\n# no heading\n```",
        "| part | state |\n|---|---|\n| store | ready |\n| 12 | 13 |",
        "> quoted\n> - with an item",
        "---",
        "日本語の文章 and 👍🏽 in one line that is long enough to be wrapped",
        "12.5 is a number, and 3 < 4.",
        "* star\n* stars",
        "[a link](http://example.org) and <b>html</b>",
        "- [ ] open\n- [x] done",
        INDENTED,
    ];

    fn texts(rendered: &Rendered) -> Vec<String> {
        rendered.lines.iter().map(ToString::to_string).collect()
    }

    /// Grows a text character by character. Finished lines never change, and in the end the screen shows the whole.
    #[track_caller]
    fn grows(text: &str, columns: u16) {
        let (mut growing, mut drawn) = (Growing::default(), Rendered::default());
        let mut finished: Vec<String> = Vec::new();
        for (at, c) in text.char_indices() {
            growing.draw(&text[..at + c.len_utf8()], columns, &mut drawn);
            let lines = texts(&drawn);
            assert!(lines.starts_with(&finished), "{:?}: {finished:#?} {lines:#?}", &text[..at]);
            finished = lines[..growing.finished.lines].to_vec();
        }
        growing.draw(&format!("{text}\n\nEnd."), columns, &mut drawn);
        if text.contains(INDENTED) {
            return; // whether tui-markdown puts a blank line below it depends on more than its neighbour
        }
        let whole = markdown::render(&format!("{text}\n\nEnd."), columns, KnownColours::new());
        assert_eq!(texts(&drawn), texts(&whole), "{text}");
        assert_eq!(drawn.code, whole.code, "{text}");
    }

    #[test]
    fn finished_lines_never_change_and_the_end_is_that_of_the_whole() {
        for first in BLOCKS {
            for second in BLOCKS {
                grows(&format!("{first}\n\n{second}"), 30);
                grows(&format!("Words.\n{first}\n{second}\n\n{first}"), 72);
            }
        }
    }

    #[test]
    fn a_long_open_block_is_shown_line_by_line() {
        let text: String = (0..4000).map(|n| format!("let x{n} = {n};\n")).collect();
        let text = format!("Code:\n\n```rust\n{text}");
        let (mut growing, mut drawn) = (Growing::default(), Rendered::default());
        for end in [20, 1000, 40_000, 60_000, text.len()] {
            growing.draw(&text[..end], 80, &mut drawn);
        }
        assert_eq!(texts(&drawn)[..4], ["Code:", "", "```rust", "let x0 = 0;"]);
        assert_eq!(drawn.lines.len(), 4004, "{:?}", drawn.lines.last());
    }
}
