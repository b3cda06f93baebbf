//! Knowledge tools: search within the scope of the turn's stored event, and adding entries.

use std::sync::atomic::Ordering;

use ken_types::event::ToolResult;
use ken_types::ops::store::{KnowledgePut, KnowledgeSearch, PutKnowledge, Search};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Builtin, Parts, fenced, result, store, tool};
use crate::names::KNOWLEDGE_SEARCH;
use crate::passage::{origin, passage, place};
use crate::ports::Caller;

/// The maximum number of entries that a search returns.
const MAX_ENTRIES: u32 = 10;

pub(super) fn tools() -> Vec<Builtin> {
    vec![
        tool(
            KNOWLEDGE_SEARCH,
            "Search the knowledge base. Gives entries with number, id, title, source, text and score, best first. Name the number \
             of each entry that an answer uses in brackets, as in [3].",
            search_properties(),
            &["query"],
            search,
        )
        .reading(),
        // Idempotent, because the id of an entry is derived from its content.
        tool(
            "knowledge_add",
            "Add an entry to the knowledge base, to be found in later conversations with the same person. Add only what \
             was asked to be remembered or will be needed again, never a secret.",
            json!({
                "title": {"type": "string", "minLength": 1, "maxLength": 200},
                "content": {"type": "string", "minLength": 1},
                "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 32},
                "scope": {"enum": ["actor", "conversation"],
                          "description": "Who finds it: this person everywhere (the default), or this conversation only"},
            }),
            &["title", "content"],
            add,
        ),
    ]
}

pub(super) fn search_properties() -> Value {
    json!({
        "query": {"type": "string", "minLength": 1, "description": "The words to look for"},
        "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES},
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchArgs {
    pub(super) query: String,
    limit: Option<u32>,
}

impl SearchArgs {
    /// Searches within the caller's scope.
    pub(super) fn search(&self, caller: &Caller) -> Search {
        Search {
            query: self.query.clone(),
            scope: caller.claim.scope.clone(),
            limit: self.limit.unwrap_or(MAX_ENTRIES).clamp(1, MAX_ENTRIES),
            vector: None,
            session: Some(caller.claim.instance.clone()),
        }
    }
}

async fn search(parts: Parts, caller: Caller, args: SearchArgs) -> Result<ToolResult, String> {
    let mut query = args.search(&caller);
    let embedded = parts.embedding.query(&args.query).await;
    let unmade = embedded.as_ref().err().map(|error| error.message.clone());
    query.vector = embedded.unwrap_or_default();
    let found = store::<KnowledgeSearch>(&parts, &query).await?.found;
    let count = u32::try_from(found.len()).unwrap_or_default();
    let before = caller.last_source.fetch_add(count, Ordering::Relaxed);
    let entries = (before + 1..).zip(&found).map(|(number, found)| {
        let entry = &found.entry;
        json!({
            "number": number,
            "id": entry.id,
            "title": entry.title,
            "source": place(entry),
            "origin": origin(entry),
            "text": passage(&entry.content, &args.query),
            "score": found.score,
        })
    });
    let mut shown = json!({ "entries": entries.collect::<Vec<_>>() });
    if let Some(why) = unmade {
        shown["note"] = json!(format!("The search was made by words alone, as no vector could be made: {why}"));
    }
    let outside = found.iter().flat_map(|found| found.entry.outside.iter().cloned()).collect();
    Ok(fenced(&caller, "what the search of the knowledge base has found", shown, outside))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    title: String,
    content: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    scope: Scope,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    Actor,
    Conversation,
}

/// Only people can add global entries. Otherwise a text that a model has read in one conversation could reach all
/// others.
async fn add(parts: Parts, caller: Caller, entry: Entry) -> Result<ToolResult, String> {
    let Some(scope) = caller.claim.scope.clone() else {
        return Err("This conversation belongs to no person, and an entry for everybody is added by a person: \
                    `ken knowledge add`."
            .to_owned());
    };
    if scope.is_anonymous() {
        return Err(
            "It is not known who writes in this conversation, so there is nobody to store an entry for.".to_owned()
        );
    }
    let put = PutKnowledge {
        title: entry.title,
        content: entry.content,
        tags: entry.tags,
        conversation_id: matches!(entry.scope, Scope::Conversation).then_some(scope.conversation_id),
        actor_id: Some(scope.actor_id),
        source: "agent".to_owned(),
        created_by: format!("{}:{}", caller.agent, caller.claim.lease.submission_id),
        turn: Some(caller.claim.lease.submission_id.clone()),
    };
    let added = store::<KnowledgePut>(&parts, &put).await?;
    Ok(result(json!({ "id": added.id, "scope": added.scope })))
}
