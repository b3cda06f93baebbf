//! A claimed run of a workflow. Its steps are recorded as `log` events of its stream. Clients see them there while they
//! watch the run, and the next holder reads them to continue the run.
//!
//! The field `attributes` of such an event is `{"step","state":"started","repeatable"}` before a step whose beginning
//! has to be recorded, and `{"step","state":"done","output"}` or `{"step","state":"failed","error"}` after each step.
//! `step` identifies one execution of a step within the run.

use ken_types::event::{Body, Failure, RunEvent};
use ken_types::id::RunId;
use ken_types::limits::{EVENT_BYTES, RUN_BYTES};
use ken_types::ops::runs::{EndRun, RunsEnd};
use ken_types::ops::store::{AppendEvents, Claim, Lease, ReadStream, StreamsRead, SubmissionsAppend};
use ken_types::{Error, Offset, Timestamp, json as strict};
use ken_wire::Pool;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::patience::call_until_answered;

/// The maximum size of an event without its message and attributes, in bytes.
const MAX_ENVELOPE_BYTES: usize = 4 * 1024;

/// What earlier holders have recorded of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// Steps that have ended, each with its output or error, in the order in which they ended.
    pub ended: Vec<(String, Result<Value, Error>)>,
    /// Steps that have begun and must not be repeated, and of which no end is recorded.
    pub uncertain: Vec<String>,
}

impl Recorded {
    /// Returns the output or error of a step, if it has ended.
    pub fn step(&self, step: &str) -> Option<&Result<Value, Error>> {
        let found = self.ended.iter().find(|(name, _)| name == step);
        found.map(|(_, ended)| ended)
    }

    /// Returns the failure with which the run has to end, if it is unknown whether one of its steps took effect.
    pub fn interruption(&self) -> Option<Failure> {
        let step = self.uncertain.first()?;
        Some(Failure {
            name: "Interrupted".into(),
            message: format!("Step {step} was interrupted; it is not known whether it took effect."),
        })
    }

    fn apply(&mut self, mark: Mark) {
        match mark {
            Mark::Started { step, repeatable } if !repeatable => self.uncertain.push(step),
            Mark::Started { .. } => {}
            Mark::Done { step, output } => {
                self.close(&step);
                // A step whose output was too long to be recorded runs again.
                self.ended.extend(output.map(|output| (step, Ok(output))));
            }
            Mark::Failed { step, error } => {
                self.close(&step);
                self.ended.push((step, Err(error)));
            }
        }
    }

    fn close(&mut self, step: &str) {
        self.uncertain.retain(|open| open != step);
    }
}

/// The attributes of an event that records a step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum Mark {
    Started {
        step: String,
        repeatable: bool,
    },
    Done {
        step: String,
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
        output: Option<Value>,
    },
    Failed {
        step: String,
        error: Error,
    },
}

/// Reads a `null` that is present as a value, not as an absent field.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A claimed run. Each of its calls waits while the store cannot be reached. An error means that the lease is lost, and
/// that the holder must stop at once.
#[derive(Debug)]
pub struct Run {
    store: Pool,
    lease: Lease,
    id: RunId,
    workflow: String,
    payload: Value,
    recorded: Recorded,
    end: Mutex<End>,
}

/// The position at the end of the stream. It is locked while an event is written, so that parallel steps write their
/// events one after the other.
#[derive(Debug)]
struct End {
    next_index: u64,
    last: Timestamp,
}

impl Run {
    /// Opens a claimed run, and reads what earlier holders have recorded.
    pub async fn open(store: &Pool, claim: Claim) -> Result<Run, Error> {
        let workflow = claim.workflow.ok_or_else(|| Error::internal("a claim of a run names no workflow"))?;
        let mut recorded = Recorded::default();
        if claim.attempt > 1 {
            read_recorded(store, &claim.stream, &mut recorded).await?;
        }
        Ok(Run {
            store: store.clone(),
            id: RunId(claim.lease.submission_id.as_str().to_owned()),
            lease: claim.lease,
            workflow,
            payload: strict::parse(claim.text.as_bytes(), strict::MAX_DEPTH)?,
            recorded,
            end: Mutex::new(End { next_index: claim.next_event_index, last: claim.last_timestamp.unwrap_or_default() }),
        })
    }

    pub fn id(&self) -> &RunId {
        &self.id
    }

    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    pub fn payload(&self) -> &Value {
        &self.payload
    }

    pub fn recorded(&self) -> &Recorded {
        &self.recorded
    }

    /// Records that a step begins. This is required before a step that must not be repeated. If the holder is lost
    /// before such a step has ended, the run ends as interrupted.
    pub async fn begin(&self, step: &str, repeatable: bool) -> Result<(), Error> {
        let step = step.to_owned();
        self.mark(format!("step {step} started"), Mark::Started { step, repeatable }).await
    }

    /// Records that a step is done. An output that is too long for an event is not recorded, so after a crash the step
    /// runs again.
    pub async fn done(&self, step: &str, output: &Value) -> Result<(), Error> {
        let fits = output.to_string().len() + MAX_ENVELOPE_BYTES <= EVENT_BYTES;
        let mark = Mark::Done { step: step.to_owned(), output: fits.then(|| output.clone()) };
        self.mark(format!("step {step} done"), mark).await
    }

    /// Records that a step has failed.
    pub async fn failed(&self, step: &str, error: &Error) -> Result<(), Error> {
        let mark = Mark::Failed { step: step.to_owned(), error: error.clone() };
        self.mark(format!("step {step} failed: {}", error.message), mark).await
    }

