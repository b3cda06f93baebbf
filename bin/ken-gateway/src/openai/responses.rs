//! /v1/responses: answers that have ids, and are read, continued, cancelled and deleted by them.

use std::sync::Arc;

use ken_chat::door::owed;
use ken_http::{Failure, Request, Response};
use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::store::{BySubmission, CancelSession, DoorsDelete, DoorsFind, FoundAnswer, SessionsCancel};
use serde_json::{Map, Value, json};

use super::accept::{Begun, SESSION, accept, delivered};
use super::answer::{Answer, submission_of};
use super::error;
use super::input::{Input, MODEL, Role, Said, content_text, message};
use super::params::{Known, Refused, never, sort};
use super::sending::{named_ignored, sent_whole};
use super::tools::Tools;
use super::turn::Turn;
use crate::app::Gateway;
use crate::body::{self, switch, text};
use crate::idempotency::replayed;
use crate::turn::check_model;

const KNOWN: Known = Known {
    used: "model input instructions previous_response_id stream background user text tools tool_choice",
    ignored: "temperature top_p max_output_tokens reasoning parallel_tool_calls store metadata truncation include \
        service_tier max_tool_calls prompt_cache_key prompt_cache_retention safety_identifier stream_options",
    refused: REFUSED,
};

const REFUSED: &[Refused] = &[
    ("conversation", never, "a conversation goes on by previous_response_id, or by the header X-Ken-Session"),
    ("prompt", never, "ken stores no prompts"),
    ("top_logprobs", never, "ken has no probabilities of tokens"),
];

/// A request for an answer.
struct Asked {
    input: Input,
    previous: Option<SubmissionId>,
    stream: bool,
    /// Whether the caller does not wait for the answer.
    background: bool,
    ignored: Vec<String>,
}

impl Asked {
    fn read(bytes: &[u8]) -> Result<Asked, Failure> {
        let mut fields = body::read::<Map<String, Value>>(bytes)?;
        let ignored = sort(&mut fields, &KNOWN)?;
        let previous = text(&fields, "previous_response_id")?;
        let previous = previous.map(|id| submission_of(id).ok_or_else(|| unknown_previous(id))).transpose()?;
        let mut input = Input::new(
            text(&fields, "model")?,
            text(&fields, "user")?,
            said(&fields)?,
            Tools::read(&fields)?,
            previous.is_some(),
        )?;
        if let Some(format) = fields.get("text").and_then(|text| text.get("format")) {
            input.instruct_form(format, "/schema", "/text/format")?;
        }
        let (stream, background) = (switch(&fields, "stream")?, switch(&fields, "background")?);
        Ok(Asked { input, previous, stream, background, ignored })
    }
}

/// Returns the instructions and the messages of a request.
fn said(fields: &Map<String, Value>) -> Result<Vec<Said>, Failure> {
    let instructions = text(fields, "instructions")?.map(|text| Said::new(Role::System, text));
    let mut said: Vec<Said> = instructions.into_iter().collect();
    match fields.get("input") {
        Some(Value::String(text)) => said.push(Said::new(Role::User, text)),
        Some(Value::Array(items)) => {
            for (index, one) in items.iter().enumerate() {
                item(one, &format!("/input/{index}"), &mut said)?;
            }
        }
        _ => return Err(Error::invalid("/input", "input must be a string or a list of items").into()),
    }
    Ok(said)
}

/// Reads an item. Thoughts of a model are left out: they are of another one.
fn item(item: &Value, at: &str, said: &mut Vec<Said>) -> Result<(), Failure> {
    let fields = item.as_object().ok_or_else(|| Error::invalid(at, "an item is an object"))?;
    let call = || {
        let missing = || Error::invalid(format!("{at}/call_id"), "the id of the call is missing");
        Ok::<_, Error>(fields.get("call_id").and_then(Value::as_str).ok_or_else(missing)?.to_owned())
    };
    match fields.get("type").and_then(Value::as_str) {
        None | Some("message") => said.push(message(fields, at)?),
        Some("reasoning") => {}
        Some("function_call") => {
            // An answer is one message, of which the calls are items of their own.
            if said.last().is_none_or(|last| last.role != Role::Assistant) {
                said.push(Said::new(Role::Assistant, ""));
            }
            let id = call()?;
            said.iter_mut().rev().take(1).for_each(|last| last.calls.push(id.clone()));
        }
        Some("function_call_output") => {
            let output = fields.get("output").cloned().unwrap_or_default();
            let text = content_text(&output, &format!("{at}/output"))?;
            said.push(Said { calls: vec![call()?], ..Said::new(Role::Tool, text) });
        }
        Some(kind) => {
            let message = format!("an item of type {kind:?} cannot be taken here");
            return Err(error::unsupported(format!("{at}/type"), message));
        }
    }
    Ok(())
}

