//! What an agent needs from other parts, as narrow traits: rules, tools, policy and workers.

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ken_types::Error;
use ken_types::event::{Body, ToolResult};
use ken_types::fence::Outside;
use ken_types::ops::approvals::{Approval as ApprovalRequest, PutApproval};
use ken_types::ops::model::ToolSpec;
use ken_types::ops::store::Claim;
use ken_types::ops::tools::{Approval, CallTool};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::embedding::Embedding;
use crate::governance::{Agent, Governance};
use crate::names::{CODING_WORKER, RESEARCH_WORKER};
use crate::pictures::Pictures;
use crate::scheduled;
use crate::share::Share;
use crate::skills::Skills;
use crate::turn_state::{Call, SessionName, TaskRef, TurnState};

/// Returns the error message of another part for the model, preceded by the place that the error names.
pub(crate) fn reason(error: &Error) -> String {
    match &error.at {
        Some(at) => format!("{at}: {}", error.message),
        None => error.message.clone(),
    }
}

/// The future that a method of a trait object returns.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Everything that an agent needs from other parts.
#[derive(Clone)]
pub(crate) struct Ports {
    pub(crate) share: Arc<Share>,
    /// The model that judges answers, `provider/model`.
    pub(crate) judge: Option<String>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) embedding: Embedding,
    pub(crate) tools: Arc<dyn Tools>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) workers: Arc<dyn Workers>,
}

impl Ports {
    pub(crate) async fn is_stopping(&self) -> bool {
        tokio::select! {
            biased;
            () = self.policy.stopping() => true,
            () = std::future::ready(()) => false,
        }
    }
}

/// The tools that a model may call.
pub(crate) trait Tools: Send + Sync {
    /// Loads the list of tools before a submission starts or resumes.
    fn refresh(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    fn list(&self, agent: &str) -> Vec<ToolSpec>;

    fn facts(&self, _name: &str) -> ToolFacts {
        ToolFacts::default()
    }

    /// Whether the tool's preview of this call requires an approval. Also false if there is no preview because
    /// ken-tools cannot be reached.
    fn asks(&self, _call: CallTool) -> Pending<'static, bool> {
        Box::pin(std::future::ready(false))
    }

    /// Runs a call until it ends. Dropping the future kills the call. The model is shown an error, and the turn
    /// continues. `grant` is the permission from the policy.
    fn call(&self, requested: RequestedCall, grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>>;
}

/// What is known of a tool. The default stands for an unknown tool.
#[derive(Debug, Default)]
pub(crate) struct ToolFacts {
    /// Whether it is a tool of the agent itself. Such a tool starts no process, and its calls need no approval.
    pub(crate) is_built_in: bool,
    /// Whether a call may be repeated if its outcome is unknown.
    pub(crate) is_idempotent: bool,
    /// Whether calls change nothing, so that nobody has to know afterwards that one began. Only of built-in tools is this certain.
    pub(crate) only_reads: bool,
    /// The origin of outside text in the results, if there can be any. The results of built-in tools name it themselves.
    pub(crate) outside: Option<String>,
    /// The process of ken-tools that now runs calls.
    pub(crate) process: Option<String>,
    /// Whether a person has to approve calls.
    pub(crate) approval: Option<Approval>,
}

/// The caller of a tool, and its submission.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) claim: Arc<Claim>,
    /// The name of the orchestrator or worker.
    pub(crate) agent: String,
    pub(crate) session: SessionName,
    /// The task of a worker; `None` for the orchestrator.
    pub(crate) task: Option<String>,
    /// 0 for the agent of the submission, 1 for its workers, and so on.
    pub(crate) depth: u32,
    pub(crate) rules: Arc<Governance>,
    /// The origins of outside text that it has read.
    pub(crate) outside: Outside,
    /// The highest number that a source of the submission has, workers' too.
    pub(crate) last_source: Arc<AtomicU32>,
    /// The images that its tools have returned in this turn.
    pub(crate) pictures: Pictures,
    /// The files with project rules of folders that it has entered, and so was given.
    pub(crate) entered: Arc<Mutex<BTreeSet<String>>>,
}

