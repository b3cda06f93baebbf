//! How closely sentences belong to one subject, by the vectors of their words. `share/laws/README.md` says where the vectors
//! come from.

use crate::hash::key_of;
use crate::token::Token;

include!(concat!(env!("OUT_DIR"), "/topics.rs"));

/// The vector of a sentence, of length 1.
type Vector = [f32; SIZE];

/// How many sentences before a sentence, and how many after it, are compared with it. Subjects change in a long text.
const REACH: usize = 8;

/// The fewest sentences that are compared. Fewer say little about a subject.
const FEWEST: usize = 3;

/// If the similarity of a sentence to the others (-1 to 1) is below this, it does not take up their subject.
const APART: f32 = 0.05;
/// If it is at least this, the sentence takes up their subject, even if it repeats none of their words.
const ALIKE: f32 = 0.10;
/// If it is at least this, the sentence is not off topic.
const CLOSE: f32 = -0.05;
/// The likeness of the sentences of a text below which it mixes subjects, and the fewest sentences for which this is said. In fewer
/// ones, chance has a greater part.
const MIXED: f32 = 0.02;
const FEWEST_MIXED: usize = 6;

/// What two sentences lose of their likeness if one tells the past and the other the present. A text of one subject keeps to one
/// of them more often than one of several subjects.
const OTHER_TENSE: f32 = 0.15;

/// A sentence as it is compared: its words, and whether it tells the past; nothing if that is not clear.
pub(crate) struct Part<'a> {
    pub(crate) tokens: &'a [Token],
    pub(crate) is_past: Option<bool>,
}

/// How much each sentence of a text is like the sentences around it: the mean cosine, or nothing if it has no known word.
#[derive(Default)]
pub(crate) struct Topics {
    likeness: Vec<Option<f32>>,
    /// The mean likeness, if enough sentences can be compared.
    pub(crate) mean: Option<f32>,
    /// Whether the text has several subjects.
    is_mixed: bool,
}

impl Topics {
    /// Compares sentences. Those without tokens are left out.
    pub(crate) fn new<'a>(sentences: impl Iterator<Item = Part<'a>>) -> Topics {
        let known: Vec<Option<Known>> =
            sentences.map(|part| Some(Known { vector: vector(part.tokens)?, is_past: part.is_past })).collect();
        let compared: Vec<&Known> = known.iter().flatten().collect();
        if compared.len() < FEWEST {
            return Topics::default();
        }
        let mut likenesses = (0..compared.len()).map(|at| likeness(&compared, at));
        let likeness: Vec<Option<f32>> =
            known.iter().map(|known| known.as_ref().and_then(|_| likenesses.next())).collect();
        let mean = likeness.iter().flatten().sum::<f32>() / compared.len() as f32;
        let is_mixed = compared.len() >= FEWEST_MIXED && mean < MIXED;
        Topics { likeness, mean: Some(mean), is_mixed }
    }

    fn of(&self, sentence: usize) -> Option<f32> {
        self.likeness.get(sentence).copied().flatten()
    }

    /// Whether a sentence has the subject of the others. Nothing if that is not known.
    pub(crate) fn is_alike(&self, sentence: usize) -> Option<bool> {
        match self.of(sentence)? {
            likeness if likeness >= ALIKE => Some(true),
            likeness if likeness < APART => Some(false),
            _ => None,
        }
    }

    /// Whether a sentence is too much like the others to be off topic.
    pub(crate) fn is_close(&self, sentence: usize) -> bool {
        self.of(sentence).is_some_and(|likeness| likeness >= CLOSE)
    }

    /// Whether the text mixes subjects, and the sentence has another one than most others.
    pub(crate) fn is_mixed(&self, sentence: usize) -> bool {
        self.is_mixed && self.of(sentence).is_some_and(|likeness| likeness < MIXED)
    }
}

struct Known {
    vector: Vector,
    is_past: Option<bool>,
}

