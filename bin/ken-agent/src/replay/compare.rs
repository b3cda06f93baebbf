//! Replays a record, one holder after the other, until a step differs.

use std::sync::Arc;
use std::time::Duration;

use ken_skills::Sources;
use ken_types::event::{Body, Event, Failure, Message, ModelName, Outcome, Purpose};
use ken_types::id::Mint;
use ken_types::ops::store::Claim;
use ken_types::{Code, Error};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Case;
use super::journal::{Calls, ComparingJournal};
use super::ports::{TapeModel, TapePolicy, TapeTools, TapeWorkers};
use super::tape::{Difference, Segment, SharedTape, Tape, segments};
use crate::budget::Budget;
use crate::embedding::Embedding;
use crate::envelope::Envelope;
use crate::journal::Journal;
use crate::ports::{Caller, Ports};
use crate::share::{Share, print_line};
use crate::skills::Skills;
use crate::turn_loop::TurnLoop;
use crate::turn_state::{Duties, Ending, NOT_CONFIGURED, Plan, Planned, TurnState};

/// If the loop records nothing for this long, it waits for something that the record does not contain.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn run(case: Case, share: Arc<Share>) -> Result<bool, Error> {
    if let Some(difference) = difference(&case, &share, true).await? {
        print_line(json!({ "difference": difference }))?;
        return Ok(false);
    }
    print_line(json!({"same": true, "events": case.events.len()}))?;
    Ok(true)
}

/// Returns the first difference between the record and the loop. With `shows`, each step is printed.
pub(crate) async fn difference(case: &Case, share: &Arc<Share>, shows: bool) -> Result<Option<Difference>, Error> {
    if case.events.is_empty() {
        return Err(Error::invalid("/events", "the record has no events"));
    }
    let mut before = TurnState::default();
    for (number, segment) in segments(&case.events).into_iter().enumerate() {
        let difference = play(case, share, &before, &segment, number > 0, shows).await?;
        if difference.is_some() {
            return Ok(difference);
        }
        for event in &segment.events {
            before.apply(event);
        }
    }
    Ok(None)
}

async fn play(
    case: &Case,
    share: &Arc<Share>,
    before: &TurnState,
    segment: &Segment,
    is_resumed: bool,
    shows: bool,
) -> Result<Option<Difference>, Error> {
    let (abort, aborted) = watch::channel(false);
    let tape: SharedTape = Arc::new(Mutex::new(Tape::of(segment, &case.events, abort)));
    let state = case.model_state(tape.lock().models("default"));
    let model = TapeModel { tape: tape.clone(), session: "default".to_owned(), state: state.clone() };
    let ports = Ports {
        share: share.clone(),
        judge: None,
        // Skills only matter to a model, and a replay calls no model.
        skills: Arc::new(Skills::of_files(Sources::default())),
        tools: Arc::new(TapeTools { record: case.record.clone(), tape: tape.clone() }),
        embedding: Embedding::none(),
        policy: Arc::new(TapePolicy { tape: tape.clone() }),
        workers: Arc::new(TapeWorkers { model: model.clone() }),
    };
    let attempt = match segment.events.first().map(|event| &event.body) {
        Some(Body::SubmissionResumed { attempt }) => *attempt,
        _ => 1,
    };
    let claim = Arc::new(Claim { attempt, ..case.record.claim.clone() });
    let caller = Caller::root(claim.clone());
    let mut journal = ComparingJournal {
        state: resumed(before, segment, is_resumed),
        envelope: Envelope::of(&claim, Mint::fresh()?),
        tape: tape.clone(),
        shows,
        calls: Calls::default(),
    };
    if state.models.is_empty() {
        journal.state.failure = no_model(&case.events);
    }
    let plan = plan(&claim, &case.events, segment, state.models.clone());
    let mut turns = TurnLoop::new(journal, &model, &ports, caller.clone(), plan, aborted);
    match case.background(&ports, &caller, &state).await {
        Ok(background) => {
            turns.caller.rules = background.rules.clone();
            turns.plan.duties = Duties {
                // The text of the knowledge is not recorded. A recorded validation shows that there was some.
                has_knowledge: has_validation(&case.events),
                ..background.duties()
            };
            turns.background = Some(background);
            turns.budget = Some(Budget::of(&state));
        }
        Err(error) => turns.plan.ending = Some(Ending::Defect(error.to_string())),
    }
    let played = timeout(IDLE_TIMEOUT, turns.go()).await;
    let settled = match played {
        Ok(Ok(())) => {
            let settlement = turns.journal.state.settlement(&turns.plan);
            turns.journal.record(settlement.event(), None).await
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(Code::Cancelled, "the loop stands still")),
    };
    let mut tape = tape.lock();
    match settled {
        Err(error) if error.code != Code::Cancelled => Err(error),
        _ => {
            tape.finish();
            Ok(tape.difference.clone())
        }
    }
}

