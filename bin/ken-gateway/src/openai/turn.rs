//! The turn of a request: its events as they are stored, and its outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ken_chat::door::{StreamedText, behind, owed_text, whole_text};
use ken_http::http::StatusCode;
use ken_http::{Failure, Request, Shutdown};
use ken_types::event::TurnResult;
use ken_types::id::{EventId, SessionId, SubmissionId};
use ken_types::ops::store::{Admission, ReadStream, State, SubmissionStatus};
use ken_types::{Error, Offset, Timestamp};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::of_turn;
use crate::app::Gateway;
use crate::chat::failure;
use crate::part::CALL_TIMEOUT;
use crate::stream::page::{PAUSE, page};
use crate::stream::subject::Subject;
use crate::turn::{Waited, standing, wait};

/// The same as a duration.
const SILENCE: Duration = Duration::from_millis(SILENCE_MS);
/// How long a read waits for events. A stream without text has a comment then, which shows the caller that it is not broken.
const SILENCE_MS: u64 = 15_000;
/// How long to wait at least before the next look at a turn.
const LEAST_WAIT: Duration = Duration::from_secs(1);

pub(super) struct Turn {
    pub(super) gateway: Arc<Gateway>,
    pub(super) event: EventId,
    pub(super) received_at: Timestamp,
    pub(super) session: SessionId,
    pub(super) submission: Admission,
    /// The turns of which the caller was sent a notice, and whose answers stand before this one.
    owed: VecDeque<SubmissionId>,
    /// The answers of those that have ended.
    before: Vec<String>,
    shutdown: Shutdown,
    offset: Offset,
    text: StreamedText,
    /// Whether the last text was cut off because the model may not write more.
    pub(super) is_cut: bool,
    /// Whether the last event of the turn was read.
    has_ended: bool,
}

/// What has happened since the last look.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// What each event has added to the text.
    pub(super) texts: Vec<String>,
    pub(super) has_ended: bool,
    /// Whether nothing at all has happened for long.
    pub(super) is_silent: bool,
    /// Whether a person is asked for a decision.
    pub(super) asks: bool,
}

