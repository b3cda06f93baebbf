//! The words of a text, each once, in all its forms.

use std::ops::Range;

use crate::scatter::Scatter;

/// A table of stems, and which of them each sentence has. What earlier texts left in the table does not count.
#[derive(Default)]
pub(crate) struct Words {
    slots: Vec<Slot>,
    scatter: Scatter,
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

impl Words {
    /// Starts a text.
    pub(crate) fn clear(&mut self) {
        if self.slots.is_empty() || self.now > u32::MAX / 2 {
            self.slots = vec![Slot::default(); LEAST];
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

    /// Takes a word of the sentence, without a branch that depends on it; whether an earlier sentence has it and this one had
    /// it not yet.
    #[inline]
    pub(crate) fn add(&mut self, stem: u64) -> bool {
        if self.taken * SPARE >= self.slots.len() {
            self.grow();
        }
        let (first, now, uses) = (self.first, self.now, self.uses.len());
        let place = find(&self.slots, self.scatter, stem, first);
        let Some(slot) = self.slots.get_mut(place) else {
            return false;
        };
        let (is_new, is_repeated) = (slot.last < first, slot.last == now);
        *slot = Slot {
            stem,
            last: now,
            count: if is_new { 0 } else { slot.count },
        };
        self.taken += usize::from(is_new);
        self.uses.push(place as u32);
        self.uses.truncate(uses + usize::from(!is_repeated));
        !is_new & !is_repeated
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
            let place = find(&larger, self.scatter, slot.stem, self.first);
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

/// The table is so many times as large as what it holds, so that hardly two stems meet, and never smaller than this.
const SPARE: usize = 4;
const LEAST: usize = 256;

/// Where the stem is, or would be: linear probing.
#[inline]
fn find(slots: &[Slot], scatter: Scatter, stem: u64, first: u32) -> usize {
    let mask = slots.len().wrapping_sub(1);
    let mut place = scatter.place(stem, mask);
    while let Some(slot) = slots.get(place) {
        if (slot.last < first) | (slot.stem == stem) {
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
                    assert_eq!(words.add(stem << 8), sentence == 1);
                    assert!(!words.add(stem << 8));
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
