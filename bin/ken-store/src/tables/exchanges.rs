//! Settled exchanges, the history of instances, and the records of runs.

use ken_types::event::{Failure, TurnResult};
use ken_types::id::{RunId, SubmissionId};
use ken_types::ops::runs::{RunRecord, RunStatus};
use ken_types::ops::store::{Memory, PastExchange, Quoted};
use ken_types::{Error, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Tables;
use super::columns::{json, optional_word, stored, word};
use super::sql::{Row, Sql, all, first, params, unique};
use super::submissions::COPY;
use crate::rules::queue::elapsed;
use crate::rules::stream_names;

/// What is stored when a submission ends.
#[derive(Debug, Clone, Copy)]
pub struct NewExchange<'a> {
    pub submission: i64,
    pub stream: i64,
    /// The number of the turn among the prompts of the instance.
    pub turn: Option<i64>,
    /// The exchange as transcripts show it, as JSON.
    pub body: Option<&'a str>,
    pub answer: &'a str,
    pub result: Option<&'a TurnResult>,
    pub error: Option<&'a Failure>,
    pub context_usage: Option<&'a Value>,
    /// The number of entries in the stream up to and including the last entry of the submission.
    pub ended_at: u64,
    pub settled_at: Timestamp,
}

/// The history counters and the summary of an instance.
#[derive(Debug, Clone)]
pub struct InstanceRow {
    pub turns: u64,
    pub compactions: u64,
    pub summary: Option<String>,
    /// The number of the last turn that the summary covers.
    pub summary_after: i64,
}

