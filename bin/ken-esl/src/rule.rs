//! The names of the rules that correct the model. Each rule can be switched off to measure its
//! effect.

/// A rule of [`crate::idiom`], [`crate::rules`] or [`crate::window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Rule {
    /// In "couldn't be happier" or "never been so happy", the negation does not reverse the meaning.
    NegatedPraise,
    /// A family of emotions whose words are all negated is not felt.
    NegatedFamilies,
    /// If all feelings that the text names are negated, none is felt.
    AllNegated,
    /// Emoji and emoticons are read with their own meaning.
    Emoji,
    /// Words for emotions that are rare in the training texts are read with their own meaning.
    RareWords,
    /// Irony makes praise negative.
    Irony,
    /// If all words of feeling have the same sign, feelings of the other sign are not felt.
    OppositeFeelings,
    /// If writers name a shade of sadness, anger or fear as their own feeling, they feel the emotion
    /// itself, too.
    Shades,
    /// The part after a contrast, such as "but", has more weight than the part before it.
    Contrast,
    /// "…, but it didn't" takes back the feelings before it.
    TakenBack,
    /// Caring needs somebody who is cared for.
    Caring,
    /// A strong word is evidence only for its own family of emotions.
    StrongWords,
}

/// A set of rules, one bit each.
#[derive(Debug, Clone, Copy)]
pub struct Rules(u16);

impl Rules {
    pub const NONE: Rules = Rules(0);
    pub const ALL: Rules = Rules(u16::MAX);

    pub fn has(self, rule: Rule) -> bool {
        self.0 & 1 << rule as u16 != 0
    }

    pub fn without(self, rule: Rule) -> Rules {
        Rules(self.0 & !(1 << rule as u16))
    }
}
