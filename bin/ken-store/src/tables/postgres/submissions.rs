//! Submissions and their leases.

use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;
use ken_types::ops::telemetry::{GroupBy, Tokens, UsageGroup};
use ken_types::{Error, Timestamp};

use super::{
    Database, Row, all, count, first, insert, outside, params, rows, run, scope, stored, time, to_json, unique, word,
};
use crate::tables::{NewSubmission, OldLease, OpenRow, QueueRow, SubmissionRow, Submissions, SummaryRow, Telemetry};

/// Selects the submissions that can be claimed, with one statement for each kind of work. Each statement uses an index of its own.
const TURNS: &str =
    "SELECT s.*, e.text, e.images, e.context, e.kind AS message_kind, e.received_at, c.scope, c.connector, c.actor, c.conversation, c.thread
     FROM submissions AS s JOIN events AS e USING (event) LEFT JOIN scopes AS c ON c.scope = e.scope
     WHERE s.open = 1 AND s.kind <> 'workflow' ORDER BY s.submission LIMIT $1";
const RUNS: &str =
    "SELECT s.*, e.text, NULL AS images, NULL AS context, e.kind AS message_kind, e.received_at, NULL::bigint AS scope
     FROM submissions AS s JOIN events AS e USING (event)
     WHERE s.open = 1 AND s.kind = 'workflow' ORDER BY s.submission LIMIT $1";

fn state(row: &Row) -> Result<State, Error> {
    word(row, "submissions.state", State::named)
}

fn submission(row: &Row) -> Result<SubmissionRow, Error> {
    Ok(SubmissionRow {
        key: row.get("submission")?,
        id: SubmissionId(row.get("id")?),
        stream: row.get("stream")?,
        event: row.get("event")?,
        kind: word(row, "submissions.kind", SubmissionKind::named)?,
        hidden: row.get("hidden")?,
        state: state(row)?,
        open: row.get("open")?,
        recorded_from: count(row, "recorded_from")?,
        next_index: count(row, "next_index")?,
        lease: count(row, "lease")?,
        attempt: row.get("attempt")?,
        closings: row.get("closings")?,
        abort: row.get("abort")?,
        approvals: stored(row, "approvals")?.unwrap_or_default(),
        first_claim_at: row.get("first_claim_at")?,
        waiting_since: row.get("waiting_since")?,
        waited_ms: row.get("waited_ms")?,
        outside: stored(row, "outside")?.unwrap_or_default(),
    })
}

fn open(row: &Row) -> Result<OpenRow, Error> {
    let scoped: Option<i64> = row.get("scope")?;
    Ok(OpenRow {
        submission: submission(row)?,
        text: row.get("text")?,
        images: stored(row, "images")?.unwrap_or_default(),
        context: stored(row, "context")?,
        scope: scoped.map(|_| scope(row)).transpose()?,
        message_kind: row.get("message_kind")?,
        received_at: time(row, "received_at")?,
    })
}

impl Submissions for Database {
    fn submission(&self, id: &str) -> Result<Option<SubmissionRow>, Error> {
        first(self, "SELECT * FROM submissions WHERE id = $1", params![id], submission)
    }

    fn submission_by_key(&self, key: i64) -> Result<SubmissionRow, Error> {
        unique(self, "SELECT * FROM submissions WHERE submission = $1", params![key], submission)
    }

    fn insert_submission(&self, new: &NewSubmission<'_>) -> Result<i64, Error> {
        let sql = "INSERT INTO submissions
                     (id, stream, event, kind, hidden, state, open, place, recorded_from, next_index, outside)
                   VALUES ($1, $2, $3, $4, $5, 'queued', $6, $7, $8, $9, $10)
                   RETURNING submission";
        let values = params![
            new.id.as_str(),
            new.stream,
            new.event,
            new.kind.name(),
            new.hidden,
            new.open,
            new.place,
            new.recorded_from.cast_signed(),
            new.next_index.cast_signed(),
            outside(new.outside)?,
        ];
        insert(self, sql, values)
    }

    fn queue(&self, stream: i64) -> Result<Vec<QueueRow>, Error> {
        let sql = "SELECT state, count(*) AS number, min(place) AS least, max(place) AS most
                   FROM submissions WHERE live = 1 AND stream = $1 GROUP BY state";
        all(self, sql, params![stream], |row| {
            Ok(QueueRow {
                state: state(row)?,
                count: count(row, "number")?,
                first_place: row.get("least")?,
                last_place: row.get("most")?,
            })
        })
    }

