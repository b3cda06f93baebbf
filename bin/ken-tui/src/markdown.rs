//! Renders the Markdown of an answer as lines of a given width.

use pulldown_cmark::{Event, Options as Extensions, Parser, Tag, TagEnd};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use tui_markdown::{Options, StyleSheet, from_str_with_options};

use crate::highlight::{Colours, KnownColours, highlight};
use crate::wrap::{Cut, hang, width, wrap};

/// Marks the start and the end of a code block. No text can have it in its place, because NUL is the one character for which Markdown has no
/// entity: `&#0;` is U+FFFD.
const FENCE: &str = "\0";
/// Marks the start of a line that continues a list item. It is white space, because emphasis can start only after white
/// space.
const CONTINUED: char = '\u{2001}';
/// The maximum size of a text that is rendered, in bytes. Longer texts are shown unrendered.
const MAX_BYTES: usize = 512 * 1024;
const CODE: Style = Style::new().fg(Color::Cyan);
pub(crate) const FAINT: Style = Style::new().add_modifier(Modifier::DIM);

#[derive(Debug, Clone, Default)]
pub(crate) struct Rendered {
    pub(crate) lines: Vec<Line<'static>>,
    /// The source of its code blocks.
    pub(crate) code: Vec<String>,
    /// Whether some of its code blocks have no colours yet.
    pub(crate) lacks_colours: bool,
    /// The colours received so far, while others are missing.
    pub(crate) known: KnownColours,
    /// Whether its code gets no colours.
    pub(crate) is_uncoloured: bool,
}

/// Renders a text without control characters. `known` holds the colours that its code blocks already had when it was
/// last drawn.
pub(crate) fn render(source: &str, columns: u16, known: KnownColours) -> Rendered {
    render_as(source, columns, Rendered { known, ..Rendered::default() })
}

/// Renders a text whose code is not complete, so that colours would be computed in vain.
pub(crate) fn without_colours(source: &str, columns: u16) -> Rendered {
    render_as(source, columns, Rendered { is_uncoloured: true, ..Rendered::default() })
}

fn render_as(source: &str, columns: u16, mut rendered: Rendered) -> Rendered {
    let source = source.replace(FENCE, "\u{fffd}");
    if source.len() > MAX_BYTES {
        return plain(&source, columns);
    }
    let source = keep_line_ends(&source);
    let options = Options::new(Sheet).table_width(columns);
    let text = from_str_with_options(&source, &options);
    let mut lines = text.lines.into_iter();
    let mut indent = 0;
    while let Some(line) = lines.next() {
        match fence(&line) {
            Some(language) => {
                let language = language.to_owned();
                let inside = lines.by_ref().take_while(|line| fence(line).is_none()).collect();
                rendered.add_code(&language, inside, columns);
            }
            None => indent = rendered.add(line, indent, columns),
        }
    }
    if !rendered.lacks_colours {
        rendered.known = KnownColours::new();
    }
    rendered
}

/// Wraps a text without rendering it as Markdown.
pub(crate) fn plain(source: &str, columns: u16) -> Rendered {
    let lines =
        source.split('\n').flat_map(|line| wrap(&Line::raw(line.to_owned()), usize::from(columns), 0, Cut::Words));
    Rendered { lines: lines.collect(), ..Rendered::default() }
}

/// What is read beyond plain Markdown.
pub(crate) fn extensions() -> Extensions {
    Extensions::ENABLE_TABLES | Extensions::ENABLE_STRIKETHROUGH | Extensions::ENABLE_TASKLISTS | Extensions::ENABLE_GFM
}

/// Marks line breaks so that they are kept. Markdown joins the lines of a paragraph, but in a conversation line breaks
/// are intended.
fn keep_line_ends(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let (mut done, mut items, mut continues, mut begins) = (0, 0_usize, false, false);
    for (event, range) in Parser::new_ext(source, extensions()).into_offset_iter() {
        let is_behind = range.start >= done;
        let is_paragraph = event == Event::Start(Tag::Paragraph) && items > 0 && !begins;
        if (std::mem::take(&mut continues) || is_paragraph) && is_behind {
            kept.push_str(source.get(done..range.start).unwrap_or_default());
            kept.push(CONTINUED);
            done = range.start;
        }
        begins = event == Event::Start(Tag::Item);
        match event {
            Event::Start(Tag::Item) => items += 1,
            Event::End(TagEnd::Item) => items = items.saturating_sub(1),
            Event::SoftBreak if is_behind => {
                kept.push_str(source.get(done..range.start).unwrap_or_default());
                kept.push('\\');
                done = range.start;
                continues = items > 0;
            }
            Event::HardBreak => continues = items > 0,
            _ => {}
        }
    }
    kept.push_str(source.get(done..).unwrap_or_default());
    kept
}

