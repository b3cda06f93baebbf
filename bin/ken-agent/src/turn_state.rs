//! The progress of a submission, computed from its recorded events. The state is a fold over these events. Therefore a
//! holder that has run the submission from its start and one that resumes it after a crash have the same state.

mod events;
mod next;
mod plan;
mod session;
mod turn;

use std::collections::BTreeSet;

use ken_types::Timestamp;
use ken_types::event::{
    Block, Body, CitedSource, Event, Failure, Judgement, Message, ModelName, OperationKind, ProgramCall, Purpose,
    StopReason, Usage, joined,
};
use ken_types::fence::Outside;
use ken_types::ops::store::PROGRAM_TOOL;
use ken_types::rule::Patterns;

pub(crate) use events::{MessageEnd, NOT_CONFIGURED, Settlement, since};
pub(crate) use plan::{Duties, Ending, Plan, Planned, RULE, Step, TASK_INTERRUPTED, TaskRef, WorkerRef};
pub(crate) use session::SessionName;
use turn::Stage;
pub(crate) use turn::{Call, Draft, MessageState, Turn, task_end};

use serde::Deserialize;
use serde_json::Value;

use crate::governance::Requirement;
use crate::names::{KNOWLEDGE_SEARCH, TASK};
use crate::retry::{Position, Retry, is_overflow};

/// The maximum number of turns of one prompt. A model that still requests tools after them is in a loop.
pub(crate) const MAX_TURNS: u32 = 64;
/// The maximum number of reminders of a required tool, and the maximum number of times that an answer is rewritten.
const MAX_REMINDERS: u32 = 2;
const MAX_REVISIONS: u32 = 1;
/// The provider that answers only with quotations of its sources.
const QUOTING_PROVIDER: &str = "rules";
/// The number of identical calls in a row after which the model is warned, and the number after which it is stopped.
pub(crate) const REPEATS_BEFORE_NOTE: u32 = 3;
pub(crate) const MAX_REPEATS: u32 = 5;

#[derive(Debug, Clone, Default)]
pub(crate) struct TurnState {
    pub(crate) session: SessionName,
    pub(crate) next_index: u64,
    /// The timestamp of the newest event. Later events must not have an earlier one.
    pub(crate) last_timestamp: Timestamp,
    pub(crate) operation: Option<Operation>,
    pub(crate) agent: Span,
    pub(crate) compacting: Compacting,
    pub(crate) turn: Option<Turn>,
    /// How the last turn of the conversation, or of the compaction, ended.
    pub(crate) last_stop: Option<StopReason>,
    /// Why the last turn failed, with the model that was called. `None` if it did not fail.
    pub(crate) failure: Option<(ModelName, Failure)>,
    pub(crate) retry: Retry,
    /// The number of model calls that were refused because the context exceeded the model's window.
    pub(crate) overflows: u32,
    /// The number of model calls in the conversation that returned a complete message.
    pub(crate) turns: u32,
    /// How often in a row the model has requested the same calls with the same arguments, and these calls.
    pub(crate) repeats: u32,
    last_calls: Vec<(String, Value)>,
    /// A message whose start is recorded, but not its end: a prompt, or a note to the model.
    open_message: Option<Box<Message>>,
    /// Whether the prompt has been recorded on the stream.
    is_prompted: bool,
    /// The number of notes to the model about required tools, and about answers that failed validation.
    reminders: u32,
    pub(crate) revisions: u32,
    /// The origins of outside text that this agent or a worker has read.
    pub(crate) outside: Outside,
    /// Tools that were called successfully by this agent or by a worker.
    used: BTreeSet<String>,
    /// The result of validating the last answer.
    pub(crate) validation: Option<Validation>,
    /// Ids of pending approval requests of this agent and of its workers at all levels.
    pub(crate) approvals: Vec<String>,
    /// Ids of decided approval requests of the same agents.
    pub(crate) decided: Vec<String>,
    /// Whether the pause before the next attempt is over. This is not recorded, so the pause is repeated after a crash.
    pub(crate) backoff_done: bool,
    /// How long the provider requested to wait, in milliseconds. This is not recorded.
    pub(crate) retry_after_ms: u64,
    /// The failure of the open model call. This is not recorded, so the call is repeated after a crash.
    pub(crate) failing: Option<Failure>,
    /// Answers and tool results since the prompt, in the form in which the model is shown them.
    pub(crate) messages: Vec<Message>,
    /// The text of the last message, even if it was cut off.
    pub(crate) text: String,
    /// The text of a message that was cut off. The next message begins with it.
    pub(crate) cut_text: String,
    pub(crate) usage: Usage,
    /// The number of tokens of the last model call, input and output.
    pub(crate) context_tokens: u64,
    pub(crate) model: Option<ModelName>,
    /// The summary that has replaced the history.
    pub(crate) summary: Option<String>,
    /// The number of the newest claim that has a `submission_resumed` event.
    pub(crate) resumed_for: u32,
    pub(crate) idle: bool,
    pub(crate) settled: bool,
}

