//! Texts by other authors that agents are given: skills (`NAME/SKILL.md`, in the format that other programs use) and
//! the project rules of the workspace (`AGENTS.md`). See ken-skills(5).
//!
//! Such a text can make an agent do anything that the agent is allowed to do. Therefore no text is used before a person
//! has seen it. A text is in force if its SHA-256 equals that of a text that ken ships or that a person has accepted; that of a skill
//! with further files stands for all of them.
//! It then does not matter who can write the file.

mod accepted;
mod files;
mod in_force;
mod project;
mod skill;
mod source;
mod stamp;

pub use accepted::Accepted;
pub use files::SkillFile;
pub use in_force::InForce;
pub use project::{PROJECT_BYTES, PROJECT_FILE, Project};
pub use skill::{GREETING, Listing, SKILL_BYTES, Skill, UnreadableSkill};
pub use source::Sources;
pub use stamp::Stamp;

use ken_types::hex;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Whether a text is in force, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is identical to a text that ken ships.
    Shipped,
    /// A person has accepted exactly this text.
    Accepted,
    /// No text with this name was accepted or is shipped. This text is not used.
    New,
    /// A different text with this name was accepted or is shipped. This text is not used.
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

    /// Whether agents are given the text.
    pub fn is_in_force(self) -> bool {
        matches!(self, State::Shipped | State::Accepted)
    }
}

/// Returns a SHA-256 in hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}
