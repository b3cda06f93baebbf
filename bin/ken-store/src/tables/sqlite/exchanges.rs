//! Settled exchanges, the history of instances, and the records of runs.

use ken_types::event::Failure;
use ken_types::id::{RunId, SubmissionId};
use ken_types::ops::runs::{RunRecord, RunStatus};
use ken_types::ops::store::PastExchange;
use ken_types::{Error, Timestamp};
use rusqlite::{Row, params};
use serde_json::Value;

use super::submissions::COPY;
use super::{Database, all, count, first, insert, json, run, stored, time, unique, word};
use crate::rules::queue::elapsed;
use crate::rules::stream_names;
use crate::tables::{Exchanges, InstanceRow, NewExchange, RunList, RunRow, Runs};

const PAST: &str = "SELECT s.id, streams.name AS stream_name, e.text AS prompt, x.answer, e.received_at, s.outside,
      json_extract(e.context, '$.forwarded') AS forwarded, json_extract(e.context, '$.quoted') AS quoted
    FROM exchanges AS x JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
    JOIN streams ON streams.stream = x.stream";

fn past(row: &Row<'_>) -> rusqlite::Result<PastExchange> {
    let stream: String = row.get("stream_name")?;
    Ok(PastExchange {
        id: SubmissionId(row.get("id")?),
        instance: stream_names::instance(&stream).to_owned(),
        prompt: row.get("prompt")?,
        answer: row.get("answer")?,
        at: time(row, "received_at")?,
        mark: None,
        forwarded: row.get("forwarded")?,
        quoted: stored(row, "quoted")?,
        outside: stored(row, "outside")?.unwrap_or_default(),
    })
}