/// Returns the language if the line starts or ends a code block.
fn fence<'a>(line: &'a Line<'_>) -> Option<&'a str> {
    line.spans.last()?.content.strip_prefix(FENCE)
}

impl Rendered {
    /// Adds a line. If it continues a list item, it is indented to the column `indent` of the item's text. Returns the
    /// column at which its own text starts.
    fn add(&mut self, mut line: Line<'_>, indent: usize, columns: u16) -> usize {
        let mut before = 0;
        for span in &mut line.spans {
            if let Some(rest) = span.content.strip_prefix(CONTINUED) {
                span.content = format!("{}{rest}", " ".repeat(indent.saturating_sub(before))).into();
                break;
            }
            before += span.width();
        }
        // A blank line within an item does not end it.
        let mut spans = line.spans.iter();
        let is_blank = spans.all(|span| span.content.trim_matches([' ', '>']).is_empty());
        let indent = if is_blank { indent } else { hang(&line) };
        // A line that fits, such as a table row, is not wrapped at blanks.
        let columns = usize::from(columns);
        let cut = if line.width() <= columns { Cut::Anywhere } else { Cut::Words };
        self.lines.extend(wrap(&line, columns, indent, cut));
        indent
    }

    fn add_code(&mut self, language: &str, inside: Vec<Line<'_>>, columns: u16) {
        let texts: Vec<String> = inside.iter().map(code_of).collect();
        let name = language.split([',', ' ']).next().unwrap_or_default();
        let colours = if self.is_uncoloured { Colours::Unknown } else { highlight(name, &texts, &mut self.known) };
        self.lacks_colours |= matches!(colours, Colours::Later);
        let coloured = if let Colours::Known(lines) = colours { lines } else { Vec::new() };
        let before = inside.first().map(prefix).unwrap_or_default();
        let indent = width(&before);
        let room = usize::from(columns).saturating_sub(indent + 2).max(2);
        if !language.is_empty() {
            let head = Span::styled(format!("╭ {language}"), FAINT);
            self.lines.push(Line::from_iter([Span::raw(before.clone()), head]));
        }
        for (index, text) in texts.iter().enumerate() {
            let line = match coloured.get(index) {
                Some(spans) => Line::from(spans.clone()),
                None => Line::styled(text.clone(), CODE),
            };
            for piece in wrap(&line, room, 0, Cut::Anywhere) {
                let frame = [Span::raw(before.clone()), Span::styled("│ ", FAINT)];
                self.lines.push(Line::from_iter(frame.into_iter().chain(piece.spans)));
            }
        }
        self.code.push(texts.join("\n"));
    }
}

/// Returns a line of code without the prefixes of the lists and quotations around it.
fn code_of(line: &Line<'_>) -> String {
    line.spans.last().map(|span| span.content.to_string()).unwrap_or_default()
}

fn prefix(line: &Line<'_>) -> String {
    let before = line.spans.split_last().map(|(_, before)| before);
    before.unwrap_or_default().iter().map(|span| span.content.as_ref()).collect()
}

/// Styles for Markdown. They use emphasis and the sixteen palette colours, which suit both light and dark backgrounds.
#[derive(Debug, Clone)]
struct Sheet;

