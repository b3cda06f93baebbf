//! Scores how likely a message is about harming oneself, with a logistic regression over words, pairs of words and pairs of
//! classes of words. The score stands beside the reading of emotions and never changes it.

use std::cmp::Reverse;

use serde::{Serialize, Serializer};

use crate::math::{mix, sigmoid};
use crate::span::Span;

/// The trained model. The file `share/esl/risk.bin` contains a magic number, then the bias and the unit of the weights
/// as f32, then for each feature its hash as u32 and its weight as i8, sorted by hash. All numbers are little-endian. A
/// word that has a class is an entry as well, with the number of the class in place of the weight.
pub struct Model<'a> {
    bias: f32,
    unit: f32,
    entries: &'a [Entry],
    /// The index of the first entry of each bucket. The bucket of a hash is given by its top bits.
    starts: [u32; BUCKETS + 1],
}

type Entry = [u8; 5];

pub const MAGIC: [u8; 8] = *b"ken-esr2";
const HEAD: usize = MAGIC.len() + 8;
/// The number of buckets. With only a few entries per bucket, a feature is found without searching the whole model.
const BUCKETS: usize = 4096;

static SHIPPED: Model = Model::read(include_bytes!("../../../share/esl/risk.bin"));

/// The minimum scores of the levels, which are chosen by the share of everyday messages that reach them: `low` 5 %,
/// `elevated` 1 %, `high` none of the 460 in `tests/risk`.
const LOW: f32 = 0.365;
pub const ELEVATED: f32 = 0.693;
const HIGH: f32 = 0.78;

/// The amount by which each doubling of the number of windows lowers the score. It is necessary because one of many
/// windows has a high score by chance.
const WINDOWS_PENALTY: f32 = 0.1;

/// The sum of the weights is divided by the square root of the number of features, or of this number if there are fewer,
/// as in a text of less than ten words. In a short text each word has a large influence, and "I couldn't be happier"
/// contains words that are typical of despair.
pub const MIN_FEATURES: usize = 40;

/// The sizes of the windows that are scored, in words. A text of up to [`LARGE_WINDOW`] words is scored as a whole, like the
/// training texts. A longer one is scored in windows of both sizes, so that a single sentence in a long letter is
/// detected.
const LARGE_WINDOW: usize = 40;
const SMALL_WINDOW: usize = 10;

/// The words to show are chosen from this number of features, those with the largest weights.
const MAX_FEATURES: usize = 8;
/// The maximum number of spans that are shown.
const MAX_SPANS: usize = 3;

/// How likely a text is about harming oneself.
#[derive(Debug, Default, Serialize)]
pub struct Risk {
    /// From 0 to 1, with three digits.
    #[serde(rename = "self_harm", serialize_with = "three_digits")]
    pub score: f32,
    pub level: Level,
    /// The words with the largest weights, in the order of the text. Empty if the level is `none`.
    evidence: Vec<Span>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    #[default]
    None,
    Low,
    Elevated,
    High,
}

impl Risk {
    pub fn of(text: &str) -> Risk {
        SHIPPED.assess(text)
    }
}

impl Level {
    fn of(score: f32) -> Level {
        match score {
            HIGH.. => Level::High,
            ELEVATED.. => Level::Elevated,
            LOW.. => Level::Low,
            _ => Level::None,
        }
    }
}

fn three_digits<S: Serializer>(score: &f32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((f64::from(*score) * 1000.0).round() / 1000.0)
}

