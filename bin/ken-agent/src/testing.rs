//! A store, a model and tools in memory, for tests without sockets.

use std::sync::Arc;

use ken_skills::Sources;
use ken_types::event::{Event, Message, ModelName, Purpose, StopReason, ToolResult, Usage, VERSION};
use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::approvals::{Approval, PutApproval, Request, Status};
use ken_types::ops::model::{Delta, Generate, Generated, ModelState, SchemaText, ToolSpec, Unusable};
use ken_types::ops::store::{
    AppendEvents, Claim, History, Lease, PastExchange, ReadHistory, ReadStream, SettleSubmission, StreamPage,
    SubmissionKind,
};
use ken_types::{Error, Offset, Timestamp};
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::embedding::Embedding;
use crate::model::{Model, ModelError, Reply};
use crate::past::Loaded;
use crate::ports::{Grant, NoApprovals, Pending, Ports, RequestedCall, ToolFacts, Tools};
use crate::share::Share;
use crate::skills::Skills;
use crate::store::Store;
use crate::worker::ModelWorkers;

pub(crate) fn claim(text: &str) -> Claim {
    Claim {
        lease: Lease { submission_id: SubmissionId("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11".into()), number: 1 },
        attempt: 1,
        kind: SubmissionKind::Prompt,
        workflow: None,
        instance: "tui-1".into(),
        stream: "agents/orchestrator/tui-1".into(),
        text: text.into(),
        images: Vec::new(),
        scope: None,
        context: None,
        message_kind: "chat.message".into(),
        next_event_index: 0,
        recorded_from: Offset::Start,
        last_timestamp: None,
        started_at: None,
        received_at: None,
        time_left_ms: 3_600_000,
        verdict: None,
        mark: "the-mark".into(),
        outside: Outside::new(),
        workspace: None,
        model: None,
    }
}

pub(crate) fn exchange(id: &str, prompt: &str, answer: &str) -> PastExchange {
    PastExchange {
        id: SubmissionId(id.into()),
        instance: "tui-1".into(),
        prompt: prompt.into(),
        answer: answer.into(),
        at: Timestamp::default(),
        mark: None,
        forwarded: None,
        quoted: None,
        outside: Outside::new(),
    }
}

/// The state of a ken-model with these models.
pub(crate) fn model_state(models: Vec<String>) -> ModelState {
    ModelState {
        models,
        context_window: 98_304,
        output_reserve: 8_192,
        exchanges: 100,
        unusable: Vec::new(),
        embeds: None,
        others: Vec::new(),
    }
}

#[derive(Clone, Default)]
pub(crate) struct MemoryStore {
    pub(crate) kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) events: Vec<Box<RawValue>>,
    pub(crate) settled: Option<SettleSubmission>,
    pub(crate) history: History,
    pub(crate) appends: usize,
    /// Whether to refuse every write from now on.
    pub(crate) lease_lost: bool,
}

impl MemoryStore {
    pub(crate) fn holding(events: &[Event], history: History) -> MemoryStore {
        let store = MemoryStore::default();
        let mut kept = store.kept.lock();
        kept.events = events.iter().map(|event| serde_json::value::to_raw_value(event).unwrap()).collect();
        kept.history = history;
        drop(kept);
        store
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let kept = self.kept.lock();
        kept.events.iter().map(|event| serde_json::from_str(event.get()).unwrap()).collect()
    }

