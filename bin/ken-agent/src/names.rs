//! The names of the agents, and of the tools that more than one file knows.

pub(crate) const ORCHESTRATOR: &str = "orchestrator";
pub(crate) const RESEARCH_WORKER: &str = "research-worker";
pub(crate) const CODING_WORKER: &str = "coding-worker";

/// The tool that gives a task to a worker.
pub(crate) const TASK: &str = "task";
pub(crate) const KNOWLEDGE_SEARCH: &str = "knowledge_search";
