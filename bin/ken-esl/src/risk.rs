//! Detects messages whose writer may be in danger, with a logistic regression over words, pairs of words and runs of letters.
//! Missing a person in danger is worse than misjudging a joke, so the threshold is low.

use std::cmp::Reverse;

use crate::math::mix;
use crate::span::Span;

/// The trained model. The file `share/esl/risk.bin` contains a magic number, then the bias and the unit of the weights
/// as f32, then for each feature its hash as u32 and its weight as i8, sorted by hash. All numbers are little-endian.
pub(crate) struct Model<'a> {
    bias: f32,
    unit: f32,
    entries: &'a [Entry],
    /// The index of the first entry of each bucket. The bucket of a hash is given by its top bits.
    starts: [u32; BUCKETS + 1],
}

type Entry = [u8; 5];

pub(crate) const MAGIC: [u8; 8] = *b"ken-esr1";
const HEAD: usize = MAGIC.len() + 8;
/// The number of buckets. With only a few entries per bucket, a feature is found without searching the whole model.
const BUCKETS: usize = 4096;

static SHIPPED: Model = Model::read(include_bytes!("../../../share/esl/risk.bin"));

/// The minimum score of a text whose writer may be in danger. At 0, both classes are equally likely. The value is lower
/// because recall matters more than precision.
const THRESHOLD: f32 = -0.5;

/// The amount that each doubling of the number of windows adds to the threshold. It is necessary because one of many
/// windows exceeds a fixed threshold by chance.
const THRESHOLD_RAISE: f32 = 0.25;

/// The number of features below which the score is lowered; a text with as many has about ten words. Each halving of
/// the number lowers the score by [`SHORT_TEXT_PENALTY`]. In a short text each word has a large influence, and "I couldn't be
/// happier" contains words that are typical of despair.
const MIN_FEATURES: usize = 48;
const SHORT_TEXT_PENALTY: f32 = 0.6;

/// The sizes of the windows that are scored, in words. A text of up to [`LARGE_WINDOW`] words is scored as a whole, like the
/// training texts. A longer one is scored in windows of both sizes, so that a single sentence in a long letter is
/// detected.
const LARGE_WINDOW: usize = 40;
const SMALL_WINDOW: usize = 10;

/// The words to show are chosen from this number of features, those with the largest weights.
const MAX_FEATURES: usize = 8;
/// The maximum number of spans that are shown.
const MAX_SPANS: usize = 3;

/// Returns the spans of the words with the largest weights, in the order of the text. Empty if nothing suggests danger.
pub(crate) fn find(text: &str) -> Vec<Span> {
    SHIPPED.find(text)
}

impl<'a> Model<'a> {
    pub(crate) const fn read(file: &'a [u8]) -> Model<'a> {
        let (head, entries) = file.split_at(HEAD);
        let (entries, _) = entries.as_chunks();
        let mut starts = [entries.len() as u32; BUCKETS + 1];
        let mut at = entries.len();
        while at > 0 {
            at -= 1;
            starts[bucket(hash_of(&entries[at]))] = at as u32;
        }
        // An empty bucket starts where the next bucket starts.
        let mut bucket = BUCKETS;
        while bucket > 0 {
            bucket -= 1;
            if starts[bucket] > starts[bucket + 1] {
                starts[bucket] = starts[bucket + 1];
            }
        }
        Model { bias: float(head, MAGIC.len()), unit: float(head, MAGIC.len() + 4), entries, starts }
    }

    pub(crate) fn features(&self) -> usize {
        self.entries.len()
    }

    /// Returns the spans of the words with the largest weights in the window with the highest score. Empty if no window
    /// reaches the threshold.
    pub(crate) fn find(&self, text: &str) -> Vec<Span> {
        let mut large = Windows::new(LARGE_WINDOW);
        let mut small: Option<Windows> = None;
        each_feature(text, |hash, word, span| {
            if word == LARGE_WINDOW && small.is_none() {
                // The text is longer than one large window. At this point, that window still contains all features so
                // far.
                let mut windows = Windows::new(SMALL_WINDOW);
                let earlier = large.features.iter();
                earlier.for_each(|feature| windows.take(self, feature.word, Some(*feature)));
                small = Some(windows);
            }
            let feature = self.weight(hash).map(|weight| Feature { hash, weight, word, span });
            large.take(self, word, feature);
            if let Some(small) = &mut small {
                small.take(self, word, feature);
            }
        });
        large.judge(self);
        let mut worst = large.worst;
        if let Some(mut small) = small {
            small.judge(self);
            worst = worst.or(small.worst);
        }
        if worst.score >= THRESHOLD + THRESHOLD_RAISE * worst.windows.ilog2() as f32 {
            strongest(worst.features)
        } else {
            Vec::new()
        }
    }

    /// Returns the score of a set of features.
    fn score(&self, features: &[Feature]) -> f32 {
        let sum: i32 = features.iter().map(|feature| i32::from(feature.weight)).sum();
        let count = features.len().max(1);
        let halvings = (MIN_FEATURES / count).max(1).ilog2();
        self.bias + sum as f32 * self.unit / (count as f32).sqrt() - SHORT_TEXT_PENALTY * halvings as f32
    }

    /// Returns the weight of a feature, in the model's unit.
    fn weight(&self, hash: u32) -> Option<i8> {
        let bucket = bucket(hash);
        let entries = self.entries.get(self.starts[bucket] as usize..self.starts[bucket + 1] as usize);
        let entry = entries?.iter().find(|entry| hash_of(entry) == hash)?;
        Some(entry[4] as i8)
    }
}

const fn bucket(hash: u32) -> usize {
    (hash >> 20) as usize
}

const fn hash_of(entry: &Entry) -> u32 {
    u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]])
}

