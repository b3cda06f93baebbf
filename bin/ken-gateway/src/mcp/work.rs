//! Work that takes long: `ask_ken` starts a turn, `run_workflow` a run, and `get_result` asks for one of them.

use ken_http::Shutdown;
use ken_types::event::CitedSource;
use ken_types::id::{EventId, Mint, Origin, RunId, SessionId, SubmissionId};
use ken_types::limits::PROMPT_BYTES;
use ken_types::ops::Nothing;
use ken_types::ops::cognitive::{CheckWorkflow, WorkflowsCheck};
use ken_types::ops::runs::{AdmitRun, ByRun, RunStatus, RunsAbort, RunsAdmit, RunsGet};
use ken_types::ops::store::{
    Accept, Accepted, Action, CancelSession, ChatAccept, FreshSession, InboundEvent, Policy, SessionsCancel, State,
    SubmissionStatus, Target,
};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

use super::client::{Begun, Client, Work};
use super::message::Call;
use super::repeat::{Claim, claim};
use crate::app::Gateway;
use crate::body::check_size;
use crate::idempotency::{KeyName, keep_accepted, release};
use crate::turn::{Waited, check_model, wait};

/// Whether a tool starts work, or waits for it.
pub(super) fn is_long(tool: &str) -> bool {
    matches!(tool, "ask_ken" | "run_workflow" | "get_result")
}

