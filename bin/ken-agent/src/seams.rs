//! What an agent is given from outside: narrow traits, so that rules, tools, workers and policy can come from other parts.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ken_types::event::ToolResult;
use ken_types::ops::model::ToolSpec;
use ken_types::ops::store::Claim;
use serde_json::Value;

use crate::course::Call;

/// A future that a trait object gives back.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All of them.
#[derive(Clone)]
pub(crate) struct Seams {
    pub(crate) rules: Arc<dyn Rules>,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) workers: Arc<dyn Workers>,
}

/// The governing rules: what stands above every conversation, before the model sees anything.
pub(crate) trait Rules: Send + Sync {
    fn text(&self) -> &str;
}

/// What a model may call.
pub(crate) trait Tools: Send + Sync {
    fn list(&self) -> Vec<ToolSpec>;

    /// Whether a call whose outcome is unknown may be made again.
    fn is_idempotent(&self, name: &str) -> bool;

    /// Runs a call to its end; dropping the future kills it. An error is told to the model, and the turn goes on.
    fn call(&self, call: Call) -> Pending<'static, Result<ToolResult, String>>;
}

/// Whether a call may run.
pub(crate) trait Policy: Send + Sync {
    /// An error is the reason, for the model.
    fn check(&self, claim: &Claim, call: &Call) -> Pending<'static, Result<(), String>>;
}

/// Agents that a task can be given to, by the tool `task` with `agent` and `prompt`.
pub(crate) trait Workers: Send + Sync {
    fn names(&self) -> Vec<String>;

    /// Runs a task to its end; dropping the future ends it.
    fn work(&self, agent: &str, prompt: &str) -> Pending<'static, Result<Value, String>>;
}

/// The tool that gives a task to a worker.
pub(crate) const TASK: &str = "task";

/// The rules that ken ships; the same text is in `share/protocols/`.
pub(crate) struct ShippedRules;

impl Rules for ShippedRules {
    fn text(&self) -> &str {
        include_str!("../../../share/protocols/governing-rules.md")
    }
}

/// No tool is configured.
pub(crate) struct NoTools;

impl Tools for NoTools {
    fn list(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    fn is_idempotent(&self, _name: &str) -> bool {
        false
    }

    fn call(&self, call: Call) -> Pending<'static, Result<ToolResult, String>> {
        Box::pin(std::future::ready(Err(format!(
            "There is no tool `{}`.",
            call.name
        ))))
    }
}

/// What is listed may run: the tools decide by being configured.
pub(crate) struct ListedMayRun;

impl Policy for ListedMayRun {
    fn check(&self, _claim: &Claim, _call: &Call) -> Pending<'static, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// No worker is configured.
pub(crate) struct NoWorkers;

impl Workers for NoWorkers {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn work(&self, agent: &str, _prompt: &str) -> Pending<'static, Result<Value, String>> {
        Box::pin(std::future::ready(Err(format!("There is no worker `{agent}`."))))
    }
}
