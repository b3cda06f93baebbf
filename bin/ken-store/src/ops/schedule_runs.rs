//! The records of scheduled runs: their state, and what became of the message with their result.

use ken_types::Error;
use ken_types::ops::outbox::MessageState;
use ken_types::ops::schedules::{Delivery, RunState};

use crate::engine::change::Change;
use crate::tables::{MessageRow, ScheduleRunRow, Tables};

/// What precedes the id of a run in the id of its event, and follows that in the key of the message with its result.
const EVENT: &str = "schedule:";
const RESULT: &str = ":result";

/// Returns the id of the event with which the present attempt of a run begins.
pub(super) fn event_id(run: &ScheduleRunRow) -> String {
    format!("{EVENT}{}:{}", run.id, run.attempt)
}

/// Returns the key of the message with the result. It begins with the id of the event, so that it is deleted with the conversation.
pub(super) fn message_key(run: &ScheduleRunRow) -> String {
    event_id(run) + RESULT
}

/// Before the version with [`RESULT`], the key ended with the id of the run.
fn run_of(message_key: &str) -> Option<&str> {
    let run = message_key.strip_prefix(EVENT)?;
    Some(run.strip_suffix(RESULT).and_then(|event| event.rsplit_once(':')).map_or(run, |(run, _)| run))
}

/// Reports the state of a run on the system stream.
pub(super) fn publish(slug: &str, run: &str, slot_at: Option<i64>, status: RunState, change: &mut Change) {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        slug: &'a str,
        run_id: &'a str,
        slot_at: Option<i64>,
        status: &'a str,
    }
    change.publish("schedule.run", Fields { slug, run_id: run, slot_at, status: status.name() });
}

/// Stores in the record of a run how the sending of its result has ended. The message itself is deleted earlier than the record.
pub(super) fn settle_delivery(tables: &dyn Tables, message: &MessageRow, change: &mut Change) -> Result<(), Error> {
    let run = run_of(&message.message.key).map(|run| tables.schedule_run(run));
    let Some(mut run) = run.transpose()?.flatten() else { return Ok(()) };
    run.delivery = match message.state {
        MessageState::Pending | MessageState::Sending => Delivery::Pending,
        MessageState::Sent => Delivery::Sent,
        MessageState::Failed => Delivery::Failed,
        MessageState::Unknown => Delivery::Unknown,
    };
    if run.delivery == Delivery::Failed {
        let cause = message.error.as_deref().unwrap_or("no cause is known");
        run.error = Some(match run.error {
            None => format!("the result was not delivered: {cause}"),
            Some(error) => format!("{}; this was not delivered: {cause}", error.trim_end_matches('.')),
        });
        publish(&run.slug, &run.id, run.slot_at, run.status, change);
    }
    tables.update_schedule_run(&run)
}
