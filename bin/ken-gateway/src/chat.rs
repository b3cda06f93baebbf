//! POST /api/chat/events: accepts a message and replies when its turn is done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_chat::{Connector, Effect, Inbound, Received, Reply, chosen_model};
use ken_http::http::StatusCode;
use ken_http::{Failure, Request, Response, plain};
use ken_types::event::{Failure as Cause, TurnResult};
use ken_types::id::Mint;
use ken_types::limits::{IDENTITY_CHARACTERS, PROMPT_BYTES};
use ken_types::ops::store::{Admission, OpenSession, Policy, Scope, State, SubmissionStatus};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::app::Gateway;
use crate::body::{self, check_length, check_size, given, pointer, required};
use crate::health::missing_for_turns;
use crate::idempotency::{ReplayableResponse, once};
use crate::identity::Identity;
use crate::part::{CALL_TIMEOUT, change_failed, failed_change};
use crate::turn::{Waited, check_model, check_named_model, stream_url, wait};

/// The request body. Unknown fields are ignored, because clients pass on the fields of their platforms.
#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    #[serde(default)]
    connector: Value,
    text: Option<String>,
    actor_id: Option<String>,
    conversation_id: Option<String>,
    thread_id: Option<String>,
    session: Option<String>,
    #[serde(default)]
    policy: Policy,
    actor_display_name: Option<String>,
    client_id: Option<String>,
    project_id: Option<String>,
    workflow: Option<String>,
    task: Option<String>,
    /// The only model that can answer, as `provider/model`.
    model: Option<String>,
    /// Whether the text contains files that others may have written.
    #[serde(default)]
    attached: bool,
    /// The MCP server that has written a part of the text.
    mcp_server: Option<String>,
    #[serde_with(skip_apply)]
    raw: Option<Value>,
}

impl Message {
    fn into_inbound(self) -> Result<Inbound, Error> {
        let text = required("text", self.text.as_deref())?;
        check_size("text", text, PROMPT_BYTES)?;
        if text.trim().is_empty() {
            return Err(Error::invalid("/text", "text is blank"));
        }
        let session = self.session.as_ref().map(|session| session.trim().to_owned());
        if session.as_ref().is_some_and(String::is_empty) {
            return Err(Error::invalid("/session", "session is blank"));
        }
        Ok(Inbound {
            connector: self.connector(),
            scope: self.scope()?,
            session,
            policy: self.policy,
            context: self.context()?,
            raw: self.raw.as_ref().map(Value::to_string),
            text: self.text.unwrap_or_default(),
        })
    }

    fn connector(&self) -> Connector {
        if self.connector == "tui" { Connector::Tui } else { Connector::Web }
    }

    fn scope(&self) -> Result<Scope, Error> {
        let identity = Identity {
            connector: None,
            actor_id: self.actor_id.clone(),
            conversation_id: self.conversation_id.clone(),
            thread_id: self.thread_id.clone(),
        };
        identity.on(self.connector(), pointer)
    }

    fn context(&self) -> Result<Option<Value>, Error> {
        let mut context = Map::new();
        for (name, value) in [
            ("actorDisplayName", &self.actor_display_name),
            ("clientId", &self.client_id),
            ("projectId", &self.project_id),
            ("workflow", &self.workflow),
            ("task", &self.task),
            ("model", &self.model),
            ("mcpServer", &self.mcp_server),
        ] {
            if let Some(value) = value {
                check_length(&pointer(name), value, 0, IDENTITY_CHARACTERS)?;
                context.insert(name.to_owned(), value.as_str().into());
            }
        }
        if self.attached {
            context.insert("attached".to_owned(), true.into());
        }
        Ok((!context.is_empty()).then_some(Value::Object(context)))
    }
}

/// How long the caller waits, from the `Prefer` header (RFC 7240).
pub(crate) struct Preference {
    pub(crate) time: Duration,
    applied: Option<String>,
}

impl Preference {
    fn add_headers(self, answer: ReplayableResponse) -> ReplayableResponse {
        match self.applied {
            Some(applied) => answer.header("preference-applied", applied),
            None => answer,
        }
    }

