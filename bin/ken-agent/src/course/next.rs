//! What comes next: the order of events that ken-stream(5) promises, read off the course from top to bottom.

use ken_types::event::{Body, Purpose, StopReason};
use ken_types::ops::store::SubmissionKind;

use super::turn::{Call, Draft, Speech, Stage, Turn};
use super::{Compacting, Course, Span};

/// What this holder has to do. It does not change while the submission is held, but for `ending`.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) kind: SubmissionKind,
    /// 1 for the first claim.
    pub(crate) attempt: u32,
    /// `provider/model`, first choice first.
    pub(crate) models: Vec<String>,
    /// The history is to be compacted first, or, by `/compact`, only that.
    pub(crate) compaction: Option<Planned>,
    /// It shall not be gone on with but closed.
    pub(crate) ending: Option<Ending>,
}

/// A compaction that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) reason: &'static str,
    pub(crate) estimated_tokens: u64,
    /// Of the history, with the summary that there is.
    pub(crate) messages: u64,
}

/// Why a submission ends before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    Aborted,
    Timeout,
    RetryExhausted,
    /// A defect, in words.
    Defect(String),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Record this, of a task if one is named.
    Say(Box<Body>, Option<String>),
    /// Wait about so long before the next try.
    Rest { base_ms: u64 },
    /// Ask the model of this place in the list.
    Ask { model: usize },
    /// Run these tools, all at once.
    Run(Vec<Call>),
    /// Record the end, with outcome and result.
    Settle,
}

fn say(body: Body) -> Option<Step> {
    Some(Step::Say(Box::new(body), None))
}

impl Course {
    pub(crate) fn next(&self, plan: &Plan) -> Step {
        if self.operation.is_none() && plan.ending.is_some() {
            return Step::Settle; // nothing has begun, so nothing has to end
        }
        self.mark_resumed(plan)
            .or_else(|| self.begin(plan))
            .or_else(|| self.compact(plan))
            .or_else(|| self.converse(plan))
            .or_else(|| self.end(plan))
            .unwrap_or(Step::Settle)
    }

    /// `submission_resumed`, once a claim, if there is something to resume.
    fn mark_resumed(&self, plan: &Plan) -> Option<Step> {
        let is_news = plan.attempt > 1 && self.resumed_for < plan.attempt && self.operation.is_some();
        let attempt = plan.attempt;
        is_news.then(|| say(Body::SubmissionResumed { attempt }))?
    }

    /// `operation_start`, `agent_start`
    fn begin(&self, plan: &Plan) -> Option<Step> {
        if self.operation.is_none() {
            let operation_kind = plan.operation_kind();
            return say(Body::OperationStart { operation_kind });
        }
        let is_due =
            plan.kind == SubmissionKind::Prompt && self.agent == Span::Ahead && plan.ending.is_none();
        is_due.then(|| say(Body::AgentStart))?
    }

    /// `compaction_start`, the turns of the compaction, `compaction`
    fn compact(&self, plan: &Plan) -> Option<Step> {
        match self.compacting {
            Compacting::Ahead => self.start_compaction(plan),
            Compacting::Since(_) => self.go_on_compacting(plan),
            Compacting::Done { .. } => None,
        }
    }

    fn start_compaction(&self, plan: &Plan) -> Option<Step> {
        let planned = plan.compaction?;
        let is_first = self.turn.is_none() && self.last_stop.is_none() && plan.ending.is_none();
        let body = Body::CompactionStart {
            reason: planned.reason.to_owned(),
            estimated_tokens: planned.estimated_tokens,
        };
        is_first.then(|| say(body))?
    }

    fn go_on_compacting(&self, plan: &Plan) -> Option<Step> {
        if let Some(turn) = &self.turn {
            return self.within(turn, plan);
        }
        let is_empty = plan.compaction.is_none_or(|planned| planned.messages == 0);
        if is_empty || self.has_answer() || self.must_end(plan) {
            return say(self.compaction(plan));
        }
        self.another_turn(Purpose::Compaction)
    }

