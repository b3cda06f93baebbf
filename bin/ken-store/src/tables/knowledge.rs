//! Knowledge entries, the jobs over them, and the full-text indexes of knowledge and memory.

use ken_types::fence::Outside;
use ken_types::ops::store::{Job, KnowledgeRecord, Memory, PutKnowledge};
use ken_types::{Error, Timestamp};
use serde_json::{Map, Value};
use std::path::Path;

use super::Tables;
use super::columns::{optional_word, outside, stored, to_json, turn_of};
use super::sql::{Row, Sql, all, first, params, unique};
use crate::rules::stream_names;

/// Selects a page of knowledge entries, newest first, before a key.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeFilter<'a> {
    pub actor: Option<&'a str>,
    pub conversation: Option<&'a str>,
    /// The source of the entries. `None` means all sources except the documents of the installation and of the workspace.
    pub source: Option<&'a str>,
    pub before: i64,
    pub limit: u32,
}

/// A running indexing job.
#[derive(Debug, Clone)]
pub struct JobRow {
    pub key: i64,
    pub id: String,
    /// The key of the last entry that has been indexed. The job ends at the key `until`.
    pub reached: i64,
    pub until: i64,
    /// The collection whose documents are being read. `place` is the path of the last document that has been read.
    pub collection: Option<String>,
    pub place: String,
}

/// The place of an entry in a document: the key of the document and the line.
#[derive(Debug, Clone, Copy)]
pub struct DocumentPlace {
    pub document: i64,
    pub line: u64,
}

/// The texts of an entry that are indexed, and the actor and conversation to which it is restricted.
#[derive(Debug, Clone)]
pub struct KnowledgeTexts {
    pub title: String,
    pub tags: String,
    pub content: String,
    pub actor: Option<String>,
    pub conversation: Option<String>,
}

