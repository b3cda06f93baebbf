//! Where a table puts what it holds.

use std::hash::{BuildHasher, RandomState};

/// Spreads hashes by a secret of the process, so that no text can be written whose words all meet in one place: it would be
/// read in quadratic time. (Dietzfelbinger and others, "A reliable randomized algorithm for the closest-pair problem", 1997:
/// two hashes meet in the high bits of their products no oftener than twice what chance allows.)
#[derive(Clone, Copy)]
pub(crate) struct Scatter(u64);

impl Default for Scatter {
    fn default() -> Scatter {
        Scatter(RandomState::new().hash_one(0) | 1)
    }
}

impl Scatter {
    /// The hash's place in a table of `mask` + 1 places, a power of two above 1.
    #[inline]
    pub(crate) fn place(self, hash: u64, mask: usize) -> usize {
        (hash.wrapping_mul(self.0) >> mask.leading_zeros()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_with_the_same_low_bits_are_spread() {
        let (scatter, mask) = (Scatter::default(), 0xfff);
        let mut places: Vec<usize> = (0..4096u64)
            .map(|hash| scatter.place(hash << 40 | 7, mask))
            .collect();
        assert!(places.iter().all(|place| *place <= mask));
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 1000, "{}", places.len());
    }
}