impl dyn Tables + '_ {
    pub fn insert_exchange(&self, exchange: &NewExchange<'_>) -> Result<(), Error> {
        let sql = "INSERT INTO exchanges
                     (submission, stream, turn, body, answer, result, error, context_usage, ended_at, settled_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let NewExchange { submission, stream, turn, body, answer, ended_at, settled_at, .. } = *exchange;
        let (result, error, context_usage) =
            (json(exchange.result)?, json(exchange.error)?, json(exchange.context_usage)?);
        let values =
            params![submission, stream, turn, body, answer, result, error, context_usage, ended_at, settled_at];
        self.execute(sql, values)
    }

    pub fn exchange_end(&self, submission: i64) -> Result<Option<u64>, Error> {
        let sql = "SELECT ended_at FROM exchanges WHERE submission = ?1";
        first(self, sql, params![submission], |row| row.get("ended_at"))
    }

    /// Returns the number of a turn; `None` if the stream has no settled prompt with this id.
    pub fn exchange_turn(&self, stream: i64, id: &SubmissionId) -> Result<Option<i64>, Error> {
        let sql =
            "SELECT turn FROM submissions AS s JOIN exchanges USING (submission) WHERE s.id = ?2 AND s.stream = ?1";
        Ok(first(self, sql, params![stream, id.as_str()], |row| row.get(0))?.flatten())
    }

    /// Returns the prompts of a stream before a key, newest first. Settled ones have a body.
    pub fn exchanges(&self, stream: i64, before: i64, limit: u32) -> Result<Vec<(i64, Option<String>)>, Error> {
        let sql = "SELECT submission, body FROM submissions AS s LEFT JOIN exchanges AS e USING (submission)
                   WHERE s.kind = 'prompt' AND s.stream = ?1 AND submission < ?2 ORDER BY submission DESC LIMIT ?3";
        all(self, sql, params![stream, before, limit], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Returns the key of the newest prompt of a stream, in any state.
    pub fn newest_prompt(&self, stream: i64) -> Result<Option<i64>, Error> {
        let sql =
            "SELECT submission FROM submissions WHERE kind = 'prompt' AND stream = ?1 ORDER BY submission DESC LIMIT 1";
        first(self, sql, params![stream], |row| row.get(0))
    }

    /// Returns the context usage that the newest turn has reported, as JSON. Turns that reported none are skipped.
    pub fn context_usage(&self, stream: i64) -> Result<Option<String>, Error> {
        let sql = "SELECT context_usage FROM exchanges
                   WHERE stream = ?1 AND turn IS NOT NULL AND context_usage IS NOT NULL ORDER BY turn DESC LIMIT 1";
        first(self, sql, params![stream], |row| row.get(0))
    }

    /// Returns an exchange, and the memory that its session is set to, unless the session is archived or is being deleted.
    pub fn past_exchange(&self, submission: i64) -> Result<Option<(PastExchange, Option<Memory>)>, Error> {
        // What a person has put away is not brought back by a search.
        let filter = " WHERE x.submission = ?1 AND sessions.archived_at IS NULL
                       AND x.stream NOT IN (SELECT stream FROM purges)";
        let sql = [PAST, filter].concat();
        first(self, &sql, params![submission], |row| {
            Ok((past(row)?, optional_word(row, "sessions.memory", Memory::named)?))
        })
    }

    pub fn exchange(&self, submission: i64) -> Result<PastExchange, Error> {
        unique(self, &[PAST, " WHERE x.submission = ?1"].concat(), params![submission], past)
    }

    /// Returns the turns between two numbers, both exclusive, newest first.
    pub fn past_exchanges(&self, stream: i64, after: i64, before: i64, limit: u32) -> Result<Vec<PastExchange>, Error> {
        let filter = " WHERE x.stream = ?1 AND x.turn > ?2 AND x.turn < ?3 ORDER BY x.turn DESC LIMIT ?4";
        let sql = [PAST, filter].concat();
        all(self, &sql, params![stream, after, before, limit], past)
    }

    /// Copies the newest settled prompts of a stream before the submission `before` to another stream, with their exchanges, at most so
    /// many and so many bytes of text; and the summary if it covers nothing later. The function makes the ids of the copies.
    pub fn copy_exchanges(
        &self,
        from: i64,
        to: i64,
        before: i64,
        (max, max_bytes): (u32, u64),
        ids: &mut dyn FnMut() -> (String, SubmissionId),
    ) -> Result<(), Error> {
        let sql = "SELECT submission, event, CAST(octet_length(text) + octet_length(coalesce(body, '')) + octet_length(x.answer) AS bigint) AS size
                   FROM exchanges AS x JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
                   WHERE s.stream = ?1 AND turn IS NOT NULL AND submission < ?2 ORDER BY submission DESC LIMIT ?3";
        let mut found: Vec<(i64, i64, u64)> = all(self, sql, params![from, before, max], |row| {
            Ok((row.get("submission")?, row.get("event")?, row.get("size")?))
        })?;
        let mut bytes = 0;
        let fits = |(.., size): &&(i64, i64, u64)| {
            bytes += size;
            bytes <= max_bytes
        };
        found.truncate(found.iter().take_while(fits).count());
        found.reverse();
        for (submission, event, _) in found {
            let (event_id, id) = ids();
            copy_exchange(self, (submission, event), to, &event_id, &id)?;
        }
        let sql = "INSERT INTO instances (stream, turns, summary, summary_after)
                   SELECT ?2, x.turns, CASE WHEN i.summary_after <= x.turns THEN i.summary END,
                     CASE WHEN i.summary_after <= x.turns THEN i.summary_after ELSE 0 END
                   FROM instances AS i CROSS JOIN (SELECT max(turn) AS turns FROM exchanges WHERE stream = ?2 AND turn IS NOT NULL) AS x
                   WHERE i.stream = ?1 AND x.turns IS NOT NULL";
        self.execute(sql, params![from, to])
    }

    pub fn instance(&self, stream: i64) -> Result<Option<InstanceRow>, Error> {
        let sql = "SELECT turns, compactions, summary, summary_after FROM instances WHERE stream = ?1";
        first(self, sql, params![stream], |row| {
            Ok(InstanceRow {
                turns: row.get("turns")?,
                compactions: row.get("compactions")?,
                summary: row.get("summary")?,
                summary_after: row.get("summary_after")?,
            })
        })
    }

    /// Increments the number of turns, and returns the new number.
    pub fn count_turn(&self, stream: i64) -> Result<i64, Error> {
        let sql = "INSERT INTO instances (stream, turns) VALUES (?1, 1)
                   ON CONFLICT (stream) DO UPDATE SET turns = instances.turns + 1 RETURNING turns";
        unique(self, sql, params![stream], |row| row.get(0))
    }

    pub fn count_compaction(&self, stream: i64) -> Result<(), Error> {
        let sql = "INSERT INTO instances (stream, compactions) VALUES (?1, 1)
                   ON CONFLICT (stream) DO UPDATE SET compactions = instances.compactions + 1";
        self.execute(sql, params![stream])
    }

    /// Stores a summary that covers all turns so far.
    pub fn set_summary(&self, stream: i64, summary: &str) -> Result<(), Error> {
        let sql = "UPDATE instances SET summary = ?2, summary_after = turns WHERE stream = ?1";
        self.execute(sql, params![stream, summary])
    }
}

/// The part of the record of a run that is known when the run is accepted.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub workflow: String,
    pub payload: String,
    pub started_at: Timestamp,
}

/// Selects a page of runs, newest first, before a key.
#[derive(Debug, Clone, Copy)]
pub struct RunList<'a> {
    pub status: Option<RunStatus>,
    pub workflow: Option<&'a str>,
    pub before: i64,
    pub limit: u32,
}

