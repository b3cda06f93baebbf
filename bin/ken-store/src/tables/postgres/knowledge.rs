//! Knowledge entries, the jobs over them, and the full-text indexes of knowledge and memory.

use std::collections::BTreeSet;
use std::path::Path;

use ken_types::fence::Outside;
use ken_types::ops::store::{Job, KnowledgeRecord, PutKnowledge};
use ken_types::{Error, Timestamp};
use serde_json::{Map, Value};

use super::values::Parameter;
use super::{Database, Row, all, count, first, outside, params, rows, run, stored, time, to_json, turn_of, unique};
use crate::rules::stream_names;
use crate::rules::terms::indexed;
use crate::tables::{DocumentPlace, Index, JobRow, Knowledge, KnowledgeFilter, KnowledgeTexts, Words};

/// Selects entries together with their documents and with the streams of the sessions in which agents wrote them.
/// Those of a session that is being deleted are left out.
const RECORD: &str =
    "SELECT * FROM (SELECT *, (SELECT name FROM streams WHERE streams.stream = knowledge.stream) AS stream_name
                    FROM knowledge WHERE stream IS NULL OR stream NOT IN (SELECT stream FROM purges)) AS k
     LEFT JOIN documents USING (document)";

fn knowledge(row: &Row) -> Result<KnowledgeRecord, Error> {
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
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        score: None,
        outside: stored(row, "outside")?.unwrap_or_default(),
        session_id: stream.map(|name| stream_names::instance(&name).to_owned()),
        submission_id,
    })
}

