//! Cuts a text into pieces that the platform takes.

use ken_text::Fence;
use unicode_segmentation::UnicodeSegmentation;

/// The longest message of the platform, in UTF-16 code units.
pub(crate) const PIECE_UNITS: usize = 4_096;
/// How much of the line that opens a code fence is repeated in the next piece, in bytes: the line, else its marker. A longer marker
/// opens none here.
const MAX_REPEATED_BYTES: usize = 64;

/// Cuts Markdown into pieces of at most `limit` UTF-16 units: at a paragraph, else at a line, else at a word, never inside
/// a character. A code fence that does not fit into one piece is closed at the cut and opened again.
///
/// `limit` is at least 256, so that a fence leaves room for what it holds.
pub(crate) fn split(text: &str, limit: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = from_first_line(text.trim_end()).to_owned();
    while units(&rest) > limit {
        let cut = cut(&rest, limit);
        let (head, tail) = rest.split_at(cut.at);
        let mut piece = head.trim_end().to_owned();
        let mut next = from_first_line(tail).to_owned();
        if let Some(fence) = &cut.inside {
            piece = format!("{piece}\n{}", fence.marker);
            next = format!("{}\n{next}", repeated(fence));
        } else if cut.is_in_line {
            next = next.trim_start().to_owned();
        }
        if !piece.trim().is_empty() {
            pieces.push(piece);
        }
        rest = next;
    }
    if !rest.trim().is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// A text without the blank lines that it begins with.
fn from_first_line(text: &str) -> &str {
    let blank: usize = text.split_inclusive('\n').take_while(|line| line.trim().is_empty()).map(str::len).sum();
    text.get(blank..).unwrap_or_default()
}

/// The length of a text in UTF-16 code units.
pub(crate) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

struct Cut<'a> {
    at: usize,
    /// The fence that is open there.
    inside: Option<Fence<'a>>,
    /// Whether it is inside a line, so that blanks after it are dropped.
    is_in_line: bool,
}

fn opened_by(line: &str) -> Option<Fence<'_>> {
    Fence::opened_by(line).filter(|fence| fence.marker.len() <= MAX_REPEATED_BYTES)
}

/// The line that opens a fence again.
fn repeated<'a>(fence: &Fence<'a>) -> &'a str {
    if fence.line.len() <= MAX_REPEATED_BYTES { fence.line } else { fence.marker }
}

/// Decides where to cut a text that is longer than `limit`.
fn cut(text: &str, limit: usize) -> Cut<'_> {
    let (mut paragraph, mut line, mut line_inside) = (None, None, None);
    let mut fence: Option<Fence<'_>> = None;
    let (mut at, mut used) = (0, 0);
    for whole in text.split_inclusive('\n') {
        let was_open = fence.is_some();
        let opens = opened_by(whole).filter(|_| !was_open);
        // Before this line.
        if at > 0 && used + closing(fence.as_ref()) <= limit {
            match &fence {
                Some(fence) => line_inside = Some((at, *fence)),
                None if opens.is_some() || whole.trim().is_empty() => paragraph = Some(at),
                None => line = Some(at),
            }
        }
        used += units(whole);
        if used > limit {
            break;
        }
        at += whole.len();
        match &fence {
            Some(open) if open.is_closed_by(whole) => fence = None,
            Some(_) => {}
            None => fence = opens,
        }
    }
    let outside = |at| Cut { at, inside: None, is_in_line: false };
    // Blank lines at the beginning are no paragraph.
    let worth = |at: &usize| text.get(..*at).is_some_and(|head| !head.trim().is_empty());
    let paragraph = paragraph.filter(worth).map(outside);
    let line = line.filter(worth).map(outside);
    let inside = line_inside.filter(|(at, fence)| text.get(..*at).is_some_and(|head| has_content(head, fence)));
    let inside = inside.map(|(at, fence)| Cut { at, inside: Some(fence), is_in_line: false });
    paragraph.or(line).or(inside).unwrap_or_else(|| cut_in_line(text, limit))
}

/// Whether more precedes the cut than the line that opens the fence; otherwise the cut would make no progress.
fn has_content(head: &str, fence: &Fence<'_>) -> bool {
    head.trim() != fence.line
}

/// How many UTF-16 units it takes to close a fence.
fn closing(fence: Option<&Fence<'_>>) -> usize {
    fence.map_or(0, |fence| units(fence.marker) + 1)
}

/// Cuts inside the first line that does not fit: at a blank, else between two characters.
fn cut_in_line(text: &str, limit: usize) -> Cut<'_> {
    // The line may stand behind one that opens a fence.
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    let fence = opened_by(first).filter(|_| first.len() < text.len());
    let room = limit.saturating_sub(closing(fence.as_ref()));
    // One that leaves little room for what it holds is cut itself.
    let start = if fence.is_some() && units(first) <= room / 2 { first.len() } else { 0 };
    let (mut word, mut character) = (None, None);
    let (mut at, mut used) = (0, 0);
    for letter in text.graphemes(true) {
        used += units(letter);
        if used > room {
            break;
        }
        at += letter.len();
        if at > start {
            character = Some(at);
            if letter.chars().all(char::is_whitespace) && !text.get(start..at).unwrap_or_default().trim().is_empty() {
                word = Some(at);
            }
        }
    }
    let at = word.or(character).unwrap_or_else(|| scalars_that_fit(text, start, room));
    Cut { at, inside: fence, is_in_line: true }
}

