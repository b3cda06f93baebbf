//! The record of a turn, divided at the crashes of its holders, and the replies that the loop needs from it: the events
//! in the order in which they must occur again, the answers of models, the results of tools, and approvals.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ken_types::event::{
    Block, Body, EMPTY_ANSWER, Event, Failure, Message, ModelName, Purpose, StopReason, ToolResult,
};
use ken_types::ops::model::{Delta, Generated};
use ken_types::{Code, Error};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;

use crate::envelope::written;
use crate::retry::{BUDGET, is_final};
use crate::tools::SAME_CALL;
use crate::turn_state::{Draft, Ending, RULE, TASK_INTERRUPTED};
use crate::validation::NOT_JUDGED;

/// The part of a record that one holder of the submission wrote.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    pub(super) events: Vec<Event>,
    /// Whether the segment ends with a crash of its holder. A replay cannot reproduce such an end.
    pub(super) is_interrupted: bool,
}

/// Divides a record into the segments of its holders, in order.
pub(super) fn segments(events: &[Event]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for event in events {
        let is_first = matches!(event.body, Body::SubmissionResumed { .. });
        match segments.last_mut() {
            Some(open) if !is_first => open.events.push(event.clone()),
            _ => segments.push(Segment { events: vec![event.clone()], is_interrupted: true }),
        }
    }
    if let Some(last) = segments.last_mut() {
        last.is_interrupted = false;
    }
    segments
}

/// Identifies a sequence of events that must occur in the same order. Events of different lanes, such as those of
/// concurrent calls, may interleave in any order.
type Lane = (String, String);

fn lane(event: &Event) -> Lane {
    let place = &event.place;
    let within = match &event.body {
        Body::Tool { tool_call_id, .. } => format!("tool {tool_call_id}"),
        Body::TaskStart { .. } | Body::Task { .. } => {
            format!("task {}", place.task_id.as_deref().unwrap_or_default())
        }
        Body::ApprovalRequested { request_id, .. } | Body::ApprovalDecided { request_id, .. } => {
            format!("approval {request_id}")
        }
        _ => String::new(),
    };
    (event.session().to_owned(), within)
}

/// Returns the part of an event that is compared: its own fields without times, and without the origins of outside text, which
/// may be others by now in the knowledge and the conversation that the record was made from.
fn comparable(event: &Event) -> Result<Value, Error> {
    let text = written(event)?;
    let mut value: Value = serde_json::from_str(text.get())
        .map_err(|error| Error::internal(format!("an event could not be read again: {error}")))?;
    let place = serde_json::to_value(&event.place).unwrap_or_default();
    if let (Some(fields), Some(place)) = (value.as_object_mut(), place.as_object()) {
        fields.retain(|name, _| !place.contains_key(name));
    }
    if let (Body::ApprovalRequested { .. } | Body::ApprovalDecided { .. }, Some(fields)) =
        (&event.body, value.as_object_mut())
    {
        // Records of earlier versions name the worker only by the session of the event.
        fields.retain(|name, _| !["agent", "workerSession"].contains(&name.as_str()));
    }
    without_varying(&mut value);
    Ok(value)
}

fn without_varying(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["timestamp", "durationMs", "outside"].contains(&name.as_str()));
            fields.values_mut().for_each(without_varying);
        }
        Value::Array(items) => {
            // Records of earlier versions have the thoughts of a message behind its text.
            items.sort_by_key(|item| item.get("type").and_then(Value::as_str) != Some("thinking"));
            items.iter_mut().for_each(without_varying);
        }
        _ => {}
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    pub(super) event_index: Option<u64>,
    pub(super) session: String,
    pub(super) recorded: Value,
    pub(super) now: Value,
}

#[derive(Debug, Clone)]
pub(super) enum End {
    Done(Generated),
    Failed(Error),
    /// The end of the turn or of its holder cut the answer off.
    Cut,
}

