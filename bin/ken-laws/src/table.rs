//! A map from hashes to small values that is emptied in no time.

use crate::scatter::Scatter;

/// Open addressing, linear probing, grown at half full. A slot counts only in its generation, so emptying is one addition.
#[derive(Default)]
pub(crate) struct Table<V> {
    slots: Vec<Slot<V>>,
    scatter: Scatter,
    generation: u32,
    count: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot<V> {
    key: u64,
    generation: u32,
    value: V,
}

impl<V: Copy + Default> Table<V> {
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 || self.slots.is_empty() {
            self.generation = 1;
            self.slots.clear();
            self.slots.resize(64, Slot::default());
        }
    }

    pub(crate) fn get(&self, key: u64) -> Option<V> {
        let slot = self.slots.get(self.find(key))?;
        (slot.generation == self.generation).then_some(slot.value)
    }

    /// The value of the key; a new one starts with the default.
    #[inline]
    pub(crate) fn entry(&mut self, key: u64) -> Option<&mut V> {
        if self.count * 2 >= self.slots.len() {
            self.grow();
        }
        let index = self.find(key);
        let slot = self.slots.get_mut(index)?;
        if slot.generation != self.generation {
            *slot = Slot {
                key,
                generation: self.generation,
                value: V::default(),
            };
            self.count += 1;
        }
        Some(&mut slot.value)
    }

    /// Where the key is, or would be.
    #[inline]
    fn find(&self, key: u64) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        let mut index = self.scatter.place(key, mask);
        while let Some(slot) = self.slots.get(index) {
            if slot.generation != self.generation || slot.key == key {
                break;
            }
            index = (index + 1) & mask;
        }
        index
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size]);
        let generation = std::mem::replace(&mut self.generation, 1);
        for slot in old.into_iter().filter(|slot| slot.generation == generation) {
            let index = self.find(slot.key);
            if let Some(free) = self.slots.get_mut(index) {
                *free = Slot {
                    generation: 1,
                    ..slot
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in_until_it_is_cleared() {
        let mut table = Table::default();
        for round in 0..3u64 {
            table.clear();
            for key in 0..1000u64 {
                *table.entry(key << 8).unwrap() = key + round;
            }
            assert!((0..1000).all(|key| table.get(key << 8) == Some(key + round)));
            assert_eq!(table.get(7), None);
        }
    }
}