fn unknown_previous(id: &str) -> Failure {
    let message = format!("Previous response with id '{id}' not found.");
    Failure::from(Error::invalid("/previous_response_id", message)).code("previous_response_not_found")
}

/// POST /v1/responses
pub(crate) async fn create(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let asked = Asked::read(&bytes)?;
    check_model(&gateway).await?;
    let held = request.hold()?;
    let previous = asked.previous.as_ref();
    let accepted = accept(&gateway, &request, &bytes, &asked.input, previous).await;
    let Begun { turn, shortened, is_replayed, .. } =
        accepted.map_err(|failure| match (failure.error().at.as_deref(), previous) {
            (Some("/after"), Some(previous)) => unknown_previous(&super::answer::id_of(previous)),
            _ => failure,
        })?;
    let session = turn.session.to_string();
    let answer = Answer::new(asked.input.model, turn, asked.previous, Some(held));
    let done = match (asked.stream, asked.background) {
        (true, _) => Ok(Response::events(|frames| answer.stream(frames))),
        (false, true) => Ok(answer.begun()),
        (false, false) => whole(answer).await,
    };
    let response = if is_replayed { replayed(done) } else { done }?;
    named_ignored(response.text_header(SESSION, &session)?, asked.ignored, shortened)
}

/// Waits for the answer. A turn that waits for a decision is in progress, and its caller is told so.
async fn whole(mut answer: Answer) -> Result<Response, Failure> {
    if !answer.ends().await? {
        return Ok(answer.begun());
    }
    match answer.completed().await {
        Ok(body) => Ok(sent_whole(answer.turn, &body)),
        Err(failure) => {
            delivered(&answer.turn.gateway, &answer.turn.event).await;
            Err(failure)
        }
    }
}

/// GET /v1/responses/:id
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let answer = find(&gateway, &request).await?;
    let session = answer.turn.session.to_string();
    let response = match query.one("stream")? {
        Some("true") => {
            let number = |text: &str| text.parse::<u64>();
            let after = query.one("starting_after")?.map(number).transpose();
            let after = after.map_err(|_| Error::invalid("?starting_after", "starting_after is not a number"))?;
            let answer = answer.after(after, request.hold()?);
            Response::events(|frames| answer.stream(frames))
        }
        None | Some("false") => Response::json(200, &answer.now().await?)?,
        Some(_) => return Err(Error::invalid("?stream", "stream is neither true nor false").into()),
    };
    response.text_header(SESSION, &session)
}

/// POST /v1/responses/:id/cancel
pub(crate) async fn cancel(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    request.body().await?;
    let found = found(&gateway, &request).await?;
    let args = CancelSession {
        scope: found.scope.clone(),
        id: found.session_id.clone(),
        submission_id: Some(found.admission.submission_id.clone()),
    };
    gateway.store.change_once::<SessionsCancel>(&args).await?;
    // The turn ends within two seconds.
    let mut answer = of_found(&gateway, &request, found);
    answer.turn.end().await?;
    Response::json(200, &answer.now().await?)
}

/// DELETE /v1/responses/:id
pub(crate) async fn delete(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let submission_id = of_path(&request)?;
    let deleted = gateway.store.change::<DoorsDelete>(&BySubmission { submission_id }).await;
    deleted.map_err(|error| unknown(error, &request))?;
    Response::json(200, &json!({"id": request.segment("id"), "object": "response", "deleted": true}))
}

fn of_path(request: &Request) -> Result<SubmissionId, Failure> {
    let id = request.segment("id");
    submission_of(id).ok_or_else(|| unknown(Error::not_found(""), request))
}

fn unknown(error: Error, request: &Request) -> Failure {
    match error.code {
        ken_types::Code::NotFound => {
            let message = format!("Response with id '{}' not found.", request.segment("id"));
            Error::not_found(message).into()
        }
        _ => error.into(),
    }
}

async fn found(gateway: &Gateway, request: &Request) -> Result<FoundAnswer, Failure> {
    let submission_id = of_path(request)?;
    let found = gateway.store.call::<DoorsFind>(&BySubmission { submission_id }).await;
    found.map_err(|error| unknown(error, request))
}

async fn find(gateway: &Arc<Gateway>, request: &Request) -> Result<Answer, Failure> {
    Ok(of_found(gateway, request, found(gateway, request).await?))
}

fn of_found(gateway: &Arc<Gateway>, request: &Request, found: FoundAnswer) -> Answer {
    let text = |name: &str| found.context.as_ref().and_then(|context| context.get(name)?.as_str().map(str::to_owned));
    let model = text("agent").map_or_else(|| MODEL.to_owned(), |agent| format!("{MODEL}/{agent}"));
    let previous = text("previous").map(SubmissionId);
    let owed = owed(found.context.as_ref());
    let FoundAnswer { event_id, received_at, session_id, admission, .. } = found;
    let turn = Turn::new(gateway.clone(), request, event_id, received_at, session_id, admission, owed);
    Answer::new(model, turn, previous, None)
}