impl Known {
    fn likeness(&self, other: &Known) -> f32 {
        let cosine: f32 = self.vector.iter().zip(&other.vector).map(|(a, b)| a * b).sum();
        let changes = self.is_past.zip(other.is_past).is_some_and(|(a, b)| a != b);
        if changes { cosine - OTHER_TENSE } else { cosine }
    }
}

fn likeness(known: &[&Known], at: usize) -> f32 {
    let first = at.saturating_sub(REACH);
    let near = known.get(first..(at + REACH + 1).min(known.len())).unwrap_or_default();
    let Some(own) = known.get(at) else { return 0.0 };
    let all: f32 = near.iter().map(|other| own.likeness(other)).sum();
    (all - own.likeness(own)) / (near.len() - 1).max(1) as f32
}

/// The sum of the vectors of the words, each word once.
fn vector(tokens: &[Token]) -> Option<Vector> {
    let mut sum = [0i32; SIZE];
    for (at, token) in tokens.iter().enumerate().take(MAX_WORDS) {
        let is_new = !tokens.iter().take(at).any(|before| before.hash == token.hash);
        if let Some(word) = look_up(token.hash).filter(|_| is_new) {
            word.add_to(&mut sum);
        }
    }
    let sum = sum.map(|number| number as f32);
    let length = sum.iter().map(|number| number * number).sum::<f32>().sqrt();
    (length > 0.0).then(|| sum.map(|number| number / length))
}

/// How many tokens of a sentence are read at most. The limit keeps the search for repeated words linear.
const MAX_WORDS: usize = 60;

/// The vector of a word: its length, and its numbers in four bits each.
#[derive(Clone, Copy)]
struct Word {
    length: u8,
    numbers: [u8; SIZE / 2],
}

impl Word {
    fn add_to(&self, sum: &mut [i32; SIZE]) {
        let (pairs, length) = (self.numbers.iter(), i32::from(self.length));
        for (both, byte) in sum.chunks_exact_mut(2).zip(pairs) {
            if let [low, high] = both {
                *low += length * (i32::from(byte << 4) << 24 >> 28);
                *high += length * (i32::from(byte & 0xf0) << 24 >> 28);
            }
        }
    }
}

/// Whether the word with this hash has a vector.
pub(crate) fn knows(hash: u64) -> bool {
    look_up(hash).is_some()
}

fn look_up(hash: u64) -> Option<&'static Word> {
    let key = key_of(hash);
    let group = (key >> (32 - GROUP_BITS)) as usize;
    let range = usize::from(*GROUPS.get(group)?)..usize::from(*GROUPS.get(group + 1)?);
    let place = KEYS.get(range.clone())?.iter().position(|other| *other == key)?;
    WORDS.get(range.start + place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;

    fn topics(text: &str) -> Topics {
        let scan = Scan::new(text);
        Topics::new(scan.sentences.iter().map(|sentence| Part { tokens: scan.tokens_of(sentence), is_past: None }))
    }

    #[test]
    fn the_page_has_the_limits() {
        let page = include_str!("../../../man/man7/ken-laws.7");
        for limits in [
            format!(
                "A sentence with a likeness of {ALIKE:.2} or more is about the subject, and one below {APART:.2} is not"
            ),
            format!("a likeness of {CLOSE:.2} or more is not off topic"),
            format!("the mean likeness of its sentences is below {MIXED:.2} and six or more can be compared"),
        ] {
            assert!(page.contains(&limits.replace("0.", ".").replace("-", "\\-")), "ken-laws(7) lacks {limits}");
        }
        assert_eq!((FEWEST, FEWEST_MIXED), (3, 6), "ken-laws(7) says three and six");
    }

    #[test]
    fn nothing_is_known_of_few_sentences_or_of_unknown_words() {
        assert_eq!(topics("Yeast makes the dough rise. The goalkeeper saved two penalties.").is_alike(0), None);
        assert_eq!(topics("Qx zz. Qx zz. Qx zz. Qx zz. Qx zz.").is_alike(0), None);
        assert!(look_up(crate::lexicon::hash(b"bread")).is_some());
    }
}