impl Turn {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        request: &Request,
        event: EventId,
        received_at: Timestamp,
        session: SessionId,
        submission: Admission,
        owed: Vec<SubmissionId>,
    ) -> Turn {
        Turn {
            gateway,
            event,
            received_at,
            session,
            offset: submission.offset,
            submission,
            owed: owed.into(),
            before: Vec::new(),
            shutdown: request.shutdown(),
            text: StreamedText::default(),
            is_cut: false,
            has_ended: false,
        }
    }

    /// Returns the id of the turn without the signs that the ids of OpenAI do not have.
    pub(super) fn id(&self) -> String {
        self.submission.submission_id.as_str().replace('-', "")
    }

    /// Waits for what happens next, at most [`SILENCE_MS`].
    pub(super) async fn progress(&mut self) -> Result<Progress, Failure> {
        let mut progress = Progress::default();
        if let Some(owed) = self.owed.front().cloned() {
            match self.owed_text(&owed, Instant::now() + SILENCE).await? {
                Ok(text) => {
                    if !text.is_empty() {
                        progress.texts.push(format!("{text}\n\n"));
                    }
                    self.before.push(text);
                    self.owed.pop_front();
                }
                Err(_) => (progress.is_silent, progress.asks) = (true, true),
            }
            return Ok(progress);
        }
        let events = self.events().await?;
        progress.is_silent = events.is_empty();
        for event in events {
            progress.texts.push(self.text.add(&event));
            let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
            match text("/type") {
                Some("submission_settled") => self.has_ended = true,
                Some("approval_requested") => progress.asks = true,
                Some("approval_decided") => progress.asks = false,
                Some("message_end") if text("/message/role") == Some("assistant") => {
                    self.is_cut = text("/message/stopReason") == Some("length");
                }
                _ => {}
            }
        }
        progress.has_ended = self.has_ended;
        Ok(progress)
    }

    /// Waits until the turn has ended.
    pub(super) async fn end(&mut self) -> Result<(), Failure> {
        while !self.has_ended {
            self.progress().await?;
        }
        Ok(())
    }

    /// Waits until the turn has ended. From a time on, a turn that waits for decisions is not waited for: their requests are returned.
    pub(super) async fn end_or_requests(&mut self, until: Instant) -> Result<Vec<String>, Failure> {
        while !self.has_ended {
            if let Ok(progress) = timeout_at(until.max(Instant::now() + LEAST_WAIT), self.progress()).await {
                progress?;
            }
            if Instant::now() >= until && !self.has_ended {
                // The turns of a session run one after the other.
                let first = self.owed.front().unwrap_or(&self.submission.submission_id);
                let standing = standing(&self.gateway, first).await?;
                if !standing.approvals.is_empty() {
                    return Ok(standing.approvals);
                }
            }
        }
        Ok(Vec::new())
    }

    /// Returns the text of an earlier turn when it has ended. From a time on, a turn that waits for decisions is not waited for: their
    /// requests are returned.
    async fn owed_text(&self, id: &SubmissionId, until: Instant) -> Result<Result<String, Vec<String>>, Failure> {
        loop {
            let time = until.saturating_duration_since(Instant::now()).max(LEAST_WAIT);
            match wait(&self.gateway, self.shutdown.clone(), id, Some(time)).await? {
                Waited::Settled(standing) => return Ok(Ok(owed_text(&standing))),
                Waited::Running(Some(standing)) if !standing.approvals.is_empty() => {
                    return Ok(Err(standing.approvals));
                }
                Waited::Running(_) => {}
                Waited::Stopping => return Err(stopping()),
            }
        }
    }

    /// Returns the next events of the turn itself, without those of its workers.
    async fn events(&mut self) -> Result<Vec<Value>, Failure> {
        let subject = Subject::agent(self.session.as_str());
        let args = ReadStream { wait_ms: SILENCE_MS, ..subject.read_from(self.offset) };
        let read = tokio::select! {
            read = page(&self.gateway.store, &subject, &args) => read,
            () = self.shutdown.requested() => return Err(stopping()),
        };
        let page = match read {
            Ok(page) => page,
            Err(error) if matches!(error.status_code(), StatusCode::NOT_FOUND | StatusCode::GONE) => return Err(error),
            // The store is restarting. It has all accepted work when it is back.
            Err(_) => {
                sleep(PAUSE).await;
                return Ok(Vec::new());
            }
        };
        self.offset = Offset::After(page.next);
        let events = page.entries.iter().filter_map(|entry| serde_json::from_str::<Value>(entry.get()).ok());
        let id = self.submission.submission_id.as_str();
        Ok(events
            .filter(|event| {
                event.get("submissionId").is_some_and(|of| of == id) && event.get("parentSession").is_none()
            })
            .collect())
    }

    /// Returns how the turn stands, without waiting for anything.
    pub(super) async fn standing(&self) -> Result<SubmissionStatus, Failure> {
        Ok(standing(&self.gateway, &self.submission.submission_id).await?)
    }

    /// Returns the whole text of an answer, with those before it that the caller was owed.
    pub(super) fn text_of(&self, result: &TurnResult) -> String {
        behind(&self.before, &whole_text(result))
    }

    /// Returns the result of a turn that has ended.
    pub(super) async fn result(&self) -> Result<TurnResult, Failure> {
        let id = &self.submission.submission_id;
        match wait(&self.gateway, self.shutdown.clone(), id, Some(CALL_TIMEOUT)).await? {
            Waited::Settled(standing) => settled(*standing).map_err(of_turn),
            Waited::Running(_) | Waited::Stopping => Err(stopping()),
        }
    }
}

fn settled(standing: SubmissionStatus) -> Result<TurnResult, Failure> {
    match (standing.state, &standing.result) {
        (State::Completed, Some(result)) => Ok(result.clone()),
        _ => Err(failure(&standing)),
    }
}

/// The failure of a caller whose turn goes on while the gateway restarts. An equal request finds the turn.
fn stopping() -> Failure {
    let mut error =
        Error::unavailable("the gateway is restarting; the turn goes on, and the same request gets its answer");
    error.retry_after_ms = Some(1_000);
    error.into()
}
