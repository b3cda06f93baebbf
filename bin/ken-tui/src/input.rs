//! Decodes the input of a terminal into keys and pasted text: control sequences of ECMA-48 and xterm, and the first level of
//! the kitty keyboard protocol.

use ratatui_textarea::{Input, Key};

/// The sequence that ends pasted text.
const PASTE_END: &[u8] = b"\x1b[201~";
/// The maximum size of pasted text, in bytes. The gateway refuses prompts of this size anyway.
const MAX_PASTE_BYTES: usize = 2 * 1024 * 1024;
/// The maximum length of a control sequence, in bytes.
const MAX_SEQUENCE_BYTES: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Key(Input),
    Paste(String),
    /// Whether the terminal's window has the keyboard focus.
    Focus(bool),
}

/// Decodes events from bytes that arrive in pieces.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Bytes that do not form a complete event yet.
    bytes: Vec<u8>,
    is_pasting: bool,
    /// How many bytes of pasted text have been searched for its end. A long text arrives in hundreds of reads, and each of them would
    /// otherwise search all of it again.
    searched: usize,
}

/// What was found at the start of the bytes.
enum Found {
    /// The number of bytes, and their event. An unknown sequence has no event.
    Event(usize, Option<Event>),
    PasteBegin(usize),
    /// The event is not complete yet.
    Part,
}

impl Decoder {
    /// Adds bytes. Returns the events that are complete now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.bytes.extend_from_slice(bytes);
        let mut events = Vec::new();
        while !self.bytes.is_empty() {
            let (taken, event) = if self.is_pasting {
                match self.pasted() {
                    Some((taken, text)) => (taken, Some(Event::Paste(text))),
                    None => break,
                }
            } else {
                match find(&self.bytes) {
                    Found::Event(taken, event) => (taken, event),
                    Found::PasteBegin(taken) => {
                        self.is_pasting = true;
                        (taken, None)
                    }
                    Found::Part => break,
                }
            };
            self.bytes.drain(..taken.min(self.bytes.len()));
            events.extend(event);
        }
        events
    }

    /// Whether the bytes so far are a key unless more bytes follow soon.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.is_pasting && !self.bytes.is_empty()
    }

    /// Called when no more bytes follow: the bytes are then the escape key, or a key with Alt, and not the start of a
    /// sequence.
    pub(crate) fn flush(&mut self) -> Option<Event> {
        let bytes = std::mem::take(&mut self.bytes);
        match bytes.as_slice() {
            [0x1b] => Some(Event::Key(plain(Key::Esc))),
            [0x1b, letter @ (b'[' | b'O')] => Some(Event::Key(with_alt(plain(Key::Char(char::from(*letter)))))),
            _ => None,
        }
    }

    /// Returns the pasted text once its end has arrived, and how many bytes it took with the end sequence.
    fn pasted(&mut self) -> Option<(usize, String)> {
        let rest = self.bytes.get(self.searched..).unwrap_or_default();
        match memchr::memmem::find(rest, PASTE_END).map(|end| self.searched + end) {
            Some(end) => {
                (self.is_pasting, self.searched) = (false, 0);
                let text = self.bytes.get(..end).unwrap_or_default();
                Some((end + PASTE_END.len(), String::from_utf8_lossy(text).into_owned()))
            }
            None => {
                // Keep the last bytes, because they may be the start of the end sequence.
                let kept = self.bytes.len().saturating_sub(PASTE_END.len());
                if kept > MAX_PASTE_BYTES {
                    self.bytes.drain(MAX_PASTE_BYTES..kept);
                }
                self.searched = kept.min(MAX_PASTE_BYTES);
                None
            }
        }
    }
}

fn plain(key: Key) -> Input {
    Input { key, ..Input::default() }
}

fn with_alt(key: Input) -> Input {
    Input { alt: true, ..key }
}

fn find(bytes: &[u8]) -> Found {
    match bytes {
        [0x1b] => Found::Part,
        // Of two escape characters, the first is the key.
        [0x1b, 0x1b, ..] => Found::Event(1, Some(Event::Key(plain(Key::Esc)))),
        [0x1b, b'[', rest @ ..] => sequence(rest),
        [0x1b, b'O'] => Found::Part,
        // Enter on the number pad is sent as a letter in this form only.
        [0x1b, b'O', b'M', ..] => Found::Event(3, Some(Event::Key(plain(Key::Enter)))),
        [0x1b, b'O', letter, ..] => Found::Event(3, named(*letter).map(plain).map(Event::Key)),
        [0x1b, rest @ ..] => {
            typed(rest).map_or(Found::Part, |(taken, key)| Found::Event(taken + 1, key.map(with_alt).map(Event::Key)))
        }
        _ => typed(bytes).map_or(Found::Part, |(taken, key)| Found::Event(taken, key.map(Event::Key))),
    }
}

