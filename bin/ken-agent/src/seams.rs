//! What an agent needs from other parts, as narrow traits: rules, tools, policy and workers.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ken_types::Error;
use ken_types::event::{Body, ToolResult};
use ken_types::ops::model::ToolSpec;
use ken_types::ops::store::Claim;
use ken_types::ops::tools::{Approval, CallTool};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::embedding::Embedding;
use crate::governance::{Agent, Governance};
use crate::scheduled;
use crate::share::Share;
use crate::skills::Skills;
use crate::turn_state::{Call, SessionName, TaskRef, TurnState};

/// The message of another part's error, after the place that it names, for the model.
pub(crate) fn reason(error: &Error) -> String {
    match &error.at {
        Some(at) => format!("{at}: {}", error.message),
        None => error.message.clone(),
    }
}

/// A future that a trait object returns.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Everything that an agent needs from other parts.
#[derive(Clone)]
pub(crate) struct Seams {
    pub(crate) share: Arc<Share>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) embedding: Embedding,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) workers: Arc<dyn Workers>,
}

/// The tools that a model may call.
pub(crate) trait Tools: Send + Sync {
    /// Loads the list of tools before a submission begins or resumes.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The tools of an agent.
    fn list(&self, agent: &str) -> Vec<ToolSpec>;

    /// Whether it is a tool of the agent itself, which no process runs and nobody can approve.
    fn is_built_in(&self, _name: &str) -> bool {
        false
    }

    /// Whether a call whose outcome is unknown may be made again.
    fn is_idempotent(&self, _name: &str) -> bool {
        false
    }

    /// Whether a person has to approve its calls, as far as that is known.
    fn approval(&self, _name: &str) -> Option<Approval> {
        None
    }

    /// Whether the tool says of this call that a person has to approve it; `false` also when it cannot be asked.
    fn asks(&self, _call: CallTool) -> Pending<'static, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Runs a call to its end; dropping the future kills it. An error is shown to the model, and the turn goes on.
    /// `grant` is the permission from the policy.
    fn call(&self, asked: Asked, grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>>;
}

/// The caller of a tool, and its submission.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) claim: Arc<Claim>,
    /// The orchestrator or a worker, by name.
    pub(crate) agent: String,
    pub(crate) session: SessionName,
    /// The task of a worker; `None` for the orchestrator.
    pub(crate) task: Option<String>,
    /// 0 for the agent of the submission, 1 for its workers.
    pub(crate) depth: u32,
    /// The governing rules that it is held to.
    pub(crate) rules: Arc<Governance>,
}

/// The deepest level of workers below workers.
const MOST_DEPTH: u32 = 4;

impl Caller {
    /// The agent of a submission: the orchestrator, or the worker that its schedule names.
    pub(crate) fn root(claim: Arc<Claim>) -> Caller {
        Caller {
            agent: scheduled::agent(&claim).to_owned(),
            claim,
            session: SessionName::default(),
            task: None,
            depth: 0,
            rules: Arc::default(),
        }
    }

    /// The worker that has a task of this agent.
    pub(crate) fn worker(&self, agent: &str, task: &str) -> Caller {
        Caller {
            claim: self.claim.clone(),
            agent: agent.to_owned(),
            session: self.session.of_task(task),
            task: Some(task.to_owned()),
            depth: self.depth + 1,
            rules: self.rules.clone(),
        }
    }

    /// Why it may not call a tool; `None` when it may.
    pub(crate) fn refusal(&self, tool: &str) -> Option<String> {
        self.rules.refusal(&self.as_governed(), tool)
    }

    /// Why it may not give a task to a worker.
    pub(crate) fn refusal_of_worker(&self, worker: &str) -> Option<String> {
        self.rules.refusal_of_worker(&self.as_governed(), worker)
    }

    fn as_governed(&self) -> Agent<'_> {
        Agent { name: &self.agent, is_root: self.depth == 0, delegates_by: TASK }
    }

    pub(crate) fn may_delegate(&self) -> bool {
        self.depth < MOST_DEPTH
    }
}

/// Keys of calls.
pub(crate) type AskedCalls = HashSet<String>;

/// The id of the approval that ken-tools consumes before it starts the process.
pub(crate) type Grant = String;

