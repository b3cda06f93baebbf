//! JSON on one line, as bytes.

use ken_types::json::{escape, needs_escape};

/// A piece of text that is copied whole, with the room behind it: a copy of known size is a few moves.
#[derive(Clone, Copy)]
pub(crate) struct Part<const ROOM: usize> {
    bytes: [u8; ROOM],
    length: usize,
}

impl<const ROOM: usize> Part<ROOM> {
    pub(crate) const fn new() -> Part<ROOM> {
        Part {
            bytes: [0; ROOM],
            length: 0,
        }
    }

    /// Fails the build where there is no room.
    pub(crate) const fn with(mut self, text: &[u8]) -> Part<ROOM> {
        let mut index = 0;
        while index < text.len() {
            self.bytes[self.length] = text[index];
            self.length += 1;
            index += 1;
        }
        self
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let end = to.len() + self.length;
        to.extend_from_slice(&self.bytes);
        to.truncate(end);
    }
}

/// A text between quotation marks. Most are a few plain letters, which are gathered in place.
pub(crate) fn text(to: &mut Vec<u8>, text: &str) {
    let mut short = [b'"'; 18];
    let mut special = text.len() > 16;
    for (byte, place) in text.bytes().zip(short.iter_mut().skip(1).take(16)) {
        special |= needs_escape(byte);
        *place = byte;
    }
    if special {
        to.push(b'"');
        escaped(to, text);
        return to.push(b'"');
    }
    let end = to.len() + text.len() + 2;
    to.extend_from_slice(&short);
    to.truncate(end);
}

/// A text as it stands between quotation marks.
pub(crate) fn escaped(to: &mut Vec<u8>, text: &str) {
    escape(text, |bytes| to.extend_from_slice(bytes));
}

/// A whole number; most have few digits.
pub(crate) fn number(to: &mut Vec<u8>, value: u64) {
    if value < 10 {
        return to.push(b'0' + value as u8);
    }
    let mut digits = [b'0'; 20];
    let (mut first, mut rest) = (digits.len(), value);
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
        first = place;
        if rest == 0 {
            break;
        }
    }
    to.extend_from_slice(digits.get(first..).unwrap_or_default());
}

/// Items between brackets, with commas between them.
pub(crate) fn list<T>(to: &mut Vec<u8>, items: impl Iterator<Item = T>, each: impl Fn(&mut Vec<u8>, T)) {
    to.push(b'[');
    for (count, item) in items.enumerate() {
        if count > 0 {
            to.push(b',');
        }
        each(to, item);
    }
    to.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_those_of_serde_json() {
        let all: String = (0..0x180).filter_map(char::from_u32).collect();
        let mut written = Vec::new();
        text(&mut written, &all);
        assert_eq!(written, serde_json::to_vec(&all).unwrap());
        for value in [0, 7, 10, 999, 1000, u64::MAX] {
            written.clear();
            number(&mut written, value);
            assert_eq!(written, value.to_string().into_bytes());
        }
    }
}
