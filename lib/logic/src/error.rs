//! Why a statement, a rule or a derivation is refused.

use std::fmt;

/// Why a statement or a rule is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// The normal form of the wording is empty.
    Empty,
    /// A given statement must not contain variables.
    VariableInFact,
    /// No premise binds this variable of the conclusion.
    Unbound(String),
    /// More premises than a rule with variables may have.
    TooManyPremises,
    /// More variables than a statement may have.
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

/// A derivation that exceeded a limit. With rules that have variables the closure can be infinite.
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
