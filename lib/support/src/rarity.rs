//! The weights of words. Common words weigh little.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A word of level L in `rarity.txt` weighs L / RARITY_LEVELS; a word that is not in the file weighs 1.
pub const RARITY_LEVELS: u32 = 16;

/// The common words. Each line contains a level, followed by the stems of the words of that level.
const TABLE: &str = include_str!("../../../share/support/rarity.txt");

static LEVELS: LazyLock<HashMap<&'static str, u8>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let mut words = line.split(' ');
            let level = words.next().and_then(|level| level.parse().ok()).unwrap_or(0);
            words.map(move |word| (word, level))
        })
        .collect()
});

/// The weight of a number, whatever its value.
const NUMBER: f32 = 0.7;

/// Returns whether a lower-case word is among the few thousand most common words, in any of its inflections.
pub fn is_common(word: &str) -> bool {
    let mut stem = String::new();
    ken_text::push_stem(word, &mut stem);
    LEVELS.contains_key(stem.as_str())
}

pub(crate) fn rarity(stem: &str) -> f32 {
    if stem.starts_with('#') {
        return NUMBER;
    }
    match LEVELS.get(stem) {
        Some(level) => f32::from(*level) / RARITY_LEVELS as f32,
        None => 1.0,
    }
}
