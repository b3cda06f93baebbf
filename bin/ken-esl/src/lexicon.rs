//! The meaning of single words and short phrases: the compiled form of `share/esl/lexicon.txt`.
//!
//! The slots are part of the table that is compiled into the program, so nothing is parsed when the program starts.

use crate::emotion::{EMOTIONS, by_name};
use crate::math::mix;
use crate::token::Token;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A word for the emotion with this number.
    Emotion(usize),
    Good,
    Bad,
    Negator,
    Intensifier,
    Diminisher,
    Contrast,
    Restrict,
    Temporal,
    Myself,
    Is,
    Irony,
    Sarcasm,
    /// A name that contains a word of opinion but expresses none, such as "Great Britain".
    Name,
    /// A word of the language with this index in [`LANGUAGES`].
    Language(usize),
    /// A word that has no meaning here except as the first word of a phrase.
    Start,
}

/// The languages that are distinguished, each with its ISO 639-1 code and its name in the lexicon. The first one is
/// English.
pub const LANGUAGES: [(&str, &str); 7] = [
    ("en", "english"),
    ("de", "german"),
    ("fr", "french"),
    ("es", "spanish"),
    ("it", "italian"),
    ("pt", "portuguese"),
    ("nl", "dutch"),
];

const WORD_CLASSES: [(&str, Class); 14] = [
    ("good", Class::Good),
    ("bad", Class::Bad),
    ("negator", Class::Negator),
    ("intensifier", Class::Intensifier),
    ("diminisher", Class::Diminisher),
    ("contrast", Class::Contrast),
    ("restrict", Class::Restrict),
    ("temporal", Class::Temporal),
    ("self", Class::Myself),
    ("is", Class::Is),
    ("irony", Class::Irony),
    ("sarcasm", Class::Sarcasm),
    ("name", Class::Name),
    ("start", Class::Start),
];

/// The codes of [`WORD_CLASSES`] begin after those of the emotions, and the codes of languages after these. 0 is an
/// empty slot.
const WORD_CODES: usize = EMOTIONS.len() + 1;
const LANGUAGE_CODES: usize = WORD_CODES + WORD_CLASSES.len();
const STARTS_PHRASE: u8 = 0x80;

impl Class {
    pub fn from_name(name: &str) -> Option<Class> {
        let word = || WORD_CLASSES.iter().find(|class| class.0 == name).map(|class| class.1);
        let language = || LANGUAGES.iter().position(|language| language.1 == name).map(Class::Language);
        by_name(name).map(Class::Emotion).or_else(word).or_else(language)
    }

    fn code(self) -> u8 {
        let code = match self {
            Class::Emotion(number) => number + 1,
            Class::Language(number) => number + LANGUAGE_CODES,
            word => WORD_CODES + WORD_CLASSES.iter().position(|class| class.1 == word).unwrap_or(0),
        };
        code as u8
    }

    fn from_code(code: u8) -> Option<Class> {
        match usize::from(code) {
            0 => None,
            code if code < WORD_CODES => Some(Class::Emotion(code - 1)),
            code if code < LANGUAGE_CODES => WORD_CLASSES.get(code - WORD_CODES).map(|class| class.1),
            code => Some(Class::Language(code - LANGUAGE_CODES)),
        }
    }
}

/// The entry of a word or phrase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    pub class: Class,
    /// Polarity from -4 to 4.
    pub valence: f32,
    /// Whether a longer phrase can begin with this word.
    pub starts_phrase: bool,
}

impl Entry {
    /// Whether the word expresses a feeling or an opinion.
    pub fn is_feeling(&self) -> bool {
        matches!(self.class, Class::Emotion(_) | Class::Good | Class::Bad)
    }
}

/// Returns the key of a word in its folded form.
pub fn key(token: &Token) -> u64 {
    token.words().fold(token.form().len() as u64, mix)
}

/// Returns the key of a phrase to which a word is added.
pub fn longer(key: u64, next: u64) -> u64 {
    mix(key, next ^ 0x70)
}

/// The number of slots of the hash table.
pub const SLOTS: usize = 8192;

/// One slot of the lexicon's hash table.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// The lower half of the key; the upper half selects the slot.
    check: u32,
    /// Polarity in units of one thirtieth.
    valence: i8,
    /// See [`Class::code`].
    code: u8,
}

impl Slot {
    pub const EMPTY: Slot = Slot { check: 0, valence: 0, code: 0 };
    /// The number of bytes of a slot in the file.
    pub const BYTES: usize = 6;

    pub const fn read(bytes: [u8; Slot::BYTES]) -> Slot {
        let [a, b, c, d, valence, code] = bytes;
        Slot { check: u32::from_le_bytes([a, b, c, d]), valence: valence as i8, code }
    }

    pub fn write(self) -> [u8; Slot::BYTES] {
        let [a, b, c, d] = self.check.to_le_bytes();
        [a, b, c, d, self.valence as u8, self.code]
    }

    fn entry(self) -> Option<Entry> {
        Some(Entry {
            class: Class::from_code(self.code & !STARTS_PHRASE)?,
            valence: f32::from(self.valence) / 30.0,
            starts_phrase: self.code & STARTS_PHRASE != 0,
        })
    }
}

/// Returns the index of the slot that contains a key, or of an empty slot for it. Returns `None` if the table is full.
fn place(slots: &[Slot; SLOTS], key: u64) -> Option<usize> {
    let mut place = (key >> 32) as usize % SLOTS;
    for _ in 0..SLOTS {
        let slot = slots[place];
        if slot.code == 0 || slot.check == key as u32 {
            return Some(place);
        }
        place = (place + 1) % SLOTS;
    }
    None
}

pub fn find(slots: &[Slot; SLOTS], key: u64) -> Option<Entry> {
    slots[place(slots, key)?].entry()
}

/// Adds an entry. If the key already has an entry, that one is kept, unless it is only the start of a phrase. Returns
/// false if the table is full.
pub fn put(slots: &mut [Slot; SLOTS], key: u64, entry: Entry) -> bool {
    let phrase = if entry.starts_phrase { STARTS_PHRASE } else { 0 };
    let Some(place) = place(slots, key) else {
        return false;
    };
    let slot = &mut slots[place];
    let is_start = Class::from_code(slot.code & !STARTS_PHRASE) == Some(Class::Start);
    if slot.code != 0 && !is_start {
        slot.code |= phrase;
        return true;
    }
    *slot = Slot {
        check: key as u32,
        valence: (entry.valence * 30.0).round() as i8,
        code: entry.class.code() | phrase | slot.code & STARTS_PHRASE,
    };
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_encoded_and_decoded() {
        let words = WORD_CLASSES.iter().map(|class| class.1);
        let emotions = (0..EMOTIONS.len()).map(Class::Emotion);
        for class in words.chain(emotions).chain((0..LANGUAGES.len()).map(Class::Language)) {
            assert_eq!(Class::from_code(class.code()), Some(class));
        }
        assert_eq!(Class::from_code(0), None);
    }
}
