//! Submissions and their leases.

use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;
use ken_types::ops::telemetry::{GroupBy, Tokens, UsageGroup};
use ken_types::{Error, Timestamp};
use serde_json::Value;

use super::Tables;
use super::columns::{optional_scope, outside, stored, to_json, word};
use super::logs::{LogRow, log};
use super::sql::{Row, all, first, params, unique};

#[derive(Debug, Clone)]
pub struct SubmissionRow {
    pub key: i64,
    pub id: SubmissionId,
    pub stream: i64,
    pub event: i64,
    pub kind: SubmissionKind,
    /// An internal prompt, which transcripts and titles leave out.
    pub hidden: bool,
    pub state: State,
    /// Whether the submission can be claimed.
    pub open: bool,
    /// The number of entries in the stream before the first entry of this submission.
    pub recorded_from: u64,
    pub next_index: u64,
    pub lease: u64,
    pub attempt: u32,
    /// The number of claims that were only made to end the submission.
    pub closings: u32,
    pub abort: bool,
    /// The ids of the approvals that the submission waits for.
    pub approvals: Vec<String>,
    pub first_claim_at: Option<i64>,
    pub waiting_since: Option<i64>,
    pub waited_ms: i64,
    /// The origins of outside text that the submission has read.
    pub outside: Outside,
}

#[derive(Debug, Clone)]
pub struct NewSubmission<'a> {
    pub id: &'a SubmissionId,
    pub stream: i64,
    /// The id of its event.
    pub event: &'a str,
    pub kind: SubmissionKind,
    pub hidden: bool,
    pub open: bool,
    /// The position among the queued submissions of the stream.
    pub place: i64,
    pub recorded_from: u64,
    pub next_index: u64,
    /// The origins of outside text in the prompt itself.
    pub outside: &'a Outside,
}

/// A submission with everything that its holder needs.
#[derive(Debug)]
pub struct OpenRow {
    pub submission: SubmissionRow,
    pub text: String,
    pub images: Vec<Image>,
    pub context: Option<Value>,
    pub scope: Option<Scope>,
    /// The kind of the event.
    pub message_kind: String,
    pub received_at: Timestamp,
}

/// The submissions of a stream that are in one state and have not ended.
#[derive(Debug, Clone, Copy)]
pub struct QueueRow {
    pub state: State,
    pub count: u64,
    pub first_place: i64,
    pub last_place: i64,
}

/// A lease read from the tables after a restart of the store.
#[derive(Debug, Clone)]
pub struct OldLease {
    pub lease: Lease,
    pub aborting: bool,
}