/// Decodes a character or a control character and returns its length in bytes. Returns `None` while bytes are missing.
fn typed(bytes: &[u8]) -> Option<(usize, Option<Input>)> {
    let first = *bytes.first()?;
    let control = |base: u8| Input { ctrl: true, ..plain(Key::Char(char::from(first + base))) };
    let key = match first {
        b'\r' => plain(Key::Enter),
        b'\t' => plain(Key::Tab),
        0x7f => plain(Key::Backspace),
        0 => control(b' '),
        // Control characters 1 to 26 are Ctrl+A to Ctrl+Z.
        0x01..=0x1a => control(b'a' - 1),
        // Control characters 28 to 31 are Ctrl with `\`, `]`, `^` and `_`.
        0x1c..=0x1f => control(b'@'),
        _ => {
            let length = match first {
                0x00..=0x7f => 1,
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                // No UTF-8 character begins with this byte, so it is skipped.
                _ => return Some((1, None)),
            };
            let character = bytes.get(..length)?;
            return match std::str::from_utf8(character) {
                Ok(text) => Some((length, text.chars().next().map(|c| plain(Key::Char(c))))),
                Err(_) => Some((1, None)),
            };
        }
    };
    Some((1, Some(key)))
}

/// Decodes a control sequence. `bytes` begins after the two bytes that introduce it (ECMA-48, 5.4).
fn sequence(bytes: &[u8]) -> Found {
    match bytes {
        [b'['] => return Found::Part,
        // Function keys of the Linux console.
        [b'[', letter, ..] => {
            let key = (b'A'..=b'E').contains(letter).then(|| Key::F(letter - b'A' + 1));
            return Found::Event(4, key.map(plain).map(Event::Key));
        }
        _ => {}
    }
    let Some(end) = bytes.iter().position(|byte| !matches!(byte, 0x20..=0x3f)) else {
        return if bytes.len() > MAX_SEQUENCE_BYTES { Found::Event(bytes.len() + 2, None) } else { Found::Part };
    };
    let (parameters, last) = (bytes.get(..end).unwrap_or_default(), bytes.get(end).copied());
    let taken = end + 3;
    match last {
        Some(b'I') => Found::Event(taken, Some(Event::Focus(true))),
        Some(b'O') => Found::Event(taken, Some(Event::Focus(false))),
        Some(b'~') if parameters == b"200" => Found::PasteBegin(taken),
        Some(last @ 0x40..=0x7e) => Found::Event(taken, key(parameters, last).map(Event::Key)),
        // The sequence was interrupted; the byte that interrupted it is decoded by itself.
        _ => Found::Event(taken - 1, None),
    }
}

/// Returns the key of a sequence. `parameters` are numbers separated by `;`, the second of which encodes the modifiers.
fn key(parameters: &[u8], last: u8) -> Option<Input> {
    let text = std::str::from_utf8(parameters).ok()?;
    // Alternate codes of the key follow a colon. The client does not request them, so they are ignored.
    let mut numbers = text.split(';').map(|number| number.split(':').next().unwrap_or_default().parse::<u32>().ok());
    let mut next = || numbers.next().flatten();
    let (first, second, third) = (next(), next(), next());
    let key = match (last, first) {
        (b'u', Some(code)) => of_code(code)?,
        // The form of xterm's modifyOtherKeys.
        (b'~', Some(27)) => of_code(third?)?,
        (b'~', Some(number)) => of_number(number)?,
        (b'Z', _) => Key::Tab,
        _ => named(last)?,
    };
    let modifiers = second.unwrap_or(1).saturating_sub(1);
    // With Super, Hyper or Meta a key is a shortcut of the desktop or of the terminal. As the key alone it could type a letter, or
    // approve a request.
    if modifiers & 0b11_1000 != 0 {
        return None;
    }
    Some(Input { key, shift: modifiers & 1 != 0 || last == b'Z', alt: modifiers & 2 != 0, ctrl: modifiers & 4 != 0 })
}

/// Returns the key for a letter, as in `ESC [ A` and `ESC O A`.
fn named(letter: u8) -> Option<Key> {
    Some(match letter {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'F' => Key::End,
        b'H' => Key::Home,
        b'P'..=b'S' => Key::F(letter - b'P' + 1),
        _ => return None,
    })
}

/// Returns the key for a number, as in `ESC [ 5 ~`.
fn of_number(number: u32) -> Option<Key> {
    let function = |base: u32| u8::try_from(number - base).ok().map(Key::F);
    match number {
        1 | 7 => Some(Key::Home),
        3 => Some(Key::Delete),
        4 | 8 => Some(Key::End),
        5 => Some(Key::PageUp),
        6 => Some(Key::PageDown),
        11..=15 => function(10),
        17..=21 => function(11),
        23..=24 => function(12),
        _ => None,
    }
}