    fn write(&self, first_index: u64, events: Vec<Box<RawValue>>) -> Result<(), Error> {
        let mut kept = self.kept.lock();
        if kept.lease_lost {
            return Err(Error::conflict("the lease is not the newest"));
        }
        assert_eq!(first_index, kept.events.len() as u64, "an append leaves a gap or repeats");
        assert!(kept.settled.is_none(), "a write after the end");
        for event in &events {
            assert!(event.get().starts_with(r#"{"v":1,"type":""#), "{}", event.get());
        }
        kept.events.extend(events);
        kept.appends += 1;
        Ok(())
    }
}

impl Store for MemoryStore {
    async fn append(&self, args: AppendEvents) -> Result<(), Error> {
        tokio::task::yield_now().await;
        self.write(args.first_index, args.events)
    }

    async fn settle(&self, args: SettleSubmission) -> Result<(), Error> {
        self.write(args.first_index, args.events.clone())?;
        self.kept.lock().settled = Some(args);
        Ok(())
    }

    async fn request(&self, args: PutApproval) -> Result<Approval, Error> {
        let now = Timestamp::now();
        let request = Request {
            id: args.id.clone(),
            dedupe_key: String::new(),
            task_id: args.submission_id.to_string(),
            action_type: args.preview.action_type,
            summary: args.preview.summary,
            reason: String::new(),
            risk: args.preview.risk,
            target: args.preview.target,
            requested_by: args.requested_by,
            fingerprint: args.preview.fingerprint,
            created_at: now,
            expires_at: now.plus_millis(args.expires_in_ms),
            metadata: serde_json::Map::new(),
        };
        let stored = Approval::new(request, Status::Pending, now, None);
        let turn = args.turn.expect("a request comes with the events of its turn");
        let body = stored.requested(turn.worker);
        let event = serde_json::value::to_raw_value(&Event { v: VERSION, body, place: turn.place }).unwrap();
        self.write(turn.append.first_index, [turn.append.events, vec![event]].concat())?;
        Ok(stored)
    }

    async fn record(&self, id: SubmissionId) -> Result<Claim, Error> {
        Err(Error::not_found(format!("there is no submission {id}")))
    }

    async fn history(&self, _args: ReadHistory) -> Result<Loaded, Error> {
        Ok(self.kept.lock().history.clone().into())
    }

    async fn recorded(&self, args: ReadStream) -> Result<StreamPage, Error> {
        let kept = self.kept.lock();
        let end = kept.events.len() as u64;
        let start = args.offset.before(end);
        let next = end.min(start + 3); // small pages, so that several reads are needed
        let entries = kept.events[start as usize..next as usize].to_vec();
        Ok(StreamPage { start, next, end, entries, ..StreamPage::default() })
    }
}

/// One action of a model in a call.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Text(String),
    Think(String),
    Call {
        id: String,
        name: String,
    },
    Fail(Error),
    /// ken-model dies.
    Die,
    Hang,
}

/// A model that selects its answer only by the number of answers that the request already contains.
#[derive(Clone)]
pub(crate) struct MemoryModel {
    pub(crate) models: Vec<String>,
    pub(crate) others: Vec<String>,
    pub(crate) unusable: Vec<Unusable>,
    pub(crate) answers: Arc<Vec<Vec<Act>>>,
    /// How often ken-model may die. Further [`Act::Die`] actions are skipped.
    pub(crate) deaths: Arc<Mutex<u32>>,
    /// How often it cannot be reached when it is asked for its models.
    pub(crate) absences: Arc<Mutex<u32>>,
    pub(crate) requests: Arc<Mutex<Vec<Generate>>>,
    /// Whether to refuse a prompt with past exchanges as too long.
    pub(crate) refuses_history: bool,
}

impl MemoryModel {
    pub(crate) fn new(answers: Vec<Vec<Act>>) -> MemoryModel {
        MemoryModel {
            models: vec!["test/one".into()],
            others: Vec::new(),
            unusable: Vec::new(),
            answers: Arc::new(answers),
            deaths: Arc::default(),
            absences: Arc::default(),
            requests: Arc::default(),
            refuses_history: false,
        }
    }
}

impl Model for MemoryModel {
    type Reply = MemoryReply;

    async fn info(&self) -> Result<ModelState, Error> {
        let mut left = self.absences.lock();
        if *left > 0 {
            *left -= 1;
            return Err(Error::unavailable("model cannot be reached"));
        }
        let (others, unusable) = (self.others.clone(), self.unusable.clone());
        Ok(ModelState { others, unusable, ..model_state(self.models.clone()) })
    }