const fn float(bytes: &[u8], at: usize) -> f32 {
    match bytes.split_at(at).1.first_chunk() {
        Some(bytes) => f32::from_le_bytes(*bytes),
        None => 0.0,
    }
}

/// Scores the windows of one size, one after the other. Each starts half a window after the previous one.
struct Windows {
    /// The size of a window in words.
    size: usize,
    /// The first word after the current window.
    end: usize,
    /// The features of the current window.
    features: Vec<Feature>,
    worst: Worst,
}

impl Windows {
    fn new(size: usize) -> Windows {
        Windows {
            size,
            end: size,
            features: Vec::new(),
            worst: Worst { score: f32::MIN, features: Vec::new(), windows: 0 },
        }
    }

    /// Moves to the window that contains `word`, which is the word of the text's next feature, and adds the feature.
    /// `None` is a feature that the model does not know.
    fn take(&mut self, model: &Model<'_>, word: usize, feature: Option<Feature>) {
        while word >= self.end {
            self.judge(model);
            self.end += self.size / 2;
            self.features.retain(|feature| feature.word + self.size >= self.end);
        }
        self.features.extend(feature);
    }

    /// Scores the current window, in which each feature counts once.
    fn judge(&mut self, model: &Model<'_>) {
        let mut features = self.features.clone();
        features.sort_unstable_by_key(|feature| (feature.hash, feature.word));
        features.dedup_by_key(|feature| feature.hash);
        let score = model.score(&features);
        self.worst.windows += 1;
        if score > self.worst.score {
            (self.worst.score, self.worst.features) = (score, features);
        }
    }
}

/// The window with the highest score so far, and the number of windows.
struct Worst {
    score: f32,
    features: Vec<Feature>,
    windows: u32,
}

impl Worst {
    /// Combines the results of two sizes: the window with the higher score, and the number of windows of both.
    fn or(self, other: Worst) -> Worst {
        let windows = self.windows + other.windows;
        let worst = if other.score > self.score { other } else { self };
        Worst { windows, ..worst }
    }
}

/// A feature of a text that the model knows.
#[derive(Clone, Copy)]
struct Feature {
    hash: u32,
    weight: i8,
    /// The number of its word in the text.
    word: usize,
    span: Span,
}

/// Returns the spans of the features with the largest weights, in the order of the text. Features that overlap form one
/// span. Features are taken until there are [`MAX_SPANS`] spans.
fn strongest(mut features: Vec<Feature>) -> Vec<Span> {
    features.retain(|feature| feature.weight > 0);
    features.sort_by_key(|feature| (Reverse(feature.weight), feature.word));
    let merged = |count: usize| {
        let mut spans: Vec<Span> = features.iter().take(count).map(|feature| feature.span).collect();
        spans.sort_by_key(|span| span.start);
        spans.dedup_by(|later, before| {
            let overlaps = later.start < before.end;
            if overlaps {
                before.end = before.end.max(later.end);
            }
            overlaps
        });
        spans
    };
    let mut places = (0..=MAX_FEATURES).rev().map(merged);
    places.find(|places| places.len() <= MAX_SPANS).unwrap_or_default()
}

/// Kinds of features. The keys of different kinds are never equal except by a hash collision.
#[derive(Clone, Copy)]
enum Kind {
    Word = 1,
    Pair,
    Letters,
}

/// Stands for the edge of a text, as the neighbour of its first and last word, and for the edge of a word.
const EDGE: u64 = 0xED6E;

/// The length of a run of letters.
const LETTERS: usize = 4;
/// The maximum length of a word, in bytes.
const MAX_WORD: usize = 64;
/// Words with a larger distance than this, in bytes, do not count as neighbours.
const MAX_GAP: usize = 32;

