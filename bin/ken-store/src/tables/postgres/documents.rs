//! Documents whose pieces are knowledge entries, the vectors of entries, and which turns used an entry.

use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::documents::{Document, EntryUse, Used};

use super::{Database, all, count, each, first, params, rows, run, time, unique, word};
use crate::rules::stream_names;
use crate::tables::{DocumentRow, DocumentTables};

/// The maximum number of characters of an entry's content from which its vector is computed.
const MAX_EMBEDDED_CHARACTERS: i64 = 4_096;
/// How many vectors are fetched at a time.
const VECTORS: u32 = 4_096;
/// The maximum number of characters of a prompt that are shown.
const MAX_PROMPT_CHARACTERS: i64 = 200;

impl DocumentTables for Database {
    fn documents(&self, collection: &str, after: &str, max: usize) -> Result<Vec<Document>, Error> {
        let sql = "SELECT path, digest FROM documents WHERE collection = $1 AND path > $2 ORDER BY path LIMIT $3";
        all(self, sql, params![collection, after, rows(max)], |row| {
            Ok(Document { path: row.get("path")?, digest: row.get("digest")? })
        })
    }

    fn document(&self, collection: &str, path: &str) -> Result<Option<DocumentRow>, Error> {
        let sql = "SELECT document, digest FROM documents WHERE collection = $1 AND path = $2";
        first(self, sql, params![collection, path], |row| {
            Ok(DocumentRow { key: row.get("document")?, digest: row.get("digest")? })
        })
    }

    fn put_document(&self, collection: &str, path: &str, digest: &str) -> Result<i64, Error> {
        let sql = "INSERT INTO documents (collection, path, digest) VALUES ($1, $2, $3)
                   ON CONFLICT (collection, path) DO UPDATE SET digest = excluded.digest RETURNING document";
        unique(self, sql, params![collection, path, digest], |row| row.get(0))
    }

    fn delete_document(&self, key: i64) -> Result<(), Error> {
        run(self, "DELETE FROM documents WHERE document = $1", params![key]).map(drop)
    }

    fn entries_of(&self, document: i64) -> Result<Vec<(i64, String)>, Error> {
        let sql = "SELECT entry, id FROM knowledge WHERE document = $1";
        all(self, sql, params![document], |row| Ok((row.get("entry")?, row.get("id")?)))
    }

    fn move_entry(&self, key: i64, line: u64) -> Result<(), Error> {
        let sql = "UPDATE knowledge SET line = $2 WHERE entry = $1 AND line IS DISTINCT FROM $2";
        run(self, sql, params![key, line.cast_signed()]).map(drop)
    }

    fn set_job_collection(&self, key: i64, collection: Option<&str>) -> Result<(), Error> {
        let sql = "UPDATE jobs SET collection = $2, place = '' WHERE job = $1";
        run(self, sql, params![key, collection]).map(drop)
    }

    fn advance_reading(&self, key: i64, place: &str, done: u64, left: u64) -> Result<(), Error> {
        let sql = "UPDATE jobs SET place = $2, done = done + $3, total = done + $3 + $4 WHERE job = $1";
        let values = params![key, place, done.cast_signed(), left.cast_signed()];
        run(self, sql, values).map(drop)
    }

    fn fail_job(&self, key: i64, error: &str) -> Result<(), Error> {
        let sql = "UPDATE jobs SET error = concat_ws('; ', error, $2) WHERE job = $1";
        run(self, sql, params![key, error]).map(drop)
    }

    fn extend_job(&self, key: i64) -> Result<(), Error> {
        let sql = "UPDATE jobs SET until = coalesce((SELECT max(entry) FROM knowledge), 0),
                     total = done + (SELECT count(*) FROM knowledge) WHERE job = $1";
        run(self, sql, params![key]).map(drop)
    }

