//! Fences of code blocks in Markdown.

/// The fence that opens a code block (CommonMark 4.5). It may be indented by any number of blanks, as in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence<'a> {
    /// The line, without the blanks around it.
    pub line: &'a str,
    /// Its three or more backticks or tildes.
    pub marker: &'a str,
}

impl<'a> Fence<'a> {
    /// Returns the fence if this line opens a code block, where none is open.
    pub fn opened_by(line: &'a str) -> Option<Fence<'a>> {
        let line = line.trim();
        let letter = line.chars().next().filter(|letter| matches!(letter, '`' | '~'))?;
        let info = line.trim_start_matches(letter);
        let marker = line.strip_suffix(info)?;
        // Backticks in a line of text are code within it.
        (marker.len() >= 3 && !(letter == '`' && info.contains('`'))).then_some(Fence { line, marker })
    }

    /// Whether this line closes the code block.
    pub fn is_closed_by(&self, line: &str) -> bool {
        let rest = line.trim().strip_prefix(self.marker);
        rest.is_some_and(|rest| rest.chars().all(|letter| self.marker.starts_with(letter)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::Fence;

    #[test]
    fn a_fence_is_opened_and_closed_as_in_markdown() {
        for (line, marker) in [
            ("``", None),
            ("```", Some("```")),
            ("  ````rust\n", Some("````")),
            ("``` a`b", None),
            ("```code```", None),
            ("~~", None),
            ("~~~ a`b~", Some("~~~")),
            ("~~~~", Some("~~~~")),
            ("~``", None),
            ("# ```", None),
            ("", None),
        ] {
            assert_eq!(Fence::opened_by(line).map(|fence| fence.marker), marker, "{line:?}");
        }
        for (opening, line, closes) in [
            ("```rust", "```\n", true),
            ("```", "  `````  ", true),
            ("````", "```", false),
            ("```", "~~~", false),
            ("```", "```rust", false),
            ("~~~", "~~~~", true),
            ("~~~", "~~~ `", false),
            ("~~~", "", false),
        ] {
            assert_eq!(Fence::opened_by(opening).unwrap().is_closed_by(line), closes, "{opening:?} {line:?}");
        }
        assert_eq!(Fence::opened_by(" ```sh \n").unwrap().line, "```sh");
    }
}