/// Returns the state in which a holder resumed the turn. Calls that the record shows as interrupted are not repeated.
fn resumed(before: &TurnState, segment: &Segment, is_resumed: bool) -> TurnState {
    let mut state = before.clone();
    if is_resumed {
        let is_interrupted = |id: &str| {
            segment.events.iter().any(
                |event| matches!(&event.body, Body::Tool { tool_call_id, interrupted: true, .. } if tool_call_id == id),
            )
        };
        state.resume(&|call| !is_interrupted(&call.id));
    }
    state
}

/// Returns why no model could be called, which the record alone knows.
fn no_model(events: &[Event]) -> Option<(ModelName, Failure)> {
    let error = events.iter().find_map(|event| match &event.body {
        Body::Operation { error: Some(error), .. } if error.name == NOT_CONFIGURED => Some(error),
        _ => None,
    })?;
    Some((ModelName::default(), Failure::new(Code::Unauthenticated.name(), &error.message)))
}

fn plan(claim: &Claim, events: &[Event], segment: &Segment, models: Vec<String>) -> Plan {
    let (compaction, on_overflow) = compactions(events, segment);
    let (ending, shown) = (ending(events), shown(events));
    Plan { models, compaction, on_overflow, ending, shown, ..Plan::of_submission(claim) }
}

/// Returns the prompt that stands before the first turn. Records of earlier versions have none.
fn shown(events: &[Event]) -> Option<Message> {
    events.iter().find_map(|event| match &event.body {
        Body::MessageStart { message: message @ (Message::User { .. } | Message::Signal { .. }) }
            if event.place.turn_id.is_none() =>
        {
            Some(message.clone())
        }
        _ => None,
    })
}

/// Returns why a turn ended before its operation started.
fn ending(events: &[Event]) -> Option<Ending> {
    let has_begun = |event: &Event| matches!(event.body, Body::OperationStart { .. });
    if events.iter().any(has_begun) {
        return None;
    }
    events.iter().find_map(|event| match &event.body {
        Body::SubmissionSettled { outcome, error } => match outcome {
            Outcome::Aborted => Some(Ending::Aborted),
            Outcome::Failed => Some(Ending::Defect(error.clone().unwrap_or_default())),
            Outcome::Completed => None,
        },
        _ => None,
    })
}

/// Returns the compactions that were planned, according to the record. A holder that only ended the turn planned none,
/// and recorded that there was nothing to compact.
fn compactions(events: &[Event], segment: &Segment) -> (Option<Planned>, Option<Planned>) {
    let mut planned = None;
    let is_of_compaction = |event: &Event| matches!(event.body, Body::TurnStart { purpose: Purpose::Compaction, .. });
    let ends_here = |event: &Event| matches!(event.body, Body::Compaction { .. });
    let min = if segment.events.iter().any(ends_here) { 0 } else { u64::from(events.iter().any(is_of_compaction)) };
    for event in events {
        match &event.body {
            Body::CompactionStart { reason, estimated_tokens } => {
                let mut reasons = ["manual", "threshold", "overflow"].into_iter();
                planned = Some(Planned {
                    reason: reasons.find(|known| known == reason).unwrap_or("threshold"),
                    estimated_tokens: *estimated_tokens,
                    messages: 1,
                });
            }
            Body::Compaction { messages_before, .. } => {
                if let Some(planned) = &mut planned {
                    planned.messages = min.max(*messages_before);
                }
            }
            _ => {}
        }
    }
    match planned {
        Some(overflow) if overflow.reason == "overflow" => (None, Some(overflow)),
        due => (due, None),
    }
}

fn has_validation(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event.body, Body::Validation { .. }) && event.place.parent_session.is_none())
}