impl dyn Tables + '_ {
    pub fn insert_run(&self, submission: i64, workflow: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO runs (submission, workflow, status, started_at) VALUES (?1, ?2, 'active', ?3)";
        self.execute(sql, params![submission, workflow, now])
    }

    pub fn run(&self, submission: i64) -> Result<RunRow, Error> {
        let sql = "SELECT r.workflow, r.started_at, e.text
                   FROM runs AS r JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
                   WHERE r.submission = ?1";
        unique(self, sql, params![submission], |row| {
            Ok(RunRow { workflow: row.get("workflow")?, payload: row.get("text")?, started_at: row.get("started_at")? })
        })
    }

    pub fn run_record(&self, id: &RunId) -> Result<Option<RunRecord>, Error> {
        let sql = "SELECT s.id, s.submission, r.workflow, r.status, r.started_at, r.ended_at, r.result, r.error, e.text
                   FROM runs AS r JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
                   WHERE s.id = ?1";
        let found = first(self, sql, params![id.as_str()], record)?;
        Ok(found.map(|(_, record)| record))
    }

    /// Returns the runs with their keys. Payload, result and error are left out.
    pub fn list_runs(&self, list: &RunList<'_>) -> Result<Vec<(i64, RunRecord)>, Error> {
        // A filter that is not used is left out of the statement, so that the index of the list can be used.
        let by_status = list.status.map_or("", |_| "AND r.status = ?2");
        let by_workflow = list.workflow.map_or("", |_| "AND r.workflow = ?3");
        let sql = format!(
            "SELECT s.id, r.submission, r.workflow, r.status, r.started_at, r.ended_at,
                    NULL AS result, NULL AS error, NULL AS text
             FROM runs AS r JOIN submissions AS s USING (submission)
             WHERE r.submission < ?1 AND (?2 IS NULL OR TRUE) AND (?3 IS NULL OR TRUE) {by_status} {by_workflow}
             ORDER BY r.submission DESC LIMIT ?4"
        );
        let status = list.status.map(RunStatus::name);
        all(self, &sql, params![list.before, status, list.workflow, list.limit], record)
    }

    pub fn end_run(
        &self,
        submission: i64,
        status: RunStatus,
        now: Timestamp,
        result: Option<&Value>,
        error: Option<&Failure>,
    ) -> Result<(), Error> {
        let sql = "UPDATE runs SET status = ?2, ended_at = ?3, result = ?4, error = ?5 WHERE submission = ?1";
        let values = params![submission, status.name(), now, json(result)?, json(error)?];
        self.execute(sql, values)
    }
}