/// Decides whether a call may run.
pub(crate) trait Policy: Send + Sync {
    /// The calls of a submission for which an approval was requested. Such a call may be repeated after a crash, because its
    /// grant can be used only once.
    fn asked_calls(&self, _claim: &Claim) -> Pending<'static, Result<AskedCalls, Error>> {
        Box::pin(std::future::ready(Ok(AskedCalls::new())))
    }

    /// Resolves when this agent stops. A turn that waits for an approval is then left to the next agent.
    fn stopping(&self) -> Pending<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// Gives a call that needs an approval its grant. An error is the reason why it may not run, for the model. What the
    /// caller has to know meanwhile, such as that an approval is waited for, is recorded through `events`.
    fn check(&self, asked: Asked, events: Events) -> Pending<'static, Result<Option<Grant>, String>>;
}

/// A call that wants to run.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) caller: Caller,
    pub(crate) call: Call,
    /// A governing rule wants a person to approve it, whatever the tool's own description says.
    pub(crate) ask: bool,
}

impl Asked {
    /// The call in the form that other parts accept, without a grant.
    pub(crate) fn request(&self) -> CallTool {
        request(&self.caller.claim, &self.caller.agent, &self.call, self.ask)
    }
}

/// A tool call of an agent in the form that other parts accept, without a grant.
pub(crate) fn request(claim: &Claim, agent: &str, call: &Call, ask: bool) -> CallTool {
    CallTool {
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        agent: Some(agent.to_owned()),
        submission: Some(claim.lease.submission_id.to_string()),
        session: Some(claim.instance.clone()),
        grant: None,
        ask,
    }
}

/// Agents that can be given a task, by the tool `task` with `agent` and `prompt`.
pub(crate) trait Workers: Send + Sync {
    fn names(&self) -> Vec<String>;

    /// Does a task to its end, or resumes one that a crash interrupted; dropping the future ends it. What the worker does
    /// is recorded through `events` as it happens, in the order of ken-stream(5), and appears on the stream of the agent
    /// that gave the task.
    fn work(&self, task: Task, seams: Seams, events: Events) -> Pending<'static, Result<Value, String>>;
}

/// A task for a worker.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The call that gave it.
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) prompt: String,
    /// The agent that gave it.
    pub(crate) parent: Caller,
    /// The progress that an earlier holder of the submission has made.
    pub(crate) recorded: Option<TurnState>,
}

/// Where something that runs for a turn sends its events.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    sender: mpsc::Sender<Told>,
    task: Option<TaskRef>,
}

/// What something that runs for a turn tells it.
#[derive(Debug)]
pub(crate) enum Told {
    /// An event of a running call, or of its task or worker.
    Event(Box<Body>, Option<TaskRef>),
    /// Answered once everything sent before it is on disk.
    Flush(oneshot::Sender<()>),
}

impl Events {
    pub(crate) fn new(sender: mpsc::Sender<Told>) -> Events {
        Events { sender, task: None }
    }

    /// For a call that gives this task.
    pub(crate) fn of_task(&self, task: &str) -> Events {
        Events { sender: self.sender.clone(), task: Some(TaskRef::of(task)) }
    }

    /// Sends an event of the call itself, or of its task. It waits while the queue of the submission is full. The event is
    /// dropped if the submission has ended meanwhile.
    pub(crate) async fn send(&self, body: Body) {
        _ = self.sender.send(Told::Event(Box::new(body), self.task.clone())).await;
    }

    /// An event of the worker, or of something below it.
    pub(crate) async fn send_of(&self, body: Body, of: TaskRef) {
        _ = self.sender.send(Told::Event(Box::new(body), Some(of))).await;
    }

    /// Waits until all events so far are on disk. After the submission has ended it waits for ever, because its caller is being
    /// dropped.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        _ = self.sender.send(Told::Flush(done)).await;
        if flushed.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The tool that gives a task to a worker.
pub(crate) const TASK: &str = "task";

/// Every tool that is listed may run.
#[cfg(test)]
pub(crate) struct ListedMayRun;

#[cfg(test)]
impl Policy for ListedMayRun {
    fn check(&self, _asked: Asked, _events: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// No worker is configured.
#[cfg(test)]
pub(crate) struct NoWorkers;

#[cfg(test)]
impl Workers for NoWorkers {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn work(&self, task: Task, _seams: Seams, _events: Events) -> Pending<'static, Result<Value, String>> {
        let missing = format!("There is no worker `{}`.", task.agent);
        Box::pin(std::future::ready(Err(missing)))
    }
}
