//! Has another model do what a recorded turn did. The results of its tool calls come from the record. A call that the
//! record does not contain counts as a difference and is not executed.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ken_skills::Sources;
use ken_types::Error;
use ken_types::event::{Body, Event, ToolResult};
use ken_types::id::Mint;
use ken_types::ops::agent::Record;
use ken_types::ops::model::{Generate, ModelState, ToolSpec};
use ken_wire::Pool;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::journal::KeepingJournal;
use super::tape::result;
use super::{Case, MAX_TURN_TIME, Outline};
use crate::budget::Budget;
use crate::embedding::Embedding;
use crate::envelope::Envelope;
use crate::journal::Journal;
use crate::model::{Model, ModelError, WireModel, WireReply};
use crate::names::TASK;
use crate::ports::{
    Caller, Events, Grant, NoApprovals, Pending, Ports, RequestedCall, Task, ToolFacts, Tools, Workers,
};
use crate::share::{Share, print_line};
use crate::skills::Skills;
use crate::turn_loop::TurnLoop;
use crate::turn_state::{Plan, TurnState, task_end};

const NOT_RECORDED: &str = "There is no recorded result of this call.";

pub(super) async fn run(case: Case, share: Arc<Share>, name: &str, socket: &Path) -> Result<bool, Error> {
    let model =
        EvaluatedModel { inner: WireModel::new(Pool::new(socket)), state: case.model_state(vec![name.to_owned()]) };
    let recorded = Arc::new(Results::of(&case));
    let ports = Ports {
        share,
        judge: None,
        skills: Arc::new(Skills::of_files(sources())),
        tools: recorded.clone(),
        embedding: Embedding::none(),
        policy: Arc::new(NoApprovals),
        workers: recorded.clone(),
    };
    let claim = Arc::new(case.record.claim.clone());
    let mut caller = Caller::root(claim.clone());
    let background = case.background(&ports, &caller, &model.state).await?;
    let budget = Budget::of(&model.state);
    let (compaction, on_overflow) = background.compactions(&claim, &budget);
    // Nothing aborts the evaluation; `ken` ends the process instead.
    let (_abort, aborted) = watch::channel(false);
    caller.rules = background.rules.clone();
    let plan = Plan {
        attempt: 1,
        models: model.state.models.clone(),
        compaction,
        on_overflow,
        duties: background.duties(),
        ending: None,
        ..Plan::of_submission(&claim)
    };
    let journal = KeepingJournal {
        state: TurnState::default(),
        envelope: Envelope::of(&claim, Mint::fresh()?),
        bodies: Vec::new(),
    };
    let mut turns = TurnLoop::new(journal, &model, &ports, caller, plan, aborted);
    (turns.background, turns.budget) = (Some(background), Some(budget));
    turns.until = Some(Instant::now() + MAX_TURN_TIME);
    let started = Instant::now();
    turns.go().await?;
    let settlement = turns.journal.state.settlement(&turns.plan);
    turns.journal.record(settlement.event(), None).await?;
    let own = case.events.iter().filter(|event| event.place.parent_session.is_none());
    let then = Outline::of(own.map(|event| &event.body));
    let now = Outline::of(turns.journal.bodies.iter());
    let unrecorded = recorded.unrecorded.lock();
    let differs = differences(&then, &now, &unrecorded);
    print_line(json!({
        "model": name,
        "differs": differs,
        "recorded": then,
        "now": now,
        "unrecordedCalls": *unrecorded,
        "error": settlement.error,
        "usage": turns.journal.state.usage,
        "durationMs": started.elapsed().as_millis() as u64,
    }))?;
    Ok(differs.is_empty())
}

/// Returns the skills and project rules of the system that recorded the case. `ken` passes the location of that
/// system. If it passes none, there are no skills and rules.
fn sources() -> Sources {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    match (variable("KEN_CONFIG"), variable("KEN_WORKSPACE")) {
        (Some(config), Some(workspace)) => Sources::of(&config, workspace),
        _ => Sources::default(),
    }
}

