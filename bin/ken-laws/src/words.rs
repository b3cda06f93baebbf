//! The words of a text, each once, in all its forms.

use std::ops::Range;

/// A table of stems, and which of them each sentence has. What earlier texts left in the table does not count.
#[derive(Default)]
pub(crate) struct Words {
    slots: Vec<Slot>,
    /// Slots that are taken.
    taken: usize,
    /// For each sentence after the other its words, as places in the table, each once.
    uses: Vec<u32>,
    /// The sentence under way, counted over all texts, and the first of this text.
    now: u32,
    first: u32,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    stem: u64,
    /// The last sentence that has it.
    last: u32,
    /// How often it was counted.
    count: u32,
}

/// How a sentence has a word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// As the first of the text.
    First,
    /// As one that an earlier sentence has.
    Again,
    /// Once more in the same sentence.
    Repeated,
}

impl Words {
    /// Starts a text.
    pub(crate) fn clear(&mut self) {
        if self.slots.is_empty() || self.now > u32::MAX / 2 {
            self.slots = vec![Slot::default(); 64];
            self.now = 0;
        }
        self.taken = 0;
        self.uses.clear();
        self.now += 1;
        self.first = self.now;
    }

    /// Starts a sentence.
    pub(crate) fn next_sentence(&mut self) {
        self.now += 1;
    }

    /// Takes a word of the sentence.
    #[inline]
    pub(crate) fn add(&mut self, stem: u64) -> Use {
        if self.taken * 2 >= self.slots.len() {
            self.grow();
        }
        let (first, now) = (self.first, self.now);
        let place = find(&self.slots, stem, first);
        let Some(slot) = self.slots.get_mut(place) else {
            return Use::Repeated;
        };
        let found = match slot.last {
            last if last == now => return Use::Repeated,
            last if last >= first => Use::Again,
            _ => Use::First,
        };
        if found == Use::First {
            *slot = Slot {
                stem,
                last: 0,
                count: 0,
            };
            self.taken += 1;
        }
        slot.last = now;
        self.uses.push(place as u32);
        found
    }

    /// How many words the sentences have so far, each its own.
    pub(crate) fn uses(&self) -> usize {
        self.uses.len()
    }

    /// The words at some of the uses.
    fn slots(&self, uses: Range<usize>) -> impl Iterator<Item = &Slot> {
        let uses = self.uses.get(uses).unwrap_or_default().iter();
        uses.filter_map(|&place| self.slots.get(place as usize))
    }

    pub(crate) fn stems(&self, uses: Range<usize>) -> impl Iterator<Item = u64> {
        self.slots(uses).map(|slot| slot.stem)
    }

    /// How many of the words the sentence under way has.
    pub(crate) fn are_here(&self, uses: Range<usize>) -> usize {
        self.slots(uses).filter(|slot| slot.last == self.now).count()
    }

    /// Counts each of the words once.
    pub(crate) fn count(&mut self, uses: Range<usize>) {
        for &place in self.uses.get(uses).unwrap_or_default() {
            if let Some(slot) = self.slots.get_mut(place as usize) {
                slot.count += 1;
            }
        }
    }

    /// Whether one of the words was counted twice.
    pub(crate) fn any_counted_twice(&self, uses: Range<usize>) -> bool {
        self.slots(uses).any(|slot| slot.count > 1)
    }

    /// Every word of this text moves to its place in a table of twice the size.
    #[cold]
    fn grow(&mut self) {
        let mut larger = vec![Slot::default(); 2 * self.slots.len()];
        let mut moved = vec![0; self.slots.len()];
        for (slot, to) in self.slots.iter().zip(&mut moved) {
            let place = find(&larger, slot.stem, self.first);
            if let Some(free) = larger.get_mut(place).filter(|_| slot.last >= self.first) {
                *free = *slot;
                *to = place as u32;
            }
        }
        for place in &mut self.uses {
            *place = moved.get(*place as usize).copied().unwrap_or(0);
        }
        self.slots = larger;
    }
}

/// Where the stem is, or would be: linear probing in a table that is never more than half full.
#[inline]
fn find(slots: &[Slot], stem: u64, first: u32) -> usize {
    let mask = slots.len().wrapping_sub(1);
    let mut place = stem as usize & mask;
    while let Some(slot) = slots.get(place) {
        if slot.last < first || slot.stem == stem {
            break;
        }
        place = (place + 1) & mask;
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_new_once_in_a_text() {
        let mut words = Words::default();
        for _ in 0..3 {
            words.clear();
            for sentence in 0..2 {
                words.next_sentence();
                for stem in 0..1000 {
                    let found = words.add(stem << 8);
                    assert!(found == if sentence == 0 { Use::First } else { Use::Again });
                    assert!(words.add(stem << 8) == Use::Repeated);
                }
                let all = sentence * 1000..words.uses();
                assert!(words.stems(all.clone()).eq((0..1000).map(|stem| stem << 8)));
                assert_eq!(words.are_here(0..words.uses()), words.uses());
                words.count(all.clone());
                assert_eq!(words.any_counted_twice(all), sentence == 1);
            }
        }
    }
}
