//! The operations of `ken-tools` on texts by other authors that agents are given: skills and project rules (ken-skills(5)). `ken-agent`
//! asks for them, because it can read none of the folders in which they are.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::agent::SkillHead;

crate::operations! {
    /// Returns which skills are in force, ordered by name, and the rules of a project.
    TextsList, "texts.list": ListTexts => Texts;
    /// Returns a skill in force, or another file of it. `not_found` at `/name` or `/file` if there is none, `too_large` for a file of more
    /// than 64 KiB, `invalid` for one that is not text.
    TextsSkill, "texts.skill": ReadSkill => SkillInForce;
    /// Returns the rules in force of folders below the root of a project that lead to one of these paths, the outermost first.
    TextsBelow, "texts.below": EnteredPaths => RulesBelow;
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTexts {
    /// The trusted folder that is the root of the project. If absent, it is the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Texts {
    pub skills: Vec<SkillHead>,
    /// The rules of the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectRules>,
    /// Messages for the log: which texts are left out, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What stat(2) says of the files of a list without a folder. As long as it says the same, the list is the current one. Null if
    /// that cannot be relied on.
    #[serde(default)]
    pub stamp: Value,
}

/// The text of an `AGENTS.md`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectRules {
    pub file: String,
    /// The folder of the file, from the root of the project on; empty for the root.
    pub place: String,
    pub sha256: String,
    pub text: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadSkill {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillInForce {
    pub name: String,
    pub description: String,
    /// The digest by which it was accepted, in hexadecimal.
    pub sha256: String,
    /// What follows its front matter, or the content of the other file.
    pub text: String,
    /// Its other files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<OtherFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherFile {
    pub path: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EnteredPaths {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    pub paths: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RulesBelow {
    pub rules: Vec<ProjectRules>,
}
