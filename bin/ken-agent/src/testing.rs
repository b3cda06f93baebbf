//! A store, a model and tools in memory, for tests without sockets.

use std::sync::{Arc, Mutex};

use ken_types::event::{Block, Event, Message, ModelName, StopReason, ToolResult, Usage};
use ken_types::id::SubmissionId;
use ken_types::ops::model::{Delta, Generate, Generated, ModelState, ToolSpec};
use ken_types::ops::store::{
    AppendEvents, Claim, History, Lease, ReadHistory, ReadStream, SettleSubmission, StreamPage,
    SubmissionKind,
};
use ken_types::{Error, Offset};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::course::Call;
use crate::model::{Model, Reply, Trouble};
use crate::seams::{ListedMayRun, NoWorkers, Pending, Seams, ShippedRules, Tools, Workers};
use crate::store::Store;

pub(crate) fn claim(text: &str) -> Claim {
    Claim {
        lease: Lease {
            submission_id: SubmissionId("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11".into()),
            number: 1,
        },
        attempt: 1,
        kind: SubmissionKind::Prompt,
        workflow: None,
        instance: "tui-1".into(),
        stream: "agents/orchestrator/tui-1".into(),
        text: text.into(),
        images: Vec::new(),
        scope: None,
        context: None,
        next_event_index: 0,
        recorded_from: Offset::Start,
        last_timestamp: None,
        time_left_ms: 3_600_000,
        verdict: None,
    }
}

/// A store of one stream.
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
    /// Refuses every write from now on.
    pub(crate) lease_lost: bool,
}

impl MemoryStore {
    pub(crate) fn holding(events: &[Event], history: History) -> MemoryStore {
        let store = MemoryStore::default();
        let mut kept = store.kept.lock().unwrap();
        kept.events = events
            .iter()
            .map(|event| serde_json::value::to_raw_value(event).unwrap())
            .collect();
        kept.history = history;
        drop(kept);
        store
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let kept = self.kept.lock().unwrap();
        kept.events
            .iter()
            .map(|event| serde_json::from_str(event.get()).unwrap())
            .collect()
    }

    fn write(&self, first_index: u64, events: Vec<Box<RawValue>>) -> Result<(), Error> {
        let mut kept = self.kept.lock().unwrap();
        if kept.lease_lost {
            return Err(Error::conflict("the lease is not the newest"));
        }
        assert_eq!(
            first_index,
            kept.events.len() as u64,
            "an append leaves a gap or repeats"
        );
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
        self.kept.lock().unwrap().settled = Some(args);
        Ok(())
    }

    async fn history(&self, _args: ReadHistory) -> Result<History, Error> {
        Ok(self.kept.lock().unwrap().history.clone())
    }

    async fn recorded(&self, args: ReadStream) -> Result<StreamPage, Error> {
        let kept = self.kept.lock().unwrap();
        let end = kept.events.len() as u64;
        let start = args.offset.before(end);
        let next = end.min(start + 3); // small pages, so that reading on is tried
        let entries = kept.events[start as usize..next as usize].to_vec();
        Ok(StreamPage {
            start,
            next,
            end,
            entries,
            ..StreamPage::default()
        })
    }
}

/// What a model does in one call.
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

/// Answers by the number of answers that the request shows already, and by nothing else.
#[derive(Clone)]
pub(crate) struct MemoryModel {
    pub(crate) models: Vec<String>,
    pub(crate) answers: Arc<Vec<Vec<Act>>>,
    /// How often ken-model may die; beyond that an [`Act::Die`] is passed over.
    pub(crate) deaths: Arc<Mutex<u32>>,
    pub(crate) asked: Arc<Mutex<Vec<Generate>>>,
}

impl MemoryModel {
    pub(crate) fn new(answers: Vec<Vec<Act>>) -> MemoryModel {
        MemoryModel {
            models: vec!["test/one".into()],
            answers: Arc::new(answers),
            deaths: Arc::default(),
            asked: Arc::default(),
        }
    }
}

impl Model for MemoryModel {
    type Reply = MemoryReply;

    async fn info(&self) -> Result<ModelState, Error> {
        Ok(ModelState {
            models: self.models.clone(),
            context_window: 98_304,
            output_reserve: 8_192,
            exchanges: 100,
        })
    }

