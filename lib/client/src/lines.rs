//! Messages that other programs write to standard input, one a line.

use std::io::{BufRead, ErrorKind, Result};

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    /// It is longer than a message may be, and was read to its end.
    TooLong,
}

/// Reads the next line, of at most `max` bytes. `None` at the end of the input. The last line may lack its line feed: a message that is cut is no
/// JSON, so that nothing is taken for another one.
pub fn next(from: &mut impl BufRead, max: usize) -> Result<Option<Line>> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let bytes = match from.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        let is_last = bytes.is_empty();
        if is_last && line.is_empty() && !is_too_long {
            return Ok(None);
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        is_too_long |= line.len() + piece.len() > max;
        if !is_too_long {
            line.extend_from_slice(piece);
        }
        let used = piece.len() + usize::from(end.is_some());
        from.consume(used);
        if end.is_some() || is_last {
            return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_ends_where_it_ends_and_the_last_one_with_the_input() {
        let long = "x".repeat(101);
        let text = format!("a\n\n{}\n{long}\nb\ncut", &long[1..]);
        let mut from = std::io::BufReader::with_capacity(7, text.as_bytes());
        let mut read = || next(&mut from, 100).unwrap();
        assert_eq!(read(), Some(Line::Whole(b"a".to_vec())));
        assert_eq!(read(), Some(Line::Whole(Vec::new())));
        assert_eq!(read(), Some(Line::Whole(long.as_bytes()[1..].to_vec())));
        assert_eq!(read(), Some(Line::TooLong));
        assert_eq!(read(), Some(Line::Whole(b"b".to_vec())));
        assert_eq!(read(), Some(Line::Whole(b"cut".to_vec())));
        assert_eq!(read(), None);
        for text in ["", "a\n", "\n"] {
            let mut from = text.as_bytes();
            let lines = std::iter::from_fn(|| next(&mut from, 100).unwrap()).count();
            assert_eq!(lines, text.matches('\n').count(), "{text:?}");
        }
        let mut from = long.as_bytes();
        assert_eq!(next(&mut from, 100).unwrap(), Some(Line::TooLong));
        assert_eq!(next(&mut from, 100).unwrap(), None);
    }
}