    /// The turns of a prompt: until an answer asks for no tools, or nobody is left to answer.
    fn converse(&self, plan: &Plan) -> Option<Step> {
        if self.agent != Span::Open {
            return None;
        }
        match &self.turn {
            Some(turn) => self.within(turn, plan),
            None if self.has_answer() || self.must_end(plan) => None,
            None => self.another_turn(Purpose::Agent),
        }
    }

    /// `turn_start`, after a pause if the last one failed
    fn another_turn(&self, purpose: Purpose) -> Option<Step> {
        match self.retry.pause_ms() {
            Some(base_ms) if !self.rested => Some(Step::Rest { base_ms }),
            _ => say(Body::TurnStart { purpose }),
        }
    }

    /// `message_start` … `message_end`, the tools, `turn_messages`, `turn`
    fn within(&self, turn: &Turn, plan: &Plan) -> Option<Step> {
        let must_close = self.failing.is_some() || plan.ending.is_some();
        match &turn.speech {
            Speech::Ahead if !must_close => Some(Step::Ask {
                model: self.retry.provider,
            }),
            Speech::Ahead if turn.purpose != Purpose::Agent => say(self.turn_without_message(turn, plan)),
            Speech::Ahead => say(self.empty_message_start(plan)),
            Speech::Open(draft) => say(self.close_message(draft, plan)),
            Speech::Ended(message) => tools(turn, plan).or_else(|| match turn.summed_up {
                false => say(super::say::turn_messages(turn, message)),
                true => self.turn_ended(turn, message).and_then(say),
            }),
        }
    }

    /// `thinking_end` if a thought is open, then `message_end`
    fn close_message(&self, draft: &Draft, plan: &Plan) -> Body {
        match &draft.thinking {
            Some(thought) => Body::ThinkingEnd {
                content: thought.clone(),
            },
            None => self.cut_message_end(draft, plan),
        }
    }

    /// `agent_end`, `operation`, `idle`
    fn end(&self, plan: &Plan) -> Option<Step> {
        if self.agent == Span::Open {
            let messages = self.messages.clone();
            return say(Body::AgentEnd { messages });
        }
        match &self.operation {
            Some(operation) if !operation.ended => say(self.operation_ended(operation, plan)),
            _ if !self.idle => say(Body::Idle),
            _ => None,
        }
    }

    pub(super) fn has_answer(&self) -> bool {
        self.last_stop.is_some_and(StopReason::is_final)
    }

    /// Nobody is left to ask, or nothing more may be asked.
    fn must_end(&self, plan: &Plan) -> bool {
        plan.ending.is_some() || self.nobody_left(plan)
    }

    pub(super) fn nobody_left(&self, plan: &Plan) -> bool {
        self.retry.provider >= plan.models.len()
    }
}

/// Every `tool_start`, the running, each `tool`; then for each call `message_start` and `message_end`.
fn tools(turn: &Turn, plan: &Plan) -> Option<Step> {
    let is_ending = plan.ending.is_some();
    let start = turn
        .calls
        .iter()
        .find(|call| call.stage == Stage::Asked && !is_ending);
    if let Some(call) = start {
        return say(super::say::tool_start(call));
    }
    let running = turn
        .calls
        .iter()
        .filter(|call| matches!(call.stage, Stage::Running { .. }));
    let (cut, live): (Vec<&Call>, Vec<&Call>) = running.partition(|call| is_ending || call.is_cut());
    if let Some(call) = cut.first() {
        let (body, task) = super::say::interrupted(call);
        return Some(Step::Say(Box::new(body), task));
    }
    if !live.is_empty() {
        return Some(Step::Run(live.into_iter().cloned().collect()));
    }
    turn.calls.iter().find_map(|call| match &call.stage {
        Stage::Done(message) => say(Body::MessageStart {
            message: message.clone(),
        }),
        Stage::Announced(message) => say(Body::MessageEnd {
            message: message.clone(),
        }),
        _ => None,
    })
}

impl Call {
    fn is_cut(&self) -> bool {
        matches!(self.stage, Stage::Running { cut: true, .. })
    }
}