/// As many Unicode scalar values as fit, for a character that is longer than a message.
fn scalars_that_fit(text: &str, start: usize, room: usize) -> usize {
    let mut used = 0;
    let fits = |(_, letter): &(usize, char)| {
        used += letter.len_utf16();
        used <= room
    };
    let last = text.char_indices().take_while(fits).last();
    let end = last.map_or(0, |(at, letter)| at + letter.len_utf8());
    // At least one beyond the opening line, so that the cut makes progress.
    if end > start {
        end
    } else {
        text.get(start..).and_then(|rest| rest.chars().next()).map_or(text.len(), |letter| start + letter.len_utf8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        (0..count).map(|number| format!("word{number} ")).collect()
    }

    #[test]
    fn a_short_text_is_one_piece_and_a_blank_one_none() {
        assert_eq!(split("Hello\n", 256), ["Hello"]);
        assert_eq!(split(" \n ", 256), [""; 0]);
        let full = "x".repeat(256);
        assert_eq!(split(&full, 256), [full]);
    }

    #[test]
    fn paragraphs_before_lines_before_words() {
        let text = format!("{}\n\n{}\n{}", "a".repeat(100), "b".repeat(100), "c".repeat(100));
        let pieces = split(&text, 256);
        assert_eq!(pieces[0], "a".repeat(100));
        assert!(pieces[1].starts_with('b') && pieces[1].ends_with('c'), "{pieces:?}");
        let text = format!("{}\n{}", "b".repeat(200), "c".repeat(200));
        assert_eq!(split(&text, 256), ["b".repeat(200), "c".repeat(200)]);
        let pieces = split(&words(100), 256);
        assert!(pieces.iter().all(|piece| piece.starts_with("word") && !piece.ends_with(' ')), "{pieces:?}");
    }

    #[test]
    fn a_fence_is_kept_whole_or_reopened() {
        let code = "let x = 1;\n".repeat(10);
        let text = format!("{}\n```rust\n{code}```\nafter", "intro ".repeat(30));
        let pieces = split(&text, 256);
        assert_eq!(pieces[1], format!("```rust\n{code}```\nafter"));
        let long = format!("```rust\n{}```\nafter", "let x = 1;\n".repeat(100));
        let pieces = split(&long, 256);
        assert!(pieces.len() > 4);
        for piece in &pieces {
            assert!(piece.starts_with("```rust\n") && piece.contains("\n```"), "{piece}");
        }
        assert_eq!(pieces.join("\n").matches("let x = 1;").count(), 100);
    }

    fn letters(text: &str) -> String {
        text.chars().filter(|letter| !letter.is_whitespace()).collect()
    }

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_and_no_piece_is_too_long(text in "([a-zäß \n]{1,40}|[\u{1F300}-\u{1F320}]|\u{200D}|\u{0301}|\\*){0,120}") {
            let pieces = split(&text, 256);
            proptest::prop_assert!(pieces.iter().all(|piece| units(piece) <= 256 && !piece.trim().is_empty()));
            proptest::prop_assert_eq!(letters(&pieces.concat()), letters(&text));
        }

        #[test]
        fn fences_are_balanced_in_every_piece(parts in proptest::collection::vec("[a-z \n]{0,80}|```[a-z]{0,8}\n[a-z \n]{0,400}\n```\n|~~~~\n[a-z ]{0,600}\n~~~~\n|```[a-z ]{50,300}\n[a-z \n]{0,400}\n```\n", 0..12)) {
            let text = parts.join("\n");
            for piece in split(&text, 256) {
                proptest::prop_assert!(units(&piece) <= 256, "{}", piece);
                let mut open: Option<Fence<'_>> = None;
                for line in piece.lines() {
                    open = match open {
                        Some(fence) if fence.is_closed_by(line) => None,
                        Some(fence) => Some(fence),
                        None => opened_by(line),
                    };
                }
                proptest::prop_assert!(open.is_none(), "{}", piece);
            }
        }

        #[test]
        fn anything_is_cut(text in "(\\PC|\n|`{3,40}|~~~){0,600}") {
            let pieces = split(&text, 256);
            let longest = pieces.iter().max_by_key(|piece| units(piece));
            proptest::prop_assert!(longest.is_none_or(|piece| units(piece) <= 256), "{:?}", pieces);
        }
    }

    /// Text stays text and code stays code, however long the line is that opens the fence.
    #[test]
    fn a_fence_with_a_long_opening_line_is_reopened_by_its_marker() {
        let code = "let x = 1;\n".repeat(100);
        for (length, is_repeated) in
            [(MAX_REPEATED_BYTES, true), (MAX_REPEATED_BYTES + 1, false), (200, false), (300, false), (5_000, false)]
        {
            let opening = format!("```rust {}", "x".repeat(length - 8));
            let pieces = split(&format!("{opening}\n{code}```\nafter"), 256);
            let again = if is_repeated { opening.as_str() } else { "```" };
            for piece in pieces.iter().skip(1) {
                assert!(piece.starts_with(&format!("{again}\n")), "{length}: {piece}");
            }
            for piece in &pieces {
                assert!(units(piece) <= 256 && piece.matches("```").count() == 2, "{length}: {piece}");
            }
            assert!(pieces[pieces.len() - 1].ends_with("\n```\nafter"), "{length}: {pieces:?}");
            assert_eq!(pieces.concat().matches("let x = 1;").count(), 100, "{length}");
            assert_eq!(
                pieces.concat().matches('x').count() - 100,
                if is_repeated { 56 * pieces.len() } else { length - 8 }
            );
        }
        for (length, opens) in [(MAX_REPEATED_BYTES, true), (MAX_REPEATED_BYTES + 1, false)] {
            assert_eq!(opened_by(&"`".repeat(length)).is_some(), opens, "{length}");
        }
    }
}
