//! Knowledge entries: texts that people, agents and imports have stored for the agent.

use std::sync::Arc;

use ken_http::{Failure, Query, Request, Response, plain};
use ken_types::Error;
use ken_types::id::Mint;
use ken_types::limits::{
    IDENTITY_CHARACTERS, KNOWLEDGE_CONTENT_BYTES, KNOWLEDGE_TAG_CHARACTERS, KNOWLEDGE_TAGS, KNOWLEDGE_TITLE_CHARACTERS,
};
use ken_types::ops::documents::{KnowledgeUses, OfEntry};
use ken_types::ops::store::{
    ById, KeyedJob, KnowledgeDelete, KnowledgeGet, KnowledgeJob, KnowledgeList, KnowledgePut, KnowledgeReindex,
    ListKnowledge, PutKnowledge,
};
use serde::Deserialize;
use serde_json::json;

use crate::app::Gateway;
use crate::body::{self, check_length, check_size, given, pointer, required};
use crate::idempotency::{ReplayableResponse, once};
use crate::page;

/// The origins that an entry can have.
const SOURCES: [&str; 5] = ["api", "agent", "import", "share", "workspace"];

#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    title: Option<String>,
    content: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    actor_id: Option<String>,
    conversation_id: Option<String>,
}

impl Entry {
    fn check(self) -> Result<PutKnowledge, Error> {
        let title = required("title", self.title)?;
        not_blank("title", &title)?;
        check_length("/title", &title, 1, KNOWLEDGE_TITLE_CHARACTERS)?;
        let content = required("content", self.content)?;
        not_blank("content", &content)?;
        check_size("content", &content, KNOWLEDGE_CONTENT_BYTES)?;
        if self.tags.len() > KNOWLEDGE_TAGS {
            let message = format!("{} tags, at most {KNOWLEDGE_TAGS} are allowed", self.tags.len());
            return Err(Error::invalid("/tags", message));
        }
        for (index, tag) in self.tags.iter().enumerate() {
            check_length(&format!("/tags/{index}"), tag, 1, KNOWLEDGE_TAG_CHARACTERS)?;
        }
        Ok(PutKnowledge {
            title,
            content,
            tags: self.tags,
            actor_id: identity("actorId", self.actor_id)?,
            conversation_id: identity("conversationId", self.conversation_id)?,
            source: "api".to_owned(),
            created_by: "api".to_owned(),
            turn: None,
        })
    }
}

fn not_blank(name: &str, text: &str) -> Result<(), Error> {
    match text.trim() {
        "" => Err(Error::invalid(pointer(name), format!("{name} is blank"))),
        _ => Ok(()),
    }
}

fn identity(name: &str, value: Option<String>) -> Result<Option<String>, Error> {
    if let Some(value) = &value {
        check_length(&pointer(name), value, 1, IDENTITY_CHARACTERS)?;
    }
    Ok(value)
}

/// POST /api/knowledge
pub(crate) async fn put(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let entry = body::read::<Entry>(&bytes)?.check()?;
    let work = async |_: Mint| {
        let record = gateway.store.change::<KnowledgePut>(&entry).await?;
        ReplayableResponse::json(201, &json!({"record": record}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// GET /api/knowledge
pub(crate) async fn list(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let query = request.query()?;
    let args = ListKnowledge {
        q: query.one("q")?.map(str::to_owned),
        limit: page::limit(&query, 100, 20)?,
        after: page::cursor(&query, "after")?,
        actor_id: page::filter(&query, "actorId")?,
        conversation_id: page::filter(&query, "conversationId")?,
        source: source(&query)?,
    };
    Response::json(200, &gateway.store.call::<KnowledgeList>(&args).await?)
}

fn source(query: &Query) -> Result<Option<String>, Error> {
    match query.one("source")? {
        Some(source) if !SOURCES.contains(&source) => {
            let message = format!("it is not one of {}", SOURCES.join(", "));
            Err(Error::invalid("?source", message))
        }
        source => Ok(source.map(str::to_owned)),
    }
}

/// GET /api/knowledge/:id
pub(crate) async fn get(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = entry_id(&request, "id");
    let record = gateway.store.call::<KnowledgeGet>(&args).await?;
    Response::json(200, &json!({"record": record}))
}

/// GET /api/knowledge/:id/uses
pub(crate) async fn uses(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = OfEntry { id: request.segment("id").to_owned() };
    Response::json(200, &gateway.store.call::<KnowledgeUses>(&args).await?)
}

/// DELETE /api/knowledge/:id
pub(crate) async fn delete(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = entry_id(&request, "id");
    gateway.store.change::<KnowledgeDelete>(&args).await?;
    Response::json(200, &json!({"id": args.id, "deleted": true}))
}

/// POST /api/knowledge/reindex
pub(crate) async fn reindex(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    request.no_fields().await?;
    let work = async |mut mint: Mint| {
        let args = KeyedJob { id: mint.ulid(), documents: true };
        let job = gateway.store.change::<KnowledgeReindex>(&args).await?;
        ReplayableResponse::json(202, &json!({"status": "reindexing", "jobId": job.job_id}))
    };
    once(&gateway, &request, b"{}", plain, work).await
}

/// GET /api/knowledge/reindex/:jobId
pub(crate) async fn job(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = entry_id(&request, "jobId");
    Response::json(200, &gateway.store.call::<KnowledgeJob>(&args).await?)
}

fn entry_id(request: &Request, segment: &str) -> ById {
    ById { id: request.segment(segment).to_owned() }
}