/// The maximum depth of workers that give tasks to workers.
const MAX_DEPTH: u32 = 4;

impl Caller {
    /// Returns the agent of a submission: the orchestrator, or the agent that the submission's schedule names.
    pub(crate) fn root(claim: Arc<Claim>) -> Caller {
        Caller {
            agent: scheduled::agent(&claim).to_owned(),
            outside: claim.outside.clone(),
            claim,
            session: SessionName::default(),
            task: None,
            depth: 0,
            rules: Arc::default(),
            last_source: Arc::default(),
            pictures: Pictures::default(),
            entered: Arc::default(),
        }
    }

    /// Returns the worker that does a task for this agent.
    pub(crate) fn worker(&self, agent: &str, task: &str) -> Caller {
        Caller {
            agent: agent.to_owned(),
            session: self.session.of_task(task),
            task: Some(task.to_owned()),
            depth: self.depth + 1,
            pictures: Pictures::default(),
            entered: Arc::default(),
            ..self.clone()
        }
    }

    /// Returns why it may not call a tool, or `None` if it may.
    pub(crate) fn refusal(&self, tool: &str) -> Option<String> {
        self.rules.refusal(&self.as_governed(), tool)
    }

    /// Returns why it may not give a task to a worker, or `None` if it may.
    pub(crate) fn refusal_of_worker(&self, worker: &str) -> Option<String> {
        self.rules.refusal_of_worker(&self.as_governed(), worker)
    }

    fn as_governed(&self) -> Agent<'_> {
        Agent { name: &self.agent, is_root: self.depth == 0 }
    }

    pub(crate) fn may_delegate(&self) -> bool {
        self.depth < MAX_DEPTH
    }
}

/// Keys of calls for which an approval was requested ([`Call::key`]).
pub(crate) type CallsWithApproval = HashSet<String>;

/// The id of an approval. ken-tools uses it up before it starts the process.
pub(crate) type Grant = String;

/// Decides whether a call may run.
pub(crate) trait Policy: Send + Sync {
    /// Returns the calls of a submission for which an approval was requested. Such a call may be repeated after a
    /// crash, because its grant can be used only once.
    fn calls_with_approval(&self, _claim: &Claim) -> Pending<'static, Result<CallsWithApproval, Error>> {
        Box::pin(std::future::ready(Ok(CallsWithApproval::new())))
    }

    /// Resolves when this process stops. A turn that waits for an approval is then left to the next process.
    fn stopping(&self) -> Pending<'static, ()> {
        Box::pin(std::future::pending())
    }

    /// Returns the grant of a call that needs an approval. An error is the reason why the call may not run, for the
    /// model. Events in the meantime, such as the start of the wait for an approval, are recorded through `events`.
    fn check(&self, requested: RequestedCall, events: Events) -> Pending<'static, Result<Option<Grant>, String>>;

    /// Whether no call has used a grant. Then nothing has run: ken-tools uses it up right before.
    fn is_unused(&self, _grant: &Grant) -> Pending<'static, bool> {
        Box::pin(std::future::ready(false))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct RequestedCall {
    pub(crate) caller: Caller,
    pub(crate) call: Call,
    /// Whether a governing rule requires a person to approve the call, regardless of the tool's own description.
    pub(crate) ask: bool,
    /// Where the call says how far it has come.
    pub(crate) events: Option<Events>,
}

impl RequestedCall {
    /// The call in the form that other parts accept, without a grant.
    pub(crate) fn request(&self) -> CallTool {
        let outside = self.caller.outside.clone();
        CallTool { outside, ..request(&self.caller.claim, &self.caller.agent, &self.call, self.ask) }
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
        // What the store knows. While the turn goes on, its caller may have read more.
        outside: claim.outside.clone(),
        workspace: claim.workspace.clone(),
        key: Some(call.key()),
        repeated: call.repeated.clone(),
    }
}

/// Returns the result of a call whose outcome is unknown.
pub(crate) fn interrupted(tool: &str) -> String {
    format!("The tool {tool} was interrupted. Whether it took effect is unknown.")
}

/// The agents that can be given a task with the tool `task`, whose arguments are `agent` and `prompt`.
pub(crate) const WORKERS: [&str; 2] = [RESEARCH_WORKER, CODING_WORKER];

