//! The emotions that ken-esl recognises.

/// The polarity of an emotion, or of a whole text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Valence {
    Positive,
    Negative,
    Neutral,
    Mixed,
}

impl Valence {
    pub fn name(self) -> &'static str {
        match self {
            Valence::Positive => "positive",
            Valence::Negative => "negative",
            Valence::Neutral => "neutral",
            Valence::Mixed => "mixed",
        }
    }
}

/// The coarse classes of Ekman, as GoEmotions groups its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    Joy,
    Anger,
    Sadness,
    Disgust,
    Fear,
    Surprise,
    Neutral,
}

pub const FAMILIES: usize = 7;

/// An emotion. Its number is its index in [`EMOTIONS`].
#[derive(Debug)]
pub struct Emotion {
    pub name: &'static str,
    /// `primary`, `social` or `cognitive`.
    pub dimension: &'static str,
    pub valence: Valence,
    pub family: Family,
    /// The mean polarity of texts with this label, from -4 to 4. In training it is used as the polarity of labelled
    /// comments.
    pub polarity: f32,
}

/// The number of emotions that the model knows: the GoEmotions labels, in their order.
pub const LABELS: usize = 28;

pub const ANGER: usize = number("anger");
pub const EMBARRASSMENT: usize = number("embarrassment");
pub const FEAR: usize = number("fear");
pub const EXCITEMENT: usize = number("excitement");
pub const GRIEF: usize = number("grief");
pub const JOY: usize = number("joy");
pub const NERVOUSNESS: usize = number("nervousness");
pub const PRIDE: usize = number("pride");
pub const RELIEF: usize = number("relief");
pub const SADNESS: usize = number("sadness");
pub const ANNOYANCE: usize = number("annoyance");
pub const CARING: usize = number("caring");
pub const APPROVAL: usize = number("approval");
pub const DISAPPOINTMENT: usize = number("disappointment");
pub const DISAPPROVAL: usize = number("disapproval");
pub const NEUTRAL: usize = number("neutral");

/// Returns the number of the emotion with this name, which must exist.
const fn number(name: &str) -> usize {
    let mut number = 0;
    while !are_equal(EMOTIONS[number].name.as_bytes(), name.as_bytes()) {
        number += 1;
    }
    number
}

const fn are_equal(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([first, a @ ..], [other, b @ ..]) => *first == *other && are_equal(a, b),
        _ => a.is_empty() && b.is_empty(),
    }
}

const fn row(name: &'static str, dimension: &'static str, valence: Valence, family: Family, polarity: f32) -> Emotion {
    Emotion { name, dimension, valence, family, polarity }
}

/// The GoEmotions labels in their order, then the emotions that only the lexicon can recognise.
pub static EMOTIONS: [Emotion; 34] = {
    use Family::*;
    use Valence::{Negative, Positive};
    const AMBIGUOUS: Valence = Valence::Neutral;
    [
        row("admiration", "social", Positive, Joy, 2.4),
        row("amusement", "primary", Positive, Joy, 1.6),
        row("anger", "primary", Negative, Anger, -2.2),
        row("annoyance", "primary", Negative, Anger, -1.4),
        row("approval", "social", Positive, Joy, 1.0),
        row("caring", "social", Positive, Joy, 1.2),
        row("confusion", "cognitive", AMBIGUOUS, Surprise, -0.2),
        row("curiosity", "cognitive", AMBIGUOUS, Surprise, 0.1),
        row("desire", "cognitive", Positive, Joy, 0.8),
        row("disappointment", "primary", Negative, Sadness, -1.6),
        row("disapproval", "social", Negative, Anger, -1.1),
        row("disgust", "primary", Negative, Disgust, -2.1),
        row("embarrassment", "social", Negative, Sadness, -1.3),
        row("excitement", "primary", Positive, Joy, 2.0),
        row("fear", "primary", Negative, Fear, -1.6),
        row("gratitude", "social", Positive, Joy, 2.2),
        row("grief", "primary", Negative, Sadness, -2.2),
        row("joy", "primary", Positive, Joy, 2.4),
        row("love", "primary", Positive, Joy, 2.6),
        row("nervousness", "primary", Negative, Fear, -1.2),
        row("optimism", "cognitive", Positive, Joy, 1.5),
        row("pride", "social", Positive, Joy, 2.2),
        row("realization", "cognitive", AMBIGUOUS, Surprise, 0.0),
        row("relief", "primary", Positive, Joy, 1.5),
        row("remorse", "social", Negative, Sadness, -1.2),
        row("sadness", "primary", Negative, Sadness, -1.9),
        row("surprise", "primary", AMBIGUOUS, Surprise, 0.3),
        row("neutral", "primary", Valence::Neutral, Neutral, 0.0),
        row("empathy", "social", AMBIGUOUS, Joy, 0.0),
        row("guilt", "social", Negative, Sadness, -1.4),
        row("envy", "social", Negative, Anger, -1.0),
        row("hope", "cognitive", Positive, Joy, 1.4),
        row("confidence", "cognitive", Positive, Joy, 1.3),
        row("doubt", "cognitive", Negative, Surprise, -0.5),
    ]
};

/// Returns the emotions that are shades of this one. A person who feels one of them also feels this one.
pub fn shades(emotion: usize) -> &'static [usize] {
    match emotion {
        SADNESS => &[DISAPPOINTMENT, GRIEF],
        ANGER => &[ANNOYANCE],
        FEAR => &[NERVOUSNESS],
        _ => &[],
    }
}

/// Returns the number of the emotion with this name.
pub fn by_name(name: &str) -> Option<usize> {
    EMOTIONS.iter().position(|emotion| emotion.name == name)
}