impl dyn Tables + '_ {
    pub fn submission(&self, id: &str) -> Result<Option<SubmissionRow>, Error> {
        first(self, "SELECT * FROM submissions WHERE id = ?1", params![id], submission)
    }

    pub fn submission_by_key(&self, key: i64) -> Result<SubmissionRow, Error> {
        unique(self, "SELECT * FROM submissions WHERE submission = ?1", params![key], submission)
    }

    pub fn insert_submission(&self, new: &NewSubmission<'_>) -> Result<(), Error> {
        let sql = "INSERT INTO submissions
                     (id, stream, event, kind, hidden, state, open, place, recorded_from, next_index, outside)
                   VALUES (?1, ?2, (SELECT event FROM events WHERE id = ?3), ?4, ?5, 'queued', ?6, ?7, ?8, ?9, ?10)";
        let NewSubmission { stream, event, hidden, open, place, recorded_from, next_index, .. } = new;
        let (id, kind, outside) = (new.id.as_str(), new.kind.name(), outside(new.outside)?);
        let values = params![id, stream, event, kind, hidden, open, place, recorded_from, next_index, outside];
        self.execute(sql, values)
    }

    pub fn submission_key(&self, id: &SubmissionId) -> Result<i64, Error> {
        unique(self, "SELECT submission FROM submissions WHERE id = ?1", params![id.as_str()], |row| row.get(0))
    }

    /// Returns the unsettled submissions of a stream, counted by state.
    pub fn queue(&self, stream: i64) -> Result<Vec<QueueRow>, Error> {
        let sql = "SELECT state, count(*) AS number, min(place) AS least, max(place) AS most
                   FROM submissions WHERE live = 1 AND stream = ?1 GROUP BY state";
        all(self, sql, params![stream], queued)
    }

    /// Returns a stream with what `queue` returns. It is one statement, because every message needs both.
    pub fn log_with_queue(&self, stream: i64) -> Result<(LogRow, Vec<QueueRow>), Error> {
        let sql = "SELECT l.stream, l.name, l.entries, l.closed, q.state, q.number, q.least, q.most FROM streams AS l LEFT JOIN (
                     SELECT state, count(*) AS number, min(place) AS least, max(place) AS most
                     FROM submissions WHERE live = 1 AND stream = ?1 GROUP BY state) AS q ON TRUE
                   WHERE l.stream = ?1";
        let mut queue = Vec::new();
        let logs = all(self, sql, params![stream], |row| {
            if row.get::<Option<String>>("state")?.is_some() {
                queue.push(queued(row)?);
            }
            log(row)
        })?;
        let log = logs.into_iter().next();
        log.map(|log| (log, queue)).ok_or_else(|| Error::internal("a session has no stream"))
    }

    pub fn queued(&self, stream: i64) -> Result<Vec<SubmissionRow>, Error> {
        let sql = "SELECT * FROM submissions WHERE live = 1 AND stream = ?1 AND state = 'queued' ORDER BY place";
        all(self, sql, params![stream], submission)
    }

    /// Returns the key of the first submission in the queue.
    pub fn next_queued(&self, stream: i64) -> Result<Option<i64>, Error> {
        let sql = "SELECT submission FROM submissions WHERE live = 1 AND stream = ?1 AND state = 'queued'
                   ORDER BY place LIMIT 1";
        first(self, sql, params![stream], |row| row.get(0))
    }

    /// Returns the submission of the stream that runs or waits for a decision.
    pub fn running(&self, stream: i64) -> Result<Option<SubmissionRow>, Error> {
        let sql = "SELECT * FROM submissions WHERE live = 1 AND stream = ?1 AND state IN ('running', 'waiting')";
        first(self, sql, params![stream], submission)
    }

    /// Makes all queued submissions of the stream unavailable for claims.
    pub fn close_queued(&self, stream: i64) -> Result<(), Error> {
        let sql = "UPDATE submissions SET open = 0 WHERE live = 1 AND stream = ?1 AND state = 'queued' AND open = 1";
        self.execute(sql, params![stream])
    }

    pub fn set_open(&self, key: i64, open: bool) -> Result<(), Error> {
        let sql = "UPDATE submissions SET open = ?2{hold} WHERE submission = ?1";
        self.execute(&sql.replace("{hold}", self.dialect().hold_here), params![key, open])
    }

    pub fn set_abort(&self, key: i64) -> Result<(), Error> {
        self.execute("UPDATE submissions SET abort = 1 WHERE submission = ?1", params![key])
    }

    pub fn set_next_index(&self, key: i64, next: u64) -> Result<(), Error> {
        let sql = "UPDATE submissions SET next_index = ?2 WHERE submission = ?1";
        self.execute(sql, params![key, next])
    }

    pub fn set_outside(&self, key: i64, origins: &Outside) -> Result<(), Error> {
        let sql = "UPDATE submissions SET outside = ?2 WHERE submission = ?1";
        self.execute(sql, params![key, outside(origins)?])
    }

    pub fn set_outside_of_first(&self, stream: i64, origins: &Outside) -> Result<(), Error> {
        let sql = "UPDATE submissions SET outside = ?2 WHERE submission = (SELECT min(submission) FROM submissions WHERE stream = ?1)";
        self.execute(sql, params![stream, outside(origins)?])
    }

    /// Returns the origins of outside text that any submission of the stream has read.
    pub fn outside_of_stream(&self, stream: i64) -> Result<Outside, Error> {
        let sql = "SELECT DISTINCT outside FROM submissions WHERE stream = ?1 AND outside IS NOT NULL";
        let origins: Vec<Option<Outside>> = all(self, sql, params![stream], |row| stored(row, "outside"))?;
        Ok(origins.into_iter().flatten().flatten().collect())
    }

    /// Returns the stream of the submission of an event.
    pub fn stream_of_event(&self, event: &str) -> Result<Option<i64>, Error> {
        let sql = "SELECT s.stream FROM events AS e JOIN submissions AS s ON s.event = e.event WHERE e.id = ?1";
        first(self, sql, params![event], |row| row.get("stream"))
    }

    /// Stores the approvals, the state and the time spent waiting.
    pub fn set_waiting(&self, submission: &SubmissionRow) -> Result<(), Error> {
        let sql = "UPDATE submissions SET approvals = ?2, state = ?3, waiting_since = ?4, waited_ms = ?5
                   WHERE submission = ?1";
        let SubmissionRow { key, approvals, state, waiting_since, waited_ms, .. } = submission;
        self.execute(sql, params![key, to_json(approvals)?, state.name(), waiting_since, waited_ms])
    }

    /// Records a new lease: increments the lease number and the attempt, and stores the time of the first claim.
    pub fn take_submission(&self, submission: &SubmissionRow, closing: bool, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE submissions SET state = ?2, open = 0, lease = lease + 1, attempt = attempt + 1,
                     closings = closings + ?3, recorded_from = ?4, first_claim_at = coalesce(first_claim_at, ?5){hold}
                   WHERE submission = ?1";
        let values = params![submission.key, submission.state.name(), closing, submission.recorded_from, now];
        self.execute(&sql.replace("{hold}", self.dialect().hold_here), values)
    }

    pub fn settle_submission(&self, key: i64, state: State) -> Result<(), Error> {
        let sql = "UPDATE submissions SET state = ?2, live = 0, open = 0, waiting_since = NULL, approvals = NULL
                   WHERE submission = ?1";
        self.execute(sql, params![key, state.name()])
    }

    /// Returns a submission with its event, in any state.
    pub fn work(&self, id: &str) -> Result<Option<OpenRow>, Error> {
        let sql = "SELECT s.*, e.text, e.images, e.context, e.kind AS message_kind, e.received_at,
                     c.scope, c.connector, c.actor, c.conversation, c.thread
                   FROM submissions AS s JOIN events AS e USING (event) LEFT JOIN scopes AS c ON c.scope = e.scope
                   WHERE s.id = ?1";
        first(self, sql, params![id], open)
    }

    /// Returns at most `max` submissions that this host can claim, oldest first.
    pub fn open_submissions(&self, work: Work, max: usize) -> Result<Vec<OpenRow>, Error> {
        let sql = match work {
            Work::Turns => TURNS,
            Work::Runs => RUNS,
        };
        all(self, &sql.replace("{here}", self.dialect().is_done_here), params![max], open)
    }

    /// Returns the number of entries in the stream before the first claimed prompt that is not settled.
    pub fn first_in_flight(&self, stream: i64) -> Result<Option<u64>, Error> {
        let sql = "SELECT min(recorded_from) FROM submissions
                   WHERE live = 1 AND stream = ?1 AND kind = 'prompt' AND lease > 0";
        unique(self, sql, params![stream], |row| row.get(0))
    }

    /// Returns the leases of this host.
    pub fn old_leases(&self) -> Result<Vec<OldLease>, Error> {
        let sql = "SELECT id, lease, abort FROM submissions WHERE live = 1 AND open = 0 AND state <> 'queued'{here}";
        all(self, &sql.replace("{here}", self.dialect().is_held_here), params![], |row| {
            Ok(OldLease {
                lease: Lease { submission_id: SubmissionId(row.get("id")?), number: row.get("lease")? },
                aborting: row.get("abort")?,
            })
        })
    }

    /// Returns the number of queued runs.
    pub fn waiting_runs(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM submissions
                   WHERE live = 1 AND kind = 'workflow' AND state = 'queued'";
        unique(self, sql, params![], |row| row.get("number"))
    }

    pub fn held_runs(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM submissions
                   WHERE live = 1 AND kind = 'workflow' AND state = 'running' AND open = 0";
        unique(self, sql, params![], |row| row.get("number"))
    }

    /// Returns the state and the outcome of a submission with a single query.
    pub fn submission_status(&self, id: &SubmissionId) -> Result<Option<SubmissionStatus>, Error> {
        let sql = "SELECT state, approvals, result, error, context_usage
                   FROM submissions LEFT JOIN exchanges USING (submission) WHERE id = ?1";
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

fn queued(row: &dyn Row) -> Result<QueueRow, Error> {
    Ok(QueueRow {
        state: state(row)?,
        count: row.get("number")?,
        first_place: row.get("least")?,
        last_place: row.get("most")?,
    })
}

/// A submission with the data that its summary needs in addition to its events.
#[derive(Debug)]
pub struct SummaryRow {
    pub submission: SubmissionRow,
    /// The name of the stream. `entries` is the number of its entries.
    pub stream: String,
    pub entries: u64,
    pub connector: Option<String>,
    /// The summary that was stored when the submission ended, as JSON.
    pub body: Option<String>,
    pub settled_at: Option<Timestamp>,
}

/// What a submission has used.
#[derive(Debug, Clone, Copy)]
pub struct UsageRow<'a> {
    /// `-` if none was called.
    pub model: &'a str,
    /// The session; `None` for a workflow.
    pub stream: Option<i64>,
    /// How long it took, in milliseconds; `None` for a workflow.
    pub duration: Option<i64>,
    pub tokens: &'a Tokens,
    pub cost: Option<f64>,
}

