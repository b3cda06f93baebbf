//! Words as numbers. The build script numbers the words of `share/laws` with the same functions.

/// FNV-1a (Fowler, Noll, Vo), 64 bits. A word is hashed in lower case.
pub(crate) const fn hash(word: &[u8]) -> u64 {
    let (mut hash, mut index) = (0xcbf2_9ce4_8422_2325, 0);
    while index < word.len() {
        hash = (hash ^ word[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        index += 1;
    }
    hash
}

/// Two hashes as one, where order counts.
pub(crate) const fn join(first: u64, second: u64) -> u64 {
    let mixed = (first.rotate_left(23) ^ second).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}
