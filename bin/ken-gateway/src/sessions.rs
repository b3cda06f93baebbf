//! Sessions: creating, resuming, listing, reading, changing, cancelling, archiving and deleting them.

use std::path::Path;
use std::sync::Arc;

use ken_http::{Caller, Failure, Request, Response, plain};
use ken_trusted::Folders;
use ken_types::id::{Mint, Origin, SessionId, SubmissionId};
use ken_types::limits::NAME_CHARACTERS;
use ken_types::ops::store::{
    CancelSession, CreateSession, FreshSession, ListSessions, Memory, OwnedSession, ReadTranscript, ResumeSession,
    Scope, SessionsArchive, SessionsCancel, SessionsCreate, SessionsGet, SessionsList, SessionsPurge, SessionsResume,
    SessionsTranscript, SessionsUpdate, UpdateSession,
};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::json;

use crate::app::Gateway;
use crate::body::{self, check_length, given};
use crate::idempotency::{ReplayableResponse, once};
use crate::identity::{Identity, is_owner};
use crate::page;
use crate::turn::check_named_model;

/// The body of a request that makes a session, or does so if there is no such one. The identity is not flattened into it, because serde
/// would then accept unknown fields.
#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewSession {
    workspace: Option<String>,
    memory: Option<Memory>,
    /// `provider/model`, one of the configured ones.
    model: Option<String>,
    connector: Option<String>,
    actor_id: Option<String>,
    conversation_id: Option<String>,
    thread_id: Option<String>,
}

impl NewSession {
    /// Returns the identity to which the session belongs, and the session without its id.
    async fn check(
        self,
        gateway: &Gateway,
        caller: Caller,
    ) -> Result<(Scope, impl FnOnce(SessionId) -> FreshSession), Failure> {
        let NewSession { workspace, memory, model, connector, actor_id, conversation_id, thread_id } = self;
        check_named_model(gateway, model.as_deref()).await?;
        let workspace = workspace.map(|folder| trusted_folder(gateway, caller, &folder)).transpose()?;
        let scope = Identity { connector, actor_id, conversation_id, thread_id }.into_tui_scope()?;
        let fresh = move |id| FreshSession { workspace, memory, model, ..FreshSession::new(id, Origin::Tui) };
        Ok((scope, fresh))
    }
}

/// Returns the path of a folder as it was trusted. Fails if a session must not work in it: the person has not trusted it, or the
/// caller cannot be known to be the person.
fn trusted_folder(gateway: &Gateway, caller: Caller, folder: &str) -> Result<String, Error> {
    if !is_owner(caller) {
        let message = "only the user of the gateway, or a caller with the secret, can name a folder";
        return Err(Error::forbidden(message).at("/workspace"));
    }
    let path = Path::new(folder);
    let find = || {
        let folders = Folders::read(&gateway.state)?;
        folders.open(path)?;
        // The same path can be written in several ways, for instance with a slash at its end.
        Ok(folders.around(path).unwrap_or(path).display().to_string())
    };
    find().map_err(|error: Error| Error { code: Code::Forbidden, ..error }.at("/workspace"))
}

