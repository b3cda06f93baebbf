use std::ops::Range;

/// Lists of items, one for each key. All lists are in one array, so that they take little memory.
pub struct Grouped<T> {
    items: Vec<T>,
    /// The index in `items` at which the list of each key begins.
    starts: Vec<u32>,
}

impl<T: Copy + Default> Grouped<T> {
    /// Groups items by their key, which is less than `keys`. The items of a key keep their order.
    pub fn of(keys: usize, items: impl Iterator<Item = (usize, T)> + Clone) -> Grouped<T> {
        // This is a counting sort. While counting, `starts` is shifted by one.
        let mut starts = vec![0u32; keys + 2];
        for (key, _) in items.clone() {
            if let Some(count) = starts.get_mut(key + 2) {
                *count += 1;
            }
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut sorted = vec![T::default(); sum as usize];
        for (key, item) in items {
            let Some(next) = starts.get_mut(key + 1) else { continue };
            if let Some(place) = sorted.get_mut(*next as usize) {
                *place = item;
            }
            *next += 1;
        }
        Grouped { items: sorted, starts }
    }

    /// Returns the places of the items of a key, for [`Grouped::at`].
    pub fn places(&self, key: usize) -> Range<usize> {
        match self.starts.get(key..key + 2) {
            Some(&[start, end]) => start as usize..end as usize,
            _ => 0..0,
        }
    }

    pub fn at(&self, place: usize) -> Option<T> {
        self.items.get(place).copied()
    }

    pub fn of_key(&self, key: usize) -> &[T] {
        self.items.get(self.places(key)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_listed_by_key_in_their_order() {
        let grouped = Grouped::of(4, [(2, 'a'), (0, 'b'), (2, 'c')].into_iter());
        assert_eq!([0, 1, 2, 3, 9].map(|key| grouped.of_key(key)), [&['b'][..], &[], &['a', 'c'], &[], &[]]);
        assert_eq!((grouped.places(2), grouped.at(2)), (1..3, Some('c')));
    }
}
