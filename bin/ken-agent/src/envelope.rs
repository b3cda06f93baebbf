//! The envelope that every event of a submission has in addition to its own fields, and writing the event.

use ken_types::event::{AskingWorker, Body, Event, Place, VERSION, is_dispatched};
use ken_types::id::{Mint, SubmissionId};
use ken_types::limits::EVENT_BYTES;
use ken_types::ops::store::Claim;
use ken_types::{Error, Timestamp};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::ports::Caller;
use crate::shorten::{SHORT, shorten_arguments, shorten_texts};
use crate::turn_state::{SessionName, TaskRef, TurnState, WorkerRef};

#[derive(Debug)]
pub(crate) struct Envelope {
    instance_id: String,
    submission_id: SubmissionId,
    dispatch_id: Option<SubmissionId>,
    /// The session of the agent that records these events.
    session: SessionName,
    /// For a worker: the session of the agent that gave it its task, and the id of that task.
    parent: Option<(SessionName, String)>,
    mint: Mint,
}

impl Envelope {
    pub(crate) fn of(claim: &Claim, mint: Mint) -> Envelope {
        let connector = claim.scope.as_ref().map(|scope| scope.connector.as_str());
        let is_dispatched = is_dispatched(connector, &claim.instance);
        let submission_id = claim.lease.submission_id.clone();
        Envelope {
            instance_id: claim.instance.clone(),
            dispatch_id: is_dispatched.then(|| submission_id.clone()),
            submission_id,
            session: SessionName::default(),
            parent: None,
            mint,
        }
    }

    /// The envelope of a worker with a task of the parent.
    pub(crate) fn of_worker(worker: &Caller, parent: &Caller, task: &str, mint: Mint) -> Envelope {
        Envelope {
            session: worker.session.clone(),
            parent: Some((parent.session.clone(), task.to_owned())),
            ..Envelope::of(&worker.claim, mint)
        }
    }

    /// Returns the next event. The start of an operation or turn creates its id. Events of workers already contain
    /// their ids.
    pub(crate) fn wrap(&mut self, state: &TurnState, mut body: Body, task: Option<TaskRef>, now: Timestamp) -> Event {
        let (task_id, worker) = task.map_or((None, None), |task| (Some(task.id), task.worker));
        if let Some(worker) = worker.and_then(|worker| kept_apart(worker, &mut body)) {
            let place = Place {
                session: worker.session.as_str().to_owned(),
                operation_id: worker.operation_id,
                turn_id: worker.turn_id,
                parent_session: Some(worker.parent.as_str().to_owned()),
                ..self.place(state, task_id, now)
            };
            return Event { v: VERSION, body, place };
        }
        let operation_id = match &body {
            Body::OperationStart { .. } => Some(self.mint.prefixed("op_")),
            _ => state.operation.as_ref().filter(|operation| !operation.ended).map(|operation| operation.id.clone()),
        };
        let turn_id = match &body {
            Body::TurnStart { .. } => Some(self.mint.prefixed("turn_")),
            _ => state.turn.as_ref().map(|turn| turn.id.clone()),
        };
        let place = Place { operation_id, turn_id, ..self.place(state, task_id, now) };
        Event { v: VERSION, body, place }
    }

    fn place(&self, state: &TurnState, task_id: Option<String>, now: Timestamp) -> Place {
        Place {
            event_index: state.next_index,
            timestamp: now.max(state.last_timestamp),
            instance_id: self.instance_id.clone(),
            submission_id: self.submission_id.clone(),
            dispatch_id: self.dispatch_id.clone(),
            session: self.session.as_str().to_owned(),
            harness: "default".to_owned(),
            operation_id: None,
            turn_id: None,
            task_id: task_id.or_else(|| self.parent.as_ref().map(|(_, task)| task.clone())),
            parent_session: self.parent.as_ref().map(|(session, _)| session.as_str().to_owned()),
        }
    }
}

/// Returns the worker if an event of it is recorded apart from the events of the agent above it. An approval is not: it
/// becomes an event of that agent, and names the worker.
fn kept_apart(worker: WorkerRef, body: &mut Body) -> Option<WorkerRef> {
    match body {
        Body::ApprovalRequested { worker: asking, .. } | Body::ApprovalDecided { worker: asking, .. } => {
            let worker_session = worker.session.as_str().to_owned();
            *asking = Some(AskingWorker { agent: worker.agent, worker_session });
            None
        }
        _ => Some(worker),
    }
}

/// Returns the event as JSON. If it exceeds the limit, it is shortened for its readers, with notes. What a later holder
/// needs is never lost by that: long texts and the arguments of calls are recorded as deltas too.
pub(crate) fn written(event: &Event) -> Result<Box<RawValue>, Error> {
    let unwritable = |error| Error::internal(format!("an event could not be written as JSON: {error}"));
    let raw = serde_json::value::to_raw_value(event).map_err(unwritable)?;
    if raw.get().len() <= EVENT_BYTES {
        return Ok(raw);
    }
    cut(event).and_then(|value| serde_json::value::to_raw_value(&value)).map_err(unwritable)
}

