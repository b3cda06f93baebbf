//! Pairs of words with opposite meanings.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Three kinds of pairs under a heading each, one pair per line.
const LIST: &str = include_str!("../../../share/laws/opposites.txt");

/// How two opposites exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opposition {
    /// Exactly one of the two holds: open and closed.
    Complementary,
    /// Both can be wrong, but they cannot both hold: fast and slow, accepted and rejected.
    Contrary,
    /// Two accounts of one thing contradict each other if the one says this and the other that: buyer and seller.
    Loose,
}

/// A word with the opposite meaning of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opposite {
    pub word: &'static str,
    pub opposition: Opposition,
    /// Whether `word` is the first of the pair, the one that the other negates: "open" for "closed".
    pub is_first: bool,
}

static OPPOSITES: LazyLock<HashMap<&'static str, Vec<Opposite>>> = LazyLock::new(|| {
    let mut opposites: HashMap<&str, Vec<Opposite>> = HashMap::new();
    let mut opposition = Opposition::Complementary;
    for line in LIST.lines() {
        if line.starts_with("# Contrary") || line.starts_with("# Outcomes") {
            opposition = Opposition::Contrary;
        } else if line.starts_with("# Beside") {
            opposition = Opposition::Loose;
        } else if let Some((first, second)) = line.split_once(' ').filter(|_| !line.starts_with('#')) {
            opposites.entry(first).or_default().push(Opposite { word: second, opposition, is_first: false });
            opposites.entry(second).or_default().push(Opposite { word: first, opposition, is_first: true });
        }
    }
    opposites
});

/// Returns the opposites of a lower-case word.
pub fn opposites(word: &str) -> &'static [Opposite] {
    OPPOSITES.get(word).map(Vec::as_slice).unwrap_or_default()
}

/// Returns all words that have an opposite, each with its opposites.
pub fn all_opposites() -> impl Iterator<Item = (&'static str, &'static [Opposite])> {
    OPPOSITES.iter().map(|(word, opposites)| (*word, opposites.as_slice()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_pair_of_two_words() {
        let pairs = LIST.lines().filter(|line| !line.starts_with('#'));
        for line in pairs {
            let words: Vec<&str> = line.split(' ').collect();
            assert!(words.len() == 2 && words[0] != words[1], "{line}");
        }
        let kind = |a: &str, b| opposites(a).iter().find(|other| other.word == b).map(|other| other.opposition);
        assert_eq!(kind("closed", "open"), Some(Opposition::Complementary));
        assert_eq!(kind("accepted", "rejected"), Some(Opposition::Contrary));
        assert_eq!(kind("buyer", "seller"), Some(Opposition::Loose));
        assert_eq!(kind("buyer", "open"), None);
    }
}