    fn queued(&self, stream: i64) -> Result<Vec<SubmissionRow>, Error> {
        let sql = "SELECT * FROM submissions WHERE live = 1 AND stream = $1 AND state = 'queued' ORDER BY place";
        all(self, sql, params![stream], submission)
    }

    fn next_queued(&self, stream: i64) -> Result<Option<i64>, Error> {
        let sql = "SELECT submission FROM submissions WHERE live = 1 AND stream = $1 AND state = 'queued'
                   ORDER BY place LIMIT 1";
        first(self, sql, params![stream], |row| row.get(0))
    }

    fn running(&self, stream: i64) -> Result<Option<SubmissionRow>, Error> {
        let sql = "SELECT * FROM submissions WHERE live = 1 AND stream = $1 AND state IN ('running', 'waiting')";
        first(self, sql, params![stream], submission)
    }

    fn close_queued(&self, stream: i64) -> Result<(), Error> {
        let sql = "UPDATE submissions SET open = 0 WHERE live = 1 AND stream = $1 AND state = 'queued' AND open = 1";
        run(self, sql, params![stream]).map(drop)
    }

    fn set_open(&self, key: i64, open: bool) -> Result<(), Error> {
        let sql = "UPDATE submissions SET open = $2 WHERE submission = $1";
        run(self, sql, params![key, open]).map(drop)
    }

    fn set_abort(&self, key: i64) -> Result<(), Error> {
        run(self, "UPDATE submissions SET abort = 1 WHERE submission = $1", params![key]).map(drop)
    }

    fn set_next_index(&self, key: i64, next: u64) -> Result<(), Error> {
        let sql = "UPDATE submissions SET next_index = $2 WHERE submission = $1";
        run(self, sql, params![key, next.cast_signed()]).map(drop)
    }

    fn set_outside(&self, key: i64, origins: &Outside) -> Result<(), Error> {
        let sql = "UPDATE submissions SET outside = $2 WHERE submission = $1";
        run(self, sql, params![key, outside(origins)?]).map(drop)
    }

    fn outside_of_stream(&self, stream: i64) -> Result<Outside, Error> {
        let sql = "SELECT DISTINCT json_array_elements_text(outside::json) AS origin FROM submissions
                   WHERE stream = $1 AND outside IS NOT NULL";
        Ok(all(self, sql, params![stream], |row| row.get(0))?.into_iter().collect())
    }

    fn set_waiting(&self, submission: &SubmissionRow) -> Result<(), Error> {
        let sql = "UPDATE submissions SET approvals = $2, state = $3, waiting_since = $4, waited_ms = $5
                   WHERE submission = $1";
        let values = params![
            submission.key,
            to_json(&submission.approvals)?,
            submission.state.name(),
            submission.waiting_since,
            submission.waited_ms,
        ];
        run(self, sql, values).map(drop)
    }

    fn take_submission(&self, submission: &SubmissionRow, closing: bool, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE submissions SET state = $2, open = 0, lease = lease + 1, attempt = attempt + 1,
                     closings = closings + $3, recorded_from = $4, first_claim_at = coalesce(first_claim_at, $5)
                   WHERE submission = $1";
        let values = params![
            submission.key,
            submission.state.name(),
            closing,
            submission.recorded_from.cast_signed(),
            now.millis()
        ];
        run(self, sql, values).map(drop)
    }

    fn settle_submission(&self, key: i64, state: State) -> Result<(), Error> {
        let sql = "UPDATE submissions SET state = $2, live = 0, open = 0, waiting_since = NULL, approvals = NULL
                   WHERE submission = $1";
        run(self, sql, params![key, state.name()]).map(drop)
    }

    fn open_submissions(&self, work: Work, max: usize) -> Result<Vec<OpenRow>, Error> {
        let sql = match work {
            Work::Turns => TURNS,
            Work::Runs => RUNS,
        };
        all(self, sql, params![rows(max)], open)
    }

    fn work(&self, id: &str) -> Result<Option<OpenRow>, Error> {
        let sql = "SELECT s.*, e.text, e.images, e.context, e.kind AS message_kind, e.received_at,
                     c.scope, c.connector, c.actor, c.conversation, c.thread
                   FROM submissions AS s JOIN events AS e USING (event) LEFT JOIN scopes AS c ON c.scope = e.scope
                   WHERE s.id = $1";
        first(self, sql, params![id], open)
    }