/// The reason why an answer is not accepted yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Objection {
    /// It has to be validated first.
    IsNotJudged,
    /// The model has to be called again, with this note.
    Note(String),
}

/// The result of validating an answer.
#[derive(Debug, Clone)]
pub(crate) struct Validation {
    pub(crate) has_passed: bool,
    pub(crate) violations: Vec<String>,
    /// The fields of its event.
    pub(crate) report: Value,
}

/// Something with a start and an end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Span {
    #[default]
    NotStarted,
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
    NotStarted,
    Since(Timestamp),
    Done {
        failed: bool,
    },
}

/// Returns the ids and texts of the entries that a search found.
fn entries(details: &Value) -> Vec<(String, String)> {
    let entries = details.get("entries").and_then(Value::as_array).into_iter().flatten();
    let text = |entry: &Value, name: &str| Some(entry.get(name)?.as_str()?.to_owned());
    let name = |entry: &Value| match entry.get("number").and_then(Value::as_u64) {
        Some(number) => Some(format!("[{number}]")),
        // Streams of earlier versions have no numbers.
        None => text(entry, "id"),
    };
    entries.filter_map(|entry| Some((name(entry)?, text(entry, "text")?))).collect()
}

/// Returns the fields of an event without the envelope.
fn report(body: &Body) -> Value {
    let mut report = serde_json::to_value(body).unwrap_or_default();
    if let Some(fields) = report.as_object_mut() {
        fields.remove("type");
    }
    report
}

impl TurnState {
    pub(crate) fn of_worker(session: SessionName) -> TurnState {
        TurnState { session, ..TurnState::default() }
    }

    /// Replaces the prompt of a worker, of which an event may contain only a part.
    pub(crate) fn complete_prompt(&mut self, prompt: &str) {
        for message in self.messages.first_mut().into_iter().chain(self.open_message.as_deref_mut()) {
            if let Message::User { content, .. } = message {
                *content = vec![Block::text(prompt)];
            }
        }
    }

    /// Marks the tools that were running at a crash and may not be run again, in this agent and its workers.
    pub(crate) fn resume(&mut self, may_run_again: &dyn Fn(&Call) -> bool) {
        if let Some(turn) = &mut self.turn {
            turn.resume(may_run_again);
        }
    }

