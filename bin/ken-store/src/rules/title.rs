//! The title that a session gets automatically.

use ken_text::for_terminal;
use ken_types::limits::TITLE_CHARACTERS;
use ken_types::live_text::images_line;

/// Returns the title by a prompt, which can consist of images alone.
pub(crate) fn title_of(text: &str, images: usize) -> String {
    match title(text) {
        title if title.is_empty() => images_line(images as u64),
        title => title,
    }
}

/// Returns the text as one line that shows everything in it: with runs of white space collapsed and control characters replaced,
/// and cut to the length of a title.
pub(crate) fn title(text: &str) -> String {
    let collapsed = question(text).split_whitespace().collect::<Vec<_>>().join(" ");
    shorten(&for_terminal(&collapsed), TITLE_CHARACTERS)
}

/// Returns the part of a message below what a person has piped in. In a list, the question says more than the log above it.
fn question(text: &str) -> &str {
    let below = || {
        let piped = text.strip_prefix("stdin:\n\n```")?;
        let longer = piped.len() - piped.trim_start_matches('`').len();
        let (_, below) = piped.split_once(&format!("\n```{}\n", "`".repeat(longer)))?;
        Some(below.trim()).filter(|below| !below.is_empty())
    };
    below().unwrap_or(text)
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
    fn images_alone_have_a_title() {
        for (text, images, wanted) in [("", 1, "[image]"), (" \n", 2, "[2 images]"), ("what?", 2, "what?"), ("", 0, "")]
        {
            assert_eq!(title_of(text, images), wanted);
        }
    }

    #[test]
    fn blanks_collapse_and_long_ones_are_cut() {
        assert_eq!(title("  do \n\t the tests   pass? "), "do the tests pass?");
        assert_eq!(title("a\r\nb\u{2028}c \u{202e}d\x1b[31m"), "a b c \u{fffd}d␛[31m");
        for (text, wanted) in [
            ("stdin:\n\n```\nENOSPC\n```\n\nwhat is wrong?", "what is wrong?"),
            ("stdin:\n\n````\n```\nx\n```\n````\n\nwhat is wrong?", "what is wrong?"),
            ("stdin:\n\n```\nENOSPC\n```", "stdin: ``` ENOSPC ```"),
        ] {
            assert_eq!(title(text), wanted);
        }
        let eighty = "é".repeat(80);
        assert_eq!(title(&eighty), eighty);
        assert_eq!(title(&format!("{eighty}é")), format!("{}...", "é".repeat(77)));
    }
}