/// Returns the names of the fields in which two turns differ.
fn differences(then: &Outline, now: &Outline, unrecorded: &[Value]) -> Vec<&'static str> {
    let found = [
        ("tool calls", then.tool_calls != now.tool_calls || !unrecorded.is_empty()),
        ("outcome", then.outcome != now.outcome),
        ("verdict", then.verdict != now.verdict),
        ("answer", then.answer != now.answer),
    ];
    let differing = found.iter().filter(|(_, differs)| *differs);
    differing.map(|(name, _)| *name).collect()
}

/// Calls the evaluated model, even if the configuration does not list it.
#[derive(Clone)]
struct EvaluatedModel {
    inner: WireModel,
    state: ModelState,
}

impl Model for EvaluatedModel {
    type Reply = WireReply;

    async fn info(&self) -> Result<ModelState, Error> {
        Ok(self.state.clone())
    }

    async fn generate(&self, request: &Generate) -> Result<WireReply, ModelError> {
        let request = Generate { unlisted: true, ..request.clone() };
        self.inner.generate(&request).await
    }
}

/// The key of a call is its tool and arguments; that of a task is its worker and prompt.
type Key = (String, String);

/// The results of the recorded calls.
struct Results {
    record: Record,
    calls: Mutex<HashMap<Key, VecDeque<Result<ToolResult, String>>>>,
    tasks: HashMap<Key, Result<Value, String>>,
    unrecorded: Mutex<Vec<Value>>,
}

impl Results {
    fn of(case: &Case) -> Results {
        let mut calls: HashMap<Key, VecDeque<Result<ToolResult, String>>> = HashMap::new();
        let mut tasks = HashMap::new();
        let (mut arguments, mut prompts) = (HashMap::new(), HashMap::new());
        let own = |event: &&Event| event.place.parent_session.is_none();
        for event in case.events.iter().filter(own) {
            let task = event.place.task_id.clone().unwrap_or_default();
            match &event.body {
                Body::ToolStart { tool_call_id, args, .. } => {
                    arguments.insert(tool_call_id.clone(), args.to_string());
                }
                Body::Tool { tool_name, tool_call_id, .. } => {
                    let key = (tool_name.clone(), arguments.get(tool_call_id).cloned().unwrap_or_default());
                    calls.entry(key).or_default().extend(result(&event.body));
                }
                Body::TaskStart { agent, prompt, .. } => {
                    prompts.insert(task, (agent.clone(), prompt.clone()));
                }
                Body::Task { is_error, result, .. } => {
                    if let Some(key) = prompts.remove(&task) {
                        tasks.insert(key, task_end(*is_error, result));
                    }
                }
                _ => {}
            }
        }
        Results { record: case.record.clone(), calls: Mutex::new(calls), tasks, unrecorded: Mutex::default() }
    }

    fn note<T>(&self, name: &str, arguments: &Value) -> Result<T, String> {
        self.unrecorded.lock().push(json!({"name": name, "arguments": arguments}));
        Err(NOT_RECORDED.to_owned())
    }
}

impl Tools for Results {
    fn list(&self, agent: &str) -> Vec<ToolSpec> {
        self.record.tools.get(agent).cloned().unwrap_or_default()
    }

    fn facts(&self, name: &str) -> ToolFacts {
        ToolFacts { is_built_in: self.record.built_in.iter().any(|own| own == name), ..ToolFacts::default() }
    }

    fn call(&self, requested: RequestedCall, _: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        let call = &requested.call;
        let key = (call.name.clone(), call.arguments.to_string());
        // The model may repeat a call more often than the record contains it. The last result is then returned again.
        let found = self.calls.lock().get_mut(&key).and_then(|results| match results.len() {
            0 | 1 => results.front().cloned(),
            _ => results.pop_front(),
        });
        let result = found.unwrap_or_else(|| self.note(&call.name, &call.arguments));
        Box::pin(std::future::ready(result))
    }
}

impl Workers for Results {
    fn work(&self, task: Task, _: Ports, _: Events) -> Pending<'static, Result<Value, String>> {
        let found = self.tasks.get(&(task.agent.clone(), task.prompt.clone())).cloned();
        let arguments = json!({"agent": task.agent, "prompt": task.prompt});
        let result = found.unwrap_or_else(|| self.note(TASK, &arguments));
        Box::pin(std::future::ready(result))
    }
}