#[derive(Debug, Clone)]
pub(super) struct RecordedAnswer {
    pub(super) deltas: VecDeque<Delta>,
    pub(super) end: End,
}

/// A segment that is being replayed.
#[derive(Debug, Default)]
pub(super) struct Tape {
    lanes: HashMap<Lane, VecDeque<Event>>,
    is_interrupted: bool,
    /// Why the turn was ended from outside, and the index of the first event that this caused.
    ending: Option<(Ending, u64)>,
    abort: watch::Sender<bool>,
    pub(super) difference: Option<Difference>,
    models: HashMap<String, Vec<String>>,
    answers: HashMap<String, VecDeque<RecordedAnswer>>,
    results: HashMap<Lane, VecDeque<Result<ToolResult, String>>>,
    validations: VecDeque<Body>,
    /// Approvals by session and the number of its turn. Each is returned once.
    approvals: HashMap<(String, usize), Vec<Body>>,
    turns: HashMap<String, usize>,
}

/// The state that all ports of a replay share.
pub(super) type SharedTape = Arc<Mutex<Tape>>;

/// Returns the error that stops the loop at the end of the record.
pub(super) fn stopped() -> Error {
    Error::new(Code::Cancelled, "the record ends here")
}

impl Tape {
    /// Creates the tape of a segment. `all` contains the events of the whole record.
    pub(super) fn of(segment: &Segment, all: &[Event], abort: watch::Sender<bool>) -> Tape {
        let ending = if segment.is_interrupted { None } else { ending(&segment.events) };
        let mut tape = Tape {
            is_interrupted: segment.is_interrupted,
            ending,
            models: models(all, &segment.events),
            abort,
            answers: answers(&segment.events, all),
            ..Tape::default()
        };
        let mut turns: HashMap<&str, usize> = HashMap::new();
        for event in &segment.events {
            let session = event.session();
            match &event.body {
                Body::TurnStart { .. } => *turns.entry(session).or_default() += 1,
                Body::Validation { .. } => tape.validations.push_back(event.body.clone()),
                Body::Tool { interrupted: false, .. } => {
                    tape.results.entry(lane(event)).or_default().extend(result(&event.body));
                }
                Body::ApprovalRequested { .. } | Body::ApprovalDecided { .. } => {
                    let turn = turns.get(session).copied().unwrap_or_default();
                    tape.approvals.entry((session.to_owned(), turn)).or_default().push(event.body.clone());
                }
                _ => {}
            }
            tape.lanes.entry(lane(event)).or_default().push_back(event.clone());
        }
        tape.abort_if_due();
        tape
    }

    /// Whether the record lacks this event of a running call, because the record was cut off or the turn ended before
    /// the call got that far. The record may still contain events of other calls.
    pub(super) fn is_past(&self, event: &Event) -> bool {
        match self.lanes.get(&lane(event)).and_then(VecDeque::front) {
            None => self.may_leave_calls_open(),
            Some(next) => self.ending.as_ref().is_some_and(|(_, from)| index(next) >= *from),
        }
    }

    /// Compares an event with the next recorded event of its lane, and removes that one. An error stops the loop.
    pub(super) fn compare(&mut self, event: &Event) -> Result<(), Error> {
        if matches!(event.body, Body::TurnStart { .. }) {
            *self.turns.entry(event.place.session.clone()).or_default() += 1;
        }
        let recorded = self.lanes.get_mut(&lane(event)).and_then(VecDeque::pop_front);
        if recorded.is_none() && self.is_interrupted {
            return Err(stopped());
        }
        let now = comparable(event)?;
        let then = recorded.as_ref().map(comparable).transpose()?;
        if then.as_ref() != Some(&now) {
            self.report(Difference {
                event_index: recorded.as_ref().map(index),
                session: event.place.session.clone(),
                recorded: then.unwrap_or_default(),
                now,
            });
            return Err(stopped());
        }
        self.abort_if_due();
        if self.is_interrupted && self.next().is_none() { Err(stopped()) } else { Ok(()) }
    }

