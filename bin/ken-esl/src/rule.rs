//! The rules that correct the model, by name, so that each can be left out to measure what it is worth.

/// A rule of [`crate::idiom`], [`crate::rules`] or [`crate::window`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// "couldn't be happier", "joyless"
    Idioms,
    /// A family of emotions of which every word is negated is not felt.
    Muting,
    /// Nothing is said outright but what is denied.
    Denial,
    /// Emoji, phrases and rare words are taken at their word.
    AtWord,
    /// Irony turns praise.
    Irony,
    /// Where all that is said outright has one sign, the other sign is not felt.
    OneMind,
    /// Who names a shade of sadness, anger or fear as their own feels the whole.
    Shades,
    /// The second side of a contrast counts more.
    Contrast,
    /// A strong word speaks for its own family alone.
    StrongWords,
}

impl Rule {
    pub(crate) const ALL: [Rule; 9] = [
        Rule::Idioms,
        Rule::Muting,
        Rule::Denial,
        Rule::AtWord,
        Rule::Irony,
        Rule::OneMind,
        Rule::Shades,
        Rule::Contrast,
        Rule::StrongWords,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Rule::Idioms => "idioms",
            Rule::Muting => "muting",
            Rule::Denial => "denial",
            Rule::AtWord => "at_word",
            Rule::Irony => "irony",
            Rule::OneMind => "one_mind",
            Rule::Shades => "shades",
            Rule::Contrast => "contrast",
            Rule::StrongWords => "strong_words",
        }
    }
}

/// A set of rules, a bit each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules(u16);

impl Rules {
    pub(crate) const NONE: Rules = Rules(0);
    pub(crate) const ALL: Rules = Rules(u16::MAX);

    pub(crate) fn has(self, rule: Rule) -> bool {
        self.0 & 1 << rule as u16 != 0
    }

    pub(crate) fn without(self, rule: Rule) -> Rules {
        Rules(self.0 & !(1 << rule as u16))
    }
}
