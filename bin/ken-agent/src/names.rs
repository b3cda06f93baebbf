//! The names of the agents.

pub(crate) const ORCHESTRATOR: &str = "orchestrator";
pub(crate) const RESEARCH_WORKER: &str = "research-worker";
pub(crate) const CODING_WORKER: &str = "coding-worker";