    fn first_in_flight(&self, stream: i64) -> Result<Option<u64>, Error> {
        let sql = "SELECT min(recorded_from) FROM submissions
                   WHERE live = 1 AND stream = $1 AND kind = 'prompt' AND lease > 0";
        let min: Option<i64> = unique(self, sql, params![stream], |row| row.get(0))?;
        Ok(min.map(i64::cast_unsigned))
    }

    fn old_leases(&self) -> Result<Vec<OldLease>, Error> {
        let sql = "SELECT id, lease, abort FROM submissions WHERE live = 1 AND open = 0 AND state <> 'queued'";
        all(self, sql, params![], |row| {
            Ok(OldLease {
                lease: Lease { submission_id: SubmissionId(row.get("id")?), number: count(row, "lease")? },
                aborting: row.get("abort")?,
            })
        })
    }

    fn waiting_runs(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM submissions
                   WHERE live = 1 AND kind = 'workflow' AND state = 'queued'";
        unique(self, sql, params![], |row| count(row, "number"))
    }

    fn held_runs(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM submissions
                   WHERE live = 1 AND kind = 'workflow' AND state = 'running' AND open = 0";
        unique(self, sql, params![], |row| count(row, "number"))
    }

    fn submission_status(&self, id: &SubmissionId) -> Result<Option<SubmissionStatus>, Error> {
        let sql = "SELECT state, approvals, result, error, context_usage
                   FROM submissions LEFT JOIN exchanges USING (submission) WHERE id = $1";
        first(self, sql, params![id.as_str()], |row| {
            Ok(SubmissionStatus {
                submission_id: id.clone(),
                state: state(row)?,
                result: stored(row, "result")?,
                error: stored(row, "error")?,
                context_usage: stored(row, "context_usage")?,
                approvals: stored(row, "approvals")?.unwrap_or_default(),
                stalled: None,
            })
        })
    }
}

/// Selects submissions with the data that their summaries need.
/// The kind of the events of copied exchanges. Their work was that of the session from which they were copied.
pub(super) const COPY: &str = "chat.copy";

const SUMMARIES: &str =
    "SELECT s.*, l.name AS stream_name, l.entries AS entries, c.connector AS connector, t.body AS body,
        coalesce(t.settled_at, x.settled_at, r.ended_at) AS ended
     FROM submissions AS s JOIN streams AS l USING (stream) JOIN events AS e USING (event)
     LEFT JOIN scopes AS c ON c.scope = e.scope LEFT JOIN telemetry AS t USING (submission)
     LEFT JOIN exchanges AS x USING (submission) LEFT JOIN runs AS r USING (submission)";

fn summary(row: &Row) -> Result<SummaryRow, Error> {
    let ended: Option<i64> = row.get("ended")?;
    Ok(SummaryRow {
        submission: submission(row)?,
        stream: row.get("stream_name")?,
        entries: count(row, "entries")?,
        connector: row.get("connector")?,
        body: row.get("body")?,
        settled_at: ended.map(Timestamp::from_millis),
    })
}