    pub(crate) fn of(request: &Request, configured: Duration) -> Preference {
        // Several lines of a header mean the same as one with commas (RFC 9110, 5.3).
        let lines = request.headers().get_all("prefer").iter().filter_map(|line| line.to_str().ok());
        for preference in lines.flat_map(|line| line.split([',', ';'])).map(str::trim) {
            if preference.eq_ignore_ascii_case("respond-async") {
                return Preference { time: Duration::ZERO, applied: Some("respond-async".to_owned()) };
            }
            let wait = preference.split_once('=');
            let seconds = wait.filter(|(name, _)| name.trim().eq_ignore_ascii_case("wait"));
            let seconds = seconds.and_then(|(_, seconds)| seconds.trim().parse().ok());
            // A wait that is longer than the configured one is ignored.
            if let Some(seconds) = seconds.filter(|seconds| Duration::from_secs(*seconds) <= configured) {
                return Preference { time: Duration::from_secs(seconds), applied: Some(format!("wait={seconds}")) };
            }
        }
        Preference { time: configured, applied: None }
    }
}

pub(crate) async fn receive(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let message = body::read::<Message>(&bytes)?;
    let model = message.model.clone().or_else(|| chosen_model(message.text.as_deref()?).map(str::to_owned));
    let inbound = message.into_inbound()?;
    let preference = Preference::of(&request, gateway.wait);
    check_model(&gateway).await.map_err(|error| Failure::from(error).with("reason", "model_not_configured"))?;
    check_named_model(&gateway, model.as_deref()).await?;
    // The long response is reserved first. If there is no room for it, the request is refused before anything is
    // accepted.
    let _held = if preference.time.is_zero() { None } else { Some(request.hold()?) };
    let work = async |mint: Mint| converse(&gateway, &request, preference, mint, inbound).await;
    once(&gateway, &request, &bytes, plain, work).await
}

async fn converse(
    gateway: &Gateway,
    request: &Request,
    mut preference: Preference,
    mut mint: Mint,
    inbound: Inbound,
) -> Result<ReplayableResponse, Failure> {
    let begun = Instant::now();
    let connector = inbound.connector;
    let event_id = connector.event_id(&mut mint);
    let received = gateway
        .ingress
        .receive(event_id.clone(), &mut mint, inbound, preference.time.max(CALL_TIMEOUT))
        .await
        .map_err(|error| failed_change(change_failed(error), "eventId", event_id.as_str()))?;
    preference.time = preference.time.saturating_sub(begun.elapsed());
    let event = event(&received, connector);
    let turn = |session: OpenSession, submission| {
        let stream_url = stream_url(gateway, request, session.id.as_str());
        Turn { gateway, request, preference, event, session, submission, stream_url }
    };
    match received.done {
        Effect::Refused(error) => Err(Failure::from(error).with("eventId", received.event_id.0)),
        Effect::Commanded(Reply { submission: Some(submission), session: Some(session), name, text, .. }) => {
            turn(session, submission).compact_response(&name, &text).await
        }
        Effect::Commanded(reply) => command_response(gateway, request, &received.event_id.0, &reply),
        Effect::Prompted { session, submission } => turn(session, submission).turn_response().await,
    }
}

fn event(received: &Received, connector: Connector) -> Value {
    json!({
        "id": received.event_id,
        "connector": connector.name(),
        "messageKind": received.kind,
        "receivedAt": received.received_at,
    })
}

fn command_response(
    gateway: &Gateway,
    request: &Request,
    event_id: &str,
    reply: &Reply,
) -> Result<ReplayableResponse, Failure> {
    let mut body = json!({
        "result": {"text": reply.text, "command": {"name": reply.name, "handled": reply.handled}},
        "event": {"id": event_id},
    });
    if let Some(session) = &reply.session {
        body["session"] = json!(session);
        body["streamUrl"] = stream_url(gateway, request, session.id.as_str()).into();
        body["offset"] = json!(reply.offset);
    }
    match &reply.error {
        None => ReplayableResponse::json(200, &body),
        // The reply to a command with wrong arguments has the fields of a command, too.
        Some(error) => Err(Value::as_object(&body)
            .into_iter()
            .flatten()
            .fold(Failure::from(error.clone()), |failure, (name, value)| failure.with(name, value.clone()))),
    }
}

/// An accepted prompt, with the data for its reply.
struct Turn<'a> {
    gateway: &'a Gateway,
    request: &'a Request,
    preference: Preference,
    event: Value,
    session: OpenSession,
    submission: Admission,
    stream_url: String,
}

