//! Wraps styled lines to a width, at blanks if there are any and never inside a grapheme.

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;

const TAB: usize = 4;

/// Where a line can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// After a blank. A word that is longer than a line can be broken anywhere.
    Words,
    /// Anywhere, so that every character keeps its column.
    Anywhere,
}

struct Glyph<'a> {
    text: &'a str,
    style: Style,
    width: usize,
}

/// Returns the number of cells that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.graphemes(true).map(|glyph| usize::from(glyph.cell_width())).sum()
}

/// Wraps a line to lines of at most `columns` cells. Lines after the first are indented by `hang` blanks if there is
/// room.
pub(crate) fn wrap(line: &Line<'_>, columns: usize, hang: usize, cut: Cut) -> Vec<Line<'static>> {
    let columns = columns.max(2);
    let hang = if hang * 2 > columns { 0 } else { hang };
    let spans = || line.spans.iter().map(|span| (expand(&span.content), line.style.patch(span.style)));
    let texts: Vec<(String, Style)> = spans().collect();
    let glyphs: Vec<Glyph<'_>> = texts
        .iter()
        .flat_map(|(text, style)| {
            text.graphemes(true).map(|glyph| Glyph {
                text: glyph,
                style: *style,
                width: usize::from(glyph.cell_width()),
            })
        })
        .collect();
    let mut lines = Vec::new();
    let mut rest = glyphs.as_slice();
    loop {
        let indent = if lines.is_empty() { 0 } else { hang };
        let end = end_of_line(rest, columns - indent, cut);
        let (head, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        lines.push(join(head, indent));
        rest = match cut {
            Cut::Words => skip_blanks(tail),
            Cut::Anywhere => tail,
        };
        if rest.is_empty() {
            return lines;
        }
    }
}

/// Replaces tabs by blanks, because for a tab a terminal moves its cursor without drawing.
fn expand(text: &str) -> String {
    text.replace('\t', &" ".repeat(TAB))
}

/// Returns how many glyphs fit on the next line, at least one.
fn end_of_line(glyphs: &[Glyph<'_>], columns: usize, cut: Cut) -> usize {
    let mut used = 0;
    let mut blank = None;
    let mut seen_word = false;
    for (index, glyph) in glyphs.iter().enumerate() {
        used += glyph.width;
        let is_blank = glyph.text == " ";
        if is_blank && seen_word {
            blank = Some(index);
        }
        seen_word |= !is_blank;
        if used > columns && index > 0 {
            return match (cut, blank) {
                (Cut::Words, Some(blank)) => blank,
                _ => index,
            };
        }
    }
    glyphs.len()
}

fn skip_blanks<'a, 'b>(glyphs: &'b [Glyph<'a>]) -> &'b [Glyph<'a>] {
    let blanks = glyphs.iter().take_while(|glyph| glyph.text == " ").count();
    glyphs.get(blanks..).unwrap_or_default()
}

fn join(glyphs: &[Glyph<'_>], indent: usize) -> Line<'static> {
    let mut spans: Vec<Span<'static>> = Vec::new();
    if indent > 0 {
        spans.push(Span::raw(" ".repeat(indent)));
    }
    for glyph in glyphs {
        match spans.last_mut().filter(|span| span.style == glyph.style) {
            Some(span) => span.content.to_mut().push_str(glyph.text),
            None => spans.push(Span::styled(glyph.text.to_owned(), glyph.style)),
        }
    }
    Line::from(spans)
}

/// Returns the width of the marker of a list item or quotation, by which its continuation lines are indented.
pub(crate) fn hang(line: &Line<'_>) -> usize {
    let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
    let trimmed = text.trim_start_matches([' ', '>', '│']);
    let indent = width(&text) - width(trimmed);
    let marker = trimmed.split(' ').next().unwrap_or_default();
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_marker = matches!(marker, "-" | "*" | "•" | "–") || marker.strip_suffix(['.', ')']).is_some_and(is_number);
    if is_marker { indent + width(marker) + 1 } else { indent }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, columns: usize, hang: usize, cut: Cut) -> Vec<String> {
        let lines = wrap(&Line::raw(text.to_owned()), columns, hang, cut);
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_end_between_words_or_anywhere() {
        assert_eq!(cut("one two three", 7, 0, Cut::Words), ["one two", "three"]);
        assert_eq!(cut("one two three", 6, 0, Cut::Words), ["one", "two", "three"]);
        assert_eq!(cut("abcdefgh i", 4, 0, Cut::Words), ["abcd", "efgh", "i"]);
        assert_eq!(cut("a b c", 3, 0, Cut::Anywhere), ["a b", " c"]);
        assert_eq!(cut("", 9, 0, Cut::Words), [""]);
        assert_eq!(cut("- one two", 6, 2, Cut::Words), ["- one", "  two"]);
    }

    #[test]
    fn wide_and_joined_characters_stay_whole() {
        assert_eq!(cut("日本語", 4, 0, Cut::Words), ["日本", "語"]);
        let family = "👨‍👩‍👧";
        assert_eq!(cut(&format!("a{family}b"), 3, 0, Cut::Words), [format!("a{family}"), "b".to_owned()]);
    }

    #[test]
    fn nothing_but_blanks_is_lost() {
        let text: String = (0..200).map(|n| format!("word{n} ")).collect();
        for columns in [2, 3, 7, 40, 200] {
            let joined = cut(&text, columns, 0, Cut::Words).concat();
            assert_eq!(joined.replace(' ', ""), text.replace(' ', ""), "{columns}");
        }
    }

    #[test]
    fn further_lines_stand_below_the_text_of_a_list() {
        for (line, columns) in [("- a", 2), ("  12. a", 6), ("> a", 2), ("a", 0), ("-a", 0)] {
            assert_eq!(hang(&Line::raw(line)), columns, "{line}");
        }
    }
}