/// Returns the event shortened until it fits: first its longest texts, then the arguments of calls, then its longest
/// lists. The envelope is short and is not changed.
fn cut(event: &Event) -> Result<Shortened, serde_json::Error> {
    let mut fields = serde_json::to_value(&event.body)?;
    let kind = fields.as_object_mut().and_then(|fields| fields.remove("type")).unwrap_or_default();
    let is_too_long = |fields: &Value| fields.to_string().len() + ENVELOPE_BYTES > EVENT_BYTES;
    let mut most = EVENT_BYTES;
    while is_too_long(&fields) && most > SHORT {
        most /= 2;
        shorten_texts(&mut fields, most, NOTE);
    }
    if is_too_long(&fields) {
        shorten_calls(&mut fields);
    }
    while is_too_long(&fields) && halve_longest_list(&mut fields) {}
    Ok(Shortened { v: event.v, kind, fields, place: event.place.clone() })
}

/// An upper bound for the size of the envelope, in bytes, with the longest instance id escaped.
pub(crate) const ENVELOPE_BYTES: usize = 16 * 1024;
const NOTE: &str = " […cut: more than an event may hold]";

#[derive(serde::Serialize)]
struct Shortened {
    v: u8,
    #[serde(rename = "type")]
    kind: Value,
    #[serde(flatten)]
    fields: Value,
    #[serde(flatten)]
    place: Place,
}

fn shorten_calls(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(shorten_calls),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, inner)| match name.as_str() {
            "arguments" | "args" => shorten_arguments(inner, NOTE),
            _ => shorten_calls(inner),
        }),
        _ => {}
    }
}

/// Drops the older half of the longest list. Returns false if there is nothing to drop.
fn halve_longest_list(value: &mut Value) -> bool {
    let list = longest_list(value).filter(|list| list.len() > 1);
    list.map(|list| list.drain(..list.len() / 2)).is_some()
}

fn longest_list(value: &mut Value) -> Option<&mut Vec<Value>> {
    match value {
        Value::Array(items) => Some(items),
        Value::Object(fields) => fields.values_mut().filter_map(longest_list).max_by_key(|list| list.len()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::claim;
    use ken_types::event::Block;

    fn wrapped(body: Body) -> Event {
        let mint = Mint::of(Timestamp::from_millis(0), &[1; 16]);
        Envelope::of(&claim("hello"), mint).wrap(&TurnState::default(), body, None, Timestamp::from_millis(5))
    }

    #[test]
    fn an_event_over_the_limit_is_cut_and_says_so() {
        let long = Body::Turn {
            purpose: ken_types::event::Purpose::Agent,
            duration_ms: 1,
            model: "m".into(),
            provider: "p".into(),
            api: "a".into(),
            output: vec![Block::text("é\"".repeat(200_000)), Block::text("short")],
            usage: ken_types::event::Usage::default(),
            stop_reason: ken_types::event::StopReason::Stop,
            is_error: false,
            error: None,
        };
        let written = written(&wrapped(long)).unwrap();
        assert!(written.get().len() <= EVENT_BYTES, "{}", written.get().len());
        assert!(written.get().starts_with(r#"{"v":1,"type":"turn","#), "{}", &written.get()[..40]);
        let event: Event = serde_json::from_str(written.get()).unwrap();
        let Body::Turn { output, .. } = event.body else { panic!() };
        assert!(serde_json::to_string(&output).unwrap().contains("[…cut"));
        assert_eq!(output.get(1), Some(&Block::text("short")));
    }

    #[test]
    fn a_call_with_long_arguments_keeps_its_id_and_short_texts() {
        let fields = (0..5_000).map(|number| (number.to_string(), "y".repeat(200).into()));
        let many = Value::Object(fields.collect());
        for (arguments, kept) in
            [(serde_json::json!({"path": "a.txt", "content": "x".repeat(1_900_000)}), "a.txt"), (many, "yyy")]
        {
            let args = arguments.clone();
            let body = Body::ToolStart { tool_name: "t".into(), tool_call_id: "call_7".into(), args, tools: None };
            let written = written(&wrapped(body)).unwrap();
            assert!(written.get().len() <= EVENT_BYTES);
            for part in ["call_7", kept, "[…cut"] {
                assert!(written.get().contains(part), "{part}");
            }
        }
    }

    #[test]
    fn many_small_messages_are_cut_to_the_newest() {
        let message = |number: i64| ken_types::event::Message::User {
            content: vec![Block::text("x".repeat(900))],
            timestamp: number,
            now: None,
        };
        let written = written(&wrapped(Body::AgentEnd { messages: (0..1_000).map(message).collect() })).unwrap();
        assert!(written.get().len() <= EVENT_BYTES);
        assert!(written.get().contains(r#""timestamp":999"#) && !written.get().contains(r#""timestamp":0,"#));
    }
}
