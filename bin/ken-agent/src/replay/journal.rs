//! Where a replay records its steps: they are compared with the record, or kept for a later comparison of the whole
//! turn.

use ken_types::event::{Body, Event};
use ken_types::{Error, Timestamp};
use serde_json::json;

use super::tape::{SharedTape, stopped};
use crate::envelope::Envelope;
use crate::journal::Journal;
use crate::share::print_line;
use crate::turn_state::{Ending, TaskRef, TurnState};

/// Compares each step with the record.
pub(super) struct ComparingJournal {
    pub(super) state: TurnState,
    pub(super) envelope: Envelope,
    pub(super) tape: SharedTape,
    pub(super) shows: bool,
    pub(super) calls: Calls,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Calls {
    #[default]
    None,
    Running,
    /// The calls are running, and one of them has recorded an event that is after the end of the record.
    RunningPastEnd,
    /// The calls have ended, after the end of the record.
    EndedPastEnd,
}

impl Journal for ComparingJournal {
    fn state(&self) -> &TurnState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut TurnState {
        &mut self.state
    }

    fn ended(&mut self) -> Option<Ending> {
        self.calls = match self.calls {
            Calls::RunningPastEnd => Calls::EndedPastEnd,
            _ => Calls::None,
        };
        self.tape.lock().ended()
    }

    fn begin_calls(&mut self) -> Result<(), Error> {
        match self.calls {
            Calls::EndedPastEnd => return Err(stopped()),
            Calls::None => self.calls = Calls::Running,
            Calls::Running | Calls::RunningPastEnd => {}
        }
        Ok(())
    }

    fn recorded_validation(&mut self) -> Option<Body> {
        self.tape.lock().validation()
    }

    async fn record(&mut self, body: Body, of: Option<TaskRef>) -> Result<(), Error> {
        if self.state.is_redundant(&body) {
            return Ok(());
        }
        let event = self.envelope.wrap(&self.state, body, of, Timestamp::now());
        if matches!(self.calls, Calls::Running | Calls::RunningPastEnd) && self.tape.lock().is_past(&event) {
            self.calls = Calls::RunningPastEnd;
            return Ok(());
        }
        let compared = self.tape.lock().compare(&event);
        self.state.apply(&event);
        if self.shows && self.tape.lock().difference.is_none() {
            show(&event)?;
        }
        compared
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(()) // nothing is stored
    }
}

/// Keeps the events of the orchestrator.
pub(super) struct KeepingJournal {
    pub(super) state: TurnState,
    pub(super) envelope: Envelope,
    pub(super) bodies: Vec<Body>,
}

impl Journal for KeepingJournal {
    fn state(&self) -> &TurnState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut TurnState {
        &mut self.state
    }

    async fn record(&mut self, body: Body, of: Option<TaskRef>) -> Result<(), Error> {
        let event = self.envelope.wrap(&self.state, body, of, Timestamp::now());
        self.state.apply(&event);
        show(&event)?;
        if event.place.parent_session.is_none() {
            self.bodies.push(event.body);
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        Ok(()) // nothing is stored
    }
}

/// Prints one line for a step. Deltas are not printed.
fn show(event: &Event) -> Result<(), Error> {
    if matches!(event.body, Body::TextDelta { .. } | Body::ThinkingDelta { .. }) {
        return Ok(());
    }
    let body = serde_json::to_value(&event.body).unwrap_or_default();
    let mut step = json!({"session": event.place.session});
    for (name, from) in [
        ("type", "/type"),
        ("toolName", "/toolName"),
        ("agent", "/agent"),
        ("role", "/message/role"),
        ("stopReason", "/message/stopReason"),
        ("isError", "/isError"),
        ("status", "/status"),
        ("verdict", "/verdict"),
        ("outcome", "/outcome"),
    ] {
        if let Some(value) = body.pointer(from) {
            step[name] = value.clone();
        }
    }
    print_line(json!({ "step": step }))
}
