//! The operations of `ken-agent`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Nothing;
use super::model::ToolSpec;
use super::store::{Claim, History};
use super::telemetry::ByWork;

crate::operations! {
    /// Returns the record of a turn that has ended, from which the turn can be replayed. Items are its events, oldest
    /// first. `not_found` for an unknown id, `invalid` for a run of a workflow, `conflict` for a turn that has not
    /// ended.
    AgentRecord, "agent.record": ByWork => Record, items Value;
    /// Returns the skills in force, ordered by name, without the one that greets a new terminal session.
    AgentSkills, "agent.skills": Nothing => Skills;
    /// Returns the text of a skill in force; `not_found` for another name.
    AgentSkill, "agent.skill": NamedSkill => SkillText;
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Skills {
    pub skills: Vec<SkillHead>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillHead {
    pub name: String,
    pub description: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedSkill {
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillText {
    pub description: String,
    /// What follows the front matter.
    pub text: String,
}

/// The input of a turn: everything that its result depends on, besides its events.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The claim, without the images of the prompt.
    pub claim: Claim,
    /// Earlier turns of the instance, what the search found for the prompt, and the rules of users.
    pub history: History,
    /// The tools of each agent, by its name.
    pub tools: BTreeMap<String, Vec<ToolSpec>>,
    /// The names of those tools that ken-agent implements itself.
    pub built_in: Vec<String>,
    /// The context window of the model, and the part of it that is reserved for the answer, in tokens.
    pub context_window: u64,
    pub output_reserve: u64,
    /// The number of images of the prompt.
    #[serde(default)]
    pub images: usize,
}