/// Calls `feature` for every feature of a text, with its hash, the index of its word, and its span. Features are the
/// words, the pairs of neighbours, and the runs of four letters in words, including the edges of the words.
pub(crate) fn each_feature(text: &str, mut feature: impl FnMut(u32, usize, Span)) {
    let mut before: Option<(u64, Span)> = None;
    let mut number = 0;
    each_word(text, |word, span| {
        let key = key(word);
        let before_it = before.filter(|(_, place)| span.start <= place.end + MAX_GAP);
        feature(hashed(Kind::Word, key), number, span);
        let (left, start) = before_it.map_or((EDGE, span.start), |(key, span)| (key, span.start));
        let end = span.end;
        feature(hashed(Kind::Pair, mix(left, key)), number, Span { start, end });
        each_run(word, |run| feature(hashed(Kind::Letters, run), number, span));
        before = Some((key, span));
        number += 1;
    });
    if let Some((key, span)) = before {
        feature(hashed(Kind::Pair, mix(key, EDGE)), number - 1, span);
    }
}

fn hashed(kind: Kind, key: u64) -> u32 {
    (mix(key, kind as u64) >> 32) as u32
}

fn key(word: &str) -> u64 {
    word.bytes().fold(0, |key, byte| mix(key, u64::from(byte)))
}

/// Calls `run` for every run of letters of a word, including its edges.
fn each_run(word: &str, mut run: impl FnMut(u64)) {
    let letters = word.chars().map(u64::from);
    let mut last = [0; LETTERS];
    for (at, letter) in [EDGE].into_iter().chain(letters).chain([EDGE]).enumerate() {
        last.rotate_left(1);
        last[LETTERS - 1] = letter;
        if at + 1 >= LETTERS {
            run(last.into_iter().fold(0, mix));
        }
    }
}

/// Calls `put` for every word in lower case, with its span. Contractions are expanded: "don't" becomes "do not", "cant"
/// becomes "can not".
fn each_word(text: &str, mut put: impl FnMut(&str, Span)) {
    let (mut lower, mut bare) = (String::new(), String::new());
    let mut at = 0;
    while let Some(span) = next_word(text, at) {
        at = span.end;
        if span.end - span.start > MAX_WORD {
            continue;
        }
        let chars = text.get(span.start..span.end).unwrap_or_default().chars();
        let plain = chars.map(|char| if char == '’' { '\'' } else { char });
        lower.clear();
        lower.extend(plain.flat_map(char::to_lowercase));
        bare.clear();
        bare.extend(lower.chars().filter(|char| *char != '\''));
        let parts = written_out(&lower, &bare);
        parts.into_iter().filter(|part| !part.is_empty()).for_each(|part| put(part, span));
    }
}

fn next_word(text: &str, from: usize) -> Option<Span> {
    let is_inside = |char: char| char.is_alphanumeric() || matches!(char, '\'' | '’');
    let start = from + text.get(from..)?.find(is_inside)?;
    let length = text.get(start..)?.find(|char| !is_inside(char));
    let end = length.map_or(text.len(), |length| start + length);
    Some(Span { start, end })
}

/// Expands a word to one or two words; the second one is empty if there is none. `lower` is the word in lower case,
/// `bare` the same without apostrophes.
fn written_out<'a>(lower: &str, bare: &'a str) -> [&'a str; 2] {
    match bare {
        "cant" | "cannot" => ["can", "not"],
        "wont" => ["will", "not"],
        "im" => ["i", "am"],
        "id" => ["i", "would"],
        "ill" if lower.contains('\'') => ["i", "will"],
        "ive" => ["i", "have"],
        "theyd" => ["they", "would"],
        "itd" => ["it", "would"],
        "shouldve" => ["should", "have"],
        _ if bare.bytes().all(|byte| byte.is_ascii_digit()) => [if bare.is_empty() { "" } else { "0" }, ""],
        _ => match bare.strip_suffix("nt") {
            Some(
                verb @ ("do" | "does" | "did" | "is" | "was" | "were" | "would" | "could" | "should" | "have" | "has"
                | "had"),
            ) => [verb, "not"],
            _ if lower.ends_with("'s") => [bare.strip_suffix('s').unwrap_or(bare), ""],
            _ => [bare, ""],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_of_the_shipped_file_is_found() {
        let file = include_bytes!("../../../share/esl/risk.bin");
        assert!(file.starts_with(&MAGIC) && file.len() < 200_000);
        assert!(SHIPPED.entries.is_sorted_by_key(hash_of) && SHIPPED.features() > 10_000);
        for entry in SHIPPED.entries {
            assert_eq!(SHIPPED.weight(hash_of(entry)), Some(entry[4] as i8));
        }
        let unknown = (0..1000).filter(|hash| SHIPPED.weight(*hash).is_some());
        assert_eq!(unknown.count(), 0);
    }
}