    async fn generate(&self, request: &Generate) -> Result<MemoryReply, Trouble> {
        self.asked.lock().unwrap().push(request.clone());
        let answers = request
            .messages
            .iter()
            .rev()
            .take_while(|message| !matches!(message, Message::User { .. }));
        let place = answers
            .filter(|message| matches!(message, Message::Assistant { .. }))
            .count();
        let mut acts = self.answers.get(place).cloned().unwrap_or_default();
        acts.reverse();
        Ok(MemoryReply {
            acts,
            to_skip: request.prefix.clone(),
            started: false,
            called: false,
            deaths: self.deaths.clone(),
            gone: false,
        })
    }
}

pub(crate) struct MemoryReply {
    acts: Vec<Act>,
    to_skip: String,
    started: bool,
    called: bool,
    deaths: Arc<Mutex<u32>>,
    gone: bool,
}

impl MemoryReply {
    fn skip(&mut self, text: String) -> Option<Delta> {
        let common = text
            .bytes()
            .zip(self.to_skip.bytes())
            .take_while(|(a, b)| a == b)
            .count();
        self.to_skip.drain(..common);
        let delta = text[common..].to_owned();
        (!delta.is_empty()).then_some(Delta::Text { delta })
    }
}

impl Reply for MemoryReply {
    async fn next(&mut self) -> Option<Result<Delta, Error>> {
        if !std::mem::replace(&mut self.started, true) {
            return Some(Ok(Delta::Start {
                provider: "test".into(),
                model: "one".into(),
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
                    return Some(Ok(Delta::ToolCall {
                        id,
                        name,
                        arguments: serde_json::json!({"agent": "worker", "prompt": "do"}),
                    }));
                }
                Act::Fail(error) => return Some(Err(error)),
                Act::Die => {
                    let mut left = self.deaths.lock().unwrap();
                    if *left > 0 {
                        *left -= 1;
                        self.gone = true;
                        return None;
                    }
                }
                Act::Hang => std::future::pending().await,
            }
        }
        None
    }

    async fn end(self) -> Result<Generated, Trouble> {
        if self.gone {
            return Err(Trouble::Gone);
        }
        Ok(Generated {
            model: ModelName {
                provider: "test".into(),
                id: "one".into(),
            },
            api: "test".into(),
            stop_reason: if self.called {
                StopReason::ToolUse
            } else {
                StopReason::Stop
            },
            usage: Usage {
                input: 10,
                output: 2,
                total_tokens: 12,
                ..Usage::default()
            },
        })
    }
}

/// Tools by name: `fine`, `again` (idempotent), `broken`, `slow` (never ends). What ran is noted.
#[derive(Clone, Default)]
pub(crate) struct TestTools {
    pub(crate) ran: Arc<Mutex<Vec<String>>>,
}

impl Tools for TestTools {
    fn list(&self) -> Vec<ToolSpec> {
        let spec = |name: &str| ToolSpec {
            name: name.into(),
            description: String::new(),
            parameters: Value::Null,
        };
        ["fine", "again", "broken", "slow"].map(spec).to_vec()
    }

    fn is_idempotent(&self, name: &str) -> bool {
        name == "again"
    }

    fn call(&self, call: Call) -> Pending<'static, Result<ToolResult, String>> {
        self.ran.lock().unwrap().push(call.id.clone());
        Box::pin(async move {
            match call.name.as_str() {
                "broken" => Err("it broke".to_owned()),
                "slow" => std::future::pending().await,
                name => Ok(ToolResult {
                    content: vec![Block::text(format!("{name} ran"))],
                    details: Value::Null,
                }),
            }
        })
    }
}

/// One worker, `worker`, that is done at once.
struct TestWorkers;

impl Workers for TestWorkers {
    fn names(&self) -> Vec<String> {
        vec!["worker".into()]
    }

    fn work(&self, _agent: &str, prompt: &str) -> Pending<'static, Result<Value, String>> {
        Box::pin(std::future::ready(Ok(Value::String(format!("did {prompt}")))))
    }
}

pub(crate) fn seams(tools: &TestTools, with_workers: bool) -> Seams {
    Seams {
        rules: Arc::new(ShippedRules),
        tools: Arc::new(tools.clone()),
        policy: Arc::new(ListedMayRun),
        workers: if with_workers {
            Arc::new(TestWorkers)
        } else {
            Arc::new(NoWorkers)
        },
    }
}