impl Turn<'_> {
    async fn wait(&self) -> Result<Waited, Error> {
        let id = &self.submission.submission_id;
        wait(self.gateway, self.request.shutdown(), id, Some(self.preference.time)).await
    }

    async fn turn_response(self) -> Result<ReplayableResponse, Failure> {
        let answer = match self.wait().await? {
            Waited::Settled(standing) => self.settled(*standing)?,
            Waited::Running(standing) => {
                // A caller who does not wait gets the reply at once, without a call to kend.
                let waits = !self.preference.time.is_zero();
                let parts = if waits { missing_for_turns(self.gateway).await } else { Vec::new() };
                self.running(standing.as_deref(), parts)?
            }
            Waited::Stopping => self.running(None, Vec::new())?.temporary(),
        };
        Ok(self.preference.add_headers(answer))
    }

    /// Returns the reply to `/compact`: that of a command, with the token budget that the compaction reports.
    async fn compact_response(self, name: &str, text: &str) -> Result<ReplayableResponse, Failure> {
        let waited = self.wait().await?;
        let mut body = json!({
            "result": {"text": text, "command": {"name": name, "handled": true}},
            "event": self.event,
            "session": self.session,
            "streamUrl": self.stream_url,
            "offset": self.submission.offset,
        });
        let answer = match waited {
            Waited::Settled(standing) if standing.state == State::Completed => {
                let budget = standing.result.and_then(|result| result.context_budget);
                body["result"]["contextBudget"] = budget.unwrap_or_default();
                body["contextUsage"] = usage(standing.context_usage);
                ReplayableResponse::json(200, &body)?
            }
            Waited::Settled(standing) => self.settled(*standing)?,
            Waited::Running(_) => ReplayableResponse::json(202, &body)?,
            Waited::Stopping => ReplayableResponse::json(202, &body)?.temporary(),
        };
        Ok(self.preference.add_headers(answer))
    }

    fn settled(&self, standing: SubmissionStatus) -> Result<ReplayableResponse, Failure> {
        match (standing.state, &standing.result) {
            (State::Completed, Some(result)) => {
                let body = self.body(json!(result), "completed", usage(standing.context_usage));
                ReplayableResponse::json(200, &body)
            }
            _ => Err(self.failed(standing)),
        }
    }

    /// Returns the reply while the turn is still running. `parts` are the parts for which it waits.
    fn running(&self, standing: Option<&SubmissionStatus>, parts: Vec<String>) -> Result<ReplayableResponse, Failure> {
        let context_usage = usage(standing.and_then(|standing| standing.context_usage.clone()));
        let mut body = self.body(Value::Null, "running", context_usage);
        // Some clients read `text` without checking the status.
        body["text"] = "".into();
        if !parts.is_empty() {
            body["waiting"] = json!(parts);
        }
        if let Some(standing) = standing.filter(|standing| !standing.approvals.is_empty()) {
            body["approvals"] = json!(standing.approvals);
        }
        ReplayableResponse::json(202, &body)
    }

    fn body(&self, result: Value, status: &str, context_usage: Value) -> Value {
        json!({
            "result": result,
            "status": status,
            "submissionId": self.submission.submission_id,
            "offset": self.submission.offset,
            "streamUrl": self.stream_url,
            "event": self.event,
            "session": self.session,
            "contextUsage": context_usage,
        })
    }

    fn failed(&self, standing: SubmissionStatus) -> Failure {
        let failure = failure(&standing)
            .with("event", self.event.clone())
            .with("session", json!(self.session))
            .with("submissionId", json!(self.submission.submission_id))
            .with("streamUrl", self.stream_url.clone())
            .with("offset", json!(self.submission.offset))
            .with("contextUsage", usage(None));
        match standing.state {
            State::Aborted => failure.with("result", partial(standing.result)),
            _ => failure,
        }
    }
}

/// Returns the reply for a turn that did not complete (gateway-http 5.1). Its cause is not secret, because the stream
/// shows it too.
pub(crate) fn failure(standing: &SubmissionStatus) -> Failure {
    let unknown = Cause { name: "defect".to_owned(), message: "the turn ended without a result".to_owned() };
    let cause = standing.error.as_ref().unwrap_or(&unknown);
    let failed = |code| {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Failure::new(status, Code::Unavailable, cause.message.clone()).code(code)
    };
    match (standing.state, cause.code_of_turn()) {
        (State::Aborted, _) => Error::cancelled(cause.message.clone()).into(),
        (_, "deadline") => Error::deadline(cause.message.clone()).into(),
        (_, code) => failed(code),
    }
}

fn partial(result: Option<TurnResult>) -> Value {
    match result {
        Some(result) if !result.text.is_empty() => json!(result),
        _ => Value::Null,
    }
}

fn usage(known: Option<Value>) -> Value {
    known.unwrap_or_else(|| json!({"available": false}))
}
