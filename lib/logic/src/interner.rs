use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

/// Texts and their numbers, in order of first appearance. Open addressing over one array of small slots: eight bits of the
/// hash beside the number, so that a text is compared only when it likely is the one.
pub(crate) struct Interner<'a> {
    texts: Vec<Cow<'a, str>>,
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

impl<'a> Interner<'a> {
    /// Room for this many texts. The seed is random, so that no input can be made to collide; nothing that is visible
    /// depends on it.
    pub(crate) fn with_capacity(texts: usize) -> Interner<'a> {
        let slots = (texts * 2).next_power_of_two().max(64);
        let seed = RandomState::new().hash_one(0) | 1;
        Interner {
            texts: Vec::with_capacity(texts),
            slots: vec![0; slots],
            seed,
        }
    }

    pub(crate) fn new() -> Interner<'a> {
        Interner::with_capacity(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// The text of a number that this interner gave.
    pub(crate) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", Cow::as_ref)
    }

    pub(crate) fn get(&self, text: &str) -> Option<u32> {
        self.find(text).ok()
    }

    /// The text's number, and whether it is new.
    pub(crate) fn intern(&mut self, text: Cow<'a, str>) -> (u32, bool) {
        let (slot, tag) = match self.find(&text) {
            Ok(number) => return (number, false),
            Err(place) => place,
        };
        let number = self.texts.len() as u32 & NUMBER;
        self.texts.push(text);
        if let Some(free) = self.slots.get_mut(slot) {
            *free = tag | (number + 1);
        }
        if self.texts.len() * 2 > self.slots.len() {
            self.grow();
        }
        (number, true)
    }

    /// The number of the text, or the slot where it belongs and its tag.
    fn find(&self, text: &str) -> Result<u32, (usize, u32)> {
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
        for (number, text) in self.texts.iter().enumerate() {
            let hash = self.hash(text.as_bytes());
            let mut slot = hash as usize & mask;
            while slots.get(slot).is_some_and(|used| *used != 0) {
                slot = (slot + 1) & mask;
            }
            if let Some(free) = slots.get_mut(slot) {
                *free = tag(hash) | (number as u32 + 1);
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
            assert_eq!(
                interner.intern(Cow::Borrowed(text)),
                (n as u32 % 5_000, n < 5_000)
            );
        }
        assert_eq!(interner.len(), 5_000);
        assert_eq!(interner.get("text 4999"), Some(4_999));
        assert_eq!(interner.get("text 5000"), None);
        assert_eq!(interner.text(17), "text 17");
    }
}
