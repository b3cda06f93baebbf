//! The tool calls of one turn, all at once.

use std::sync::Arc;

use ken_types::Timestamp;
use ken_types::event::{Block, Body, ToolResult};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::seams::{Asked, Caller, Events, Seams, TASK, Task, ToolEvent};
use crate::turn_state::{Call, since};

/// Calls that run at a time; the others wait.
const AT_ONCE: usize = 16;
/// Events that wait to be recorded.
const WAITING: usize = 64;

/// Calls that run; dropped, they are killed.
pub(crate) struct Running {
    events: mpsc::Receiver<ToolEvent>,
    _tasks: JoinSet<()>,
}

impl Running {
    pub(crate) fn start(seams: &Seams, caller: &Caller, calls: Vec<Call>) -> Running {
        let (sender, events) = mpsc::channel(WAITING);
        let room = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        for call in calls {
            let run = run(seams.clone(), caller.clone(), call, Events::new(sender.clone()));
            let room = room.clone();
            tasks.spawn(async move {
                let _permit = room.acquire_owned().await;
                run.await;
            });
        }
        Running {
            events,
            _tasks: tasks,
        }
    }

    /// The next event; `None` when all calls have ended. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<ToolEvent> {
        self.events.recv().await
    }
}

async fn run(seams: Seams, caller: Caller, call: Call, events: Events) {
    let started = call.stage.since().unwrap_or_else(Timestamp::now);
    let result = match call.arguments {
        Value::Object(_) | Value::Null => result(&seams, caller, &call, &events).await,
        // What a model wrote as arguments was no JSON, and is kept as a text.
        _ => Err("The call was not allowed: its arguments are not a JSON object".to_owned()),
    };
    let ended = Body::Tool {
        tool_name: call.name,
        tool_call_id: call.id,
        is_error: result.is_err(),
        result: result.unwrap_or_else(text),
        duration_ms: since(started, Timestamp::now()),
        interrupted: false,
    };
    events.send(ended).await;
}

/// What comes of a call, or why it was not made.
async fn result(seams: &Seams, caller: Caller, call: &Call, events: &Events) -> Result<ToolResult, String> {
    if call.name == TASK {
        return delegate(seams, call, events).await;
    }
    let tools = seams.tools.list(&caller.agent);
    if !tools.iter().any(|tool| tool.name == call.name) {
        return Err(format!("There is no tool `{}`.", call.name));
    }
    let asked = Asked {
        caller,
        call: call.clone(),
        ask: false,
    };
    if seams.tools.is_built_in(&call.name) {
        return seams.tools.call(asked, None).await;
    }
    let grant = seams.policy.check(asked.clone(), events.clone()).await;
    let grant = grant.map_err(|reason| format!("The call was not allowed: {reason}"))?;
    seams.tools.call(asked, grant).await
}

fn text(text: String) -> ToolResult {
    ToolResult {
        content: vec![Block::text(text)],
        details: Value::Null,
    }
}

/// `task_start`, the worker's events, `task`. The task has the id of the call.
async fn delegate(seams: &Seams, call: &Call, events: &Events) -> Result<ToolResult, String> {
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
    let events = events.of_task(&call.id);
    let started = Timestamp::now();
    events
        .send(Body::TaskStart {
            agent: agent.clone(),
            task_name: agent.clone(),
            prompt: prompt.clone(),
            cwd: None,
        })
        .await;
    let task = Task {
        agent: agent.clone(),
        prompt,
    };
    let result = seams.workers.work(task, events.clone()).await;
    events
        .send(Body::Task {
            task_name: agent.clone(),
            agent,
            is_error: result.is_err(),
            result: result.clone().unwrap_or_else(Value::String),
            duration_ms: since(started, Timestamp::now()),
        })
        .await;
    result.map(|value| match value {
        Value::String(said) => text(said),
        value => ToolResult {
            content: vec![Block::text(value.to_string())],
            details: value,
        },
    })
}
