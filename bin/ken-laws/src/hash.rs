//! Hashes of words. The build script hashes the words of `share/laws` with the same functions.

/// FNV-1a (Fowler, Noll, Vo), 64 bits. A word is hashed in lower case.
pub(crate) const fn hash(word: &[u8]) -> u64 {
    let (mut hash, mut index) = (NO_LETTERS, 0);
    while index < word.len() {
        hash = extend(hash, word[index]);
        index += 1;
    }
    hash
}

/// The hash of an empty word.
pub(crate) const NO_LETTERS: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of a word with one more byte, from the hash of the word.
pub(crate) const fn extend(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// The tag of a hash: its highest byte, with the lowest bit set, because the tag 0 marks an empty place.
pub(crate) const fn tag_of(hash: u64) -> u8 {
    (hash >> 56) as u8 | 1
}

/// The bit of a hash in a set of words. Words can share a bit, so the set only says which words are not in it.
pub(crate) const fn bit_of(hash: u64) -> u64 {
    1 << (hash >> 58)
}

/// Combines two hashes; the order matters.
pub(crate) const fn join(first: u64, second: u64) -> u64 {
    let mixed = (first.rotate_left(23) ^ second).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

/// A shorter key for a hash, whose first bits are spread evenly.
pub(crate) const fn key_of(hash: u64) -> u32 {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
}