impl Exchanges for Database {
    fn insert_exchange(&self, exchange: &NewExchange<'_>) -> Result<(), Error> {
        let sql = "INSERT INTO exchanges
                     (submission, stream, turn, body, answer, result, error, context_usage, ended_at, settled_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let values = params![
            exchange.submission,
            exchange.stream,
            exchange.turn,
            exchange.body,
            exchange.answer,
            json(exchange.result)?,
            json(exchange.error)?,
            json(exchange.context_usage)?,
            exchange.ended_at.cast_signed(),
            exchange.settled_at.millis(),
        ];
        run(self, sql, values).map(drop)
    }

    fn exchange_end(&self, submission: i64) -> Result<Option<u64>, Error> {
        let sql = "SELECT ended_at FROM exchanges WHERE submission = ?1";
        first(self, sql, [submission], |row| count(row, "ended_at"))
    }

    fn exchange_turn(&self, stream: i64, id: &SubmissionId) -> Result<Option<i64>, Error> {
        let sql =
            "SELECT turn FROM submissions AS s JOIN exchanges USING (submission) WHERE s.id = ?2 AND s.stream = ?1";
        Ok(first(self, sql, params![stream, id.as_str()], |row| row.get(0))?.flatten())
    }

    fn exchanges(&self, stream: i64, before: i64, limit: u32) -> Result<Vec<(i64, Option<String>)>, Error> {
        let sql = "SELECT submission, body FROM submissions AS s LEFT JOIN exchanges AS e USING (submission)
                   WHERE s.kind = 'prompt' AND s.stream = ?1 AND submission < ?2 ORDER BY submission DESC LIMIT ?3";
        all(self, sql, params![stream, before, limit], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    fn newest_prompt(&self, stream: i64) -> Result<Option<i64>, Error> {
        let sql =
            "SELECT submission FROM submissions WHERE kind = 'prompt' AND stream = ?1 ORDER BY submission DESC LIMIT 1";
        first(self, sql, [stream], |row| row.get(0))
    }

    fn context_usage(&self, stream: i64) -> Result<Option<String>, Error> {
        let sql = "SELECT context_usage FROM exchanges
                   WHERE stream = ?1 AND turn IS NOT NULL AND context_usage IS NOT NULL ORDER BY turn DESC LIMIT 1";
        first(self, sql, [stream], |row| row.get(0))
    }

    fn past_exchange(&self, submission: i64) -> Result<Option<PastExchange>, Error> {
        // What a person has put away is not brought back by a search.
        let filter = " WHERE x.submission = ?1
                       AND NOT EXISTS (SELECT 1 FROM sessions AS s WHERE s.stream = x.stream AND s.archived_at IS NOT NULL)
                       AND x.stream NOT IN (SELECT stream FROM purges)";
        let sql = [PAST, filter].concat();
        first(self, &sql, [submission], past)
    }

    fn exchange(&self, submission: i64) -> Result<PastExchange, Error> {
        unique(self, &[PAST, " WHERE x.submission = ?1"].concat(), [submission], past)
    }

    fn past_exchanges(&self, stream: i64, after: i64, before: i64, limit: u32) -> Result<Vec<PastExchange>, Error> {
        let filter = " WHERE x.stream = ?1 AND x.turn > ?2 AND x.turn < ?3 ORDER BY x.turn DESC LIMIT ?4";
        let sql = [PAST, filter].concat();
        all(self, &sql, params![stream, after, before, limit], past)
    }

    fn copy_exchanges(
        &self,
        from: i64,
        to: i64,
        before: i64,
        (max, max_bytes): (u32, u64),
        ids: &mut dyn FnMut() -> (String, SubmissionId),
    ) -> Result<(), Error> {
        let sql = "SELECT submission, event, octet_length(text) + octet_length(coalesce(body, '')) + octet_length(x.answer) AS size
                   FROM exchanges AS x JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
                   WHERE s.stream = ?1 AND turn IS NOT NULL AND submission < ?2 ORDER BY submission DESC LIMIT ?3";
        let mut found: Vec<(i64, i64, u64)> = all(self, sql, params![from, before, max], |row| {
            Ok((row.get("submission")?, row.get("event")?, count(row, "size")?))
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
                   SELECT ?2, x.turns, iif(i.summary_after <= x.turns, i.summary, NULL),
                     iif(i.summary_after <= x.turns, i.summary_after, 0)
                   FROM instances AS i JOIN (SELECT max(turn) AS turns FROM exchanges WHERE stream = ?2 AND turn IS NOT NULL) AS x
                   WHERE i.stream = ?1 AND x.turns IS NOT NULL";
        run(self, sql, params![from, to]).map(drop)
    }

    fn instance(&self, stream: i64) -> Result<Option<InstanceRow>, Error> {
        let sql = "SELECT turns, compactions, summary, summary_after FROM instances WHERE stream = ?1";
        first(self, sql, [stream], |row| {
            Ok(InstanceRow {
                turns: count(row, "turns")?,
                compactions: count(row, "compactions")?,
                summary: row.get("summary")?,
                summary_after: row.get("summary_after")?,
            })
        })
    }

    fn count_turn(&self, stream: i64) -> Result<i64, Error> {
        let sql = "INSERT INTO instances (stream, turns) VALUES (?1, 1)
                   ON CONFLICT DO UPDATE SET turns = turns + 1 RETURNING turns";
        unique(self, sql, [stream], |row| row.get(0))
    }

    fn count_compaction(&self, stream: i64) -> Result<(), Error> {
        let sql = "INSERT INTO instances (stream, compactions) VALUES (?1, 1)
                   ON CONFLICT DO UPDATE SET compactions = compactions + 1";
        run(self, sql, [stream]).map(drop)
    }

    fn set_summary(&self, stream: i64, summary: &str) -> Result<(), Error> {
        let sql = "UPDATE instances SET summary = ?2, summary_after = turns WHERE stream = ?1";
        run(self, sql, params![stream, summary]).map(drop)
    }
}

/// Copies a settled prompt. The copy has no events and no summary of its own, and is not indexed, so that it is counted and found once.
/// It has no images either: no later turn is shown those.
fn copy_exchange(
    database: &Database,
    (submission, event): (i64, i64),
    to: i64,
    event_id: &str,
    id: &SubmissionId,
) -> Result<(), Error> {
    let sql = "INSERT INTO events (id, scope, kind, text, received_at, context, raw, images, answer)
               SELECT ?2, scope, ?3, text, received_at, context, NULL, NULL, answer FROM events WHERE event = ?1";
    let new_event = insert(database, sql, params![event, event_id, COPY])?;
    let sql = "INSERT INTO blob_uses (blob, event) SELECT blob, ?2 FROM blob_uses WHERE event = ?1";
    run(database, sql, params![event, new_event])?;
    let sql =
        "INSERT INTO submissions (id, stream, event, kind, hidden, state, live, open, place, recorded_from, outside)
               SELECT ?2, ?3, ?4, kind, hidden, state, 0, 0, place, 0, outside FROM submissions WHERE submission = ?1";
    let new = insert(database, sql, params![submission, id.as_str(), to, new_event])?;
    let sql = "INSERT INTO exchanges (submission, stream, turn, body, answer, result, error, context_usage, ended_at, settled_at)
               SELECT ?2, ?3, turn, json_set(body, '$.id', ?4, '$.submissionId', ?4), answer, result, error, context_usage, 0, settled_at
               FROM exchanges WHERE submission = ?1";
    run(database, sql, params![submission, new, to, id.as_str()]).map(drop)
}

fn record(row: &Row<'_>) -> rusqlite::Result<(i64, RunRecord)> {
    let status = word(row, "runs.status", RunStatus::named)?;
    let started_at = time(row, "started_at")?;
    let ended_at: Option<i64> = row.get("ended_at")?;
    let ended_at = ended_at.map(Timestamp::from_millis);
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

impl Runs for Database {
    fn insert_run(&self, submission: i64, workflow: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO runs (submission, workflow, status, started_at) VALUES (?1, ?2, 'active', ?3)";
        run(self, sql, params![submission, workflow, now.millis()]).map(drop)
    }

    fn run(&self, submission: i64) -> Result<RunRow, Error> {
        let sql = "SELECT r.workflow, r.started_at, e.text
                   FROM runs AS r JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
                   WHERE r.submission = ?1";
        unique(self, sql, [submission], |row| {
            Ok(RunRow {
                workflow: row.get("workflow")?,
                payload: row.get("text")?,
                started_at: time(row, "started_at")?,
            })
        })
    }

    fn run_record(&self, id: &RunId) -> Result<Option<RunRecord>, Error> {
        let sql = "SELECT s.id, s.submission, r.workflow, r.status, r.started_at, r.ended_at, r.result, r.error, e.text
                   FROM runs AS r JOIN submissions AS s USING (submission) JOIN events AS e USING (event)
                   WHERE s.id = ?1";
        let found = first(self, sql, [id.as_str()], record)?;
        Ok(found.map(|(_, record)| record))
    }

    fn list_runs(&self, list: &RunList<'_>) -> Result<Vec<(i64, RunRecord)>, Error> {
        // A filter that is not used is left out of the statement, so that SQLite can use the index of the list.
        let by_status = list.status.map_or("", |_| "AND r.status = ?2");
        let by_workflow = list.workflow.map_or("", |_| "AND r.workflow = ?3");
        let sql = format!(
            "SELECT s.id, r.submission, r.workflow, r.status, r.started_at, r.ended_at,
                    NULL AS result, NULL AS error, NULL AS text
             FROM runs AS r JOIN submissions AS s USING (submission)
             WHERE r.submission < ?1 AND ?2 IS ?2 AND ?3 IS ?3 {by_status} {by_workflow}
             ORDER BY r.submission DESC LIMIT ?4"
        );
        let status = list.status.map(RunStatus::name);
        all(self, &sql, params![list.before, status, list.workflow, list.limit], record)
    }

    fn end_run(
        &self,
        submission: i64,
        status: RunStatus,
        now: Timestamp,
        result: Option<&Value>,
        error: Option<&Failure>,
    ) -> Result<(), Error> {
        let sql = "UPDATE runs SET status = ?2, ended_at = ?3, result = ?4, error = ?5 WHERE submission = ?1";
        let values = params![submission, status.name(), now.millis(), json(result)?, json(error)?];
        run(self, sql, values).map(drop)
    }
}