    /// Called after the loop has ended. Reports the first recorded event that the loop has not produced.
    pub(super) fn finish(&mut self) {
        if let Some(event) = self.next().cloned() {
            self.report(Difference {
                event_index: Some(index(&event)),
                session: event.place.session.clone(),
                recorded: comparable(&event).unwrap_or_default(),
                now: Value::Null,
            });
        }
    }

    /// Returns the first recorded event that has not occurred yet.
    fn next(&self) -> Option<&Event> {
        self.lanes.values().filter_map(VecDeque::front).min_by_key(|event| index(event))
    }

    fn report(&mut self, difference: Difference) {
        self.difference.get_or_insert(difference);
    }

    /// Returns why the turn ends, if the next event is one that its end caused.
    pub(super) fn ended(&self) -> Option<Ending> {
        let (ending, from) = self.ending.as_ref()?;
        (index(self.next()?) >= *from).then(|| ending.clone())
    }

    /// Aborts what the loop is waiting for if the next event shows that the turn was ended from outside.
    fn abort_if_due(&self) {
        if self.ended().is_some() {
            self.abort.send_replace(true);
        }
    }

    /// Whether calls of tools or models may still have been open at the end of the record.
    pub(super) fn may_leave_calls_open(&self) -> bool {
        self.is_interrupted || self.ending.is_some()
    }

    /// Returns the configured models of a session, as far as the record shows them.
    pub(super) fn models(&self, session: &str) -> Vec<String> {
        self.models.get(session).cloned().unwrap_or_default()
    }

    pub(super) fn answer(&mut self, session: &str) -> Option<RecordedAnswer> {
        self.answers.get_mut(session)?.pop_front()
    }

    pub(super) fn result(&mut self, session: &str, call: &str) -> Option<Result<ToolResult, String>> {
        let lane = (session.to_owned(), format!("tool {call}"));
        self.results.get_mut(&lane)?.pop_front()
    }

    /// Returns the next result of a call without removing it.
    pub(super) fn next_result(&self, session: &str, call: &str) -> Option<&Result<ToolResult, String>> {
        let lane = (session.to_owned(), format!("tool {call}"));
        self.results.get(&lane)?.front()
    }

    /// The recorded reason why an answer could not be judged.
    pub(super) fn not_judged(&self) -> Option<String> {
        let of_rule = |event: &Event| match &event.body {
            Body::Operation { error: Some(error), .. } if error.name == RULE => {
                Some(error.message.split_once(NOT_JUDGED)?.1.to_owned())
            }
            _ => None,
        };
        self.lanes.values().flatten().find_map(of_rule)
    }

    pub(super) fn validation(&mut self) -> Option<Body> {
        self.validations.pop_front()
    }

    /// Returns the approvals of the session's current turn.
    pub(super) fn approvals(&mut self, session: &str) -> Vec<Body> {
        let turn = self.turns.get(session).copied().unwrap_or_default();
        self.approvals.remove(&(session.to_owned(), turn)).unwrap_or_default()
    }
}

/// Returns the configured models of each session, in order. They are reconstructed from the models that its calls name and the
/// failures between them. A holder that only ended a turn has no list, and names no model.
fn models(events: &[Event], segment: &[Event]) -> HashMap<String, Vec<String>> {
    let mut lists: HashMap<String, (Vec<String>, bool)> = HashMap::new();
    for event in events {
        let (list, is_next_due) = lists.entry(event.place.session.clone()).or_default();
        match &event.body {
            Body::CompactionStart { .. } | Body::Compaction { .. } => *is_next_due = false,
            // A model is called again after a failure that may pass, and the first one again after a compaction. A turn without a model
            // stands for the next one.
            Body::Turn { provider, model, error, .. } => {
                let name = format!("{provider}/{model}");
                let is_new = if model.is_empty() { *is_next_due } else { !list.contains(&name) };
                if list.is_empty() || is_new {
                    list.push(name);
                }
                *is_next_due = error.as_ref().is_some_and(is_final);
            }
            Body::Operation { error, result, .. } => {
                // Before a rule ended the turn, there may have been another model to call.
                if error.as_ref().is_some_and(|error| error.name == RULE) {
                    list.extend(list.last().cloned());
                }
                // If no model was called, the result still names the configured model that would have been called.
                list.extend(result.as_ref().and_then(named).filter(|_| list.is_empty()));
            }
            _ => {}
        }
    }
    for event in segment {
        if let Body::Turn { model, .. } = &event.body
            && model.is_empty()
        {
            lists.remove(&event.place.session);
        }
    }
    lists.into_iter().map(|(session, (list, _))| (session, list)).collect()
}