const PAST: &str =
    "SELECT s.id, streams.name AS stream_name, e.text AS prompt, x.answer, e.received_at, s.outside, e.context,
      sessions.memory
    FROM exchanges AS x JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
    JOIN streams ON streams.stream = x.stream LEFT JOIN sessions ON sessions.stream = x.stream";

/// The fields of the context of a prompt that later turns are shown.
#[derive(Default, Deserialize)]
struct PastContext {
    forwarded: Option<String>,
    quoted: Option<Quoted>,
}

fn past(row: &dyn Row) -> Result<PastExchange, Error> {
    let stream: String = row.get("stream_name")?;
    let PastContext { forwarded, quoted } = stored(row, "context")?.unwrap_or_default();
    Ok(PastExchange {
        id: SubmissionId(row.get("id")?),
        instance: stream_names::instance(&stream).to_owned(),
        prompt: row.get("prompt")?,
        answer: row.get("answer")?,
        at: row.get("received_at")?,
        mark: None,
        forwarded,
        quoted,
        outside: stored(row, "outside")?.unwrap_or_default(),
    })
}

/// Copies a settled prompt. The copy has no events and no summary of its own, and is not indexed, so that it is counted and found once.
/// It has no images either: no later turn is shown those.
fn copy_exchange(
    database: &dyn Sql,
    (submission, event): (i64, i64),
    to: i64,
    event_id: &str,
    id: &SubmissionId,
) -> Result<(), Error> {
    let sql = "INSERT INTO events (id, scope, kind, text, received_at, context, raw, images, answer)
               SELECT ?2, scope, ?3, text, received_at, context, NULL, NULL, answer FROM events WHERE event = ?1";
    let new_event = database.insert(sql, "event", params![event, event_id, COPY])?;
    let sql = "INSERT INTO blob_uses (blob, event) SELECT blob, ?2 FROM blob_uses WHERE event = ?1";
    database.execute(sql, params![event, new_event])?;
    let sql =
        "INSERT INTO submissions (id, stream, event, kind, hidden, state, live, open, place, recorded_from, outside)
               SELECT ?2, ?3, ?4, kind, hidden, state, 0, 0, place, 0, outside FROM submissions WHERE submission = ?1";
    let new = database.insert(sql, "submission", params![submission, id.as_str(), to, new_event])?;
    let body = "SELECT body FROM exchanges WHERE submission = ?1";
    let body: Option<Map<String, Value>> = unique(database, body, params![submission], |row| stored(row, "body"))?;
    let body = body.map(|mut body| {
        body.insert("id".into(), id.as_str().into());
        body.insert("submissionId".into(), id.as_str().into());
        body
    });
    let sql = "INSERT INTO exchanges (submission, stream, turn, body, answer, result, error, context_usage, ended_at, settled_at)
               SELECT ?2, ?3, turn, ?4, answer, result, error, context_usage, 0, settled_at FROM exchanges WHERE submission = ?1";
    database.execute(sql, params![submission, new, to, json(body.as_ref())?])?;
    // The whole outputs of its tools, of which the body has the beginnings.
    let sql = "INSERT INTO outputs (blob, submission) SELECT blob, ?2 FROM outputs WHERE submission = ?1";
    database.execute(sql, params![submission, new])
}

fn record(row: &dyn Row) -> Result<(i64, RunRecord), Error> {
    let status = word(row, "runs.status", RunStatus::named)?;
    let (started_at, ended_at): (Timestamp, Option<Timestamp>) = (row.get("started_at")?, row.get("ended_at")?);
    let record = RunRecord {
        run_id: RunId(row.get("id")?),
        workflow_name: row.get("workflow")?,
        status,
        started_at,
        payload: stored(row, "text")?,
        ended_at,
        is_error: ended_at.map(|_| status == RunStatus::Errored),
        duration_ms: ended_at.map(|ended| elapsed(started_at, ended)),
        result: stored(row, "result")?,
        error: stored(row, "error")?,
    };
    Ok((row.get("submission")?, record))
}
