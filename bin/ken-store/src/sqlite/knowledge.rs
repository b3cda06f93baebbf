//! Knowledge entries. Their ids come from what they say, so the same entry posted twice is one.

use ken_types::Error;
use ken_types::ops::store::*;
use rusqlite::{Connection, Row, params};
use serde_json::{Map, Value, json};

use super::fault::Done;
use super::search::{Index, candidates};
use super::{all, first, realm, run, system, time};
use crate::backend::Change;
use crate::check;
use crate::cursor::List;
use crate::digest;
use crate::terms::{Query, Weights};

const KNOWLEDGE: Index = Index {
    hits: "SELECT rowid, bm25(knowledge_index, 0.0, 4.0, 3.0, 1.0) AS rank FROM knowledge_index
           WHERE knowledge_index MATCH ?1 ORDER BY rank LIMIT ?2",
    holders: |connection, word, _| {
        let sql = "SELECT doc FROM knowledge_words WHERE term = ?1";
        let mut holders = 0;
        for form in &word.forms {
            holders += first(connection, sql, [form], |row| row.get::<_, i64>(0))?.unwrap_or_default();
        }
        Ok(holders)
    },
    size: "SELECT coalesce(max(entry), 0) FROM knowledge",
    columns: "{title tags content}",
};
/// How many entries that hold some of the words are looked at, when few hold them all: FTS5's rank favours short entries,
/// the score those that hold most of the rare words.
const LOOKED_AT: u32 = 24;
/// How many of the best a list with a query looks through.
const RANKED: u32 = 1_000;

fn id(args: &PutKnowledge) -> String {
    let parts = [
        args.actor_id.as_deref(),
        args.conversation_id.as_deref(),
        Some(args.title.as_str()),
        Some(args.content.as_str()),
    ];
    format!("kb-{}", digest::of(&parts, 16))
}

fn read(row: &Row<'_>) -> rusqlite::Result<KnowledgeRecord> {
    let actor: Option<String> = row.get("actor")?;
    let conversation: Option<String> = row.get("conversation")?;
    let scope = match (&actor, &conversation) {
        (None, None) => "global",
        (Some(_), None) => "actor",
        (_, Some(_)) => "conversation",
    };
    let tags: String = row.get("tags")?;
    Ok(KnowledgeRecord {
        id: row.get("id")?,
        title: row.get("title")?,
        content: row.get("content")?,
        source: row.get("source")?,
        actor_id: actor.unwrap_or_else(|| "api".into()),
        conversation_id: conversation.unwrap_or_else(|| "default".into()),
        scope: scope.into(),
        tags: serde_json::from_str(&tags).unwrap_or_default(),
        metadata: Value::Object(Map::new()),
        created_by: row.get("created_by")?,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        score: None,
    })
}

fn by_id(connection: &Connection, id: &str) -> Done<KnowledgeRecord> {
    let found = first(connection, "SELECT * FROM knowledge WHERE id = ?1", [id], read)?;
    found.ok_or_else(|| Error::not_found(format!("there is no knowledge entry {id}")).into())
}

pub(super) fn get(connection: &Connection, args: &ById) -> Done<KnowledgeRecord> {
    by_id(connection, &args.id)
}

pub(super) fn put(
    connection: &Connection,
    args: &PutKnowledge,
    change: &mut Change,
) -> Done<KnowledgeRecord> {
    check::knowledge(args)?;
    let sql = "INSERT INTO knowledge (id, title, content, source, actor, conversation, tags, created_by, created_at, updated_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)
               ON CONFLICT (id) DO UPDATE SET tags = excluded.tags, updated_at = max(updated_at, excluded.updated_at)
               RETURNING entry";
    let id = id(args);
    let values = params![
        id,
        args.title,
        args.content,
        args.source,
        args.actor_id,
        args.conversation_id,
        serde_json::to_string(&args.tags)?,
        args.created_by,
        change.now.millis(),
    ];
    let entry: Option<i64> = first(connection, sql, values, |row| row.get(0))?;
    if let Some(entry) = entry {
        index(connection, entry)?;
    }
    system::happened(change, "knowledge.added", json!({"id": id, "status": "ok"}));
    by_id(connection, &id)
}

/// Puts an entry into the index, in place of what stood there for it.
pub(super) fn index(connection: &Connection, entry: i64) -> Done<()> {
    let sql = "SELECT title, tags, content, actor, conversation FROM knowledge WHERE entry = ?1";
    let found = first(connection, sql, [entry], |row| {
        let texts: [String; 3] = [row.get("title")?, row.get("tags")?, row.get("content")?];
        let owner: [Option<String>; 2] = [row.get("actor")?, row.get("conversation")?];
        Ok((texts, owner))
    })?;
    if let Some(([title, tags, content], [actor, conversation])) = found {
        let realm = realm::of_entry(actor.as_deref(), conversation.as_deref());
        let sql = "INSERT OR REPLACE INTO knowledge_index (rowid, realm, title, tags, content) VALUES (?1, ?2, ?3, ?4, ?5)";
        run(connection, sql, params![entry, realm, title, tags, content])?;
    }
    Ok(())
}