impl dyn Tables + '_ {
    /// Inserts an entry. If there is one with this id, updates its tags and its time. Returns the key of the entry. `stream` is that of the
    /// session in which an agent writes it. What several agents write belongs to the session of the last one, so that it does not go with an
    /// earlier session; what a person has written belongs to none.
    pub fn put_knowledge(
        &self,
        id: &str,
        entry: &PutKnowledge,
        origins: &Outside,
        place: Option<DocumentPlace>,
        stream: Option<i64>,
        now: Timestamp,
    ) -> Result<i64, Error> {
        let sql = "INSERT INTO knowledge (id, title, content, source, actor, conversation, tags, created_by, created_at, updated_at,
                     document, line, outside, stream)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13)
                   ON CONFLICT (id) DO UPDATE SET tags = excluded.tags,
                     updated_at = CASE WHEN knowledge.updated_at < excluded.updated_at THEN excluded.updated_at ELSE knowledge.updated_at END,
                     source = CASE WHEN knowledge.stream IS NULL THEN knowledge.source ELSE excluded.source END,
                     created_by = CASE WHEN knowledge.stream IS NULL THEN knowledge.created_by ELSE excluded.created_by END,
                     outside = CASE WHEN knowledge.stream IS NULL THEN knowledge.outside ELSE excluded.outside END,
                     stream = CASE WHEN knowledge.stream IS NULL THEN NULL ELSE excluded.stream END
                   RETURNING entry";
        let values = params![
            id,
            entry.title,
            entry.content,
            entry.source,
            entry.actor_id,
            entry.conversation_id,
            to_json(&entry.tags)?,
            entry.created_by,
            now,
            place.map(|place| place.document),
            place.map(|place| place.line),
            outside(origins)?,
            stream,
        ];
        unique(self, sql, values, |row| row.get(0))
    }

    pub fn knowledge(&self, id: &str) -> Result<Option<KnowledgeRecord>, Error> {
        first(self, &format!("{RECORD} WHERE id = ?1"), params![id], knowledge)
    }

    /// Returns an entry, and what the session in which an agent wrote it remembers, if that was set for it.
    pub fn knowledge_by_key(&self, key: i64) -> Result<Option<(KnowledgeRecord, Option<Memory>)>, Error> {
        first(self, &format!("{RECORD} WHERE entry = ?1"), params![key], |row| {
            Ok((knowledge(row)?, optional_word(row, "sessions.memory", Memory::named)?))
        })
    }

    /// Deletes an entry and returns its key.
    pub fn delete_knowledge(&self, id: &str) -> Result<Option<i64>, Error> {
        let sql = "DELETE FROM knowledge WHERE id = ?1 RETURNING entry";
        first(self, sql, params![id], |row| row.get(0))
    }

    pub fn delete_knowledge_by_key(&self, key: i64) -> Result<(), Error> {
        self.execute("DELETE FROM knowledge WHERE entry = ?1", params![key])
    }

    /// Sets the tags of an entry. Returns whether they were different before.
    pub fn set_tags(&self, key: i64, tags: &[String], now: Timestamp) -> Result<bool, Error> {
        let sql = "UPDATE knowledge SET tags = ?2, updated_at = CASE WHEN updated_at < ?3 THEN ?3 ELSE updated_at END WHERE entry = ?1 AND tags <> ?2";
        let changed = self.changed_rows(sql, params![key, to_json(&tags)?, now])?;
        Ok(changed > 0)
    }

    pub fn list_knowledge(&self, list: &KnowledgeFilter<'_>) -> Result<Vec<(i64, KnowledgeRecord)>, Error> {
        // An entry for everyone is shown with `api` and `default`, so it is also found by these values.
        let sources = match list.source {
            Some(_) => "source = ?5",
            None => "source NOT IN ('share', 'workspace') AND ?5 IS NULL",
        };
        let sql = format!(
            "{RECORD} WHERE entry < ?1 AND {sources}
               AND (?2 IS NULL OR coalesce(actor, 'api') = ?2)
               AND (?3 IS NULL OR coalesce(conversation, 'default') = ?3)
             ORDER BY entry DESC LIMIT ?4"
        );
        let values = params![list.before, list.actor, list.conversation, list.limit, list.source];
        all(self, &sql, values, |row| Ok((row.get("entry")?, knowledge(row)?)))
    }

    pub fn knowledge_texts(&self, key: i64) -> Result<Option<KnowledgeTexts>, Error> {
        let sql = "SELECT title, tags, content, actor, conversation FROM knowledge WHERE entry = ?1";
        first(self, sql, params![key], |row| {
            Ok(KnowledgeTexts {
                title: row.get("title")?,
                tags: row.get("tags")?,
                content: row.get("content")?,
                actor: row.get("actor")?,
                conversation: row.get("conversation")?,
            })
        })
    }

    /// Returns the keys of entries after `after`, up to and including `until`, and the length of the content of each in characters.
    pub fn knowledge_sizes(&self, after: i64, until: i64, max: usize) -> Result<Vec<(i64, u64)>, Error> {
        let sql = "SELECT entry, CAST(octet_length(content) AS bigint) AS size FROM knowledge WHERE entry > ?1 AND entry <= ?2
                   ORDER BY entry LIMIT ?3";
        all(self, sql, params![after, until, max], |row| Ok((row.get("entry")?, row.get("size")?)))
    }

    pub fn job(&self, id: &str) -> Result<Option<Job>, Error> {
        first(self, "SELECT * FROM jobs WHERE id = ?1", params![id], job)
    }

    pub fn running_job(&self) -> Result<Option<JobRow>, Error> {
        let sql =
            "SELECT job, id, reached, until, collection, place FROM jobs WHERE status = 'running' ORDER BY job LIMIT 1";
        first(self, sql, params![], |row| {
            Ok(JobRow {
                key: row.get("job")?,
                id: row.get("id")?,
                reached: row.get("reached")?,
                until: row.get("until")?,
                collection: row.get("collection")?,
                place: row.get("place")?,
            })
        })
    }

    /// Inserts a job that covers all entries that exist now.
    pub fn insert_job(&self, id: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO jobs (id, status, until, total, started_at)
                   SELECT ?1, 'running', coalesce(max(entry), 0), count(*), ?2 FROM knowledge";
        self.execute(sql, params![id, now])
    }

    pub fn advance_job(&self, key: i64, reached: i64, done: usize) -> Result<(), Error> {
        let sql = "UPDATE jobs SET reached = ?2, done = done + ?3 WHERE job = ?1";
        self.execute(sql, params![key, reached, done])
    }

    /// Ends the job. It has failed if it has an error.
    pub fn finish_job(&self, key: i64, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE jobs SET status = CASE WHEN error IS NULL THEN 'ok' ELSE 'error' END, finished_at = ?2, total = done WHERE job = ?1";
        self.execute(sql, params![key, now])
    }
}

/// A full-text index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    Knowledge,
    Memory,
}

impl Index {
    pub(super) fn table(self) -> &'static str {
        match self {
            Index::Knowledge => "knowledge_index",
            Index::Memory => "memory_index",
        }
    }
}

/// The rows of an index that contain all of the words, or any of them. A word is given by its stems, one of which must be in the row. If scope
/// words are given, the row must have one of them.
#[derive(Debug, Clone, Copy)]
pub struct WordSearch<'a> {
    pub index: Index,
    pub words: &'a [&'a [String]],
    pub match_all: bool,
    pub scope_words: Option<&'a [String]>,
}

/// Which rows of an index are returned first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By rank. In knowledge only; a search of memory is never ranked.
    Best,
    Newest,
}

/// The full-text indexes. They contain the stems of words (`rules::terms`) and, for each row, a scope word that says who can find the row.
pub trait Words: Sql {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error>;

    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error>;

    /// Returns the column with the keys of an index.
    fn index_key(&self, index: Index) -> &'static str;

    /// Returns for each word the approximate number of rows that contain it. A word is given by its stems; a row that contains two of them
    /// may be counted twice. `size` is the number of rows in the index.
    fn document_frequencies(&self, index: Index, words: &[&[String]], size: u64) -> Result<Vec<u64>, Error>;