impl dyn Tables + '_ {
    /// Stores the summary of a submission, and what it has used, because sums over the summaries would read all submissions.
    pub fn insert_summary(
        &self,
        submission: i64,
        body: &str,
        usage: &UsageRow<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let sql = "INSERT INTO telemetry (submission, settled_at, body) VALUES (?1, ?2, ?3)
                   ON CONFLICT (submission) DO UPDATE SET settled_at = excluded.settled_at, body = excluded.body";
        self.execute(sql, params![submission, now, body])?;
        let sql = "INSERT INTO usage (submission, day, model, stream, input, output, cache_read, cache_write, total, cost, duration)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
                   ON CONFLICT (submission) DO UPDATE SET day = excluded.day, model = excluded.model, stream = excluded.stream,
                     input = excluded.input, output = excluded.output, cache_read = excluded.cache_read,
                     cache_write = excluded.cache_write, total = excluded.total, cost = excluded.cost,
                     duration = excluded.duration";
        let UsageRow { model, stream, duration, tokens, cost } = *usage;
        let Tokens { input, output, cache_read, cache_write, total_tokens: total } = *tokens;
        let day = now.day();
        let values =
            params![submission, day, model, stream, input, output, cache_read, cache_write, total, cost, duration];
        self.execute(sql, values)
    }

    pub fn summary(&self, id: &str) -> Result<Option<SummaryRow>, Error> {
        first(self, &format!("{SUMMARIES} WHERE s.id = ?1"), params![id], summary)
    }

    /// Returns at most `limit` summaries, newest first, of submissions before a key.
    pub fn summaries(&self, before: i64, limit: u32) -> Result<Vec<SummaryRow>, Error> {
        let sql =
            format!("{SUMMARIES} WHERE s.submission < ?1 AND e.kind <> '{COPY}' ORDER BY s.submission DESC LIMIT ?2");
        all(self, &sql, params![before, limit], summary)
    }

    /// Returns the submissions that ended after the time `after` and not after `until`, in the order of their end. At most `limit` are
    /// returned, together with the number of all of them.
    pub fn ended(&self, after: Timestamp, until: Timestamp, limit: u32) -> Result<(Vec<SummaryRow>, u64), Error> {
        let range = params![after, until, limit];
        let sql = format!(
            "{SUMMARIES} WHERE t.settled_at > ?1 AND t.settled_at <= ?2 ORDER BY t.settled_at, s.submission LIMIT ?3"
        );
        let rows = all(self, &sql, range, summary)?;
        let sql = "SELECT count(*) AS number FROM telemetry WHERE settled_at > ?1 AND settled_at <= ?2";
        let range = params![after, until];
        Ok((rows, unique(self, sql, range, |row| row.get("number"))?))
    }

    /// Returns at most `max` submissions that have failed after a time, the one that ended last first.
    pub fn failed_after(&self, after: Timestamp, max: u32) -> Result<Vec<SummaryRow>, Error> {
        let sql =
            format!("{SUMMARIES} WHERE t.settled_at > ?1 AND s.state = 'failed' ORDER BY t.settled_at DESC LIMIT ?2");
        all(self, &sql, params![after, max], summary)
    }

    /// Returns what the submissions with summaries have used, of all of them or those of one session. The keys of sessions are
    /// those of their streams; that of work without a session is `-`.
    pub fn usage(&self, by: GroupBy, session: Option<i64>) -> Result<Vec<UsageGroup>, Error> {
        let key = match by {
            GroupBy::Day => "day",
            GroupBy::Model => "model",
            GroupBy::Session => "stream",
        };
        let sql = format!(
            "SELECT coalesce(CAST({key} AS text), '-') AS key, count(*) AS runs, CAST(sum(input) AS bigint) AS input, CAST(sum(output) AS bigint) AS output,
               CAST(sum(cache_read) AS bigint) AS cache_read, CAST(sum(cache_write) AS bigint) AS cache_write, CAST(sum(total) AS bigint) AS total, sum(cost) AS cost,
               CAST(round(avg(duration)) AS bigint) AS duration
             FROM usage WHERE ?1 IS NULL OR stream = ?1 GROUP BY {key}"
        );
        all(self, &sql, params![session], |row| {
            let usage = Tokens {
                input: row.get("input")?,
                output: row.get("output")?,
                cache_read: row.get("cache_read")?,
                cache_write: row.get("cache_write")?,
                total_tokens: row.get("total")?,
            };
            Ok(UsageGroup {
                key: row.get("key")?,
                runs: row.get("runs")?,
                usage,
                cost: row.get("cost")?,
                mean_ms: row.get("duration")?,
            })
        })
    }
}