    /// Returns the calls that have begun and not ended, each with the name of its agent. `agent` is the name of this
    /// agent.
    pub(crate) fn running<'a>(&'a self, agent: &'a str) -> Vec<(&'a str, &'a Call)> {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let mut running = Vec::new();
        for call in calls.filter(|call| matches!(call.stage, Stage::Running { .. })) {
            match &call.task {
                Some(task) => running.extend(task.worker.running(&task.agent)),
                None => running.push((agent, call)),
            }
        }
        running
    }

    /// Applies one more event of this agent or of one below it. An event that does not fit the state is ignored, as
    /// readers ignore unknown events.
    pub(crate) fn apply(&mut self, event: &Event) {
        self.next_index = self.next_index.max(event.place.event_index + 1);
        self.last_timestamp = self.last_timestamp.max(event.place.timestamp);
        let is_own = event.place.session == self.session.as_str();
        self.add_outside(&event.body);
        match &event.body {
            Body::Turn { usage, .. } if !is_own => self.usage += *usage,
            Body::Tool { tool_name, is_error: false, .. } => _ = self.used.insert(tool_name.clone()),
            _ => {}
        }
        self.apply_approval(event);
        if let Some(agent) = self.agent_of(&event.place.session) {
            agent.apply_own(event);
        }
    }

    /// Adds the origins of text that an agent is shown, or will be shown when it is called again.
    fn add_outside(&mut self, body: &Body) {
        match body {
            Body::TurnStart { outside, .. } => self.outside.extend(outside.iter().cloned()),
            Body::Tool { result, .. } => self.outside.extend(result.outside.iter().cloned()),
            _ => {}
        }
    }

    /// Applies an approval event to the agent that requested the approval and to all agents above it.
    fn apply_approval(&mut self, event: &Event) {
        match &event.body {
            Body::ApprovalRequested { request_id, .. } => self.approvals.push(request_id.clone()),
            Body::ApprovalDecided { request_id, .. } => {
                self.approvals.retain(|open| open != request_id);
                self.decided.push(request_id.clone());
            }
            _ => return,
        }
        let session = event.session();
        for worker in self.workers() {
            if worker.agent_of(session).is_some() {
                return worker.apply_approval(event);
            }
        }
    }

    /// Whether an approval event must not be recorded: it is already recorded, or it decides a request that is not
    /// pending. A call that is repeated after a crash sends all of its approval events again.
    pub(crate) fn is_redundant(&self, body: &Body) -> bool {
        match body {
            Body::ApprovalRequested { request_id, .. } => {
                self.approvals.contains(request_id) || self.decided.contains(request_id)
            }
            Body::ApprovalDecided { request_id, .. } => !self.approvals.contains(request_id),
            _ => false,
        }
    }

    /// Returns the workers that do a task of the open turn.
    fn workers(&mut self) -> impl Iterator<Item = &mut TurnState> {
        let calls = self.turn.iter_mut().flat_map(|turn| turn.calls.iter_mut());
        calls.filter_map(|call| Some(&mut *call.task.as_mut()?.worker))
    }

    /// Returns the state of the agent with this session: this agent or a worker below it.
    fn agent_of(&mut self, session: &str) -> Option<&mut TurnState> {
        if session == self.session.as_str() {
            return Some(self);
        }
        self.workers().find_map(|worker| worker.agent_of(session))
    }

    /// Applies an event of this agent itself.
    fn apply_own(&mut self, event: &Event) {
        let at = event.place.timestamp;
        self.last_timestamp = self.last_timestamp.max(at);
        self.add_outside(&event.body);
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
            Body::CompactionStart { .. } => self.start_compaction(at),
            Body::Compaction { is_error, .. } => self.end_compaction(*is_error),
            Body::TurnStart { purpose, .. } => {
                let id = event.place.turn_id.clone().unwrap_or_default();
                self.turn = Some(Turn::new(id, *purpose, at));
                self.backoff_done = false;
                self.retry_after_ms = 0;
            }
            Body::Turn { .. } => self.end_turn(&event.body),
            Body::Operation { error, .. } => {
                if let Some(operation) = &mut self.operation {
                    operation.ended = true;
                    operation.error.clone_from(error);
                }
            }
            Body::MessageStart { message: message @ (Message::User { .. } | Message::Signal { .. }) } => {
                self.open_message = Some(Box::new(message.clone()))
            }
            // The prompt before the first turn. The requests have it already, with what belongs to it.
            Body::MessageEnd { message: Message::User { .. } | Message::Signal { .. } } if self.turn.is_none() => {
                self.open_message = None;
                self.is_prompted = true;
            }
            Body::Validation { verdict, violations, judge, .. } => {
                self.usage += judge.as_ref().map(|judge| judge.usage).unwrap_or_default();
                self.validation = Some(Validation {
                    has_passed: *verdict == Judgement::Pass,
                    violations: violations.clone(),
                    report: report(&event.body),
                });
            }
            Body::Idle => self.idle = true,
            Body::SubmissionSettled { .. } => self.settled = true,
            within => self.apply_within_turn(within, event),
        }
    }

    fn apply_within_turn(&mut self, body: &Body, event: &Event) {
        let Some(turn) = &mut self.turn else { return };
        let place = &event.place;
        if let Some(message) = turn.apply(body, place.timestamp, place.task_id.as_deref(), &self.session) {
            self.count_repeats();
            self.keep(message);
        }
    }

    /// Counts how often in a row the calls of an answer were requested.
    fn count_repeats(&mut self) {
        let Some(turn) = self.turn.as_ref().filter(|turn| turn.is_answered()) else {
            return;
        };
        let calls = turn.calls.iter();
        let calls: Vec<_> = calls.map(|call| (call.name.clone(), call.arguments.clone())).collect();
        self.repeats = match calls.as_slice() {
            [] => 0,
            calls if calls == self.last_calls => self.repeats + 1,
            _ => 1,
        };
        self.last_calls = calls;
    }

    /// Keeps a message that has ended. From now on the model is shown it, unless it was cut off.
    fn keep(&mut self, message: Message) {
        match &message {
            Message::User { .. } => {
                self.open_message = None;
                self.is_prompted = true;
            }
            Message::Signal { .. } => {
                self.open_message = None;
                // If the last answer was validated, the note is about that. Otherwise it is about a required tool.
                match self.validation.take() {
                    Some(_) => self.revisions += 1,
                    None => self.reminders += 1,
                }
                if let Some(turn) = &mut self.turn {
                    turn.has_note = true;
                }
            }
            Message::Assistant { stop_reason, .. } => {
                self.validation = None;
                let text = message.text();
                let is_cut = *stop_reason == Some(StopReason::Interrupted);
                self.cut_text = if is_cut { text.clone() } else { String::new() };
                if !text.trim().is_empty() {
                    self.text = text;
                }
                if stop_reason.is_some_and(StopReason::is_incomplete) {
                    return;
                }
            }
            Message::ToolResult { .. } => {}
        }
        self.messages.push(message);
    }

    fn end_turn(&mut self, body: &Body) {
        let Body::Turn { purpose, model, provider, output, usage, stop_reason, error, .. } = body else {
            return;
        };
        let model = ModelName { provider: provider.clone(), id: model.clone() };
        self.turn = None;
        self.failing = None;
        self.usage += *usage;
        self.last_stop = Some(*stop_reason);
        match error {
            None => {
                self.turns += u32::from(*purpose == Purpose::Agent);
                self.retry.succeed();
                self.failure = None;
                self.model = Some(model);
                self.context_tokens = usage.input + usage.output;
            }
            Some(failure) => {
                self.retry.fail(failure);
                self.overflows += u32::from(is_overflow(failure));
                self.failure = Some((model, failure.clone()));
            }
        }
        if *purpose == Purpose::Compaction && error.is_none() && !stop_reason.is_incomplete() {
            self.summary = Some(joined(output));
        }
    }

    /// Returns which model is called next.
    pub(crate) fn position(&self, plan: &Plan) -> Position {
        self.retry.position(plan.last_model())
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.last_stop.is_some_and(StopReason::is_final) || self.calls_program()
    }

    /// Whether the last answer has called tools of the program of the user. Their results come with its next message, so the turn ends.
    pub(super) fn calls_program(&self) -> bool {
        self.last_stop == Some(StopReason::ToolUse) && !self.program_calls().is_empty()
    }

    /// Returns the calls of the last answer that the program of the user makes. A call of a tool that it does not have is an error.
    pub(super) fn program_calls(&self) -> Vec<ProgramCall> {
        let last = self.messages.iter().rposition(|message| matches!(message, Message::Assistant { .. }));
        let (answer, results) = self.messages.split_at(last.map_or(0, |last| last + 1));
        let is_made = |called: &str| {
            results.iter().any(|result| {
                matches!(result, Message::ToolResult { tool_call_id, is_error: false, .. } if tool_call_id == called)
            })
        };
        let calls = answer.last().map(Message::content).unwrap_or_default().iter();
        let calls = calls.filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } => {
                let name = name.strip_prefix(PROGRAM_TOOL).filter(|_| is_made(id))?.to_owned();
                Some(ProgramCall { id: id.clone(), name, arguments: arguments.clone() })
            }
            _ => None,
        });
        calls.collect()
    }

    /// Returns the reason why the last answer is not accepted yet, or `None` if it is accepted or there is no answer.
    pub(crate) fn objection(&self, plan: &Plan) -> Option<Objection> {
        if !self.has_answer() || self.calls_program() {
            return None;
        }
        if let Some(missing) = self.missing(plan) {
            return (self.reminders < MAX_REMINDERS).then(|| {
                let tool = missing.value.0.join(", ");
                Objection::Note(format!(
                    "The rule {} wants the tool {tool} to be used before you answer. Call it now, then answer.",
                    missing.rule
                ))
            });
        }
        match &self.validation {
            None if self.is_judged(plan) => Some(Objection::IsNotJudged),
            Some(found) if !found.has_passed && self.revisions < MAX_REVISIONS => {
                let violations = found.violations.iter().map(|each| format!("- {each}\n"));
                Some(Objection::Note(format!(
                    "Your answer does not pass:\n{}Write the whole answer anew without these faults. Do not mention this note.",
                    violations.collect::<String>()
                )))
            }
            _ => None,
        }
    }

    /// Returns a required tool that has not been called successfully.
    pub(super) fn missing<'a>(&self, plan: &'a Plan) -> Option<&'a Requirement<Patterns>> {
        let is_used = |demand: &&Requirement<Patterns>| self.used.iter().any(|tool| demand.value.match_text(tool));
        plan.duties.required.iter().find(|demand| !is_used(demand))
    }

    /// Whether the answer has to be validated, because a rule requires it or because there are sources. The rules
    /// engine only quotes its sources, so without a rule its answer is not validated.
    fn is_judged(&self, plan: &Plan) -> bool {
        let has_sources = || plan.duties.has_knowledge || !self.found().is_empty();
        let quotes = || self.model.as_ref().is_some_and(|model| model.provider == QUOTING_PROVIDER);
        plan.operation == OperationKind::Prompt && (plan.duties.is_judged || !quotes() && has_sources())
    }

    /// Returns the texts that the turn itself has found, each with its id: knowledge, and results of tasks.
    pub(crate) fn found(&self) -> Vec<(String, String)> {
        let results = self.messages.iter().filter_map(|message| match message {
            Message::ToolResult { tool_call_id, tool_name, details, is_error: false, .. } => match tool_name.as_str() {
                // The text of the message stands between marks, the details are the result itself.
                TASK => Some(vec![(tool_call_id.clone(), details.as_str().unwrap_or_default().to_owned())]),
                KNOWLEDGE_SEARCH => Some(entries(details)),
                _ => None,
            },
            _ => None,
        });
        results.flatten().collect()
    }

    /// Returns the knowledge entries that the turn itself has found.
    pub(crate) fn found_sources(&self) -> Vec<CitedSource> {
        let found = self.messages.iter().filter_map(|message| match message {
            Message::ToolResult { tool_name, details, is_error: false, .. } if tool_name == KNOWLEDGE_SEARCH => {
                details.get("entries")?.as_array()
            }
            _ => None,
        });
        found.flatten().filter_map(|entry| CitedSource::deserialize(entry).ok()).collect()
    }

    /// Returns the task and worker to which an event of this agent belongs, for an agent that is a worker.
    pub(crate) fn task_ref(&self, task: &str, agent: &str, parent: &SessionName) -> TaskRef {
        let open = self.operation.as_ref().filter(|operation| !operation.ended);
        TaskRef {
            id: task.to_owned(),
            worker: Some(WorkerRef {
                agent: agent.to_owned(),
                session: self.session.clone(),
                parent: parent.clone(),
                operation_id: open.map(|operation| operation.id.clone()),
                turn_id: self.turn.as_ref().map(|turn| turn.id.clone()),
            }),
        }
    }

    /// Whether the last model call was refused because its context was too long.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.failure.as_ref().is_some_and(|(_, failure)| is_overflow(failure))
    }

    fn start_compaction(&mut self, at: Timestamp) {
        self.compacting = Compacting::Since(at);
        // Attempts are counted separately for the compaction.
        self.retry = Retry::default();
        self.last_stop = None;
        self.failure = None;
    }

    /// Ends the compaction. Attempts of the following conversation are counted separately.
    fn end_compaction(&mut self, failed: bool) {
        self.compacting = Compacting::Done { failed };
        let is_only_that = |operation: &Operation| operation.kind == OperationKind::Compact;
        if !self.operation.as_ref().is_some_and(is_only_that) {
            self.last_stop = None;
            self.failure = None;
            self.retry = Retry::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::claim;

    fn plan() -> Plan {
        Plan { models: vec!["test/one".to_owned()], ..Plan::of_submission(&claim("hello")) }
    }

    /// A conversation whose last turn ended like this.
    fn after(last_stop: StopReason) -> TurnState {
        let operation = Operation {
            id: String::new(),
            kind: OperationKind::Prompt,
            started: Timestamp::default(),
            ended: false,
            error: None,
        };
        TurnState { operation: Some(operation), agent: Span::Open, last_stop: Some(last_stop), ..TurnState::default() }
    }

    /// The limits end a conversation that has no answer. An answer in the last turn that they allow is validated like any
    /// other.
    #[test]
    fn the_last_turn_may_bring_an_answer() {
        let mut plan = plan();
        plan.duties.is_judged = true;
        let table = [
            (MAX_TURNS - 1, MAX_REPEATS - 1, StopReason::ToolUse, "turn_start"),
            (MAX_TURNS, 0, StopReason::ToolUse, "agent_end"),
            (0, MAX_REPEATS, StopReason::ToolUse, "agent_end"),
            (MAX_TURNS, 0, StopReason::Stop, "validate"),
            (0, MAX_REPEATS, StopReason::Length, "validate"),
        ];
        for (turns, repeats, last_stop, expected) in table {
            let step = match (TurnState { turns, repeats, ..after(last_stop) }).next(&plan) {
                Step::Validate => "validate".into(),
                Step::Record(body, _) => type_of(&body),
                other => panic!("{other:?}"),
            };
            assert_eq!(step, expected, "{turns} turns, {repeats} repeats, {last_stop:?}");
        }
    }

    /// A turn begins with the note on why the last answer is not accepted, and then the model is called. The answer to a call of
    /// another purpose is not refused.
    #[test]
    fn an_answer_that_is_refused_is_noted_once() {
        let mut plan = plan();
        plan.duties.required = vec![Requirement { rule: "r".to_owned(), value: Patterns(vec!["search".to_owned()]) }];
        for (purpose, has_note, is_noted) in
            [(Purpose::Agent, false, true), (Purpose::Agent, true, false), (Purpose::Compaction, false, false)]
        {
            let turn = Turn { has_note, ..Turn::new("t".to_owned(), purpose, Timestamp::default()) };
            let state = TurnState { turn: Some(turn), ..after(StopReason::Stop) };
            match state.within(state.turn.as_ref().unwrap(), &plan) {
                Some(Step::Record(body, _)) => assert!(is_noted && type_of(&body) == "message_start"),
                Some(Step::CallModel { .. }) => assert!(!is_noted, "{purpose:?} {has_note}"),
                other => panic!("{other:?}"),
            }
        }
    }

    fn type_of(body: &Body) -> String {
        serde_json::to_value(body).unwrap()["type"].as_str().unwrap().to_owned()
    }

    /// Only a whole message of a compaction replaces the history.
    #[test]
    fn a_summary_that_was_cut_off_does_not_count() {
        let failure = || Some(Failure::new("busy", ""));
        let table = [
            (Purpose::Compaction, StopReason::Stop, None, true),
            (Purpose::Compaction, StopReason::Length, None, true),
            (Purpose::Compaction, StopReason::Aborted, None, false),
            (Purpose::Compaction, StopReason::Interrupted, None, false),
            (Purpose::Compaction, StopReason::Error, None, false),
            (Purpose::Compaction, StopReason::Stop, failure(), false),
            (Purpose::Agent, StopReason::Stop, None, false),
        ];
        for (purpose, stop_reason, error, counts) in table {
            let mut state = TurnState::default();
            state.end_turn(&Body::Turn {
                purpose,
                duration_ms: 0,
                model: "one".to_owned(),
                provider: "test".to_owned(),
                api: "test".to_owned(),
                output: vec![Block::text("Half a summ")],
                usage: Usage::default(),
                stop_reason,
                is_error: error.is_some(),
                error,
            });
            assert_eq!(state.summary.is_some(), counts, "{purpose:?} {stop_reason:?} {:?}", state.failure);
        }
    }

    fn of_tool(name: &str, id: &str, is_error: bool, details: Value) -> Message {
        let (tool_call_id, tool_name) = (id.to_owned(), name.to_owned());
        Message::ToolResult { tool_call_id, tool_name, content: Vec::new(), details, is_error, timestamp: 0 }
    }

    /// All combinations of what decides whether an answer is compared with its sources.
    #[test]
    fn which_answers_are_judged() {
        for operation in [OperationKind::Prompt, OperationKind::Task, OperationKind::Compact] {
            for bits in 0..16u8 {
                let [is_judged, has_knowledge, has_found, quotes] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
                let duties = Duties { is_judged, has_knowledge, ..Duties::default() };
                let plan = Plan { operation, duties, ..plan() };
                let provider = if quotes { QUOTING_PROVIDER } else { "test" }.to_owned();
                let state = TurnState {
                    model: Some(ModelName { provider, id: "one".to_owned() }),
                    messages: has_found.then(|| of_tool(TASK, "c1", false, "x".into())).into_iter().collect(),
                    ..after(StopReason::Stop)
                };
                let is_due = is_judged || !quotes && (has_knowledge || has_found);
                let is_asked_for = matches!(state.objection(&plan), Some(Objection::IsNotJudged));
                assert_eq!(is_asked_for, operation == OperationKind::Prompt && is_due, "{operation:?} {bits:04b}");
            }
        }
    }

    #[test]
    fn only_knowledge_and_the_results_of_tasks_are_evidence() {
        let entry =
            |number: u32| serde_json::json!({"number": number, "id": "kb", "title": "t", "score": 0.5, "text": "x"});
        let entries = |number: u32| serde_json::json!({"entries": [entry(number)]});
        let state = TurnState {
            messages: vec![
                of_tool(TASK, "c1", false, "x".into()),
                of_tool(KNOWLEDGE_SEARCH, "c2", false, entries(2)),
                of_tool("read_file", "c3", false, entries(3)),
                of_tool(TASK, "c4", true, "x".into()),
                of_tool(KNOWLEDGE_SEARCH, "c5", true, entries(5)),
            ],
            ..TurnState::default()
        };
        assert_eq!(state.found().into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ["c1", "[2]"]);
        assert_eq!(state.found_sources().into_iter().map(|source| source.number).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_task_belongs_to_an_operation_only_while_that_goes_on() {
        for ended in [false, true] {
            let mut state = after(StopReason::Stop);
            state.operation.as_mut().unwrap().ended = ended;
            let worker = state.task_ref("t", "coding-worker", &SessionName::default()).worker.unwrap();
            assert_eq!(worker.operation_id.is_some(), !ended);
        }
    }

    #[test]
    fn an_answer_is_refused_as_often_as_the_limits_say() {
        let mut plan = plan();
        let failed =
            Validation { has_passed: false, violations: vec!["one".into(), "two".into()], report: Value::Null };
        let mut state = TurnState { validation: Some(failed), ..after(StopReason::Stop) };
        let is_refused = |state: &TurnState, plan: &Plan| matches!(state.objection(plan), Some(Objection::Note(_)));
        for (revisions, refused) in [(MAX_REVISIONS - 1, true), (MAX_REVISIONS, false)] {
            state.revisions = revisions;
            assert_eq!(is_refused(&state, &plan), refused, "{revisions}");
        }
        let tool = |tool: &str| Requirement { rule: "r".to_owned(), value: Patterns(vec![tool.to_owned()]) };
        plan.duties.required = vec![tool("first"), tool("second")];
        for (reminders, refused) in [(MAX_REMINDERS - 1, true), (MAX_REMINDERS, false)] {
            state.reminders = reminders;
            assert_eq!(is_refused(&state, &plan), refused, "{reminders}");
        }
        // Each of the tools is required.
        for (used, missing) in [("first", Some("second")), ("second", Some("first"))] {
            state.used = BTreeSet::from([used.to_owned()]);
            assert_eq!(state.missing(&plan).map(|demand| demand.value.0[0].as_str()), missing);
        }
        state.used.insert("first".to_owned());
        assert!(state.missing(&plan).is_none());
    }
}
