//! The operations of `ken-agent`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model::ToolSpec;
use super::store::{Claim, History};
use super::telemetry::ByWork;

crate::operations! {
    /// What a turn that has ended is replayed from. Items are its events, oldest first. `not_found` for an unknown id,
    /// `invalid` for a run of a workflow, `conflict` for a turn that has not ended.
    AgentRecord, "agent.record": ByWork => Record, items Value;
}

/// What a turn was made from, beside its events.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Without the images of the prompt.
    pub claim: Claim,
    /// What the instance had been through before, what was found for the prompt, and the rules of users.
    pub history: History,
    /// The tools of each agent, by its name.
    pub tools: BTreeMap<String, Vec<ToolSpec>>,
    /// Of those, the ones that the agent has itself.
    pub built_in: Vec<String>,
    /// Tokens of the model's window, and of them the part kept for its answer.
    pub context_window: u64,
    pub output_reserve: u64,
    /// How many images the prompt had.
    #[serde(default)]
    pub images: usize,
}
