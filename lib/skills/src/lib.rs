//! Texts of others that agents are told: skills (`NAME/SKILL.md`, as other programs have them) and the project rules of the
//! workspace (`AGENTS.md`). ken-skills(5).
//!
//! Such a text can make an agent do anything that it is allowed to. So none is used before a person has seen it: a text is
//! in force when its SHA-256 is that of a text that ken ships, or of one that was accepted. Who could write the file does
//! not matter then.

mod accepted;
mod project;
mod skill;
mod source;

pub use accepted::Accepted;
pub use project::{PROJECT_BYTES, PROJECT_FILE, Project};
pub use skill::{Broken, GREETING, Listing, SKILL_BYTES, Skill};
pub use source::Sources;

use ken_types::hex;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Whether a text is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is one that ken ships, unchanged.
    Shipped,
    /// A person has accepted it as it is.
    Accepted,
    /// Nobody has accepted it. It is not used.
    New,
    /// Another text of this name was accepted, or is shipped. This one is not used.
    Changed,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Shipped => "shipped",
            State::Accepted => "accepted",
            State::New => "new",
            State::Changed => "changed",
        }
    }

    /// Whether agents are told the text.
    pub fn is_in_force(self) -> bool {
        matches!(self, State::Shipped | State::Accepted)
    }
}

/// SHA-256 in hexadecimal.
fn digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text))
}
