//! Splits a complete text into the pieces in which it is sent. Each becomes a durable event, so there are only a few.

/// The approximate maximum number of pieces, and the minimum length of all but the last, in bytes.
const PIECES: usize = 6;
const SHORTEST: usize = 64;

/// Splits a text between words. White space stays with the word before it. The joined pieces are equal to the text.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let size = text.len().div_ceil(PIECES).max(SHORTEST);
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(cut(rest, size));
        rest = after;
        Some(piece)
    })
}

/// Returns the end of the word that contains byte `size`, including the white space after it. A text without white
/// space is split between characters.
fn cut(text: &str, size: usize) -> usize {
    let from = (size.min(text.len())..).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let (near, far) = (text.get(from..).unwrap_or_default(), size.saturating_mul(2));
    let blank = near.find(char::is_whitespace).map(|at| from + at);
    let word_end = blank.filter(|at| *at <= far);
    let Some(end) = word_end else {
        let end = if text.len() <= far { text.len() } else { from };
        return end.max(1);
    };
    let blanks = text.get(end..).unwrap_or_default();
    end + (blanks.len() - blanks.trim_start().len())
}

/// Returns the part of a text after `prefix`. If the text does not begin with it, because the knowledge has changed
/// since, returns the whole text as a new paragraph, because text that was already sent cannot be withdrawn.
pub(crate) fn after<'a>(text: &'a str, prefix: &str) -> std::borrow::Cow<'a, str> {
    match text.strip_prefix(prefix) {
        Some(rest) => rest.into(),
        None => format!("\n\n{text}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_few_pieces_and_a_short_one_has_one() {
        assert_eq!(pieces("Hello there.").collect::<Vec<_>>(), ["Hello there."]);
        let long = "word ".repeat(2_000);
        assert!(pieces(&long).count() <= PIECES + 1);
        assert!(pieces(&long).all(|piece| piece.ends_with(' ')));
    }

    #[test]
    fn text_that_was_sent_is_not_sent_again() {
        assert_eq!(after("one two", "one "), "two");
        assert_eq!(after("one two", ""), "one two");
        assert_eq!(after("one two", "eins"), "\n\none two");
    }

    proptest::proptest! {
        #[test]
        fn joined_they_are_the_text(text in "\\PC{0,400}") {
            proptest::prop_assert_eq!(pieces(&text).collect::<String>(), text);
        }
    }
}
