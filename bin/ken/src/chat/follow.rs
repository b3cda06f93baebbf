//! Follows one turn to its end and prints its text or events as they arrive.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ken_client::approvals::Questions;
use ken_client::chat::{Turn, failure, local};
use ken_client::interrupt::Interrupt;
use ken_client::{Gateway, progress_line};
use ken_types::Error;
use serde_json::Value;

use super::reply::{Presenter, Reply};
use crate::needed::NeededParts;
use crate::output::print_note;
use crate::progress::Progress;

/// The longest wait for events before the progress line is updated.
const TICK: Duration = Duration::from_secs(1);
/// The longest wait for events before it is checked whether Ctrl+C was pressed.
pub(super) const GLANCE: Duration = Duration::from_millis(200);

pub(super) struct TurnFollower<'a> {
    pub(super) turn: &'a Turn,
    /// The approvals that the turn waits for, or one before it in the session.
    pub(super) questions: Questions,
    pub(super) presenter: &'a mut Presenter,
    /// Stop with an error when no event has arrived for this long.
    pub(super) timeout: Duration,
    pub(super) last_event_at: Instant,
    /// Whether the newest event is one of a turn before this one in the session.
    pub(super) is_behind: bool,
    pub(super) interrupt: &'a Interrupt,
    pub(super) reply: Reply,
}

impl TurnFollower<'_> {
    /// Reads events from the offset at which the turn was accepted until the turn ends. Ctrl+C cancels the turn in its
    /// session.
    pub(super) fn read_to_end(mut self, gateway: &Gateway, needed: &NeededParts) -> Result<Reply, Error> {
        let read = self.read(gateway, needed);
        if read.is_err() {
            // The error is printed on a line of its own.
            self.questions.end_line();
            _ = self.presenter.end_line();
        }
        read.map(|()| self.reply)
    }

    fn read(&mut self, gateway: &Gateway, needed: &NeededParts) -> Result<(), Error> {
        let mut events = gateway.events(&self.turn.stream, &self.turn.offset);
        let mut progress = None;
        while let Some(batch) = events.next(Some(self.questions.tick(GLANCE)))? {
            if self.interrupt.take() {
                let session = self.reply.session.as_deref().unwrap_or_default();
                gateway.clone().cancel(&local(), session, Some(&self.turn.submission))?;
            }
            if batch.is_empty() && self.questions.lacks_older() {
                progress = None;
                self.questions.take_older(self.reply.session.as_deref().unwrap_or_default())?;
            }
            self.questions.read_line()?;
            if batch.iter().any(|event| self.may_print(event)) {
                progress = None;
            }
            for event in &batch {
                // The system works on what is asked also while it works on a turn before.
                self.last_event_at = Instant::now();
                self.is_behind = !self.turn.owns(event);
                if self.is_behind {
                    self.questions.take(event);
                } else if self.take(event)? {
                    return Ok(());
                }
            }
            self.wait(&mut progress, needed)?;
        }
        Err(Error::unavailable("the session's stream ended before the turn did"))
    }

    /// Whether something may be printed about an event, for which the progress line makes place.
    fn may_print(&self, event: &Value) -> bool {
        let is_shown = if self.turn.owns(event) { !self.presenter.is_silent() } else { Questions::ends_turn(event) };
        is_shown || Questions::concerns(event)
    }

    fn wait(&self, progress: &mut Option<Progress>, needed: &NeededParts) -> Result<(), Error> {
        let silent = self.last_event_at.elapsed();
        if self.questions.is_open() || (silent < TICK && !self.is_behind) {
            return Ok(());
        }
        let decision = self.questions.waiting();
        let is_silent_for_good = silent >= self.timeout && decision.is_none();
        let parts = if silent < TICK { None } else { needed.waiting() };
        let turn = || self.is_behind.then(|| "waiting for the turn before it".to_owned());
        let waiting = parts.or(decision).or_else(turn);
        if is_silent_for_good {
            let for_what = waiting.map_or_else(String::new, |waiting| format!(", {waiting}"));
            let message = format!("no data has come for {} s{for_what}", silent.as_secs());
            return Err(Error::deadline(message)
                .hint("the turn continues: `ken sessions` names its session, `ken show SESSION` shows the answer"));
        }
        // A progress line must not break a line of the answer that is only partly printed.
        if !self.presenter.is_in_line() || waiting.is_some() {
            let what = waiting.unwrap_or_else(|| "waiting for the answer".to_owned());
            progress.get_or_insert_with(|| Progress::start(&what)).set(&what);
        }
        Ok(())
    }

    /// Handles an event of this turn. Returns true if it is the last one.
    fn take(&mut self, event: &Value) -> Result<bool, Error> {
        self.presenter.event(event)?;
        if Questions::concerns(event) {
            self.presenter.end_line()?;
            self.questions.take(event);
            return Ok(false);
        }
        if event.get("parentSession").is_none() {
            self.reply.add(event);
        }
        let text = |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "tool_start" => self.note(text("toolName")),
            "tool_progress" => self.note(&progress_line(event)),
            "submission_settled" => return self.settle(event).map(|()| true),
            _ => {}
        }
        Ok(false)
    }

    /// Says at a terminal what a tool does.
    fn note(&mut self, what: &str) {
        if std::io::stderr().is_terminal() {
            print_note(&format!("[{what}]"));
            self.questions.ask_again();
        }
    }

    fn settle(&self, event: &Value) -> Result<(), Error> {
        match event.get("outcome").and_then(Value::as_str) {
            Some("completed") => Ok(()),
            Some("aborted") if self.interrupt.was_for_turn() => {
                Err(Error::cancelled("the turn was cancelled; what was said is kept")
                    .hint("`ken sessions` names its session, `ken show SESSION` shows it"))
            }
            Some("aborted") => Err(Error::cancelled("the turn was cancelled")),
            _ => Err(Error::unavailable(failure(event))),
        }
    }
}
