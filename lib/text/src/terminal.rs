//! Makes untrusted text harmless for a terminal.

use std::borrow::Cow;

/// Replaces every character that controls a terminal with one that is displayed. Escape sequences then have no effect,
/// and text is always displayed in the order in which it is written.
///
/// The replaced characters are C0 except newline and tab, DEL, C1 (ECMA-48), and the embeddings, overrides and isolates
/// of the bidirectional algorithm (UAX #9). C0 and DEL become their pictures (from U+2400 on), the others U+FFFD. Each
/// is replaced by a single character, so columns stay aligned.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| replacement(c) == c) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(replacement).collect())
}

fn replacement(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// Makes every character of a text visible, for a person who decides about exactly this text.
///
/// In addition to what [`for_terminal`] replaces, characters without a width of their own (joiners, directional marks,
/// variation selectors, tags and the other default ignorable code points of UAX #44) become `<U+200B>` and the like.
/// Other texts keep them, because emoji and several scripts need them.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| replacement(c) == c && !is_invisible(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match replacement(c) {
            char::REPLACEMENT_CHARACTER => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
            _ if is_invisible(c) => shown.push_str(&format!("<U+{:04X}>", u32::from(c))),
            shown_as => shown.push(shown_as),
        }
    }
    Cow::Owned(shown)
}

/// Returns a text on one line, in which every character is visible as in [`visible`].
pub fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "␊").replace('\t', "␉")
}

/// Whether a character has no width of its own or separates lines in a way that terminals do not show.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Does what [`for_terminal`] does for bytes that arrive in pieces. A character that is cut at the end of a piece is
/// completed by the next piece.
#[derive(Debug, Default)]
pub struct TerminalBytes {
    /// The beginning of a character whose other bytes have not arrived yet; at most three bytes.
    cut: Vec<u8>,
}

impl TerminalBytes {
    /// Adds bytes, and returns the text that can be displayed now. Bytes that are not UTF-8 become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.cut);
        all.extend_from_slice(bytes);
        let whole = all.len() - cut_at_end(&all);
        let rest = all.split_off(whole);
        self.cut = rest;
        for_terminal(&String::from_utf8_lossy(&all)).into_owned()
    }

    /// Returns the replacement of a last character that was not completed; empty if there is none.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.cut).into_owned()
    }
}

/// Returns the number of bytes of an incomplete character at the end of `bytes`.
fn cut_at_end(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let Some(tail) = bytes.get(tail..) else {
        return 0;
    };
    let incomplete = |at: &usize| {
        let rest = tail.get(*at..).unwrap_or_default();
        matches!(std::str::from_utf8(rest), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (0..tail.len()).find(incomplete).map_or(0, |at| tail.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_would_not_see_is_named() {
        let plain = "let ü = \"日本語\";\n\t// שלום";
        assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(visible("a\u{200b}b\u{202e}c\u{e0041}\u{1b}[2J\u{85}"), "a<U+200B>b<U+202E>c<U+E0041>␛[2J<U+0085>");
        assert_eq!(visible("\u{2028}\u{fe0f}\u{fffd}"), "<U+2028><U+FE0F><U+FFFD>");
        assert_eq!(visible_line("a\nb\tc\rd\u{2029}"), "a␊b␉c␍d<U+2029>");
    }

    #[test]
    fn control_characters_are_shown_visibly() {
        let plain = "a\tb\nüé漢🦀 \u{5d0}\u{200f}\u{a0}";
        assert!(matches!(for_terminal(plain), Cow::Borrowed(text) if text == plain));
        assert_eq!(for_terminal("\x1b]52;c;eA==\x07\r"), "␛]52;c;eA==␇␍");
        for code in (0..0x20).chain(0x7f..0xa0).chain(0x202a..=0x202e).chain(0x2066..=0x2069) {
            let c = char::from_u32(code).unwrap();
            let text = format!("<{c}>");
            let shown = for_terminal(&text);
            assert_eq!(shown.contains(c), matches!(c, '\n' | '\t'), "{code:x}");
            assert_eq!(shown.chars().count(), 3);
        }
    }

    #[test]
    fn pieces_are_shown_like_the_whole_text() {
        let whole = "aü漢🦀\u{9b}31m \x1b[31m z".as_bytes();
        for size in 1..whole.len() {
            let mut pieces = TerminalBytes::default();
            let mut shown: String = whole.chunks(size).map(|piece| pieces.push(piece)).collect();
            shown += &pieces.finish();
            assert_eq!(shown, "aü漢🦀\u{fffd}31m ␛[31m z", "pieces of {size}");
        }
        let mut bytes = TerminalBytes::default();
        assert_eq!(bytes.push(b"\x9b31m\xff\xe2"), "\u{fffd}31m\u{fffd}");
        assert_eq!(bytes.finish(), "\u{fffd}");
    }
}