    /// Returns the keys of the rows of a search, which has at least one word.
    fn search(&self, search: &WordSearch<'_>, order: Order, max: u64) -> Result<Vec<i64>, Error>;
}

impl dyn Tables + '_ {
    /// Removes the rows with keys after `after`, up to and including `until`.
    pub fn unindex_knowledge(&self, after: i64, until: i64) -> Result<(), Error> {
        let key = self.index_key(Index::Knowledge);
        let sql = format!("DELETE FROM knowledge_index WHERE {key} > ?1 AND {key} <= ?2");
        self.execute(&sql, params![after, until])
    }

    pub fn unindex_exchange(&self, submission: i64) -> Result<(), Error> {
        let sql = format!("DELETE FROM memory_index WHERE {} = ?1", self.index_key(Index::Memory));
        self.execute(&sql, params![submission])
    }

    /// Returns the keys of all rows.
    pub fn indexed(&self, index: Index) -> Result<Vec<i64>, Error> {
        let (table, key) = (index.table(), self.index_key(index));
        all(self, &format!("SELECT {key} FROM {table} ORDER BY {key}"), params![], |row| row.get(0))
    }

    /// Returns the approximate number of rows.
    pub fn index_size(&self, index: Index) -> Result<u64, Error> {
        let sql = match index {
            Index::Knowledge => "SELECT coalesce(max(entry), 0) AS size FROM knowledge",
            Index::Memory => "SELECT coalesce(max(submission), 0) AS size FROM exchanges",
        };
        unique(self, sql, params![], |row| row.get("size"))
    }

    /// Like `search`. The order is best first in knowledge, and newest first in memory, because ranking reads every row that contains a word,
    /// and turns would become slower as more is said. With scope words it is newest first in knowledge too, unless there are more rows than
    /// `max`: then the best of them are returned.
    pub fn matching(&self, search: &WordSearch<'_>, max: u32) -> Result<Vec<i64>, Error> {
        let max = u64::from(max);
        match (search.index, search.scope_words) {
            _ if search.words.is_empty() => Ok(Vec::new()),
            (Index::Memory, _) => self.search(search, Order::Newest, max),
            (Index::Knowledge, None) => self.search(search, Order::Best, max),
            (Index::Knowledge, Some(_)) => {
                let hits = self.search(search, Order::Newest, max + 1)?;
                if hits.len() as u64 <= max { Ok(hits) } else { self.search(search, Order::Best, max) }
            }
        }
    }
}

fn knowledge(row: &dyn Row) -> Result<KnowledgeRecord, Error> {
    let actor: Option<String> = row.get("actor")?;
    let conversation: Option<String> = row.get("conversation")?;
    let (source, created_by): (String, String) = (row.get("source")?, row.get("created_by")?);
    let stream: Option<String> = row.get("stream_name")?;
    let submission_id = stream.is_some().then(|| turn_of(&created_by)).flatten();
    let scope = match (&actor, &conversation) {
        (None, None) => "global",
        (Some(_), None) => "actor",
        (_, Some(_)) => "conversation",
    };
    Ok(KnowledgeRecord {
        id: row.get("id")?,
        title: row.get("title")?,
        content: row.get("content")?,
        source,
        actor_id: actor.unwrap_or_else(|| "api".into()),
        conversation_id: conversation.unwrap_or_else(|| "default".into()),
        scope: scope.into(),
        tags: stored(row, "tags")?.unwrap_or_default(),
        metadata: metadata(row)?,
        created_by,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        score: None,
        outside: stored(row, "outside")?.unwrap_or_default(),
        session_id: stream.map(|name| stream_names::instance(&name).to_owned()),
        submission_id,
    })
}

/// Returns the place of a piece in its document.
fn metadata(row: &dyn Row) -> Result<Value, Error> {
    let mut metadata = Map::new();
    if let Some(line) = row.get::<Option<i64>>("line")? {
        let collection: String = row.get("collection")?;
        if Path::new(&collection).is_absolute() {
            metadata.insert("folder".into(), collection.into());
        }
        metadata.insert("path".into(), row.get::<String>("path")?.into());
        metadata.insert("line".into(), line.into());
    }
    Ok(Value::Object(metadata))
}

fn job(row: &dyn Row) -> Result<Job, Error> {
    Ok(Job {
        job_id: row.get("id")?,
        status: row.get("status")?,
        done: row.get("done")?,
        total: row.get("total")?,
        started_at: row.get("started_at")?,
        finished_at: row.get("finished_at")?,
        error: row.get("error")?,
    })
}

/// Selects entries together with their documents and with the streams of the sessions in which agents wrote them.
/// Those of a session that is being deleted are left out.
const RECORD: &str =
    "SELECT * FROM (SELECT *, (SELECT name FROM streams WHERE streams.stream = knowledge.stream) AS stream_name,
                      (SELECT memory FROM sessions WHERE sessions.stream = knowledge.stream) AS memory
                    FROM knowledge WHERE stream IS NULL OR stream NOT IN (SELECT stream FROM purges)) AS k
     LEFT JOIN documents USING (document)";