/// Returns the place of a piece in its document.
fn metadata(row: &Row) -> Result<Value, Error> {
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

fn job(row: &Row) -> Result<Job, Error> {
    let finished: Option<i64> = row.get("finished_at")?;
    Ok(Job {
        job_id: row.get("id")?,
        status: row.get("status")?,
        done: count(row, "done")?,
        total: count(row, "total")?,
        started_at: Some(time(row, "started_at")?),
        finished_at: finished.map(Timestamp::from_millis),
        error: row.get("error")?,
    })
}

impl Knowledge for Database {
    fn put_knowledge(
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
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10, $11, $12, $13)
                   ON CONFLICT (id) DO UPDATE SET tags = excluded.tags, updated_at = greatest(knowledge.updated_at, excluded.updated_at)
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
            now.millis(),
            place.map(|place| place.document),
            place.map(|place| place.line.cast_signed()),
            outside(origins)?,
            stream,
        ];
        unique(self, sql, values, |row| row.get(0))
    }

    fn knowledge(&self, id: &str) -> Result<Option<KnowledgeRecord>, Error> {
        first(self, &format!("{RECORD} WHERE id = $1"), params![id], knowledge)
    }

    fn knowledge_by_key(&self, key: i64) -> Result<Option<KnowledgeRecord>, Error> {
        first(self, &format!("{RECORD} WHERE entry = $1"), params![key], knowledge)
    }

    fn delete_knowledge(&self, id: &str) -> Result<Option<i64>, Error> {
        let sql = "DELETE FROM knowledge WHERE id = $1 RETURNING entry";
        first(self, sql, params![id], |row| row.get(0))
    }

    fn delete_knowledge_by_key(&self, key: i64) -> Result<(), Error> {
        run(self, "DELETE FROM knowledge WHERE entry = $1", params![key]).map(drop)
    }

    fn set_tags(&self, key: i64, tags: &[String], now: Timestamp) -> Result<bool, Error> {
        let sql =
            "UPDATE knowledge SET tags = $2, updated_at = greatest(updated_at, $3) WHERE entry = $1 AND tags <> $2";
        let changed = run(self, sql, params![key, to_json(&tags)?, now.millis()])?;
        Ok(changed > 0)
    }

    fn list_knowledge(&self, list: &KnowledgeFilter<'_>) -> Result<Vec<(i64, KnowledgeRecord)>, Error> {
        // An entry for everyone is shown with `api` and `default`, so it is also found by these values.
        let sources = match list.source {
            Some(_) => "source = $5",
            None => "source NOT IN ('share', 'workspace') AND $5 IS NULL",
        };
        let sql = format!(
            "{RECORD} WHERE entry < $1 AND {sources}
               AND ($2 IS NULL OR coalesce(actor, 'api') = $2)
               AND ($3 IS NULL OR coalesce(conversation, 'default') = $3)
             ORDER BY entry DESC LIMIT $4"
        );
        let values = params![list.before, list.actor, list.conversation, list.limit, list.source];
        all(self, &sql, values, |row| Ok((row.get("entry")?, knowledge(row)?)))
    }

    fn knowledge_texts(&self, key: i64) -> Result<Option<KnowledgeTexts>, Error> {
        let sql = "SELECT title, tags, content, actor, conversation FROM knowledge WHERE entry = $1";
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

    fn knowledge_sizes(&self, after: i64, until: i64, max: usize) -> Result<Vec<(i64, u64)>, Error> {
        let sql = "SELECT entry, octet_length(content)::bigint AS size FROM knowledge WHERE entry > $1 AND entry <= $2
                   ORDER BY entry LIMIT $3";
        all(self, sql, params![after, until, rows(max)], |row| Ok((row.get("entry")?, count(row, "size")?)))
    }

    fn job(&self, id: &str) -> Result<Option<Job>, Error> {
        first(self, "SELECT * FROM jobs WHERE id = $1", params![id], job)
    }

    fn running_job(&self) -> Result<Option<JobRow>, Error> {
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

    fn insert_job(&self, id: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO jobs (id, status, until, total, started_at)
                   SELECT $1, 'running', coalesce(max(entry), 0), count(*), $2 FROM knowledge";
        run(self, sql, params![id, now.millis()]).map(drop)
    }

    fn advance_job(&self, key: i64, reached: i64, done: usize) -> Result<(), Error> {
        let sql = "UPDATE jobs SET reached = $2, done = done + $3 WHERE job = $1";
        run(self, sql, params![key, reached, rows(done)]).map(drop)
    }

    fn finish_job(&self, key: i64, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE jobs SET status = CASE WHEN error IS NULL THEN 'ok' ELSE 'error' END, finished_at = $2, total = done WHERE job = $1";
        run(self, sql, params![key, now.millis()]).map(drop)
    }
}

/// The number of rows up to which the rows with a word are counted. A word that more rows contain is common: see `rules::search`.
const MAX_COUNTED: u32 = 5_001;
/// The number of bytes after which a word is cut, because an index entry has a limit of its own. Two words with the same beginning then count
/// as one, until the texts themselves are compared.
const MAX_WORD_BYTES: usize = 256;

fn cut(word: &str) -> String {
    ken_text::head(word, MAX_WORD_BYTES).to_owned()
}

/// Returns the distinct stems of the words of texts.
fn stems(texts: &[&str]) -> BTreeSet<String> {
    let mut stems = BTreeSet::new();
    for text in texts {
        stems.extend(indexed(text).split_ascii_whitespace().map(cut));
    }
    stems
}

/// Returns the form of a scope word in an index. No word of a text begins with a slash, so that no text can pretend to be of another scope.
fn scope_entry(scope_word: &str) -> String {
    format!("/{scope_word}")
}

/// Returns what an index contains of a row: its stems and its scope word.
fn words(scope_word: &str, texts: &[&str]) -> Vec<String> {
    let mut words = stems(texts);
    words.insert(scope_entry(scope_word));
    words.into_iter().collect()
}

fn table(index: Index) -> (&'static str, &'static str) {
    match index {
        Index::Knowledge => ("knowledge_index", "entry"),
        Index::Memory => ("memory_index", "submission"),
    }
}

/// Returns the condition that a row contains one of the scope words, if any are given, and of each word, or of any word, one of its stems. The
/// parameters are an array for each.
fn condition(words: usize, match_all: bool, is_scoped: bool) -> String {
    let of_word = |number: usize| format!("words && ${number}");
    let first = 1 + usize::from(is_scoped);
    let conditions: Vec<String> = (first..first + words).map(of_word).collect();
    let joined = conditions.join(if match_all { " AND " } else { " OR " });
    if is_scoped { format!("{} AND ({joined})", of_word(1)) } else { joined }
}

impl Words for Database {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error> {
        let KnowledgeTexts { title, tags, content, .. } = texts;
        let heads: Vec<String> = stems(&[title, tags]).into_iter().collect();
        let sql = "INSERT INTO knowledge_index (entry, heads, words) VALUES ($1, $2, $3)
                   ON CONFLICT (entry) DO UPDATE SET heads = $2, words = $3";
        run(self, sql, params![key, heads, words(scope_word, &[title, tags, content])]).map(drop)
    }

    fn unindex_knowledge(&self, after: i64, until: i64) -> Result<(), Error> {
        run(self, "DELETE FROM knowledge_index WHERE entry > $1 AND entry <= $2", params![after, until]).map(drop)
    }

    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error> {
        let sql = "INSERT INTO memory_index (submission, words) VALUES ($1, $2)";
        run(self, sql, params![submission, words(scope_word, &[prompt, answer])]).map(drop)
    }

    fn index_size(&self, index: Index) -> Result<u64, Error> {
        let sql = match index {
            Index::Knowledge => "SELECT coalesce(max(entry), 0) AS size FROM knowledge",
            Index::Memory => "SELECT coalesce(max(submission), 0) AS size FROM exchanges",
        };
        unique(self, sql, params![], |row| count(row, "size"))
    }

    fn document_frequencies(&self, index: Index, words: &[&[String]], _size: u64) -> Result<Vec<u64>, Error> {
        let table = table(index).0;
        let counted = |number: usize| {
            format!(
                "(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE words && ${number} LIMIT {MAX_COUNTED}) AS held)"
            )
        };
        // One statement counts all words, because each statement is a round trip.
        let counts: Vec<String> = (1..=words.len()).map(counted).collect();
        let sql = format!("SELECT ARRAY[{}]::bigint[] AS holders", counts.join(", "));
        let words = cut_all(words);
        let words: Vec<&dyn Parameter> = words.iter().map(|stems| stems as &dyn Parameter).collect();
        let holders = unique(self, &sql, &words, |row| row.get::<Vec<i64>>("holders"))?;
        Ok(holders.into_iter().map(i64::cast_unsigned).collect())
    }

    fn matching(
        &self,
        index: Index,
        words: &[&[String]],
        match_all: bool,
        scope_words: Option<&[String]>,
        max: u32,
    ) -> Result<Vec<i64>, Error> {
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let (table, key) = table(index);
        let is_scoped = scope_words.is_some();
        let condition = condition(words.len(), match_all, is_scoped);
        let scopes: Option<Vec<String>> = scope_words.map(|words| words.iter().map(|word| scope_entry(word)).collect());
        let arrays: Vec<Vec<String>> = scopes.into_iter().chain(cut_all(words)).collect();
        let first = arrays.len() - words.len() + 1;
        // The words come with the rarest first, which counts most.
        let held = |column: &str| {
            let held = (first..=arrays.len()).map(|number| format!("({column} && ${number}) DESC"));
            held.collect::<Vec<_>>().join(", ")
        };
        let best = || format!("{}, {}, {key} DESC", held("words"), held("heads"));
        let search = |order: &str, max: i64| {
            let sql =
                format!("SELECT {key} FROM {table} WHERE {condition} ORDER BY {order} LIMIT ${}", arrays.len() + 1);
            let mut values: Vec<&dyn Parameter> = arrays.iter().map(|array| array as &dyn Parameter).collect();
            values.push(&max);
            all(self, &sql, &values, |row| row.get(0))
        };
        let newest = |max: i64| search(&format!("{key} DESC"), max);
        match (index, is_scoped) {
            (Index::Memory, _) => newest(max.into()),
            (Index::Knowledge, false) => search(&best(), max.into()),
            (Index::Knowledge, true) => {
                let hits: Vec<i64> = newest(i64::from(max) + 1)?;
                if hits.len() <= max as usize { Ok(hits) } else { search(&best(), max.into()) }
            }
        }
    }
}

fn cut_all(words: &[&[String]]) -> Vec<Vec<String>> {
    words.iter().map(|stems| stems.iter().map(|stem| cut(stem)).collect()).collect()
}
