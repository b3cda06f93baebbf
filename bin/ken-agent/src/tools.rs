//! The tools of one turn, all at once.

use std::sync::Arc;

use ken_types::Timestamp;
use ken_types::event::{Block, Body, ToolResult};
use ken_types::ops::store::Claim;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::course::{Call, since};
use crate::seams::{Seams, TASK};

/// Running calls; dropped, they are killed.
pub(crate) struct Running {
    said: mpsc::Receiver<Said>,
    _tasks: JoinSet<()>,
}

/// An event, and the task that it belongs to.
type Said = (Body, Option<String>);

impl Running {
    pub(crate) fn start(seams: &Seams, claim: &Arc<Claim>, calls: Vec<Call>) -> Running {
        let (say, said) = mpsc::channel(calls.len().max(1) * 3);
        let mut tasks = JoinSet::new();
        for call in calls {
            tasks.spawn(run(seams.clone(), claim.clone(), call, say.clone()));
        }
        Running { said, _tasks: tasks }
    }

    /// The next event; `None` when all calls have ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Said> {
        self.said.recv().await
    }
}

async fn run(seams: Seams, claim: Arc<Claim>, call: Call, say: mpsc::Sender<Said>) {
    let started = call.stage.since().unwrap_or_else(Timestamp::now);
    let result = match seams.policy.check(&claim, &call).await {
        Err(reason) => Err(format!("The call was not allowed: {reason}")),
        Ok(()) if call.name == TASK => delegate(&seams, &call, &say).await,
        Ok(()) if is_listed(&seams, &call.name) => seams.tools.call(call.clone()).await,
        Ok(()) => Err(format!("There is no tool `{}`.", call.name)),
    };
    let is_error = result.is_err();
    let ended = Body::Tool {
        tool_name: call.name,
        tool_call_id: call.id,
        is_error,
        result: result.unwrap_or_else(text),
        duration_ms: since(started, Timestamp::now()),
        interrupted: false,
    };
    // An error means that the submission has ended meanwhile.
    _ = say.send((ended, None)).await;
}

fn is_listed(seams: &Seams, name: &str) -> bool {
    seams.tools.list().iter().any(|tool| tool.name == name)
}

fn text(text: String) -> ToolResult {
    ToolResult {
        content: vec![Block::text(text)],
        details: Value::Null,
    }
}

/// `task_start`, the worker, `task`. The task has the id of the call.
async fn delegate(seams: &Seams, call: &Call, say: &mpsc::Sender<Said>) -> Result<ToolResult, String> {
    let argument = |name: &str| {
        call.arguments
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let agent = argument("agent").unwrap_or_default();
    if !seams.workers.names().contains(&agent) {
        return Err(format!("There is no worker `{agent}`."));
    }
    let prompt = argument("prompt").ok_or("The task has no prompt.")?;
    let started = Timestamp::now();
    let work = seams.workers.work(&agent, &prompt);
    let start = Body::TaskStart {
        agent: agent.clone(),
        task_name: agent.clone(),
        prompt,
        cwd: None,
    };
    _ = say.send((start, Some(call.id.clone()))).await;
    let result = work.await;
    let end = Body::Task {
        task_name: agent.clone(),
        agent,
        is_error: result.is_err(),
        result: result.clone().unwrap_or_else(Value::String),
        duration_ms: since(started, Timestamp::now()),
    };
    _ = say.send((end, Some(call.id.clone()))).await;
    result.map(|value| match value {
        Value::String(said) => text(said),
        value => ToolResult {
            content: vec![Block::text(value.to_string())],
            details: value,
        },
    })
}
