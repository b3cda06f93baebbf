//! Determines the next step: the order of events that ken-stream(5) guarantees, derived from the state from top to
//! bottom.

use ken_types::event::{Block, Body, Message, OperationKind, Purpose};
use ken_types::ops::store::SubmissionKind;

use super::events;
use super::plan::{Plan, Step, TaskRef};
use super::turn::{Call, Draft, MessageState, Stage, Turn};
use super::{Compacting, MAX_REPEATS, MAX_TURNS, Objection, Span, TurnState};

fn record(body: Body) -> Option<Step> {
    Some(Step::Record(Box::new(body), None))
}

impl TurnState {
    pub(crate) fn next(&self, plan: &Plan) -> Step {
        if self.operation.is_none() && plan.ending.is_some() {
            return self.end(plan).unwrap_or(Step::Settle); // nothing has begun, so nothing has to be closed
        }
        self.mark_resumed(plan)
            .or_else(|| self.begin(plan))
            .or_else(|| self.compact(plan))
            .or_else(|| self.converse(plan))
            .or_else(|| self.end(plan))
            .unwrap_or(Step::Settle)
    }

    /// `submission_resumed`, once per claim, if there is something to resume.
    fn mark_resumed(&self, plan: &Plan) -> Option<Step> {
        let is_news = plan.attempt > 1 && self.resumed_for < plan.attempt && self.operation.is_some();
        let attempt = plan.attempt;
        is_news.then(|| record(Body::SubmissionResumed { attempt }))?
    }

    /// `operation_start`, `agent_start`, then `message_start` and `message_end` of the prompt
    fn begin(&self, plan: &Plan) -> Option<Step> {
        if self.operation.is_none() {
            return record(Body::OperationStart { operation_kind: plan.operation });
        }
        let is_due = plan.kind == SubmissionKind::Prompt && self.agent == Span::NotStarted && plan.ending.is_none();
        if is_due {
            return record(Body::AgentStart);
        }
        self.show_prompt(plan)
    }

    /// Records the prompt before the first turn. A submission that an earlier version has begun has turns already, and its
    /// readers know the prompt from elsewhere.
    fn show_prompt(&self, plan: &Plan) -> Option<Step> {
        if self.turn.is_some() {
            return None;
        }
        if let Some(message) = &self.open_message {
            return record(Body::MessageEnd { message: Message::clone(message) });
        }
        let has_begun = self.last_stop.is_some() || self.compacting != Compacting::NotStarted;
        let is_due = self.agent == Span::Open && !self.is_prompted && !has_begun && plan.ending.is_none();
        let mut message = plan.shown.clone().filter(|_| is_due)?;
        if let Message::User { timestamp, .. } | Message::Signal { timestamp, .. } = &mut message {
            *timestamp = self.last_timestamp.millis();
        }
        record(Body::MessageStart { message })
    }

    /// `compaction_start`, the turns of the compaction, `compaction`
    fn compact(&self, plan: &Plan) -> Option<Step> {
        match self.compacting {
            Compacting::NotStarted => self.start_compacting(plan),
            Compacting::Since(_) => self.continue_compacting(plan),
            Compacting::Done { .. } => None,
        }
    }

    fn start_compacting(&self, plan: &Plan) -> Option<Step> {
        let is_first = self.last_stop.is_none();
        let planned = if self.has_overflowed() { plan.on_overflow? } else { plan.compaction.filter(|_| is_first)? };
        let may_start = self.turn.is_none() && plan.ending.is_none();
        let body =
            Body::CompactionStart { reason: planned.reason.to_owned(), estimated_tokens: planned.estimated_tokens };
        may_start.then(|| record(body))?
    }

    fn continue_compacting(&self, plan: &Plan) -> Option<Step> {
        if let Some(turn) = &self.turn {
            return self.within(turn, plan);
        }
        let is_empty = plan.planned().is_none_or(|planned| planned.messages == 0);
        if is_empty || self.has_answer() || self.must_end(plan) {
            return record(self.compaction(plan));
        }
        self.another_turn(Purpose::Compaction, plan)
    }

    /// The turns of a prompt: until an answer requests no tools, or no model is left to call.
    fn converse(&self, plan: &Plan) -> Option<Step> {
        if self.agent != Span::Open {
            return None;
        }
        match &self.turn {
            Some(turn) => self.within(turn, plan),
            None if self.must_end(plan) => None,
            None if self.has_answer() => match self.objection(plan)? {
                Objection::IsNotJudged => Some(Step::Validate),
                Objection::Note(_) => self.another_turn(Purpose::Agent, plan),
            },
            None => self.another_turn(Purpose::Agent, plan),
        }
    }

    /// `turn_start`, after a pause if the last turn failed
    fn another_turn(&self, purpose: Purpose, plan: &Plan) -> Option<Step> {
        match self.position(plan).pause_ms() {
            Some(base_ms) if !self.backoff_done => Some(Step::Backoff { base_ms, least_ms: self.retry_after_ms }),
            _ => record(Body::TurnStart { purpose, outside: self.outside.clone() }),
        }
    }

    /// `message_start` … `message_end`, the tools, `turn_messages`, `turn`
    pub(super) fn within(&self, turn: &Turn, plan: &Plan) -> Option<Step> {
        let must_close = self.failing.is_some() || plan.ending.is_some();
        if let Some(step) = self.say(turn, plan) {
            return Some(step);
        }
        match &turn.message {
            MessageState::NotStarted if !must_close => Some(Step::CallModel { model: self.position(plan).model }),
            MessageState::NotStarted if turn.purpose != Purpose::Agent => record(self.turn_without_message(turn, plan)),
            MessageState::NotStarted => record(self.empty_message_start(plan)),
            MessageState::Open(draft) => record(self.close_message(draft, plan)),
            MessageState::Ended(message) => self.tools(turn, plan).or_else(|| {
                if !turn.summed_up {
                    record(events::turn_messages(turn, message))
                } else {
                    self.turn_ended(turn, message).and_then(record)
                }
            }),
        }
    }

