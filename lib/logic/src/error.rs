//! The reasons why a statement, a rule or a derivation is refused.

use std::fmt;

/// The reason why a statement or a rule is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// The normal form of the wording is empty.
    Empty,
    /// A given statement must not contain variables.
    VariableInFact,
    /// No premise contains this variable of the conclusion.
    Unbound(String),
    /// A rule with variables has more than [`crate::MAX_VARIABLE_PREMISES`] premises.
    TooManyPremises,
    /// A statement has more than [`crate::MAX_VARIABLES`] variables.
    TooManyVariables,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Invalid::Empty => f.write_str("the statement is empty"),
            Invalid::VariableInFact => f.write_str("a fact must not contain a variable"),
            Invalid::Unbound(name) => write!(f, "variable {name} of the conclusion is in no premise"),
            Invalid::TooManyVariables => {
                write!(f, "the statement has more than {} variables", crate::MAX_VARIABLES)
            }
            Invalid::TooManyPremises => {
                write!(f, "a rule with variables has more than {} premises", crate::MAX_VARIABLE_PREMISES)
            }
        }
    }
}

/// The error of a derivation that exceeds a limit. Limits are needed because rules with variables can have an infinite
/// closure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (derived, work, premises) = (crate::MAX_DERIVED, crate::MAX_WORK, crate::MAX_PREMISES);
        write!(
            f,
            "the rules with variables derive more than {derived} statements or need more than {work} steps, or the proofs \
             hold more than {premises} premises"
        )
    }
}
