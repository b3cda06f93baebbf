//! Statements and rules as numbers.

/// A statement or its negation. It is a number that its [`crate::Theory`] has assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Literal(pub(crate) u32);

impl Literal {
    pub(crate) const fn new(atom: u32, negated: bool) -> Literal {
        Literal(atom << 1 | negated as u32)
    }

    pub fn is_negated(self) -> bool {
        self.0 & 1 == 1
    }

    /// Returns the negation. Negating twice gives the literal itself.
    #[must_use]
    pub fn negation(self) -> Literal {
        Literal(self.0 ^ 1)
    }

    pub(crate) fn atom(self) -> u32 {
        self.0 >> 1
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a rule, counted from 0 in the order of the calls of [`crate::Theory::add_rule`].
pub type RuleId = u32;