    /// Writes a log line to the run's stream. If it is too long for an event, a note with its length is written in its
    /// place.
    pub async fn log(&self, level: &str, message: &str, attributes: Value) -> Result<(), Error> {
        let bytes = message.len() + attributes.to_string().len();
        if bytes + MAX_ENVELOPE_BYTES <= EVENT_BYTES {
            return self.append(level, message, attributes).await;
        }
        self.append(level, "a line that was too long", json!({"bytes": bytes})).await
    }

    /// Ends the run with its result or its failure. A result that is too long to be stored becomes a failure.
    pub async fn end(self, ended: Result<Value, Failure>) -> Result<(), Error> {
        self.end_with_blobs(ended.map(|result| (result, Vec::new()))).await
    }

    /// Ends the run as [`Run::end`] does, with a result that refers to blobs, given by their digests. The store keeps
    /// these blobs as long as the run.
    pub async fn end_with_blobs(self, ended: Result<(Value, Vec<String>), Failure>) -> Result<(), Error> {
        let ((result, error), blobs) = match ended {
            Ok((result, blobs)) => (limit_size(result), blobs),
            Err(error) => ((Value::Null, Some(error)), Vec::new()),
        };
        let args = EndRun { lease: self.lease, result, blobs, error };
        call_until_answered::<RunsEnd>(&self.store, &args).await.map(drop)
    }

    async fn mark(&self, message: String, mark: Mark) -> Result<(), Error> {
        let attributes = serde_json::to_value(mark).map_err(unwritten)?;
        self.append("info", &message, attributes).await
    }

    async fn append(&self, level: &str, message: &str, attributes: Value) -> Result<(), Error> {
        let body = Body::Log { level: level.to_owned(), message: message.to_owned(), attributes: Some(attributes) };
        let mut end = self.end.lock().await;
        let at = Timestamp::now().max(end.last);
        let event = RunEvent::new(body, end.next_index, at, self.id.clone());
        let args = AppendEvents {
            lease: self.lease.clone(),
            first_index: end.next_index,
            events: vec![to_raw_value(&event).map_err(unwritten)?],
        };
        call_until_answered::<SubmissionsAppend>(&self.store, &args).await?;
        end.next_index += 1;
        end.last = at;
        Ok(())
    }
}

fn unwritten(error: serde_json::Error) -> Error {
    Error::internal(format!("an event could not be written: {error}"))
}

/// Returns the result, or an error if it is too long to be stored.
fn limit_size(result: Value) -> (Value, Option<Failure>) {
    let bytes = result.to_string().len();
    if bytes <= RUN_BYTES {
        return (result, None);
    }
    let failure = Failure {
        name: "ResultTooLarge".into(),
        message: format!("The result has {bytes} bytes, at most {RUN_BYTES} are kept."),
    };
    (Value::Null, Some(failure))
}

async fn read_recorded(store: &Pool, stream: &str, recorded: &mut Recorded) -> Result<(), Error> {
    let mut args = ReadStream { stream: stream.to_owned(), ..ReadStream::default() };
    loop {
        let page = call_until_answered::<StreamsRead>(store, &args).await?;
        page.entries.iter().filter_map(|entry| mark_of(entry)).for_each(|mark| recorded.apply(mark));
        if page.next == page.end {
            return Ok(());
        }
        args.offset = Offset::After(page.next);
    }
}

/// Returns the record of a step in an event, if the event contains one.
fn mark_of(event: &RawValue) -> Option<Mark> {
    #[derive(Deserialize)]
    struct Log {
        r#type: String,
        attributes: Option<Value>,
    }
    let log: Log = serde_json::from_str(event.get()).ok()?;
    let attributes = log.attributes.filter(|_| log.r#type == "log")?;
    serde_json::from_value(attributes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(marks: &[Value]) -> Recorded {
        let mut recorded = Recorded::default();
        for attributes in marks {
            let event = json!({"v": 1, "type": "log", "level": "info", "message": "m", "attributes": attributes});
            let event = to_raw_value(&event).unwrap();
            mark_of(&event).into_iter().for_each(|mark| recorded.apply(mark));
        }
        recorded
    }

    #[test]
    fn what_was_done_is_known_and_what_was_open_is_uncertain_only_if_it_must_not_be_repeated() {
        let recorded = folded(&[
            json!({"step": "a", "state": "started", "repeatable": true}),
            json!({"step": "a", "state": "done", "output": null}),
            json!({"step": "b", "state": "started", "repeatable": false}),
            json!({"step": "b", "state": "done", "output": {"n": 1}}),
            json!({"step": "long", "state": "done"}),
            json!({"step": "c", "state": "started", "repeatable": true}),
            json!({"step": "f", "state": "started", "repeatable": false}),
            json!({"step": "f", "state": "failed", "error": {"code": "deadline", "message": "late"}}),
            json!({"other": 1}),
        ]);
        assert_eq!(recorded.step("a"), Some(&Ok(Value::Null)));
        assert_eq!(recorded.step("b"), Some(&Ok(json!({"n": 1}))));
        assert_eq!((recorded.step("long"), recorded.step("c")), (None, None));
        assert_eq!(recorded.step("f"), Some(&Err(Error::deadline("late"))));
        assert_eq!(recorded.interruption(), None);
        let open = folded(&[json!({"step": "d", "state": "started", "repeatable": false})]);
        assert_eq!(open.interruption().unwrap().name, "Interrupted");
    }

    #[test]
    fn a_result_that_is_too_long_fails_its_run() {
        let (result, failure) = limit_size(json!("x".repeat(RUN_BYTES)));
        assert_eq!((result, failure.unwrap().name.as_str()), (Value::Null, "ResultTooLarge"));
        assert_eq!(limit_size(json!(1)), (json!(1), None));
    }
}
