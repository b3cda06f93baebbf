//! JSON on one line, as bytes.

use std::ops::Range;

use ken_types::json::{escape, needs_escape};

use crate::part::Part;

/// Writes into the room that it has; [`Pen::write`] sees to it that it has enough. A short text is copied with what stands
/// behind it: a copy of known size is a few moves.
#[derive(Default)]
pub(crate) struct Pen<'a> {
    rest: &'a mut [u8],
    is_short: bool,
}

impl<'a> Pen<'a> {
    /// Has `write` write, once more in a larger room if need be; what it wrote.
    pub(crate) fn write(room: &mut Vec<u8>, write: impl Fn(&mut Pen<'_>)) -> &[u8] {
        const FIRST: usize = 16 * 1024;
        let left = loop {
            let mut pen = Pen {
                rest: room,
                is_short: false,
            };
            write(&mut pen);
            if !pen.is_short {
                break pen.rest.len();
            }
            *room = vec![0; FIRST.max(2 * room.len())];
        };
        room.get(..room.len() - left).unwrap_or_default()
    }

    #[inline(always)]
    pub(crate) fn part<const ROOM: usize>(&mut self, part: &Part<ROOM>) {
        self.first(&part.bytes, part.length);
    }

    /// Bytes whose number the compiler knows.
    #[inline(always)]
    pub(crate) fn all<const ROOM: usize>(&mut self, bytes: &[u8; ROOM]) {
        match std::mem::take(&mut self.rest).split_first_chunk_mut() {
            Some((place, rest)) => {
                *place = *bytes;
                self.rest = rest;
            }
            None => self.is_short = true,
        }
    }

    /// The first bytes of some whose number the compiler knows.
    #[inline(always)]
    fn first<const ROOM: usize>(&mut self, bytes: &[u8; ROOM], count: usize) {
        let rest = std::mem::take(&mut self.rest);
        match rest.first_chunk_mut() {
            Some(place) => {
                *place = *bytes;
                self.rest = rest.get_mut(count..).unwrap_or_default();
            }
            None => self.is_short = true,
        }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()) {
            Some((place, rest)) => {
                place.copy_from_slice(bytes);
                self.rest = rest;
            }
            None => self.is_short = true,
        }
    }

    /// A text as it stands between quotation marks.
    pub(crate) fn escaped(&mut self, text: &str) {
        *self = std::mem::take(self).with_escaped(text);
    }

    #[inline(never)]
    fn with_escaped(mut self, text: &str) -> Pen<'a> {
        escape(text, |bytes| self.bytes(bytes));
        self
    }

    /// A place of a text that is plain. Most are a few words.
    #[inline(always)]
    pub(crate) fn plain(&mut self, text: &str, place: Range<usize>) {
        const ROOM: usize = 32;
        let rest = text.as_bytes().get(place.start..).unwrap_or_default();
        match rest.first_chunk::<ROOM>() {
            Some(whole) if place.len() <= ROOM => self.first(whole, place.len()),
            _ => self.bytes(rest.get(..place.len()).unwrap_or_default()),
        }
    }

    /// A whole number; most have at most three digits.
    #[inline(always)]
    pub(crate) fn number(&mut self, value: usize) {
        match DIGITS.get(value) {
            Some(digits) => self.first(digits, usize::from(digits[3])),
            None => *self = std::mem::take(self).with_long_number(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn with_long_number(mut self, value: usize) -> Pen<'a> {
        self.bytes(value.to_string().as_bytes());
        self
    }

    /// Tenths as a number with one decimal; most are at most a hundred.
    #[inline(always)]
    pub(crate) fn tenths(&mut self, value: i32) {
        self.first(b"-", usize::from(value < 0));
        let tenths = value.unsigned_abs() as usize;
        match TENTHS.get(tenths) {
            Some(digits) => self.first(digits, usize::from(digits[7])),
            None => {
                self.number(tenths / 10);
                self.all(&[b'.', b'0' + (tenths % 10) as u8]);
            }
        }
    }

    /// Items between brackets, with commas between them.
    #[inline(always)]
    pub(crate) fn list<T>(&mut self, items: impl Iterator<Item = T>, each: impl Fn(&mut Pen<'_>, T)) {
        let mut pen = std::mem::take(self); // none but this function knows it: it stays in registers
        pen.all(b"[");
        let mut comma = 0;
        for item in items {
            pen.first(b",", comma);
            comma = 1;
            each(&mut pen, item);
        }
        pen.all(b"]");
        *self = pen;
    }
}

/// The numbers of at most three digits, and in the last byte how many those are.
static DIGITS: [[u8; 4]; 1000] = {
    let (mut table, mut value) = ([[0; 4]; 1000], 0);
    while value < table.len() {
        table[value] = digits_of(value);
        value += 1;
    }
    table
};

const fn digits_of(value: usize) -> [u8; 4] {
    let count = 1 + (value > 9) as usize + (value > 99) as usize;
    let (mut digits, mut place, mut rest) = ([0, 0, 0, count as u8], count, value);
    while place > 0 {
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

/// The same for tenths.
static TENTHS: [[u8; 8]; 1001] = {
    let (mut table, mut value) = ([[0; 8]; 1001], 0);
    while value < table.len() {
        let whole = digits_of(value / 10);
        let mut place = 0;
        while place < whole[3] as usize {
            table[value][place] = whole[place];
            place += 1;
        }
        table[value][place] = b'.';
        table[value][place + 1] = b'0' + (value % 10) as u8;
        table[value][7] = place as u8 + 2;
        value += 1;
    }
    table
};

/// Whether nothing in a text needs an escape. It looks at all of it without a branch, many bytes at a time; the last of them
/// may overlap those before.
pub(crate) fn is_plain(text: &str) -> bool {
    let (chunks, rest) = text.as_bytes().as_chunks();
    match text.as_bytes().last_chunk() {
        Some(last) => !chunks
            .iter()
            .fold(any_odd(last), |odd, chunk| odd | any_odd(chunk)),
        None => !rest.iter().any(|byte| needs_escape(*byte)),
    }
}

fn any_odd(bytes: &[u8; 32]) -> bool {
    bytes.map(|byte| u8::from(needs_escape(byte))) != [0; 32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_those_of_serde_json() {
        let all: String = (0..0x180).filter_map(char::from_u32).collect();
        let mut room = Vec::new();
        let written = Pen::write(&mut room, |pen| {
            pen.all(b"\"");
            pen.escaped(&all);
            pen.all(b"\"");
        });
        assert_eq!(written, serde_json::to_vec(&all).unwrap());
        let is_escaped = |char: &char| !is_plain(&char.to_string());
        assert_eq!(all.chars().filter(is_escaped).count(), 0x20 + 2);
        for value in [0, 7, 10, 99, 100, 999, 1000, 12_345] {
            let written = Pen::write(&mut room, |pen| pen.number(value));
            assert_eq!(written, value.to_string().as_bytes());
            let written = Pen::write(&mut room, |pen| pen.tenths(-(value as i32)));
            let sign = if value > 0 { "-" } else { "" };
            let tenths = format!("{sign}{}.{}", value / 10, value % 10);
            assert_eq!(written, tenths.as_bytes());
        }
    }
}
