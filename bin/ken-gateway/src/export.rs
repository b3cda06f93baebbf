//! A session as a file: all of its exchanges, as a person reads them or as programs do.

use std::sync::Arc;

use ken_http::http::header::{CONTENT_DISPOSITION, HeaderValue};
use ken_http::{Failure, Request, Response, header_value};
use ken_types::id::{SessionId, SubmissionId};
use ken_types::live_text::{prompt_text, source_lines};
use ken_types::ops::blobs::{GetImage, GetOutput, ImagesGet, OutputsGet};
use ken_types::ops::store::{OwnedSession, ReadTranscript, Scope, Session, SessionsGet, SessionsTranscript};
use ken_types::{Error, hex};
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::identity::Identity;
use crate::page;

/// The number of exchanges that are read at a time.
const PAGE: u32 = 50;
/// The maximum size of a session as a file, in bytes. It is built as a whole, so that the answer has a length and a failure a status.
const MAX_BYTES: usize = 32 << 20;

/// GET /api/chat/sessions/:id/export
pub(crate) async fn export(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let _held = request.hold()?;
    let query = request.query()?;
    let known = |text: &str| ["md", "json"].into_iter().find(|name| *name == text);
    let name = page::choice(&query, "format", known, "md or json")?.unwrap_or("md");
    let scope = Identity::scope_or_none(&query)?;
    let session = find(&gateway, request.segment("id"), scope).await?;
    let exchanges = exchanges(&gateway, &session).await?;
    let response = if name == "json" {
        Response::json(200, &json!({"session": session, "exchanges": exchanges}))?
    } else {
        let kind = HeaderValue::from_static("text/markdown; charset=utf-8");
        Response::bytes(200, kind, markdown(&session, &exchanges))
    };
    let file = format!("attachment; filename=\"{}.{name}\"", session.session_id);
    Ok(response.header(CONTENT_DISPOSITION, header_value(&file)?))
}

/// GET /api/chat/sessions/:id/blobs/:digest: the whole text of a tool, of which the transcript has the beginning.
pub(crate) async fn blob(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let digest = request.segment("digest");
    if hex::decode::<32>(digest).is_none() {
        return Err(Error::invalid("/digest", "a digest is 64 hexadecimal digits in lower case").into());
    }
    let session = find(&gateway, request.segment("id"), Identity::scope_or_none(&request.query()?)?).await?;
    let piece =
        |offset, limit| GetOutput { instance: session.session_id.0.clone(), id: digest.to_owned(), offset, limit };
    Ok(gateway.store.blob::<OutputsGet>(piece).await.map_err(|error| error.at("/digest"))?)
}

/// GET /api/chat/sessions/:id/images/:submissionId/:number: an image of a prompt.
pub(crate) async fn image(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let number = request.segment("number").parse();
    let number: u32 = number.map_err(|_| Error::invalid("/number", "the number of an image counts from 0"))?;
    let session = find(&gateway, request.segment("id"), Identity::scope_or_none(&request.query()?)?).await?;
    let submission_id = SubmissionId(request.segment("submissionId").to_owned());
    let piece = |offset, limit| GetImage {
        instance: session.session_id.0.clone(),
        submission_id: submission_id.clone(),
        number,
        offset,
        limit,
    };
    Ok(gateway.store.blob::<ImagesGet>(piece).await?)
}

/// Returns the record of a session, archived or not. A caller who names no scope is the operator.
pub(crate) async fn find(gateway: &Gateway, id: &str, scope: Option<Scope>) -> Result<Session, Error> {
    let args = OwnedSession { scope, id: SessionId(id.to_owned()) };
    gateway.store.call::<SessionsGet>(&args).await
}

/// Returns all exchanges of a session, oldest first.
pub(crate) async fn exchanges(gateway: &Gateway, session: &Session) -> Result<Vec<Value>, Error> {
    let (mut pages, mut bytes, mut before) = (Vec::new(), 0, None);
    loop {
        let scope = Scope {
            connector: session.connector.clone(),
            actor_id: session.actor_id.clone(),
            conversation_id: session.conversation_id.clone(),
            thread_id: session.thread_id.clone(),
        };
        let args = ReadTranscript { scope, id: session.session_id.clone(), limit: PAGE, before };
        let page = gateway.store.call::<SessionsTranscript>(&args).await?;
        bytes += page.get().len();
        if bytes > MAX_BYTES {
            let message = format!("the session has more than {MAX_BYTES} bytes");
            return Err(Error::too_large(message).hint("the transcript can be read in pages"));
        }
        let mut page: Value = serde_json::from_str(page.get()).map_err(|error| Error::internal(error.to_string()))?;
        before = page.pointer("/page/before").and_then(Value::as_str).map(str::to_owned);
        if let Some(Value::Array(exchanges)) = page.get_mut("exchanges").map(Value::take) {
            pages.push(exchanges);
        }
        if before.is_none() {
            return Ok(pages.into_iter().rev().flatten().collect());
        }
    }
}

/// Returns a session as Markdown.
pub(crate) fn markdown(session: &Session, exchanges: &[Value]) -> String {
    let title = session.display_name.as_deref().or(session.title.as_deref());
    let mut text = format!("# {}\n", title.unwrap_or(session.session_id.as_str()));
    for exchange in exchanges {
        let part = |pointer: &str| exchange.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        for (who, at, said) in [
            ("You", part("/prompt/receivedAt"), prompt_text(exchange).as_str()),
            ("ken", part("/assistant/completedAt"), part("/assistant/text")),
        ] {
            if !said.is_empty() {
                text.push_str(&format!("\n## {who}, {at}\n\n{}\n", said.trim_end()));
            }
        }
        let sources = exchange.get("assistant").map(source_lines).unwrap_or_default();
        for line in sources.lines() {
            text.push_str(&format!("\n{line}\n"));
        }
        if part("/status") != "completed" {
            text.push_str(&format!("\n*The turn is {}.*\n", part("/status")));
        }
    }
    text
}
