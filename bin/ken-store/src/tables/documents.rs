//! Documents whose pieces are knowledge entries, the vectors of entries, and which turns used an entry.

use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::documents::{Document, EntryUse, Used};

use super::Tables;
use super::columns::word;
use super::sql::{all, first, params, unique};
use crate::rules::stream_names;

/// A document: its key and the digest of its file.
#[derive(Debug, Clone)]
pub struct DocumentRow {
    pub key: i64,
    pub digest: String,
}

/// Documents, the vectors of entries, and the turns that used an entry.
impl dyn Tables + '_ {
    pub fn documents(&self, collection: &str, after: &str, max: usize) -> Result<Vec<Document>, Error> {
        let sql = "SELECT path, digest FROM documents WHERE collection = ?1 AND path > ?2 ORDER BY path LIMIT ?3";
        all(self, sql, params![collection, after, max], |row| {
            Ok(Document { path: row.get("path")?, digest: row.get("digest")? })
        })
    }

    pub fn document(&self, collection: &str, path: &str) -> Result<Option<DocumentRow>, Error> {
        let sql = "SELECT document, digest FROM documents WHERE collection = ?1 AND path = ?2";
        first(self, sql, params![collection, path], |row| {
            Ok(DocumentRow { key: row.get("document")?, digest: row.get("digest")? })
        })
    }

    /// Inserts a document. If there is one with this path, sets its digest. Returns its key.
    pub fn put_document(&self, collection: &str, path: &str, digest: &str) -> Result<i64, Error> {
        let sql = "INSERT INTO documents (collection, path, digest) VALUES (?1, ?2, ?3)
                   ON CONFLICT (collection, path) DO UPDATE SET digest = excluded.digest RETURNING document";
        unique(self, sql, params![collection, path, digest], |row| row.get(0))
    }

    pub fn delete_document(&self, key: i64) -> Result<(), Error> {
        self.execute("DELETE FROM documents WHERE document = ?1", params![key])
    }

    /// Returns the keys and ids of the entries of a document.
    pub fn entries_of(&self, document: i64) -> Result<Vec<(i64, String)>, Error> {
        let sql = "SELECT entry, id FROM knowledge WHERE document = ?1";
        all(self, sql, params![document], |row| Ok((row.get("entry")?, row.get("id")?)))
    }

    pub fn move_entry(&self, key: i64, line: u64) -> Result<(), Error> {
        let sql = "UPDATE knowledge SET line = ?2 WHERE entry = ?1 AND line IS DISTINCT FROM ?2";
        self.execute(sql, params![key, line])
    }

    /// Moves a job to the beginning of a collection; `None` means that all documents have been read.
    pub fn set_job_collection(&self, key: i64, collection: Option<&str>) -> Result<(), Error> {
        let sql = "UPDATE jobs SET collection = ?2, place = '' WHERE job = ?1";
        self.execute(sql, params![key, collection])
    }

    /// Moves a job within its collection. `done` is the number of further documents that have been read, and `left` is the number that
    /// remain.
    pub fn advance_reading(&self, key: i64, place: &str, done: u64, left: u64) -> Result<(), Error> {
        let sql = "UPDATE jobs SET place = ?2, done = done + ?3, total = done + ?3 + ?4 WHERE job = ?1";
        self.execute(sql, params![key, place, done, left])
    }

    pub fn fail_job(&self, key: i64, error: &str) -> Result<(), Error> {
        let sql = "UPDATE jobs SET error = concat_ws('; ', error, ?2) WHERE job = ?1";
        self.execute(sql, params![key, error])
    }

    /// Makes the job also cover all entries that have been added since it began.
    pub fn extend_job(&self, key: i64) -> Result<(), Error> {
        let sql = "UPDATE jobs SET until = coalesce((SELECT max(entry) FROM knowledge), 0),
                     total = done + (SELECT count(*) FROM knowledge) WHERE job = ?1";
        self.execute(sql, params![key])
    }

    /// Returns entries without a vector of this model, oldest first: their key, their title and the beginning of their content.
    pub fn unembedded(&self, model: &str, max: usize) -> Result<Vec<(i64, String, String)>, Error> {
        let sql = format!(
            "SELECT entry, title, substr(content, 1, CAST(?3 AS int)) AS text FROM knowledge AS k WHERE NOT EXISTS (
               SELECT 1 FROM vectors AS v {} WHERE v.model = ?1 AND v.entry = k.entry) ORDER BY entry LIMIT ?2",
            self.dialect().of_model
        );
        all(self, &sql, params![model, max, MAX_EMBEDDED_CHARACTERS], |row| {
            Ok((row.get("entry")?, row.get("title")?, row.get("text")?))
        })
    }

    pub fn put_vector(&self, entry: i64, model: &str, scope_word: &str, vector: &[u8]) -> Result<(), Error> {
        let sql = "INSERT INTO vectors (entry, model, scope, vector) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (entry) DO UPDATE SET model = ?2, scope = ?3, vector = ?4";
        self.execute(sql, params![entry, model, scope_word, vector])
    }

    /// Returns the number of dimensions of a model's vectors, if there are any. All have the same number, so one of them is looked at.
    pub fn dimensions(&self, model: &str) -> Result<Option<u64>, Error> {
        let sql = "SELECT CAST(length(vector) AS bigint) AS dimensions FROM vectors
                   WHERE model = ?1 AND length(vector) > 0 ORDER BY entry LIMIT 1";
        first(self, sql, params![model], |row| row.get("dimensions"))
    }

    /// Deletes the vectors of a model with another number of dimensions, also the empty ones: what the model refused before, it may take now.
    pub fn delete_vectors_except(&self, model: &str, dimensions: usize) -> Result<(), Error> {
        let sql = "DELETE FROM vectors WHERE model = ?1 AND length(vector) <> CAST(?2 AS bigint)";
        self.execute(sql, params![model, dimensions])
    }

    /// Deletes the vectors of entries for which the model has returned none.
    pub fn delete_empty_vectors(&self) -> Result<(), Error> {
        self.execute("DELETE FROM vectors WHERE length(vector) = 0", params![])
    }

    pub fn delete_vector(&self, entry: i64) -> Result<(), Error> {
        self.execute("DELETE FROM vectors WHERE entry = ?1", params![entry])
    }

    pub fn add_vector_usage(&self, day: &str, model: &str, tokens: u64, cost: f64) -> Result<(), Error> {
        let sql = "INSERT INTO vector_usage (day, model, tokens, cost) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (day, model) DO UPDATE SET tokens = vector_usage.tokens + excluded.tokens,
                     cost = vector_usage.cost + excluded.cost";
        self.execute(sql, params![day, model, tokens, cost])
    }

    /// Returns the usage of vectors: day, model, tokens and cost in US dollars.
    pub fn vector_usage(&self) -> Result<Vec<(String, String, u64, f64)>, Error> {
        let sql = "SELECT * FROM vector_usage ORDER BY day DESC LIMIT 1000";
        all(self, sql, params![], |row| {
            let (day, model) = (row.get("day")?, row.get("model")?);
            Ok((day, model, row.get("tokens")?, row.get("cost")?))
        })
    }

    pub fn insert_use(&self, entry: &str, submission: i64, how: &str) -> Result<(), Error> {
        let sql = "INSERT INTO knowledge_uses (entry, submission, how) VALUES (?1, ?2, ?3)
                   ON CONFLICT (entry, submission) DO UPDATE SET how = ?3";
        self.execute(sql, params![entry, submission, how])
    }

    pub fn uses(&self, entry: &str, max: u32) -> Result<Vec<EntryUse>, Error> {
        let sql =
            "SELECT u.how, s.id, t.name, e.id AS event, e.scope, e.received_at, substr(e.text, 1, CAST(?3 AS int)) AS prompt
                   FROM knowledge_uses AS u JOIN submissions AS s USING (submission) JOIN streams AS t USING (stream)
                     JOIN events AS e USING (event)
                   WHERE u.entry = ?1 ORDER BY u.submission DESC LIMIT ?2";
        all(self, sql, params![entry, max, MAX_PROMPT_CHARACTERS], |row| {
            let scope: Option<i64> = row.get("scope")?;
            let event: String = row.get("event")?;
            Ok(EntryUse {
                submission_id: SubmissionId(row.get("id")?),
                session_id: stream_names::instance(&row.get::<String>("name")?).to_owned(),
                event_id: scope.map(|_| event),
                at: row.get("received_at")?,
                how: word(row, "knowledge_uses.how", Used::named)?,
                prompt: row.get("prompt")?,
            })
        })
    }
}

/// The maximum number of characters of an entry's content from which its vector is computed.
const MAX_EMBEDDED_CHARACTERS: i64 = 4_096;

/// The maximum number of characters of a prompt that are shown.
const MAX_PROMPT_CHARACTERS: i64 = 200;

/// How many vectors are fetched at a time.
pub(super) const VECTORS: u32 = 4_096;