/// POST /api/chat/sessions
pub(crate) async fn create(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let (scope, fresh) = body::read::<NewSession>(&bytes)?.check(&gateway, request.caller()).await?;
    let work = async |mut mint: Mint| {
        let args = CreateSession { scope, fresh: fresh(mint.session(Origin::Tui)) };
        let session = gateway.store.change::<SessionsCreate>(&args).await?;
        ReplayableResponse::json(201, &json!({"session": session}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// POST /api/chat/sessions/:selector/resume
pub(crate) async fn resume(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let (scope, fresh) = body::read::<NewSession>(&bytes)?.check(&gateway, request.caller()).await?;
    let selector = request.segment("selector").trim().to_owned();
    if selector.is_empty() {
        return Err(Error::invalid("/selector", "the selector is blank").into());
    }
    let work = async |mut mint: Mint| {
        let fresh = Some(fresh(mint.session(Origin::Tui)));
        let args = ResumeSession { scope, selector, fresh };
        let session = gateway.store.change::<SessionsResume>(&args).await?;
        let status = if session.created { 201 } else { 200 };
        ReplayableResponse::json(status, &json!({"session": session}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// GET /api/chat/sessions
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = ListSessions {
        scope: Identity::scope_or_none(&query)?,
        archived: page::flag(&query, "archived")?,
        empty: page::flag_if_given(&query, "empty")?.unwrap_or(true),
        scheduled: page::flag_if_given(&query, "scheduled")?.unwrap_or(true),
        q: query.one("q")?.map(str::to_owned),
        text: query.one("text")?.map(str::to_owned),
        limit: page::limit(&query, 100, 50)?,
        after: page::cursor(&query, "after")?,
    };
    Response::json(200, &gateway.store.call::<SessionsList>(&args).await?)
}

/// GET /api/chat/sessions/:id
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = OwnedSession { scope: Identity::scope_or_none(&request.query()?)?, id: session(&request) };
    let session = gateway.store.call::<SessionsGet>(&args).await?;
    Response::json(200, &json!({"session": session}))
}

/// GET /api/chat/sessions/:id/transcript
pub(crate) async fn transcript(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = ReadTranscript {
        scope: Identity::scope_of_query(&query)?,
        id: session(&request),
        limit: page::limit(&query, 100, 50)?,
        before: page::cursor(&query, "before")?,
    };
    let page = gateway.store.call::<SessionsTranscript>(&args).await?;
    Ok(Response::json_bytes(200, String::from(Box::<str>::from(page))))
}

/// The body of a cancel request: the identity and an optional submission. The identity is not flattened into it,
/// because serde would then accept unknown fields.
#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cancel {
    submission_id: Option<SubmissionId>,
    connector: Option<String>,
    actor_id: Option<String>,
    conversation_id: Option<String>,
    thread_id: Option<String>,
}

/// POST /api/chat/sessions/:id/cancel
pub(crate) async fn cancel(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let Cancel { submission_id, connector, actor_id, conversation_id, thread_id } = body::read(&bytes)?;
    let scope = Identity { connector, actor_id, conversation_id, thread_id }.into_scope()?;
    let id = session(&request);
    let work = async |_: Mint| {
        let args = CancelSession { scope, id: id.clone(), submission_id };
        let cancelled = gateway.store.change_once::<SessionsCancel>(&args).await?;
        let stopped = cancelled.submission_id;
        let body = json!({"session": {"id": id}, "cancelled": stopped.is_some(), "submissionId": stopped});
        ReplayableResponse::json(200, &body)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// DELETE /api/chat/sessions/:id: archives the session, or deletes it for good.
pub(crate) async fn delete(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = OwnedSession {
        // Every caller that passes authentication is the operator, who can omit the identity.
        scope: Identity::scope_or_none(&query)?,
        id: session(&request),
    };
    if page::flag(&query, "purge")? {
        gateway.store.change::<SessionsPurge>(&args).await?;
        return Response::json(200, &json!({"id": args.id, "deleted": true, "purged": true}));
    }
    gateway.store.change::<SessionsArchive>(&args).await?;
    Response::json(200, &json!({"session": {"id": args.id}, "archived": true}))
}

/// The name that stands for the configured models.
const DEFAULT_MODEL: &str = "default";

/// The body of a change of a session.
#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Changes {
    display_name: Option<String>,
    memory: Option<Memory>,
    /// `default` stands for the configured models.
    model: Option<String>,
}

/// PATCH /api/chat/sessions/:id
pub(crate) async fn update(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let Changes { display_name, memory, model } = body::read::<Changes>(&bytes)?;
    if let Some(name) = &display_name {
        check_length("/displayName", name.trim(), 1, NAME_CHARACTERS)?;
        if name.chars().any(char::is_control) {
            return Err(Error::invalid("/displayName", "displayName has a control character").into());
        }
    }
    let model = model.map(|model| if model == DEFAULT_MODEL { String::new() } else { model });
    check_named_model(&gateway, model.as_deref().filter(|model| !model.is_empty())).await?;
    let args = UpdateSession {
        scope: Identity::scope_or_none(&request.query()?)?,
        id: session(&request),
        display_name,
        memory,
        model,
    };
    let session = gateway.store.change::<SessionsUpdate>(&args).await?;
    Response::json(200, &json!({"session": session}))
}

fn session(request: &Request) -> SessionId {
    SessionId(request.segment("id").to_owned())
}