impl<'a> Model<'a> {
    pub const fn read(file: &'a [u8]) -> Model<'a> {
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

    pub fn features(&self) -> usize {
        self.entries.len()
    }

    /// Returns the score of a text, which is that of its worst window.
    pub fn assess(&self, text: &str) -> Risk {
        let mut large = Windows::new(LARGE_WINDOW);
        let mut small: Option<Windows> = None;
        each_feature(
            text,
            |word| self.weight(word),
            |hash, word, span| {
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
            },
        );
        large.judge(self);
        let mut worst = large.worst;
        if let Some(mut small) = small {
            small.judge(self);
            worst = worst.or(small.worst);
        }
        if worst.features.is_empty() {
            return Risk::default(); // nothing is known, so the bias alone would decide
        }
        let score = sigmoid(worst.score - WINDOWS_PENALTY * worst.windows.ilog2() as f32);
        // The level is that of the score which is shown.
        let score = (score * 1000.0).round() / 1000.0;
        let level = Level::of(score);
        Risk { score, level, evidence: if level == Level::None { Vec::new() } else { strongest(worst.features) } }
    }

    fn score(&self, features: &[Feature]) -> f32 {
        let sum: i32 = features.iter().map(|feature| i32::from(feature.weight)).sum();
        self.bias + sum as f32 * self.unit / (features.len().max(MIN_FEATURES) as f32).sqrt()
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
    /// The entry of a word that has a class.
    Classified,
    Class,
    ClassPair,
}

/// Stands for the edge of a text, as the neighbour of its first and last word.
const EDGE: u64 = 0xED6E;

/// The maximum length of a word, in bytes.
const MAX_WORD_BYTES: usize = 64;
/// Words with a larger distance than this, in bytes, do not count as neighbours.
const MAX_GAP: usize = 32;
/// Two classes are a pair if there are fewer words than this between them.
const CLASS_REACH: usize = 5;

/// Calls `feature` for every feature of a text, with its hash, the index of its word, and its span. Features are the
/// words, the pairs of neighbours, the classes of words, and the pairs of classes at a short distance. `class` returns
/// the class of a word, given the hash of its entry.
pub fn each_feature(text: &str, class: impl Fn(u32) -> Option<i8>, mut feature: impl FnMut(u32, usize, Span)) {
    let mut before: Option<(u64, Span)> = None;
    let mut classes = [None; CLASS_REACH];
    let mut number = 0;
    each_word(text, |word, span| {
        let key = key(word);
        let before_it = before.filter(|(_, place)| span.start <= place.end + MAX_GAP);
        feature(hashed(Kind::Word, key), number, span);
        let (left, start) = before_it.map_or((EDGE, span.start), |(key, span)| (key, span.start));
        let end = span.end;
        feature(hashed(Kind::Pair, mix(left, key)), number, Span { start, end });
        let own = class(hashed(Kind::Classified, key)).map(|class| (class as u64, span.start));
        if let Some((class, _)) = own {
            feature(hashed(Kind::Class, class), number, span);
            for (other, start) in classes.iter().flatten() {
                feature(hashed(Kind::ClassPair, mix(*other, class)), number, Span { start: *start, end });
            }
        }
        classes.rotate_left(1);
        classes[CLASS_REACH - 1] = own;
        before = Some((key, span));
        number += 1;
    });
    if let Some((key, span)) = before {
        feature(hashed(Kind::Pair, mix(key, EDGE)), number - 1, span);
    }
}

/// Returns the hash of the entry of a word that has a class.
pub fn classified(word: &str) -> u32 {
    hashed(Kind::Classified, key(word))
}

fn hashed(kind: Kind, key: u64) -> u32 {
    (mix(key, kind as u64) >> 32) as u32
}

fn key(word: &str) -> u64 {
    word.bytes().fold(0, |key, byte| mix(key, u64::from(byte)))
}

/// Calls `put` for every word in lower case, with its span. Contractions are expanded: "don't" becomes "do not", "cant"
/// becomes "can not".
fn each_word(text: &str, mut put: impl FnMut(&str, Span)) {
    let (mut lower, mut bare) = (String::new(), String::new());
    let mut at = 0;
    while let Some(span) = next_word(text, at) {
        at = span.end;
        if span.end - span.start > MAX_WORD_BYTES {
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