    async fn generate(&self, request: &Generate) -> Result<MemoryReply, ModelError> {
        let request = &request.clone().with_past_messages();
        self.requests.lock().push(request.clone());
        let answers = request.messages.iter().rev().take_while(|message| !matches!(message, Message::User { .. }));
        let place = answers.filter(|message| matches!(message, Message::Assistant { .. })).count();
        let prompt =
            request.messages.iter().rfind(|message| matches!(message, Message::User { .. })).map(Message::text);
        let of_worker = of_worker(prompt.as_deref().unwrap_or_default());
        let answers = of_worker.as_ref().unwrap_or(&self.answers);
        let mut acts = answers.get(place).cloned().unwrap_or_default();
        let is_prompt = request.purpose == Purpose::Agent;
        let has_history = request.messages.iter().any(|message| matches!(message, Message::Assistant { .. }));
        if self.refuses_history && is_prompt && has_history {
            acts = vec![Act::Fail(Error::too_large("the context is longer than the window"))];
        }
        acts.reverse();
        let name = request.model.as_deref().and_then(|name| name.strip_prefix("test/"));
        let name = name.expect("a model of this provider is asked");
        Ok(MemoryReply {
            acts,
            name: ModelName { provider: "test".into(), id: name.to_owned() },
            to_skip: request.prefix.clone(),
            started: false,
            called: false,
            deaths: self.deaths.clone(),
            died: false,
        })
    }
}

/// Returns the answers of a worker to its prompt: `do` calls a tool, `hang` never ends, `deep` gives a task to
/// another worker.
fn of_worker(prompt: &str) -> Option<Vec<Vec<Act>>> {
    let call = |id: &str, name: &str| Act::Call { id: id.into(), name: name.into() };
    let text = |text: &str| Act::Text(text.into());
    match prompt {
        "do" => Some(vec![vec![call("w1", "fine")], vec![text("It is "), text("done.")]]),
        "hang" => Some(vec![vec![Act::Hang]]),
        "deep" => Some(vec![vec![text("Well."), call("c1", "task")], vec![text("Both are done.")]]),
        _ => None,
    }
}

/// Returns the arguments of a call. They are different for every id, except that all ids that begin with `same` have
/// the same arguments.
fn arguments(id: &str) -> Value {
    let prompt = ["hang", "deep"].into_iter().find(|prompt| *prompt == id);
    let number = if id.starts_with("same") { "" } else { id };
    serde_json::json!({"agent": "research-worker", "prompt": prompt.unwrap_or("do"), "number": number})
}

pub(crate) struct MemoryReply {
    acts: Vec<Act>,
    name: ModelName,
    to_skip: String,
    started: bool,
    called: bool,
    deaths: Arc<Mutex<u32>>,
    died: bool,
}

impl MemoryReply {
    fn skip(&mut self, text: String) -> Option<Delta> {
        let common = text.bytes().zip(self.to_skip.bytes()).take_while(|(a, b)| a == b).count();
        self.to_skip.drain(..common);
        let delta = text[common..].to_owned();
        (!delta.is_empty()).then_some(Delta::Text { delta })
    }
}

impl Reply for MemoryReply {
    async fn next(&mut self) -> Option<Result<Delta, Error>> {
        if !std::mem::replace(&mut self.started, true) {
            return Some(Ok(Delta::Start {
                provider: self.name.provider.clone(),
                model: self.name.id.clone(),
                api: "test".into(),
            }));
        }
        while let Some(act) = self.acts.pop() {
            match act {
                Act::Text(text) => match self.skip(text) {
                    Some(delta) => return Some(Ok(delta)),
                    None => continue,
                },
                Act::Think(delta) => return Some(Ok(Delta::Think { delta, opaque: None })),
                Act::Call { id, name } => {
                    self.called = true;
                    return Some(Ok(Delta::ToolCall { id: id.clone(), name, arguments: arguments(&id) }));
                }
                Act::Fail(error) => return Some(Err(error)),
                Act::Die => {
                    let mut left = self.deaths.lock();
                    if *left > 0 {
                        *left -= 1;
                        self.died = true;
                        return None;
                    }
                }
                Act::Hang => std::future::pending().await,
            }
        }
        None
    }

    async fn end(self) -> Result<Generated, ModelError> {
        if self.died {
            return Err(ModelError::Died);
        }
        Ok(Generated {
            model: self.name,
            api: "test".into(),
            stop_reason: if self.called { StopReason::ToolUse } else { StopReason::Stop },
            usage: Usage { input: 10, output: 2, total_tokens: 12, ..Usage::default() },
        })
    }
}

/// Test tools `fine`, `again` (idempotent), `broken` and `slow` (never ends). Records the calls that were run.
#[derive(Clone, Default)]
pub(crate) struct TestTools {
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
}

impl Tools for TestTools {
    fn list(&self, _agent: &str) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: SchemaText::from(&Value::Null),
        };
        ["fine", "again", "broken", "slow"].map(spec).to_vec()
    }

    fn facts(&self, name: &str) -> ToolFacts {
        ToolFacts { is_idempotent: name == "again", ..ToolFacts::default() }
    }

    fn call(&self, requested: RequestedCall, _grant: Option<Grant>) -> Pending<'static, Result<ToolResult, String>> {
        let call = requested.call;
        let id = in_session(requested.caller.session.as_str(), &call.id);
        self.ran.lock().push(id);
        Box::pin(async move {
            match call.name.as_str() {
                "broken" => Err("it broke".to_owned()),
                "slow" => std::future::pending().await,
                name => Ok(ToolResult::of_text(format!("{name} ran"))),
            }
        })
    }
}

/// Combines the id of a call with the session of the worker that made it.
pub(crate) fn in_session(session: &str, call: &str) -> String {
    match session {
        "default" => call.to_owned(),
        session => format!("{session}/{call}"),
    }
}

/// Returns ports to these tools, without approvals. The model does the work of workers, too.
pub(crate) fn ports(tools: &TestTools, model: &MemoryModel) -> Ports {
    Ports {
        share: Arc::new(Share::built_in()),
        judge: None,
        skills: Arc::new(Skills::of_files(Sources::default())),
        embedding: Embedding::none(),
        tools: Arc::new(tools.clone()),
        policy: Arc::new(NoApprovals),
        workers: Arc::new(ModelWorkers { model: model.clone() }),
    }
}