pub(crate) trait Workers: Send + Sync {
    /// Does a task until it ends, or resumes one that a crash interrupted. Dropping the future ends it. The worker's
    /// steps are recorded through `events` as they happen, in the order of ken-stream(5), and appear on the stream of
    /// the agent that gave the task.
    fn work(&self, task: Task, ports: Ports, events: Events) -> Pending<'static, Result<Value, String>>;
}

#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// The id of the call that gave the task.
    pub(crate) id: String,
    pub(crate) agent: String,
    pub(crate) prompt: String,
    /// The agent that gave the task.
    pub(crate) parent: Caller,
    /// The worker's recorded progress under an earlier holder of the submission.
    pub(crate) recorded: Option<TurnState>,
}

/// Where a running tool call of a turn sends its events.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    sender: mpsc::Sender<CallMessage>,
    task: Option<TaskRef>,
}

/// A message from a running tool call to its turn.
#[derive(Debug)]
pub(crate) enum CallMessage {
    /// An event of a running call, or of its task or worker.
    Event(Box<Body>, Option<TaskRef>),
    /// Requests a reply when all events sent before it are on disk.
    Flush(oneshot::Sender<()>),
    /// Requests that a request for an approval is stored, in the same write as all events sent before it. If a person
    /// has to decide, its event is recorded too. The error says why it was refused.
    Request { put: Box<PutApproval>, of: Option<TaskRef>, reply: oneshot::Sender<Result<ApprovalRequest, Error>> },
    /// This process stops, and the call has not begun to act: the next process can ask again whether it may.
    Leave,
}

impl Events {
    pub(crate) fn new(sender: mpsc::Sender<CallMessage>) -> Events {
        Events { sender, task: None }
    }

    /// Returns a copy for a call that gives this task to a worker.
    pub(crate) fn of_task(&self, task: &str) -> Events {
        Events { sender: self.sender.clone(), task: Some(TaskRef::of(task)) }
    }

    /// Sends an event of the call itself, or of its task. Waits while the queue of the submission is full. If the
    /// submission has ended, the event is dropped.
    pub(crate) async fn send(&self, body: Body) {
        _ = self.sender.send(CallMessage::Event(Box::new(body), self.task.clone())).await;
    }

    /// Sends an event of the worker, or of something below it.
    pub(crate) async fn send_of(&self, body: Body, of: TaskRef) {
        _ = self.sender.send(CallMessage::Event(Box::new(body), Some(of))).await;
    }

    /// Waits until all events sent so far are on disk. After the submission has ended it waits forever, because its
    /// caller is about to be dropped.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        _ = self.sender.send(CallMessage::Flush(done)).await;
        replied(flushed).await;
    }

    /// Says that the call can be left to the next process. Waits forever, because its caller is about to be dropped.
    pub(crate) async fn leave<T>(&self) -> T {
        _ = self.sender.send(CallMessage::Leave).await;
        std::future::pending().await
    }

    /// Stores a request for an approval of the call itself, in the same write as all events sent so far. The error says
    /// why it was refused.
    pub(crate) async fn request(&self, put: PutApproval) -> Result<ApprovalRequest, Error> {
        self.request_of(put, self.task.clone()).await
    }

    /// The same for a call of the worker, or of something below it.
    pub(crate) async fn request_of(&self, put: PutApproval, of: Option<TaskRef>) -> Result<ApprovalRequest, Error> {
        let (reply, stored) = oneshot::channel();
        _ = self.sender.send(CallMessage::Request { put: Box::new(put), of, reply }).await;
        replied(stored).await
    }
}

/// Waits for a reply of the turn. After the submission has ended there is none, and the caller is about to be dropped.
async fn replied<T>(reply: oneshot::Receiver<T>) -> T {
    match reply.await {
        Ok(reply) => reply,
        Err(_) => std::future::pending().await,
    }
}

/// Asks for no approvals: for replays, which execute nothing, and for tests.
pub(crate) struct NoApprovals;

impl Policy for NoApprovals {
    fn check(&self, _: RequestedCall, _: Events) -> Pending<'static, Result<Option<Grant>, String>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