/// Returns the model that a result names.
fn named(result: &Value) -> Option<String> {
    let part = |name: &str| result.pointer(name)?.as_str();
    let (provider, id) = (part("/model/provider")?, part("/model/id")?);
    (!id.is_empty()).then(|| format!("{provider}/{id}"))
}

fn index(event: &Event) -> u64 {
    event.place.event_index
}

/// Returns why a turn was ended from outside, if it was, and the index of the first event that shows it. Nothing was
/// started after that event.
fn ending(events: &[Event]) -> Option<(Ending, u64)> {
    let of = |event: &Event| match &event.body {
        Body::Operation { error: Some(error), .. } if event.place.parent_session.is_none() => {
            ending_from_outside(&error.name)
        }
        _ => None,
    };
    let ending = events.iter().find_map(of)?;
    let stop = match ending {
        Ending::Aborted => StopReason::Aborted,
        _ => StopReason::Interrupted,
    };
    let is_turn = |event: &Event| matches!(event.body, Body::TurnStart { .. });
    let last_turn = events.iter().rposition(is_turn).map_or(0, |at| at + 1);
    let rest = events.get(last_turn..).unwrap_or_default();
    let ends_from_outside = |event: &Event| {
        let is_own = |other: &&Event| other.place.session == event.place.session;
        rest.iter().filter(is_own).any(|other| match &other.body {
            Body::Operation { error: Some(error), .. } => ending_from_outside(&error.name).is_some(),
            _ => false,
        })
    };
    let is_interrupted_next = |event: &Event| {
        let is_later = |other: &&Event| other.place.session == event.place.session && index(other) > index(event);
        let next = rest.iter().find(is_later).map(|other| &other.body);
        matches!(
            next,
            Some(Body::MessageEnd { message: Message::Assistant { stop_reason, .. } }) if *stop_reason == Some(stop)
        )
    };
    let shows = |event: &&Event| match &event.body {
        // The model had not begun to answer, or was cut off in the middle of a thought.
        Body::MessageStart { message: Message::Assistant { api, provider, .. } } => {
            api == provider && is_interrupted_next(event)
        }
        Body::ThinkingEnd { .. } => is_interrupted_next(event),
        Body::Task { is_error, result, .. } => *is_error && result == TASK_INTERRUPTED,
        Body::MessageEnd { message: Message::Assistant { stop_reason, .. } } => *stop_reason == Some(stop),
        Body::Turn { stop_reason, .. } => *stop_reason == stop,
        Body::Tool { interrupted, .. } => *interrupted,
        // Some calls had not begun.
        Body::TurnMessages { message, tool_results, .. } => tool_results.len() < calls(message),
        Body::ApprovalDecided { status, .. } => status == "cancelled",
        Body::Compaction { error: Some(error), .. } => ending_from_outside(&error.name).is_some(),
        Body::AgentEnd { .. } | Body::Operation { .. } => ends_from_outside(event),
        _ => false,
    };
    rest.iter().find(shows).map(|event| (ending, index(event)))
}

/// The number of tool calls in a message.
fn calls(message: &Message) -> usize {
    let is_call = |block: &&Block| matches!(block, Block::ToolCall { .. });
    message.content().iter().filter(is_call).count()
}

