use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Assigns numbers to texts, counted from 0 in the order of their first appearance.
pub struct Interner {
    texts: Texts,
    /// The numbers by the hash of their text. The control bytes of the table, which are only an eighth of its memory,
    /// are nearly always enough to see that a text is new.
    numbers: HashTable<u32>,
    seed: u64,
}

impl Interner {
    /// Creates an interner with capacity for this many texts. The seed of its hash is random, so that no input can
    /// force collisions. Results do not depend on the seed.
    pub fn with_capacity(texts: usize) -> Interner {
        Interner {
            texts: Texts::with_capacity(texts),
            numbers: HashTable::with_capacity(texts),
            seed: RandomState::new().hash_one(0) | 1,
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
        self.numbers.find(hash(self.seed, text), is_it).copied()
    }

    /// Returns the number of a text, and whether it is new.
    pub fn intern(&mut self, text: &str) -> (u32, bool) {
        let is_it = |&number: &u32| self.texts.get(number) == text;
        let hash_of = |&number: &u32| hash(self.seed, self.texts.get(number));
        match self.numbers.entry(hash(self.seed, text), is_it, hash_of) {
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

/// Returns a hash of the text, computed by folded multiplication of eight bytes at a time, as in wyhash and foldhash.
fn hash(seed: u64, text: &str) -> u64 {
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let (blocks, rest) = text.as_bytes().as_chunks::<8>();
    let mut state = seed ^ text.len() as u64;
    for block in blocks {
        state = fold(state ^ u64::from_le_bytes(*block), MULTIPLIER);
    }
    fold(state ^ tail(rest), MULTIPLIER ^ seed)
}

/// Returns fewer than eight bytes as a number. Different lengths can give the same number, because the length is
/// already in the hash. Four or more bytes are read as two groups of four, which can overlap.
fn tail(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>(), bytes) {
        (Some(first), Some(last), _) => {
            u64::from(u32::from_le_bytes(*first)) << 32 | u64::from(u32::from_le_bytes(*last))
        }
        (.., &[a, b, c]) => u64::from(a) << 16 | u64::from(b) << 8 | u64::from(c),
        (.., &[a, b]) => u64::from(a) << 8 | u64::from(b),
        (.., &[a]) => u64::from(a),
        _ => 0,
    }
}

/// An odd number with as many ones as zeros in binary (the fractional part of pi).
const MULTIPLIER: u64 = 0x243f_6a88_85a3_08d3;

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
