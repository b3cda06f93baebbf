//! The title that a session gets automatically.

use ken_text::for_terminal;
use ken_types::limits::TITLE_CHARACTERS;

/// Returns the text as one line that shows everything in it: with runs of white space collapsed and control characters replaced,
/// and cut to the length of a title.
pub(crate) fn title(text: &str) -> String {
    let collapsed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(&for_terminal(&collapsed), TITLE_CHARACTERS)
}

/// Returns at most `max` characters, of which the last three are `...` if the text was cut.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_collapse_and_long_ones_are_cut() {
        assert_eq!(title("  do \n\t the tests   pass? "), "do the tests pass?");
        assert_eq!(title("a\r\nb\u{2028}c \u{202e}d\x1b[31m"), "a b c \u{fffd}d␛[31m");
        let eighty = "é".repeat(80);
        assert_eq!(title(&eighty), eighty);
        assert_eq!(title(&format!("{eighty}é")), format!("{}...", "é".repeat(77)));
    }
}