/// Starts the work of a call, or finds that of an earlier one.
pub(super) async fn begin(
    gateway: &Gateway,
    client: &Client,
    call: &Call,
    key: Option<&KeyName>,
) -> Result<Begun, Error> {
    match call.params.get("name").and_then(Value::as_str) {
        Some("ask_ken") => ask(gateway, client, call, key).await,
        Some("run_workflow") => run(gateway, client, call, key).await,
        _ => asked_for(gateway, client, call),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    question: String,
    session: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedWorkflow {
    workflow: String,
    input: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    id: String,
}

/// Reads the arguments of a call. The error names the field.
pub(super) fn arguments<T: serde::de::DeserializeOwned>(call: &Call) -> Result<T, Error> {
    let given = call.params.get("arguments").cloned().unwrap_or_else(|| json!({}));
    ken_types::json::from_value(given)
}

async fn ask(gateway: &Gateway, client: &Client, call: &Call, key: Option<&KeyName>) -> Result<Begun, Error> {
    let Question { question, session } = arguments(call)?;
    check_size("question", &question, PROMPT_BYTES)?;
    if question.trim().is_empty() {
        return Err(Error::invalid("/question", "question is blank"));
    }
    check_model(gateway).await?;
    let found = claim(gateway, client, call, key, |mint| TurnIds::new(mint).submission).await?;
    let ids = TurnIds::new(found.mint);
    let submission = ids.submission.clone();
    let accepted = gateway.store.change::<ChatAccept>(&accept(client, question, session, ids)).await;
    let accepted = kept_if_done(gateway, &found.key, accepted.and_then(refused)).await?;
    if key.is_some() {
        keep_accepted(gateway, &found.key, &accepted).await;
    }
    let session = accepted.session.map(|session| session.id);
    Ok(Begun { work: Work::Turn(submission), session, key: Some(found.key), is_replayed: found.is_replayed })
}

/// The ids of a turn. The order in which they are made must not change: a repetition makes them again.
struct TurnIds {
    event: EventId,
    submission: SubmissionId,
    session: SessionId,
    at: ken_types::Timestamp,
}

impl TurnIds {
    fn new(mut mint: Mint) -> TurnIds {
        TurnIds {
            event: EventId(mint.prefixed("mcp:")),
            submission: mint.submission(),
            session: mint.session(Origin::Web),
            at: mint.at(),
        }
    }
}

/// The event of a question. It is no command, whatever it says, and counts as text from outside: the client may have it from
/// anybody.
fn accept(client: &Client, question: String, session: Option<String>, ids: TurnIds) -> Accept {
    let mut context = json!({"attached": true});
    if let Some(name) = &client.name {
        context["clientId"] = name.as_str().into();
    }
    let event = InboundEvent {
        id: ids.event,
        scope: client.scope.clone(),
        kind: "chat.message".to_owned(),
        text: question,
        received_at: ids.at,
        context: Some(context),
        raw: None,
        images: Vec::new(),
    };
    let target = match session {
        Some(session) => Target::Selector(session),
        None => Target::Fresh(FreshSession::new(ids.session, Origin::Web)),
    };
    let action = Action::Prompt { submission_id: ids.submission, policy: Policy::Queue };
    Accept { event, target, action, counted: false }
}

fn refused(accepted: Accepted) -> Result<Accepted, Error> {
    match accepted.refused {
        None => Ok(accepted),
        Some(error) if matches!(error.code, Code::NotFound | Code::Forbidden | Code::Conflict) => {
            Err(error.at("/session").hint("leave out session for a new one"))
        }
        Some(error) => Err(error),
    }
}

/// Frees the key of a call for which nothing was done.
async fn kept_if_done<T>(gateway: &Gateway, key: &str, done: Result<T, Error>) -> Result<T, Error> {
    if let Err(error) = &done {
        release(gateway, key, &error.clone().into()).await;
    }
    done
}

fn run_of(mut mint: Mint) -> RunId {
    mint.run()
}

async fn run(gateway: &Gateway, client: &Client, call: &Call, key: Option<&KeyName>) -> Result<Begun, Error> {
    let NamedWorkflow { workflow, input } = arguments(call)?;
    let payload = input.unwrap_or_else(|| json!({}));
    let check = CheckWorkflow { name: workflow, payload };
    check_workflow(gateway, &check).await?;
    let Claim { key, mint, is_replayed } =
        claim(gateway, client, call, key, |mint| SubmissionId(run_of(mint).0)).await?;
    let admit = AdmitRun { run_id: run_of(mint), workflow: check.name, payload: check.payload };
    let admitted: Result<Nothing, Error> = gateway.store.change::<RunsAdmit>(&admit).await;
    kept_if_done(gateway, &key, admitted).await?;
    Ok(Begun { work: Work::Run(admit.run_id), session: None, key: Some(key), is_replayed })
}

async fn check_workflow(gateway: &Gateway, check: &CheckWorkflow) -> Result<(), Error> {
    let checked = gateway.cognitive.call::<WorkflowsCheck>(check).await;
    checked.map(drop).map_err(|error| match error.code {
        Code::NotFound => Error::not_found(format!("there is no workflow `{}`", check.name)).at("/workflow"),
        Code::Invalid => {
            let at = format!("/input{}", error.at.as_deref().unwrap_or_default());
            error.at(at)
        }
        _ => error,
    })
}

fn asked_for(gateway: &Gateway, client: &Client, call: &Call) -> Result<Begun, Error> {
    let Wanted { id } = arguments(call)?;
    let unknown = || Error::not_found("ask_ken and run_workflow have given no such id to this caller").at("/id");
    let work = client.work_of(gateway, &id).ok_or_else(unknown)?;
    Ok(Begun { work, session: None, key: None, is_replayed: false })
}

/// The state of work after waiting for a while.
pub(super) enum Progress {
    Ended(Value),
    Goes(Option<Box<SubmissionStatus>>),
    /// The gateway is shutting down.
    Stopping,
}

/// Waits for work, at most for `time`.
pub(super) async fn wait_for(
    gateway: &Gateway,
    shutdown: Shutdown,
    begun: &Begun,
    id: &str,
    time: Duration,
) -> Result<Progress, Error> {
    match wait(gateway, shutdown, &begun.work.submission(), Some(time)).await? {
        Waited::Running(status) => Ok(Progress::Goes(status)),
        Waited::Stopping => Ok(Progress::Stopping),
        Waited::Settled(status) => match &begun.work {
            Work::Turn(_) => Ok(Progress::Ended(turn_result(*status, begun, id))),
            Work::Run(run) => run_result(gateway, run, id).await.map(Progress::Ended),
        },
    }
}

/// The result of a tool: text for the model, and the same as an object.
pub(super) fn result(text: &str, structured: Value, is_error: bool) -> Value {
    json!({"content": [{"type": "text", "text": text}], "structuredContent": structured, "isError": is_error})
}

fn turn_result(status: SubmissionStatus, begun: &Begun, id: &str) -> Value {
    let mut told = status_fields(status.state, begun, id);
    match (status.state, status.result) {
        (State::Completed, Some(answer)) if answer.sources.is_empty() => result(&answer.text, told, false),
        (State::Completed, Some(answer)) => {
            told["sources"] = json!(answer.sources);
            result(&format!("{}\n\n{}", answer.text, CitedSource::lines(&answer.sources)), told, false)
        }
        (state, _) => {
            let cause = status.error.map(|error| error.message).unwrap_or_else(|| "no cause is known".to_owned());
            result(&format!("ken's turn was {}: {cause}", state.name()), told, true)
        }
    }
}

/// The fields of an answer that work in every state has.
fn status_fields(state: State, begun: &Begun, id: &str) -> Value {
    let mut told = json!({"status": state.name(), "id": id});
    if let Some(session) = &begun.session {
        told["session"] = json!(session);
    }
    told
}

async fn run_result(gateway: &Gateway, run: &RunId, id: &str) -> Result<Value, Error> {
    let record = gateway.store.call::<RunsGet>(&ByRun { run_id: run.clone() }).await?;
    let mut told = json!({"status": record.status.name(), "id": id, "run": run});
    if record.status == RunStatus::Completed {
        let value = record.result.unwrap_or_default();
        let text = value.to_string();
        told["result"] = value;
        return Ok(result(&text, told, false));
    }
    let cause = record.error.map(|error| error.message).unwrap_or_else(|| "no cause is known".to_owned());
    Ok(result(&format!("the workflow failed: {cause}"), told, true))
}

/// The result while the work goes on.
pub(super) fn unfinished(status: Option<&SubmissionStatus>, begun: &Begun, id: &str) -> Value {
    let state = status.map_or(State::Queued, |status| status.state);
    let approvals = status.map(|status| status.approvals.as_slice()).unwrap_or_default();
    let mut told = status_fields(state, begun, id);
    if !approvals.is_empty() {
        told["approvals"] = json!(approvals);
    }
    let text = format!("ken has not finished: {}. Call get_result with the id {id} for the answer.", what(status));
    result(&text, told, false)
}

/// Says in words what work is waiting for.
pub(super) fn what(status: Option<&SubmissionStatus>) -> String {
    let Some(status) = status else { return "it has begun".to_owned() };
    if let Some(reason) = &status.stalled {
        return format!("nothing can be stored at the moment, {reason}");
    }
    match (status.state, status.approvals.as_slice()) {
        (State::Queued, _) => "it waits for its turn".to_owned(),
        (_, []) => "it is at work".to_owned(),
        (_, approvals) => format!("a person at ken has to decide about {}", approvals.join(", ")),
    }
}

pub(super) async fn stop(gateway: &Gateway, client: &Client, begun: &Begun) {
    let stopped = match (&begun.work, &begun.session) {
        (Work::Run(run), _) => gateway.store.change::<RunsAbort>(&ByRun { run_id: run.clone() }).await.map(drop),
        (Work::Turn(turn), Some(session)) => {
            let args =
                CancelSession { scope: client.scope.clone(), id: session.clone(), submission_id: Some(turn.clone()) };
            gateway.store.change_once::<SessionsCancel>(&args).await.map(drop)
        }
        (Work::Turn(_), None) => Ok(()),
    };
    if let Err(error) = stopped {
        tracing::warn!("a cancelled call over MCP goes on: {error}");
    }
}
