//! Lines, as far as a text is laid out in them.

/// How a line begins.
pub(crate) struct Line {
    pub(crate) is_blank: bool,
    /// Begins with a capital letter or a digit.
    pub(crate) is_capital: bool,
    /// Begins with a list marker or a heading mark.
    pub(crate) is_item: bool,
    pub(crate) is_heading: bool,
    pub(crate) number: Option<u16>,
    pub(crate) indent: usize,
    /// Bytes of the marker.
    pub(crate) marker: usize,
}

impl Line {
    pub(crate) fn of(rest: &str) -> Line {
        let bytes = rest.as_bytes();
        let indent = bytes
            .iter()
            .take(16)
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
            .count();
        let body = bytes.get(indent..).unwrap_or_default();
        let mut line = Line {
            is_blank: matches!(body.first(), None | Some(b'\n')),
            is_capital: rest
                .get(indent..)
                .and_then(|rest| rest.chars().next())
                .is_some_and(|char| char.is_uppercase() || char.is_ascii_digit()),
            is_item: false,
            is_heading: matches!(body.first(), Some(b'#' | b'|')),
            number: None,
            indent,
            marker: 0,
        };
        let digits = body
            .iter()
            .take(4)
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        match body {
            [b'-' | b'*' | b'+', b' ', ..] => line.marker = 1,
            [0xe2, 0x80, 0xa2, ..] => line.marker = 3, // •
            [b'#' | b'|' | b'>', ..] => line.marker = 1,
            _ if (1..4).contains(&digits)
                && matches!(body.get(digits), Some(b'.' | b')'))
                && matches!(body.get(digits + 1), Some(b' ' | b'\t')) =>
            {
                line.marker = digits + 1;
                line.number = rest
                    .get(indent..indent + digits)
                    .and_then(|digits| digits.parse().ok());
            }
            _ => {}
        }
        line.is_item = line.marker > 0;
        line
    }
}
