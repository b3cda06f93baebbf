//! Messages that other programs write to standard input, one a line.

use std::io::{BufRead, ErrorKind, Result};

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Whole(Vec<u8>),
    /// It is longer than a message may be, and was read to its end.
    TooLong,
}

/// Reads the next line, of at most `max` bytes. `None` at the end of the input. A last line without its end is not a message, because it may
/// be cut.
pub fn next(from: &mut impl BufRead, max: usize) -> Result<Option<Line>> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let bytes = match from.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
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
        if end.is_some() {
            return Ok(Some(if is_too_long { Line::TooLong } else { Line::Whole(line) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_ends_where_it_ends_and_a_cut_one_is_none() {
        let long = "x".repeat(101);
        let text = format!("a\n\n{}\n{long}\nb\ncut", &long[1..]);
        let mut from = std::io::BufReader::with_capacity(7, text.as_bytes());
        let mut read = || next(&mut from, 100).unwrap();
        assert_eq!(read(), Some(Line::Whole(b"a".to_vec())));
        assert_eq!(read(), Some(Line::Whole(Vec::new())));
        assert_eq!(read(), Some(Line::Whole(long.as_bytes()[1..].to_vec())));
        assert_eq!(read(), Some(Line::TooLong));
        assert_eq!(read(), Some(Line::Whole(b"b".to_vec())));
        assert_eq!(read(), None);
    }
}
