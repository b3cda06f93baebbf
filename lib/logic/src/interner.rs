use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Assigns numbers to texts, counted from 0 in the order of their first appearance.
pub struct Interner {
    texts: Texts,
    /// The numbers by the hash of their text. The control bytes of the table, which are only an eighth of its memory,
    /// are nearly always enough to see that a text is new.
    numbers: HashTable<u32>,
    hasher: RandomState,
}

impl Interner {
    /// Creates an interner with capacity for this many texts. The seed of its hash is random, so that no input can
    /// force collisions. Results do not depend on the seed.
    pub fn with_capacity(texts: usize) -> Interner {
        Interner {
            texts: Texts::with_capacity(texts),
            numbers: HashTable::with_capacity(texts),
            hasher: RandomState::default(),
        }
    }

    pub fn new() -> Interner {
        Interner::with_capacity(0)
    }

    /// Returns the number of texts.
    pub fn len(&self) -> usize {
        self.texts.starts.len() - 1
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the text of a number that this interner has assigned.
    pub fn text(&self, number: u32) -> &str {
        self.texts.get(number)
    }

    /// Returns all texts, concatenated.
    pub(crate) fn texts(&self) -> &str {
        &self.texts.all
    }

    /// Returns the number of a text; `None` if it has none.
    pub fn get(&self, text: &str) -> Option<u32> {
        let is_it = |&number: &u32| self.texts.get(number) == text;
        self.numbers.find(self.hasher.hash_one(text), is_it).copied()
    }

    /// Returns the number of a text, and whether it is new.
    pub fn intern(&mut self, text: &str) -> (u32, bool) {
        let is_it = |&number: &u32| self.texts.get(number) == text;
        let hash_of = |&number: &u32| self.hasher.hash_one(self.texts.get(number));
        match self.numbers.entry(self.hasher.hash_one(text), is_it, hash_of) {
            Entry::Occupied(known) => (*known.get(), false),
            Entry::Vacant(place) => {
                let number = self.texts.starts.len() as u32 - 1;
                place.insert(number);
                self.texts.push(text);
                (number, true)
            }
        }
    }
}

impl Default for Interner {
    fn default() -> Interner {
        Interner::new()
    }
}

/// All texts in one buffer, so that they take little memory and neighbouring texts are close to each other.
struct Texts {
    all: String,
    /// For each number, the offset at which its text starts and the previous text ends. The last entry is the end of
    /// the buffer.
    starts: Vec<u32>,
}

impl Texts {
    fn with_capacity(texts: usize) -> Texts {
        let mut starts = Vec::with_capacity(texts + 1);
        starts.push(0);
        Texts { all: String::new(), starts }
    }

    fn get(&self, number: u32) -> &str {
        let number = number as usize;
        match self.starts.get(number..number + 2) {
            Some(&[start, end]) => self.all.get(start as usize..end as usize).unwrap_or_default(),
            _ => "",
        }
    }

    fn push(&mut self, text: &str) {
        self.all.push_str(text);
        self.starts.push(self.all.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_first_appearance() {
        let mut interner = Interner::new();
        let texts: Vec<String> = (0..10_000).map(|n| format!("text {}", n % 5_000)).collect();
        for (n, text) in texts.iter().enumerate() {
            assert_eq!(interner.intern(text), (n as u32 % 5_000, n < 5_000));
        }
        assert_eq!(interner.len(), 5_000);
        assert_eq!(interner.get("text 4999"), Some(4_999));
        assert_eq!(interner.get("text 5000"), None);
        assert_eq!(interner.text(17), "text 17");
    }
}