fn ending_from_outside(name: &str) -> Option<Ending> {
    match name {
        "aborted" => Some(Ending::Aborted),
        "timeout" => Some(Ending::Timeout),
        "retry_exhausted" => Some(Ending::RetryExhausted),
        _ => None,
    }
}

/// Returns the result of a call as the tool returned it, without the note that the loop adds to repeated calls.
pub(super) fn result(body: &Body) -> Option<Result<ToolResult, String>> {
    let Body::Tool { is_error, result, .. } = body else {
        return None;
    };
    let mut result = result.clone();
    if *is_error {
        return Some(Err(result.text()));
    }
    let is_note = |block: &Block| matches!(block, Block::Text { text } if text.starts_with(SAME_CALL));
    if result.content.last().is_some_and(is_note) {
        result.content.pop();
    }
    Some(Ok(result))
}

/// Returns the answers of models by session, in order. If a model had not begun to answer when the previous holder
/// crashed, it is called again in the same turn.
fn answers(events: &[Event], all: &[Event]) -> HashMap<String, VecDeque<RecordedAnswer>> {
    let mut answers: HashMap<String, VecDeque<RecordedAnswer>> = HashMap::new();
    let first = events.first().map(index).unwrap_or_default();
    for (session, purpose) in unanswered(all.iter().take_while(|event| index(event) < first)) {
        let answer = answer(purpose, session, events);
        answers.entry(session.to_owned()).or_default().push_back(answer);
    }
    for (at, event) in events.iter().enumerate() {
        if let Body::TurnStart { purpose, .. } = event.body {
            let session = &event.place.session;
            let answer = answer(purpose, session, events.get(at + 1..).unwrap_or_default());
            answers.entry(session.clone()).or_default().push_back(answer);
        }
    }
    answers
}

/// Returns the sessions with an open turn in which the model has not begun to answer.
fn unanswered<'a>(events: impl Iterator<Item = &'a Event>) -> HashMap<&'a str, Purpose> {
    let mut open = HashMap::new();
    for event in events {
        let session = event.place.session.as_str();
        match &event.body {
            Body::TurnStart { purpose, .. } => _ = open.insert(session, *purpose),
            Body::Turn { .. } | Body::MessageStart { message: Message::Assistant { .. } } => _ = open.remove(session),
            _ => {}
        }
    }
    open
}

/// Returns the answer of a turn that has begun. `after` contains the events since then.
fn answer(purpose: Purpose, session: &str, after: &[Event]) -> RecordedAnswer {
    let own = after.iter().filter(|event| event.place.session == session);
    let own = own.map(|event| &event.body);
    let own = own.take_while(|body| !matches!(body, Body::TurnStart { .. }));
    match purpose {
        Purpose::Agent => of_message(own),
        _ => of_turn(own),
    }
}

fn of_message<'a>(events: impl Iterator<Item = &'a Body>) -> RecordedAnswer {
    let mut deltas = VecDeque::new();
    let mut draft = Draft::default();
    for body in events {
        draft.apply(body);
        match body {
            Body::MessageStart { message: Message::Assistant { provider, model, api, .. } } => {
                deltas.push_back(Delta::Start { provider: provider.clone(), model: model.clone(), api: api.clone() })
            }
            Body::TextDelta { text } => deltas.push_back(Delta::Text { delta: text.clone() }),
            Body::ThinkingDelta { delta } => deltas.push_back(Delta::Think { delta: delta.clone(), opaque: None }),
            // A thought can be empty, and the event that ended it can be missing from the record.
            Body::ThinkingStart => deltas.push_back(Delta::Think { delta: String::new(), opaque: None }),
            Body::ThinkingEnd { .. } => deltas.push_back(Delta::Text { delta: String::new() }),
            Body::MessageEnd { message: message @ Message::Assistant { .. } } => return ended(deltas, message, &draft),
            Body::Turn { error, is_error, .. } if *is_error => {
                return RecordedAnswer { deltas, end: End::Failed(error.as_ref().map_or_else(stopped, failed)) };
            }
            _ => {}
        }
    }
    RecordedAnswer { deltas, end: End::Cut }
}

