use std::hash::{BuildHasher, RandomState};

/// Texts and their numbers, in order of first appearance. Open addressing over one array of small slots: eight bits of the
/// hash beside the number, so that a text is compared only when it likely is the one.
pub struct Interner {
    /// One text behind the other: little memory, much of it near.
    texts: String,
    /// By number: where its text ends.
    ends: Vec<u32>,
    /// `0` is free; else eight bits of the hash above the number plus one. The length is a power of two.
    slots: Vec<u32>,
    seed: u64,
}

/// Numbers take the lower 24 bits: an input of 8 MiB and a million derived statements hold fewer texts than that.
const NUMBER: u32 = (1 << 24) - 1;

/// The bits of the hash that a slot keeps; the slot's place depends on others.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 & !NUMBER
}

impl Interner {
    /// Room for this many texts. The seed is random, so that no input can be made to collide; nothing that is visible
    /// depends on it.
    pub fn with_capacity(texts: usize) -> Interner {
        let slots = texts.next_power_of_two().max(64);
        let seed = RandomState::new().hash_one(0) | 1;
        Interner {
            texts: String::new(),
            ends: Vec::with_capacity(texts),
            slots: vec![0; slots],
            seed,
        }
    }

    pub fn new() -> Interner {
        Interner::with_capacity(0)
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text of a number that this interner gave.
    pub fn text(&self, number: u32) -> &str {
        let number = number as usize;
        let end = |number: usize| self.ends.get(number).map_or(0, |&end| end as usize);
        let start = number.checked_sub(1).map_or(0, end);
        self.texts.get(start..end(number)).unwrap_or_default()
    }

    /// The text's number, if it has one.
    pub fn get(&self, text: &str) -> Option<u32> {
        self.find(text).ok()
    }

    /// The text's number, and whether it is new.
    pub fn intern(&mut self, text: &str) -> (u32, bool) {
        let (slot, tag) = match self.find(text) {
            Ok(number) => return (number, false),
            Err(place) => place,
        };
        let number = self.ends.len() as u32 & NUMBER;
        self.texts.push_str(text);
        self.ends.push(self.texts.len() as u32);
        if let Some(free) = self.slots.get_mut(slot) {
            *free = tag | (number + 1);
        }
        // Neighbours are on one line of the cache: many tries there are quicker than one in a table twice as large.
        if self.ends.len() * 8 > self.slots.len() * 7 {
            self.grow();
        }
        (number, true)
    }

    /// The number of the text, or the slot where it belongs and its tag. A rule often begins with what the last one
    /// concluded: that is looked at first, since the slots of many texts are far away.
    fn find(&self, text: &str) -> Result<u32, (usize, u32)> {
        if let Some(last) = (self.ends.len() as u32).checked_sub(1)
            && self.text(last) == text
        {
            return Ok(last);
        }
        let hash = self.hash(text.as_bytes());
        let (mask, tag) = (self.slots.len() - 1, tag(hash));
        let mut slot = hash as usize & mask;
        loop {
            match self.slots.get(slot).copied().unwrap_or(0) {
                0 => return Err((slot, tag)),
                used if used & !NUMBER == tag && self.text((used & NUMBER) - 1) == text => {
                    return Ok((used & NUMBER) - 1);
                }
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 4 - 1;
        let mut slots = vec![0u32; mask + 1];
        for number in 0..self.ends.len() as u32 {
            let hash = self.hash(self.text(number).as_bytes());
            let mut slot = hash as usize & mask;
            while slots.get(slot).is_some_and(|used| *used != 0) {
                slot = (slot + 1) & mask;
            }
            if let Some(free) = slots.get_mut(slot) {
                *free = tag(hash) | (number + 1);
            }
        }
        self.slots = slots;
    }

    /// Folded multiplication of eight bytes at a time (the construction of wyhash and foldhash).
    fn hash(&self, bytes: &[u8]) -> u64 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let (blocks, rest) = bytes.as_chunks::<8>();
        let mut state = self.seed ^ bytes.len() as u64;
        for block in blocks {
            state = fold(state ^ u64::from_le_bytes(*block), MULTIPLIER);
        }
        fold(state ^ tail(rest), MULTIPLIER ^ self.seed)
    }
}

impl Default for Interner {
    fn default() -> Interner {
        Interner::new()
    }
}

/// Fewer than eight bytes as a number; their count is in the hash already. Two reads that may overlap take four or more.
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

/// An odd constant with as many ones as zeros (the fractional part of pi).
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