    fn unembedded(&self, model: &str, max: usize) -> Result<Vec<(i64, String, String)>, Error> {
        let sql = "SELECT entry, title, substr(content, 1, $3::int) AS text FROM knowledge AS k
                   WHERE NOT EXISTS (SELECT 1 FROM vectors AS v
                                     WHERE v.model = $1 AND v.entry = k.entry)
                   ORDER BY entry LIMIT $2";
        all(self, sql, params![model, rows(max), MAX_EMBEDDED_CHARACTERS], |row| {
            Ok((row.get("entry")?, row.get("title")?, row.get("text")?))
        })
    }

    fn put_vector(&self, entry: i64, model: &str, scope_word: &str, vector: &[u8]) -> Result<(), Error> {
        let sql = "INSERT INTO vectors (entry, model, scope, vector) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (entry) DO UPDATE SET model = $2, scope = $3, vector = $4";
        run(self, sql, params![entry, model, scope_word, vector]).map(drop)
    }

    fn delete_vector(&self, entry: i64) -> Result<(), Error> {
        run(self, "DELETE FROM vectors WHERE entry = $1", params![entry]).map(drop)
    }

    fn vectors(
        &self,
        model: &str,
        scope_words: &[String],
        max: u32,
        see: &mut dyn FnMut(i64, &[u8]),
    ) -> Result<(), Error> {
        let sql = "SELECT entry, vector FROM (
                     SELECT entry, scope, vector FROM vectors WHERE model = $1 ORDER BY entry DESC LIMIT $2) AS newest
                   WHERE scope = ANY ($3) ORDER BY entry DESC";
        let seen = each(self, sql, params![model, max, scope_words], VECTORS, &mut |row| {
            see(row.get(0)?, row.bytes(1)?);
            Ok(true)
        });
        seen.map(drop)
    }

    fn add_vector_usage(&self, day: &str, model: &str, tokens: u64, cost: f64) -> Result<(), Error> {
        let sql = "INSERT INTO vector_usage (day, model, tokens, cost) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (day, model) DO UPDATE SET tokens = vector_usage.tokens + excluded.tokens,
                     cost = vector_usage.cost + excluded.cost";
        run(self, sql, params![day, model, tokens.cast_signed(), cost]).map(drop)
    }

    fn vector_usage(&self) -> Result<Vec<(String, String, u64, f64)>, Error> {
        let sql = "SELECT * FROM vector_usage ORDER BY day DESC LIMIT 1000";
        all(self, sql, params![], |row| {
            let (day, model) = (row.get("day")?, row.get("model")?);
            Ok((day, model, count(row, "tokens")?, row.get("cost")?))
        })
    }

    fn insert_use(&self, entry: &str, submission: i64, how: &str) -> Result<(), Error> {
        let sql = "INSERT INTO knowledge_uses (entry, submission, how) VALUES ($1, $2, $3)
                   ON CONFLICT (entry, submission) DO UPDATE SET how = $3";
        run(self, sql, params![entry, submission, how]).map(drop)
    }

    fn uses(&self, entry: &str, max: u32) -> Result<Vec<EntryUse>, Error> {
        let sql =
            "SELECT u.how, s.id, t.name, e.id AS event, e.scope, e.received_at, substr(e.text, 1, $3::int) AS prompt
                   FROM knowledge_uses AS u JOIN submissions AS s USING (submission) JOIN streams AS t USING (stream)
                     JOIN events AS e USING (event)
                   WHERE u.entry = $1 ORDER BY u.submission DESC LIMIT $2";
        all(self, sql, params![entry, max, MAX_PROMPT_CHARACTERS], |row| {
            let scope: Option<i64> = row.get("scope")?;
            let event: String = row.get("event")?;
            Ok(EntryUse {
                submission_id: SubmissionId(row.get("id")?),
                session_id: stream_names::instance(row.text("name")?).to_owned(),
                event_id: scope.map(|_| event),
                at: time(row, "received_at")?,
                how: word(row, "knowledge_uses.how", Used::named)?,
                prompt: row.get("prompt")?,
            })
        })
    }
}