    /// Records `message_start` and `message_end` of a message to the model before it is called: the prompt of a worker,
    /// or a note on why the last answer is not accepted.
    fn say(&self, turn: &Turn, plan: &Plan) -> Option<Step> {
        if let Some(message) = &self.open_message {
            let message = Message::clone(message);
            return record(Body::MessageEnd { message });
        }
        let timestamp = self.last_timestamp.millis();
        let is_fresh = matches!(turn.message, MessageState::NotStarted) && turn.purpose == Purpose::Agent;
        let message = match &plan.prompt {
            _ if !is_fresh || plan.ending.is_some() => return None,
            Some(prompt) if !self.is_prompted => {
                Message::User { content: vec![Block::text(prompt)], timestamp, now: None }
            }
            _ => match self.objection(plan).filter(|_| !turn.has_note)? {
                Objection::Note(note) => Message::Signal { content: vec![Block::text(note)], timestamp },
                Objection::IsNotJudged => return None,
            },
        };
        record(Body::MessageStart { message })
    }

    /// `thinking_end` if a thought is open, then `message_end`
    fn close_message(&self, draft: &Draft, plan: &Plan) -> Body {
        match &draft.thinking {
            Some(thought) => Body::ThinkingEnd { content: thought.clone() },
            None => self.cut_message_end(draft, plan),
        }
    }

    /// `agent_end`, `operation`, `idle`
    fn end(&self, plan: &Plan) -> Option<Step> {
        if self.agent == Span::Open {
            let messages = self.messages.clone();
            return record(Body::AgentEnd { messages });
        }
        match &self.operation {
            Some(operation) if !operation.ended => record(self.operation_ended(operation, plan)),
            _ if !self.idle && plan.operation != OperationKind::Task => record(Body::Idle),
            _ => None,
        }
    }

    /// Whether the model has called tools so often that it will not give an answer.
    pub(super) fn is_looping(&self) -> bool {
        (self.turns >= MAX_TURNS || self.repeats >= MAX_REPEATS) && !self.has_answer()
    }

    /// Whether the model must not be called again, or no model is left to call.
    fn must_end(&self, plan: &Plan) -> bool {
        let at = self.position(plan);
        plan.ending.is_some() || self.is_looping() || at.is_silent() || at.model >= plan.models.len()
    }

    /// Records every `tool_start`, runs the calls, records every `tool`, and then `message_start` and `message_end` of
    /// each call.
    fn tools(&self, turn: &Turn, plan: &Plan) -> Option<Step> {
        let is_ending = plan.ending.is_some();
        let start = turn.calls.iter().find(|call| call.stage == Stage::Requested && !is_ending);
        if let Some(call) = start {
            return record(events::tool_start(call));
        }
        let running = turn.calls.iter().filter(|call| matches!(call.stage, Stage::Running { .. }));
        let is_interrupted =
            |call: &&Call| is_ending || matches!(call.stage, Stage::Running { is_interrupted: true, .. });
        let (interrupted, live): (Vec<&Call>, Vec<&Call>) = running.partition(is_interrupted);
        // No call waits for the decision any more, so that it must not stop the clock of the time limit either.
        let is_orphaned = is_ending || live.is_empty();
        if let Some(open) = self.own_approval(turn).filter(|_| is_orphaned) {
            return record(events::approval_cancelled(open));
        }
        if let Some(call) = interrupted.first() {
            return Some(self.close_call(call, plan));
        }
        if !live.is_empty() {
            return Some(Step::CallTools(live.into_iter().cloned().collect()));
        }
        turn.calls.iter().find_map(|call| match &call.stage {
            Stage::Done(message) => record(Body::MessageStart { message: message.clone() }),
            Stage::MessageStarted(message) => record(Body::MessageEnd { message: message.clone() }),
            _ => None,
        })
    }

    /// Returns an approval request of this agent, not of a worker below it.
    fn own_approval(&self, turn: &Turn) -> Option<&String> {
        let tasks = || turn.calls.iter().filter_map(|call| call.task.as_ref());
        let is_below = |request: &String| tasks().any(|task| task.worker.approvals.contains(request));
        self.approvals.iter().find(|request| !is_below(request))
    }

    /// Closes a call that cannot be finished: first the open events of its worker, then its task, then the call itself.
    fn close_call(&self, call: &Call, plan: &Plan) -> Step {
        let open = call.task.as_ref().filter(|task| task.result.is_none());
        let Some(task) = open else {
            return Step::Record(Box::new(events::interrupted(call)), None);
        };
        let of_worker = || task.worker.task_ref(&call.id, &task.agent, &self.session);
        match task.worker.next(&plan.closing_worker()) {
            Step::Record(body, below) => {
                let of = match below {
                    // The event already belongs to a worker of the worker.
                    Some(below) if below.worker.is_some() => below,
                    Some(given) => TaskRef { id: given.id, ..of_worker() },
                    None => of_worker(),
                };
                Step::Record(body, Some(of))
            }
            _ => {
                let (body, task) = events::interrupted_task(call, task);
                Step::Record(Box::new(body), Some(task))
            }
        }
    }
}