pub(super) fn delete(connection: &Connection, args: &ById, change: &mut Change) -> Done<()> {
    let sql = "DELETE FROM knowledge WHERE id = ?1 RETURNING entry";
    let entry: Option<i64> = first(connection, sql, [&args.id], |row| row.get(0))?;
    let Some(entry) = entry else {
        return Err(Error::not_found(format!("there is no knowledge entry {}", args.id)).into());
    };
    run(
        connection,
        "DELETE FROM knowledge_index WHERE rowid = ?1",
        [entry],
    )?;
    system::happened(
        change,
        "knowledge.deleted",
        json!({"id": args.id, "status": "ok"}),
    );
    Ok(())
}

pub(super) fn search(connection: &Connection, args: &Search) -> Done<Found<KnowledgeRecord>> {
    let query = Query::of(&args.query);
    let realms = realm::known_to(args.scope.as_ref());
    let most = (args.limit, LOOKED_AT.max(args.limit));
    let (hits, weights) = candidates(connection, &KNOWLEDGE, &query, Some(&realms), most)?;
    let mut found = Vec::with_capacity(hits.len());
    for hit in hits {
        let sql = "SELECT * FROM knowledge WHERE entry = ?1";
        if let Some(entry) = first(connection, sql, [hit], read)? {
            let score = score(&entry, &query, &weights);
            found.push(Match { score, entry });
        }
    }
    // Stable: of equal ones FTS5's first stays first.
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    found.truncate(args.limit as usize);
    Ok(Found { found })
}

/// The weighted part of the query's words that an entry holds.
fn score(entry: &KnowledgeRecord, query: &Query, weights: &Weights) -> f64 {
    let tags = entry.tags.join(" ");
    weights.score(&query.held_by([entry.title.as_str(), tags.as_str(), entry.content.as_str()]))
}

fn list_name(args: &ListKnowledge) -> List {
    let parts = [
        args.q.as_deref(),
        args.actor_id.as_deref(),
        args.conversation_id.as_deref(),
    ];
    List::named("knowledge", &parts)
}

pub(super) fn list(connection: &Connection, args: &ListKnowledge) -> Done<KnowledgePage> {
    match &args.q {
        Some(q) => list_found(connection, args, q),
        None => list_all(connection, args),
    }
}

fn list_all(connection: &Connection, args: &ListKnowledge) -> Done<KnowledgePage> {
    let name = list_name(args);
    let [before] = match &args.after {
        Some(cursor) => name.position(cursor, "?after")?,
        None => [i64::MAX],
    };
    // Entries of everyone show `api` and `default`, and are found by these.
    let sql = "SELECT * FROM knowledge WHERE entry < ?1
                 AND (?2 IS NULL OR coalesce(actor, 'api') = ?2) AND (?3 IS NULL OR coalesce(conversation, 'default') = ?3)
               ORDER BY entry DESC LIMIT ?4";
    let values = params![
        before,
        args.actor_id,
        args.conversation_id,
        i64::from(args.limit) + 1
    ];
    let found = all(connection, sql, values, |row| {
        Ok((row.get::<_, i64>("entry")?, read(row)?))
    })?;
    Ok(page(found, args.limit, |entry| name.cursor([entry])))
}

/// A page of what a query finds. Its place counts from the best; entries newer than the first page stay out of it.
fn list_found(connection: &Connection, args: &ListKnowledge, q: &str) -> Done<KnowledgePage> {
    let name = list_name(args);
    let newest: i64 = first(connection, KNOWLEDGE.size, [], |row| row.get(0))?.unwrap_or_default();
    let [newest, skip] = match &args.after {
        Some(cursor) => name.position(cursor, "?after")?,
        None => [newest, 0],
    };
    let fits = |record: &KnowledgeRecord| {
        let same =
            |wanted: &Option<String>, there: &str| wanted.as_deref().is_none_or(|wanted| wanted == there);
        same(&args.actor_id, &record.actor_id) && same(&args.conversation_id, &record.conversation_id)
    };
    let query = Query::of_list(q);
    let (hits, weights) = candidates(connection, &KNOWLEDGE, &query, None, (RANKED, RANKED))?;
    let mut found = Vec::new();
    for (number, hit) in (0..).zip(hits) {
        if number < skip || hit > newest || found.len() > args.limit as usize {
            continue;
        }
        let sql = "SELECT * FROM knowledge WHERE entry = ?1";
        if let Some(mut entry) = first(connection, sql, [hit], read)?.filter(fits) {
            entry.score = Some(score(&entry, &query, &weights));
            found.push((number + 1, entry));
        }
    }
    Ok(page(found, args.limit, |number| name.cursor([newest, number])))
}

fn page(mut found: Vec<(i64, KnowledgeRecord)>, limit: u32, cursor: impl Fn(i64) -> String) -> KnowledgePage {
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let after = found.last().filter(|_| has_more).map(|(place, _)| cursor(*place));
    KnowledgePage {
        records: found.into_iter().map(|(_, record)| record).collect(),
        page: Page {
            limit,
            has_more,
            after,
        },
    }
}