fn of_code(code: u32) -> Option<Key> {
    match code {
        9 => Some(Key::Tab),
        // Enter on the number pad has its own code.
        13 | 57_414 => Some(Key::Enter),
        27 => Some(Key::Esc),
        8 | 127 => Some(Key::Backspace),
        // These private-use codes are keys without a character.
        57_344..=63_743 => None,
        _ => char::from_u32(code).filter(|c| !c.is_control()).map(Key::Char),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events: Vec<Event> = pieces.iter().flat_map(|piece| decoder.push(piece)).collect();
        events.extend(decoder.flush());
        events
    }

    /// Returns the name of a key as in the manual page.
    fn name(event: &Event) -> String {
        let Event::Key(input) = event else {
            return format!("{event:?}");
        };
        let mut name = String::new();
        for (is_held, modifier) in [(input.ctrl, "Ctrl+"), (input.alt, "Alt+"), (input.shift, "Shift+")] {
            name.push_str(if is_held { modifier } else { "" });
        }
        match input.key {
            Key::Char(c) => name.push(c),
            key => name.push_str(&format!("{key:?}")),
        }
        name
    }

    fn names(bytes: &[u8]) -> String {
        events(&[bytes]).iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn keys_are_read_as_terminals_send_them() {
        for (bytes, expected) in [
            ("aé日👍", "a é 日 👍"),
            ("\r\n\t\u{7f}", "Enter Ctrl+j Tab Backspace"),
            ("\u{1}\u{3}\u{1a}\u{1f}\0", "Ctrl+a Ctrl+c Ctrl+z Ctrl+_ Ctrl+ "),
            ("\x1b[A\x1bOB\x1b[1;2A\x1b[1;5H\x1b[F", "Up Down Shift+Up Ctrl+Home End"),
            ("\x1b[5~\x1b[6~\x1b[3~\x1b[5;5~", "PageUp PageDown Delete Ctrl+PageUp"),
            ("\x1bOP\x1bOQ\x1b[11~\x1b[24~\x1b[[B\x1b[1;5Q", "F(1) F(2) F(1) F(12) F(2) Ctrl+F(2)"),
            ("\x1bc\x1bé\x1b\r", "Alt+c Alt+é Alt+Enter"),
            ("\x1b[Z", "Shift+Tab"),
            ("\x1b[13;2u\x1b[27u\x1b[97;5u\x1b[27;2;13~", "Shift+Enter Esc Ctrl+a Shift+Enter"),
            // Super, Hyper and Meta make it another key; Caps Lock and Num Lock do not.
            ("\x1b[97;9u\x1b[97;17u\x1b[97;33u\x1b[97;13u\x1b[27;9;97~\x1b[1;9Ax", "x"),
            ("\x1b[97;65u\x1b[115;129u\x1b[97;133u", "a s Ctrl+a"),
            // Key releases, modifier keys alone, replies to queries and mouse events are not keys.
            ("\x1b[57441;2u\x1b[?1;2c\x1b[<0;1;1Mx", "x"),
            ("\x1b", "Esc"),
            ("\x1b\x1b", "Esc Esc"),
            ("\x1b[", "Alt+["),
            ("\x1b[12", ""),
            // A sequence that is interrupted by another one.
            ("\x1b[1\x1b[Ax", "Up x"),
        ] {
            assert_eq!(names(bytes.as_bytes()), expected, "{bytes:?}");
        }
        assert_eq!(names(b"\xffa\xe6\x97b\xc3"), "a b", "bytes that are no text are left out");
        assert_eq!(events(&[b"\x1b[I\x1b[O"]), [Event::Focus(true), Event::Focus(false)]);
    }

    #[test]
    fn wherever_the_bytes_are_cut_the_events_are_the_same() {
        let bytes = "日\x1b[1;5A\x1b[200~one\rtwo \x1b[1;2H\x1b[201~x\x1b[13;2u\x1bOQ👍".as_bytes();
        let whole = events(&[bytes]);
        assert_eq!(whole.len(), 7);
        assert_eq!(whole[2], Event::Paste("one\rtwo \x1b[1;2H".to_owned()));
        for first in 0..bytes.len() {
            let (head, tail) = bytes.split_at(first);
            assert_eq!(events(&[head, tail]), whole, "cut at {first}");
        }
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(events(&each), whole);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut decoder = Decoder::default();
        assert!(decoder.push(b"\x1b[").is_empty());
        for _ in 0..100 {
            decoder.push(b"1;1;1;1;1;");
        }
        assert!(decoder.bytes.len() <= MAX_SEQUENCE_BYTES + 12);
        assert!(decoder.flush().is_none());
        decoder.push(b"\x1b[200~");
        for _ in 0..4 {
            decoder.push(&vec![b'p'; MAX_PASTE_BYTES]);
        }
        let events = decoder.push(b"\x1b[201~x");
        assert!(matches!(&events[0], Event::Paste(text) if text.len() <= MAX_PASTE_BYTES + PASTE_END.len()));
        assert_eq!(name(&events[1]), "x");
    }
}
