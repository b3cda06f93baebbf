//! Knowledge entries, the jobs over them, and the full-text indexes of knowledge and memory.

use std::path::Path;

use ken_types::fence::Outside;
use ken_types::ops::store::{Job, KnowledgeRecord, PutKnowledge};
use ken_types::{Error, Timestamp};
use rusqlite::{Row, params};
use serde_json::{Map, Value};

use super::{Database, all, count, first, insert, outside, rows, run, stored, time, to_json, turn_of, unique};
use crate::rules::stream_names;
use crate::rules::terms::indexed;
use crate::tables::{DocumentPlace, Index, JobRow, Knowledge, KnowledgeFilter, KnowledgeTexts, Words};

/// Selects entries together with their documents and with the streams of the sessions in which agents wrote them.
/// Those of a session that is being deleted are left out.
const RECORD: &str =
    "SELECT * FROM (SELECT *, (SELECT name FROM streams WHERE streams.stream = knowledge.stream) AS stream_name
                    FROM knowledge WHERE stream IS NULL OR stream NOT IN (SELECT stream FROM purges))
     LEFT JOIN documents USING (document)";

fn knowledge(row: &Row<'_>) -> rusqlite::Result<KnowledgeRecord> {
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
fn metadata(row: &Row<'_>) -> rusqlite::Result<Value> {
    let mut metadata = Map::new();
    if let Some(line) = row.get::<_, Option<i64>>("line")? {
        let collection: String = row.get("collection")?;
        if Path::new(&collection).is_absolute() {
            metadata.insert("folder".into(), collection.into());
        }
        metadata.insert("path".into(), row.get::<_, String>("path")?.into());
        metadata.insert("line".into(), line.into());
    }
    Ok(Value::Object(metadata))
}

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
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
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?11, ?12, ?13)
                   ON CONFLICT (id) DO UPDATE SET tags = excluded.tags, updated_at = max(updated_at, excluded.updated_at)
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
        first(self, &format!("{RECORD} WHERE id = ?1"), [id], knowledge)
    }

    fn knowledge_by_key(&self, key: i64) -> Result<Option<KnowledgeRecord>, Error> {
        first(self, &format!("{RECORD} WHERE entry = ?1"), [key], knowledge)
    }

    fn delete_knowledge(&self, id: &str) -> Result<Option<i64>, Error> {
        let sql = "DELETE FROM knowledge WHERE id = ?1 RETURNING entry";
        first(self, sql, [id], |row| row.get(0))
    }

    fn delete_knowledge_by_key(&self, key: i64) -> Result<(), Error> {
        run(self, "DELETE FROM knowledge WHERE entry = ?1", [key]).map(drop)
    }

    fn set_tags(&self, key: i64, tags: &[String], now: Timestamp) -> Result<bool, Error> {
        let sql = "UPDATE knowledge SET tags = ?2, updated_at = max(updated_at, ?3) WHERE entry = ?1 AND tags <> ?2";
        let changed = run(self, sql, params![key, to_json(&tags)?, now.millis()])?;
        Ok(changed > 0)
    }

    fn list_knowledge(&self, list: &KnowledgeFilter<'_>) -> Result<Vec<(i64, KnowledgeRecord)>, Error> {
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

    fn knowledge_texts(&self, key: i64) -> Result<Option<KnowledgeTexts>, Error> {
        let sql = "SELECT title, tags, content, actor, conversation FROM knowledge WHERE entry = ?1";
        first(self, sql, [key], |row| {
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
        let sql = "SELECT entry, octet_length(content) AS size FROM knowledge WHERE entry > ?1 AND entry <= ?2
                   ORDER BY entry LIMIT ?3";
        all(self, sql, [after, until, rows(max)], |row| Ok((row.get("entry")?, count(row, "size")?)))
    }

    fn job(&self, id: &str) -> Result<Option<Job>, Error> {
        first(self, "SELECT * FROM jobs WHERE id = ?1", [id], job)
    }

    fn running_job(&self) -> Result<Option<JobRow>, Error> {
        let sql =
            "SELECT job, id, reached, until, collection, place FROM jobs WHERE status = 'running' ORDER BY job LIMIT 1";
        first(self, sql, [], |row| {
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
                   SELECT ?1, 'running', coalesce(max(entry), 0), count(*), ?2 FROM knowledge";
        insert(self, sql, params![id, now.millis()]).map(drop)
    }

    fn advance_job(&self, key: i64, reached: i64, done: usize) -> Result<(), Error> {
        let sql = "UPDATE jobs SET reached = ?2, done = done + ?3 WHERE job = ?1";
        run(self, sql, [key, reached, rows(done)]).map(drop)
    }

    fn finish_job(&self, key: i64, now: Timestamp) -> Result<(), Error> {
        let sql =
            "UPDATE jobs SET status = iif(error IS NULL, 'ok', 'error'), finished_at = ?2, total = done WHERE job = ?1";
        run(self, sql, [key, now.millis()]).map(drop)
    }
}

/// The statement for a search of knowledge, ordered by the rank of FTS5. The rank of a single row already costs a count of all rows that
/// contain each word of the expression, and the scope word of all people is in nearly every row.
const RANKED: &str = "SELECT rowid, bm25(knowledge_index, 0.0, 4.0, 3.0, 1.0) AS rank FROM knowledge_index
                      WHERE knowledge_index MATCH ?1 ORDER BY rank LIMIT ?2";

/// Returns the statement for a search ordered from new to old, and the columns that it searches. Memory is never ranked, because ranking
/// reads every exchange that contains a word, and turns would become slower as more is said.
fn newest_sql(index: Index) -> (&'static str, &'static str) {
    match index {
        Index::Knowledge => (
            "SELECT rowid FROM knowledge_index WHERE knowledge_index MATCH ?1 ORDER BY rowid DESC LIMIT ?2",
            "{title tags content}",
        ),
        Index::Memory => (
            "SELECT rowid FROM memory_index WHERE memory_index MATCH ?1 ORDER BY rowid DESC LIMIT ?2",
            "{prompt answer}",
        ),
    }
}

/// Returns an FTS5 expression that matches every stem of a word.
fn any_stem(stems: &[String]) -> String {
    let quoted: Vec<String> = stems.iter().map(|stem| format!("\"{stem}\"")).collect();
    format!("({})", quoted.join(" OR "))
}

impl Words for Database {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO knowledge_index (rowid, scope, title, tags, content)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let [title, tags, content] = [&texts.title, &texts.tags, &texts.content].map(|text| indexed(text));
        let values = params![key, scope_word, title, tags, content];
        run(self, sql, values).map(drop)
    }

    fn unindex_knowledge(&self, after: i64, until: i64) -> Result<(), Error> {
        let sql = "DELETE FROM knowledge_index WHERE rowid > ?1 AND rowid <= ?2";
        run(self, sql, [after, until]).map(drop)
    }

    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error> {
        let sql = "INSERT INTO memory_index (rowid, scope, prompt, answer) VALUES (?1, ?2, ?3, ?4)";
        run(self, sql, params![submission, scope_word, indexed(prompt), indexed(answer)]).map(drop)
    }

    fn index_size(&self, index: Index) -> Result<u64, Error> {
        let sql = match index {
            Index::Knowledge => "SELECT coalesce(max(entry), 0) AS size FROM knowledge",
            Index::Memory => "SELECT coalesce(max(submission), 0) AS size FROM exchanges",
        };
        unique(self, sql, [], |row| count(row, "size"))
    }

    fn document_frequencies(&self, index: Index, words: &[&[String]], size: u64) -> Result<Vec<u64>, Error> {
        match index {
            // A single statement counts all words, because FTS5 compiles an internal statement each time its vocabulary is opened.
            Index::Knowledge => {
                let sql = "SELECT word.key AS word, sum(vocabulary.doc) AS holders
                           FROM json_each(?1) AS word
                             CROSS JOIN json_each(word.value) AS stem
                             CROSS JOIN knowledge_words AS vocabulary ON vocabulary.term = stem.value
                           GROUP BY word.key";
                let mut frequencies = vec![0; words.len()];
                let found = all(self, sql, [to_json(&words)?], |row| {
                    Ok((count(row, "word")? as usize, count(row, "holders")?))
                })?;
                for (word, frequency) in found {
                    if let Some(to) = frequencies.get_mut(word) {
                        *to = frequency;
                    }
                }
                Ok(frequencies)
            }
            // The number of exchanges with a common word is estimated from how old the newest hundred are. Counting all of them would
            // become slower as more is said.
            Index::Memory => {
                let sql =
                    "SELECT iif(count(*) < 100, count(*), count(*) * ?2 / (?2 + 1 - min(rowid))) AS holders FROM (
                             SELECT rowid FROM memory_index WHERE memory_index MATCH ?1 ORDER BY rowid DESC LIMIT 100
                           )";
                let frequency = |stems: &&[String]| {
                    let values = params![any_stem(stems), size.cast_signed()];
                    Ok(first(self, sql, values, |row| count(row, "holders"))?.unwrap_or_default())
                };
                words.iter().map(frequency).collect()
            }
        }
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
        let (sql, columns) = newest_sql(index);
        let joined_by = if match_all { " AND " } else { " OR " };
        let words: Vec<String> = words.iter().map(|stems| any_stem(stems)).collect();
        let words = format!("{columns} : ({})", words.join(joined_by));
        let expression = match scope_words {
            Some(scope_words) => format!("scope : ({}) AND {words}", scope_words.join(" OR ")),
            None => words,
        };
        let newest = |max: i64| all(self, sql, params![expression, max], |row| row.get(0));
        let ranked = || all(self, RANKED, params![expression, max], |row| row.get(0));
        match (index, scope_words) {
            (Index::Memory, _) => newest(max.into()),
            (Index::Knowledge, None) => ranked(),
            (Index::Knowledge, Some(_)) => {
                let hits: Vec<i64> = newest(i64::from(max) + 1)?;
                if hits.len() <= max as usize { Ok(hits) } else { ranked() }
            }
        }
    }
}