impl Telemetry for Database {
    fn insert_summary(&self, submission: i64, body: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO telemetry (submission, settled_at, body) VALUES ($1, $2, $3)
                   ON CONFLICT (submission) DO UPDATE SET settled_at = $2, body = $3";
        run(self, sql, params![submission, now.millis(), body])?;
        // Kept beside the summary, because sums over the summaries would read all submissions.
        let sql = "INSERT INTO usage (submission, day, model, stream, input, output, cache_read, cache_write, total, cost, duration)
                   SELECT $1, to_char(to_timestamp($2 / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), coalesce(body ->> 'model', '-'),
                     CASE WHEN kind <> 'workflow' THEN stream END, coalesce((body #>> '{usage,input}')::bigint, 0),
                     coalesce((body #>> '{usage,output}')::bigint, 0), coalesce((body #>> '{usage,cacheRead}')::bigint, 0),
                     coalesce((body #>> '{usage,cacheWrite}')::bigint, 0), coalesce((body #>> '{usage,totalTokens}')::bigint, 0),
                     (body ->> 'cost')::double precision,
                     CASE WHEN kind <> 'workflow' THEN $2 - round(extract(epoch FROM (body ->> 'started_at')::timestamptz) * 1000)::bigint END
                   FROM submissions, CAST($3 AS json) AS body WHERE submission = $1
                   ON CONFLICT (submission) DO UPDATE SET day = excluded.day, model = excluded.model, stream = excluded.stream,
                     input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
                     cache_write = excluded.cache_write, total = excluded.total, cost = excluded.cost,
                     duration = excluded.duration";
        run(self, sql, params![submission, now.millis(), body]).map(drop)
    }

    fn summary(&self, id: &str) -> Result<Option<SummaryRow>, Error> {
        first(self, &format!("{SUMMARIES} WHERE s.id = $1"), params![id], summary)
    }

    fn summaries(&self, before: i64, limit: u32) -> Result<Vec<SummaryRow>, Error> {
        let sql =
            format!("{SUMMARIES} WHERE s.submission < $1 AND e.kind <> '{COPY}' ORDER BY s.submission DESC LIMIT $2");
        all(self, &sql, params![before, limit], summary)
    }

    fn ended(&self, after: Timestamp, until: Timestamp, limit: u32) -> Result<(Vec<SummaryRow>, u64), Error> {
        let range = params![after.millis(), until.millis(), limit];
        let sql = format!(
            "{SUMMARIES} WHERE t.settled_at > $1 AND t.settled_at <= $2 ORDER BY t.settled_at, s.submission LIMIT $3"
        );
        let rows = all(self, &sql, range, summary)?;
        let sql = "SELECT count(*) AS number FROM telemetry WHERE settled_at > $1 AND settled_at <= $2";
        let range = params![after.millis(), until.millis()];
        Ok((rows, unique(self, sql, range, |row| count(row, "number"))?))
    }

    fn failed_after(&self, after: Timestamp, max: u32) -> Result<Vec<SummaryRow>, Error> {
        let sql =
            format!("{SUMMARIES} WHERE t.settled_at > $1 AND s.state = 'failed' ORDER BY t.settled_at DESC LIMIT $2");
        all(self, &sql, params![after.millis(), max], summary)
    }

    fn usage(&self, by: GroupBy, session: Option<i64>) -> Result<Vec<UsageGroup>, Error> {
        let key = match by {
            GroupBy::Day => "day",
            GroupBy::Model => "model",
            GroupBy::Session => "stream",
        };
        let sql = format!(
            "SELECT coalesce({key}::text, '-') AS key, count(*) AS runs, sum(input)::bigint AS input, sum(output)::bigint AS output,
               sum(cache_read)::bigint AS cache_read, sum(cache_write)::bigint AS cache_write, sum(total)::bigint AS total, sum(cost) AS cost,
               round(avg(duration))::bigint AS duration
             FROM usage WHERE $1 IS NULL OR stream = $1 GROUP BY {key}"
        );
        all(self, &sql, params![session], |row| {
            let usage = Tokens {
                input: count(row, "input")?,
                output: count(row, "output")?,
                cache_read: count(row, "cache_read")?,
                cache_write: count(row, "cache_write")?,
                total_tokens: count(row, "total")?,
            };
            let mean: Option<i64> = row.get("duration")?;
            Ok(UsageGroup {
                key: row.get("key")?,
                runs: count(row, "runs")?,
                usage,
                cost: row.get("cost")?,
                mean_ms: mean.map(i64::cast_unsigned),
            })
        })
    }

    fn prune_summaries(&self, before: Timestamp, kept: usize, max: usize) -> Result<usize, Error> {
        // `usage` has the same keys in far fewer pages: summaries are counted there. What is kept as long as a summary goes with it.
        let sql = "WITH old AS MATERIALIZED (
              SELECT submission FROM (SELECT submission FROM telemetry WHERE settled_at < $1 LIMIT $3) AS aged
              UNION SELECT submission FROM usage WHERE submission <= coalesce(
                (SELECT submission FROM usage ORDER BY submission DESC LIMIT 1 OFFSET $2), 0)
              ORDER BY 1 LIMIT $3),
            used AS (DELETE FROM usage USING old WHERE usage.submission = old.submission),
            put_out AS (DELETE FROM outputs USING old WHERE outputs.submission = old.submission),
            found AS (DELETE FROM knowledge_uses USING old WHERE knowledge_uses.submission = old.submission)
            DELETE FROM telemetry USING old WHERE telemetry.submission = old.submission";
        run(self, sql, params![before.millis(), rows(kept), rows(max)])
    }
}
