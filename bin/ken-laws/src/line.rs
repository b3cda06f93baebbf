//! The layout of lines: list items, headings and indentation.

pub(crate) struct Line {
    pub(crate) is_blank: bool,
    /// Whether it begins with a capital letter or a digit.
    pub(crate) is_capital: bool,
    pub(crate) is_heading: bool,
    pub(crate) number: Option<u16>,
    /// The number of blanks before the text, at most 16.
    pub(crate) indent: usize,
    /// The length of the list marker or heading mark in bytes; 0 without one.
    pub(crate) marker: usize,
}

impl Line {
    /// Reads the start of the line that `rest` begins with.
    pub(crate) fn new(rest: &str) -> Line {
        let blanks = rest.bytes().take(16).take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
        let indent = blanks.count();
        let body = rest.get(indent..).unwrap_or_default();
        let digits = body.bytes().take(4).take_while(u8::is_ascii_digit).count();
        let after_digits = body.as_bytes().get(digits..).unwrap_or_default();
        let numbered = (1..4).contains(&digits) && matches!(after_digits, [b'.' | b')', b' ' | b'\t', ..]);
        let marker = match body.as_bytes() {
            [b'-' | b'*' | b'+', b' ', ..] | [b'#' | b'|' | b'>', ..] => 1,
            _ if body.starts_with('•') => '•'.len_utf8(),
            _ if numbered => digits + 1,
            _ => 0,
        };
        Line {
            is_blank: body.is_empty() || body.starts_with('\n'),
            is_capital: body.starts_with(|char: char| char.is_uppercase() || char.is_ascii_digit()),
            is_heading: body.starts_with(['#', '|']),
            number: body.get(..digits).filter(|_| numbered).and_then(|digits| digits.parse().ok()),
            indent,
            marker,
        }
    }
}
