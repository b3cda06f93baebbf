//! How far a submission has come, as its events tell. The course is the fold of the recorded events, so a holder that
//! lives and one that comes after a crash stand at the same place.

mod next;
mod say;
mod turn;

use ken_types::Timestamp;
use ken_types::event::{Body, Event, Failure, Message, ModelName, OperationKind, Purpose, StopReason, Usage};

pub(crate) use next::{Ending, Plan, Planned, Step};
pub(crate) use say::{Ended, Settlement, since};
pub(crate) use turn::{Call, Draft, Speech, Turn};

use crate::retry::Retry;

#[derive(Debug, Clone, Default)]
pub(crate) struct Course {
    /// Index of the next event.
    pub(crate) next_index: u64,
    /// Of the newest event; later ones are not earlier.
    pub(crate) last_timestamp: Timestamp,
    pub(crate) operation: Option<Operation>,
    pub(crate) agent: Span,
    pub(crate) compacting: Compacting,
    /// The open one.
    pub(crate) turn: Option<Turn>,
    /// How the last turn of what is being done ended.
    pub(crate) last_stop: Option<StopReason>,
    /// Why it ended so, if it failed.
    pub(crate) failure: Option<Failure>,
    pub(crate) retry: Retry,
    /// Not recorded: the pause before the next try is over. After a crash it is made again.
    pub(crate) rested: bool,
    /// Not recorded: the open model call has failed. After a crash it is made again.
    pub(crate) failing: Option<Failure>,
    /// What this prompt has brought: answers and tool results, as the model is shown them.
    pub(crate) messages: Vec<Message>,
    /// The last text that was said, also when it was cut.
    pub(crate) text: String,
    /// What a cut answer has said already; the next one begins with it.
    pub(crate) cut_text: String,
    pub(crate) usage: Usage,
    /// Tokens of the last model call, in and out.
    pub(crate) context_tokens: u64,
    pub(crate) model: Option<ModelName>,
    /// What stands for the history from now on.
    pub(crate) summary: Option<String>,
    /// The newest claim that is marked on the stream.
    pub(crate) resumed_for: u32,
    pub(crate) idle: bool,
    pub(crate) settled: bool,
}

/// Something with a start and an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Span {
    #[default]
    Ahead,
    Open,
    Ended,
}

#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) kind: OperationKind,
    pub(crate) started: Timestamp,
    pub(crate) ended: bool,
    pub(crate) error: Option<Failure>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Compacting {
    #[default]
    Ahead,
    Since(Timestamp),
    Done {
        failed: bool,
    },
}

impl Course {
    /// Marks what the crash has cut: the open message, and the tools that were running and may not run again.
    pub(crate) fn resume(&mut self, may_run_again: impl Fn(&str) -> bool) {
        if let Some(turn) = &mut self.turn {
            turn.resume(may_run_again);
        }
    }

    /// One more event. Unknown transitions are ignored as readers ignore what they do not know.
    pub(crate) fn apply(&mut self, event: &Event) {
        self.next_index = self.next_index.max(event.place.event_index + 1);
        self.last_timestamp = self.last_timestamp.max(event.place.timestamp);
        if event.place.parent_session.is_some() {
            return; // a worker's own course
        }
        let at = event.place.timestamp;
        match &event.body {
            Body::SubmissionResumed { attempt } => self.resumed_for = *attempt,
            Body::OperationStart { operation_kind } => {
                self.operation = Some(Operation {
                    id: event.place.operation_id.clone().unwrap_or_default(),
                    kind: *operation_kind,
                    started: at,
                    ended: false,
                    error: None,
                });
            }
            Body::AgentStart => self.agent = Span::Open,
            Body::AgentEnd { .. } => self.agent = Span::Ended,
            Body::CompactionStart { .. } => self.compacting = Compacting::Since(at),
            Body::Compaction { is_error, .. } => self.end_compaction(*is_error),
            Body::TurnStart { purpose } => {
                let id = event.place.turn_id.clone().unwrap_or_default();
                self.turn = Some(Turn::new(id, *purpose, at));
                self.rested = false;
            }
            Body::Turn { .. } => self.end_turn(&event.body),
            Body::Operation { error, .. } => {
                if let Some(operation) = &mut self.operation {
                    operation.ended = true;
                    operation.error.clone_from(error);
                }
            }
            Body::Idle => self.idle = true,
            Body::SubmissionSettled { .. } => self.settled = true,
            within => self.apply_within_turn(within, event),
        }
    }

    fn apply_within_turn(&mut self, body: &Body, event: &Event) {
        let Some(turn) = &mut self.turn else { return };
        let ended = turn.apply(body, event.place.timestamp, event.place.task_id.as_deref());
        if let Some(message) = ended {
            self.keep(message);
        }
    }

    /// A message that has ended: shown to the model from now on, unless it was cut.
    fn keep(&mut self, message: Message) {
        if let Message::Assistant { stop_reason, .. } = &message {
            let text = message.text();
            let is_cut = stop_reason.is_some_and(StopReason::is_cut);
            self.cut_text.clear();
            if *stop_reason == Some(StopReason::Interrupted) {
                self.cut_text.push_str(&text);
            }
            if !text.is_empty() {
                self.text = text;
            }
            if is_cut {
                return;
            }
        }
        self.messages.push(message);
    }

    fn end_turn(&mut self, body: &Body) {
        let Body::Turn {
            purpose,
            model,
            provider,
            output,
            usage,
            stop_reason,
            error,
            ..
        } = body
        else {
            return;
        };
        self.turn = None;
        self.failing = None;
        self.usage += *usage;
        self.last_stop = Some(*stop_reason);
        self.retry.count(error.as_ref());
        self.failure.clone_from(error);
        if error.is_none() {
            self.model = Some(ModelName {
                provider: provider.clone(),
                id: model.clone(),
            });
            self.context_tokens = usage.input + usage.output;
        }
        if *purpose == Purpose::Compaction && error.is_none() && !stop_reason.is_cut() {
            self.summary = Some(say::joined(output));
        }
    }

    /// What comes after a compaction has its own tries.
    fn end_compaction(&mut self, failed: bool) {
        self.compacting = Compacting::Done { failed };
        if self
            .operation
            .as_ref()
            .is_some_and(|operation| operation.kind != OperationKind::Compact)
        {
            self.last_stop = None;
            self.failure = None;
            self.retry = Retry::default();
        }
    }
}