fn ended(mut deltas: VecDeque<Delta>, message: &Message, draft: &Draft) -> RecordedAnswer {
    let Message::Assistant { content, api, provider, model, usage, stop_reason, error, .. } = message else {
        return RecordedAnswer { deltas, end: End::Cut };
    };
    let mut content = content.clone();
    draft.complete(&mut content);
    // The loop itself makes a failure of an empty answer.
    let is_empty = error.as_ref().is_some_and(|error| error.name == EMPTY_ANSWER);
    let stop_reason = if is_empty { StopReason::Stop } else { stop_reason.unwrap_or(StopReason::Stop) };
    let end = match (stop_reason, error) {
        (StopReason::Error, Some(error)) => End::Failed(failed(error)),
        (StopReason::Aborted | StopReason::Interrupted | StopReason::Error, _) => End::Cut,
        _ => {
            add_signatures(&mut deltas, &content);
            deltas.extend(content.iter().filter_map(|block| match block {
                Block::ToolCall { id, name, arguments } => {
                    Some(Delta::ToolCall { id: id.clone(), name: name.clone(), arguments: arguments.clone() })
                }
                _ => None,
            }));
            End::Done(Generated {
                model: ModelName { provider: provider.clone(), id: model.clone() },
                api: api.clone(),
                stop_reason,
                usage: *usage,
            })
        }
    };
    RecordedAnswer { deltas, end }
}

/// Adds the signatures to the thoughts again. The last delta of a thought contains its signature.
fn add_signatures(deltas: &mut VecDeque<Delta>, content: &[Block]) {
    let mut seals = content.iter().filter_map(|block| match block {
        Block::Thinking { opaque, .. } => Some(opaque.clone()),
        _ => None,
    });
    let is_thought = |delta: &Delta| matches!(delta, Delta::Think { .. });
    for thought in deltas.make_contiguous().chunk_by_mut(|one, next| is_thought(one) && is_thought(next)) {
        if let Some(Delta::Think { opaque, .. }) = thought.last_mut() {
            *opaque = seals.next().flatten();
        }
    }
}

/// Returns the answer of a compaction, for which there are no message events.
fn of_turn<'a>(events: impl Iterator<Item = &'a Body>) -> RecordedAnswer {
    for body in events {
        if let Body::Turn { model, provider, api, output, usage, stop_reason, error, .. } = body {
            let texts = output.iter().filter_map(|block| match block {
                Block::Text { text } => Some(Delta::Text { delta: text.clone() }),
                _ => None,
            });
            let start = Delta::Start { provider: provider.clone(), model: model.clone(), api: api.clone() };
            return RecordedAnswer {
                deltas: std::iter::once(start).chain(texts).collect(),
                end: match error {
                    Some(error) => End::Failed(failed(error)),
                    None if stop_reason.is_incomplete() => End::Cut,
                    None => End::Done(Generated {
                        model: ModelName { provider: provider.clone(), id: model.clone() },
                        api: api.clone(),
                        stop_reason: *stop_reason,
                        usage: *usage,
                    }),
                },
            };
        }
    }
    RecordedAnswer { deltas: VecDeque::new(), end: End::Cut }
}

/// Returns the error from which a failure was made. The message of the failure already contains the hint.
fn failed(failure: &Failure) -> Error {
    if failure.name == BUDGET {
        // The message already contains the place of the error.
        let message = failure.message.replacen(" (at /budget)", "", 1);
        return match message.split_once("; ") {
            Some((message, hint)) => Error::forbidden(message).hint(hint),
            None => Error::forbidden(message),
        }
        .at("/budget");
    }
    match Code::all().find(|code| code.name() == failure.name) {
        Some(code) => Error::new(code, failure.message.clone()),
        None => Error::busy(failure.message.clone(), 3_600_000),
    }
}