impl StyleSheet for Sheet {
    fn heading(&self, level: u8) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match level {
            1 => style.add_modifier(Modifier::UNDERLINED),
            _ => style,
        }
    }

    fn heading_marker(&self, _level: u8) -> &str {
        ""
    }

    fn code(&self) -> Style {
        CODE
    }

    fn code_block_fence(&self) -> &str {
        FENCE
    }

    fn link(&self) -> Style {
        Style::new().fg(Color::Blue).add_modifier(Modifier::UNDERLINED)
    }

    fn blockquote(&self) -> Style {
        Style::new().add_modifier(Modifier::ITALIC)
    }

    fn metadata_block(&self) -> Style {
        FAINT
    }

    fn list_marker(&self) -> Style {
        Style::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(source: &str, columns: u16) -> Rendered {
        render(source, columns, KnownColours::new())
    }

    fn shown(source: &str, columns: u16) -> Vec<String> {
        draw(source, columns).lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn lines_of_a_paragraph_stay_lines() {
        let source: String = (0..300).map(|n| format!("line {n}\n")).collect();
        let lines = shown(&source, 80);
        let expected: Vec<String> = (0..300).map(|n| format!("line {n}")).collect();
        assert_eq!(lines, expected);
        assert_eq!(shown("> a\n> b\n\n- c\n  d", 80), ["> a", "> b", "", "- c", "  d"]);
    }

    #[test]
    fn lines_of_an_item_stand_below_its_text() {
        let list = "- one\n  _two_\n  **three** words\n\n  A paragraph.\n  - below\n    it\n\n10. ten\n    eleven\n\nend\nof it";
        assert_eq!(
            shown(list, 80),
            [
                "- one", "  two", "  three words", "", "  A paragraph.", "    - below", "      it", "", "10. ten",
                "    eleven", "", "end", "of it"
            ]
        );
        assert_eq!(shown("> - a\n>   b c d", 8), ["> - a", ">   b c", "    d"]);
    }

    #[test]
    fn code_is_framed_and_kept_as_it_is_written() {
        let rendered = draw("See:\n\n```rust\nfn main() {\n\tlet x = 1;\n}\n```\n\nDone.", 80);
        assert_eq!(rendered.code, ["fn main() {\n\tlet x = 1;\n}"]);
        let lines: Vec<String> = rendered.lines.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["See:", "", "╭ rust", "│ fn main() {", "│     let x = 1;", "│ }", "", "Done."]);
        let long = draw(&format!("```\n{}\n```", "x".repeat(100)), 40);
        assert!(long.lines.iter().all(|line| line.width() <= 40));
        assert_eq!(long.code, ["x".repeat(100)]);
    }

    #[test]
    fn no_text_looks_like_the_mark_of_a_code_block() {
        for mark in ["&#xf8ff;", "&#0;", "&#x0;", "\0", "\u{f8ff}"] {
            for text in
                [format!("{mark} total"), format!("total {mark}"), format!("- {mark}"), format!("|{mark}|\n|-|")]
            {
                let rendered = draw(&format!("{text}\n\n**a** b\n\n```\ncode\n```\nlast"), 80);
                let lines: Vec<String> = rendered.lines.iter().map(ToString::to_string).collect();
                assert_eq!(rendered.code, ["code"], "{text:?}");
                assert!(lines.ends_with(&["a b", "", "│ code", "", "last"].map(str::to_owned)), "{text:?}: {lines:?}");
                assert!(lines.iter().any(|line| line.contains(['\u{f8ff}', '\u{fffd}'])), "{text:?}: {lines:?}");
            }
        }
    }

    #[test]
    fn tables_fit_and_placeholders_stay() {
        let table = "| part | state |\n|---|---|\n| store | ready and waiting for work |";
        let lines = draw(table, 24).lines;
        assert!(lines.len() > 4 && lines.iter().all(|line| line.width() <= 24), "{lines:?}");
        assert!(lines.iter().any(|line| line.to_string().contains('│')));
        assert_eq!(shown("/resume <id or name>", 80), ["/resume <id or name>"]);
    }

    #[test]
    fn every_beginning_of_a_text_can_be_drawn_at_every_width() {
        let text = "# H\n\n1. a\n   ```sh\n   ls | wc\n   ```\n   > q *b* `c`\n\n|a|b|\n|-|:-:|\n|日本|👍🏽|\n\n- [ ] t\n\n[l](http://x) ![i](y) $m$ <b>x</b>\n";
        for (end, _) in text.char_indices() {
            for columns in [1, 3, 20, 80] {
                let _ = draw(&text[..end], columns);
            }
        }
    }
}
