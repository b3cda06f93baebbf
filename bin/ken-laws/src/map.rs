//! Hash maps whose keys are already hashes.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

pub(crate) type Map<T> = HashMap<u64, T, Mixing>;

/// Mixes each key with a random number of the process, so that nobody can write a text whose words all collide. The standard
/// library's SipHash has the same effect, but would account for a third of the time to judge a text.
#[derive(Clone)]
pub(crate) struct Mixing(u64);

impl Default for Mixing {
    fn default() -> Mixing {
        static SECRET: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        Mixing(*SECRET)
    }
}

impl BuildHasher for Mixing {
    type Hasher = Mixing;

    fn build_hasher(&self) -> Mixing {
        self.clone()
    }
}

impl Hasher for Mixing {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        let product = u128::from(self.0 ^ key) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