/// Selects the submissions that can be claimed, with one statement for each kind of work. Each statement uses an index of its own.
const TURNS: &str =
    "SELECT s.*, e.text, e.images, e.context, e.kind AS message_kind, e.received_at, c.scope, c.connector, c.actor, c.conversation, c.thread
     FROM submissions AS s JOIN events AS e USING (event) LEFT JOIN scopes AS c ON c.scope = e.scope
     WHERE s.open = 1 AND s.kind <> 'workflow'{here} ORDER BY s.submission LIMIT ?1";

const RUNS: &str =
    "SELECT s.*, e.text, NULL AS images, NULL AS context, e.kind AS message_kind, e.received_at, CAST(NULL AS bigint) AS scope
     FROM submissions AS s JOIN events AS e USING (event)
     WHERE s.open = 1 AND s.kind = 'workflow'{here} ORDER BY s.submission LIMIT ?1";

fn state(row: &dyn Row) -> Result<State, Error> {
    word(row, "submissions.state", State::named)
}

fn submission(row: &dyn Row) -> Result<SubmissionRow, Error> {
    Ok(SubmissionRow {
        key: row.get("submission")?,
        id: SubmissionId(row.get("id")?),
        stream: row.get("stream")?,
        event: row.get("event")?,
        kind: word(row, "submissions.kind", SubmissionKind::named)?,
        hidden: row.get("hidden")?,
        state: state(row)?,
        open: row.get("open")?,
        recorded_from: row.get("recorded_from")?,
        next_index: row.get("next_index")?,
        lease: row.get("lease")?,
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

fn open(row: &dyn Row) -> Result<OpenRow, Error> {
    Ok(OpenRow {
        submission: submission(row)?,
        text: row.get("text")?,
        images: stored(row, "images")?.unwrap_or_default(),
        context: stored(row, "context")?,
        scope: optional_scope(row)?,
        message_kind: row.get("message_kind")?,
        received_at: row.get("received_at")?,
    })
}

/// The kind of the events of copied exchanges. Their work was that of the session from which they were copied.
pub(super) const COPY: &str = "chat.copy";

/// Selects submissions with the data that their summaries need.
const SUMMARIES: &str =
    "SELECT s.*, l.name AS stream_name, l.entries AS entries, c.connector AS connector, t.body AS body,
        coalesce(t.settled_at, x.settled_at, r.ended_at) AS ended
     FROM submissions AS s JOIN streams AS l USING (stream) JOIN events AS e USING (event)
     LEFT JOIN scopes AS c ON c.scope = e.scope LEFT JOIN telemetry AS t USING (submission)
     LEFT JOIN exchanges AS x USING (submission) LEFT JOIN runs AS r USING (submission)";

fn summary(row: &dyn Row) -> Result<SummaryRow, Error> {
    Ok(SummaryRow {
        submission: submission(row)?,
        stream: row.get("stream_name")?,
        entries: row.get("entries")?,
        connector: row.get("connector")?,
        body: row.get("body")?,
        settled_at: row.get("ended")?,
    })
}
