//! Requests for approvals.

use ken_types::ops::approvals::{
    Approval, CallWithApproval, Decision, GrantScope, ListAllApprovals, ListApprovals, Request, Status,
};
use ken_types::{Error, Timestamp};
use serde_json::{Map, Value};

use super::Tables;
use super::columns::{json, optional_scope, present, stored, to_json, word};
use super::sql::{Parameters, Row, Sql, all, first, params, unique};

#[derive(Debug, Clone)]
pub struct ApprovalRow {
    pub key: i64,
    /// The key of the submission. `session` is the instance to which it belongs.
    pub submission: i64,
    pub session: String,
    pub record: Approval,
    /// The idempotency key of the decision. `use_key` is that of the call that has used the grant.
    pub decide_key: Option<String>,
    pub use_key: Option<String>,
}

#[derive(Debug)]
pub struct NewApproval<'a> {
    pub submission: i64,
    pub session: &'a str,
    pub call_id: &'a str,
    pub task_id: Option<&'a str>,
    pub scope: Option<i64>,
    /// The digest of the blob with its whole diff.
    pub whole: Option<&'a str>,
    pub request: &'a Request,
    pub status: Status,
    pub decision: Option<&'a Decision>,
    pub now: Timestamp,
}

/// A call of a submission, and the fingerprint of a request about it.
#[derive(Debug, Clone, Copy)]
pub struct AboutCall<'a> {
    pub submission: i64,
    pub call_id: &'a str,
    pub task_id: Option<&'a str>,
    pub fingerprint: &'a str,
}

impl dyn Tables + '_ {
    pub fn insert_approval(&self, new: &NewApproval<'_>) -> Result<(), Error> {
        let sql = "INSERT INTO approvals (id, submission, session, task, call, scope, fingerprint, status, expires_at,
                     updated_at, request, decision, whole)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
        let values = params![
            new.request.id,
            new.submission,
            new.session,
            new.task_id,
            new.call_id,
            new.scope,
            new.request.fingerprint,
            new.status.name(),
            new.request.expires_at,
            new.now,
            to_json(new.request)?,
            json(new.decision)?,
            new.whole,
        ];
        self.execute(sql, values)
    }

    pub fn approval(&self, id: &str) -> Result<Option<ApprovalRow>, Error> {
        first(self, &format!("{SELECT} WHERE a.id = ?1"), params![id], approval)
    }

    /// Returns the requests about a call, and those requests of the same submission that were denied for the same fingerprint. Newest
    /// first.
    pub fn approvals_about(&self, call: &AboutCall<'_>) -> Result<Vec<ApprovalRow>, Error> {
        let sql = format!(
            "{SELECT} WHERE a.submission = ?1
               AND ((a.call = ?2 AND a.task IS NOT DISTINCT FROM ?3) OR (a.fingerprint = ?4 AND a.status = 'denied'))
             ORDER BY a.approval DESC"
        );
        let values = params![call.submission, call.call_id, call.task_id, call.fingerprint];
        all(self, &sql, values, approval)
    }

    /// Returns the calls of a submission for which an approval was requested.
    pub fn calls_with_approval(&self, submission: i64) -> Result<Vec<CallWithApproval>, Error> {
        let sql = "SELECT call, task, max(CASE WHEN used_at IS NOT NULL THEN id END) AS used FROM approvals
                   WHERE submission = ?1 GROUP BY call, task ORDER BY call, task NULLS FIRST";
        all(self, sql, params![submission], |row| {
            Ok(CallWithApproval { call_id: row.get("call")?, task_id: row.get("task")?, used: row.get("used")? })
        })
    }

    /// Returns the id of a request that was approved for the whole session and has this fingerprint.
    pub fn session_grant(&self, session: &str, fingerprint: &str) -> Result<Option<String>, Error> {
        let sql = "SELECT id FROM approvals WHERE for_session = 1 AND session = ?1 AND fingerprint = ?2
                   ORDER BY approval LIMIT 1";
        first(self, sql, params![session, fingerprint], |row| row.get(0))
    }

    /// Returns at most `max` requests, oldest first. Once their sizes add up to `bytes`, further ones are returned without action and
    /// diff, and marked as `cut`.
    pub fn pending_approvals(&self, list: &ListApprovals, max: usize, bytes: usize) -> Result<Vec<Approval>, Error> {
        // A request without a scope is shown with `api` and `default`, so it is also found by these values.
        let sql = format!(
            "SELECT a.approval, a.scope, a.status, a.updated_at, a.decision, a.used_at,
                     s.connector, s.actor, s.conversation, s.thread,
                     CASE WHEN sum(octet_length(a.request)) OVER (ORDER BY a.approval) <= ?6 THEN a.request END AS request
                   FROM approvals AS a LEFT JOIN scopes AS s USING (scope)
                   WHERE a.status = 'pending'
                     AND (?1 IS NULL OR a.request{json} ->> 'taskId' = ?1)
                     AND (?2 IS NULL OR coalesce(s.actor, 'api') = ?2)
                     AND (?3 IS NULL OR coalesce(s.conversation, 'default') = ?3)
                     AND (?4 IS NULL OR coalesce(s.connector, 'api') = ?4)
                   ORDER BY a.approval LIMIT ?5",
            json = self.dialect().json
        );
        let values = params![list.task_id, list.actor_id, list.conversation_id, list.connector, max, bytes];
        shortened(self, &sql, values)
    }

    /// Returns requests with lower keys than `before`, newest first, that match the status and the session of a list.
    /// From the one on with which they exceed `bytes`, they have no action and no diff.
    pub fn approvals_before(
        &self,
        before: Option<i64>,
        list: &ListAllApprovals,
        max: usize,
        bytes: usize,
    ) -> Result<Vec<Approval>, Error> {
        let sql = "SELECT a.approval, a.scope, a.status, a.updated_at, a.decision, a.used_at,
                     s.connector, s.actor, s.conversation, s.thread,
                     CASE WHEN sum(octet_length(a.request)) OVER (ORDER BY a.approval DESC) <= ?5 THEN a.request END AS request
                   FROM (SELECT * FROM approvals
                         WHERE (?1 IS NULL OR approval < ?1) AND (?2 IS NULL OR status = ?2) AND (?3 IS NULL OR session = ?3)
                         ORDER BY approval DESC LIMIT ?4) AS a
                     LEFT JOIN scopes AS s USING (scope)
                   ORDER BY a.approval DESC";
        let values = params![before, list.status.map(Status::name), list.session, max, bytes];
        shortened(self, sql, values)
    }

    pub fn pending_approvals_of(&self, submission: i64) -> Result<Vec<ApprovalRow>, Error> {
        let sql = format!("{SELECT} WHERE a.submission = ?1 AND a.status = 'pending'");
        all(self, &sql, params![submission], approval)
    }

    pub fn count_pending_approvals(&self) -> Result<u64, Error> {
        let sql = "SELECT count(*) AS number FROM approvals WHERE status = 'pending'";
        unique(self, sql, params![], |row| row.get("number"))
    }

    pub fn end_approval(
        &self,
        key: i64,
        status: Status,
        decision: Option<(&Decision, Option<&str>)>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let sql = "UPDATE approvals SET status = ?2, updated_at = ?3, decision = ?4, decide_key = ?5, for_session = ?6
                   WHERE approval = ?1";
        let (decision, decide_key) = decision.unzip();
        let values = params![key, status.name(), now, json(decision)?, decide_key.flatten(), for_session(decision)];
        self.execute(sql, values)
    }

    pub fn use_approval(&self, key: i64, use_key: &str, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE approvals SET used_at = ?2, use_key = ?3 WHERE approval = ?1";
        self.execute(sql, params![key, now, use_key])
    }

    /// Returns the pending requests that have expired.
    pub fn due_approvals(&self, now: Timestamp, max: usize) -> Result<Vec<ApprovalRow>, Error> {
        let sql = format!("{SELECT} WHERE a.status = 'pending' AND a.expires_at <= ?1 ORDER BY a.expires_at LIMIT ?2");
        all(self, &sql, params![now, max], approval)
    }

    pub fn next_due_approval(&self) -> Result<Option<Timestamp>, Error> {
        let sql = "SELECT min(expires_at) FROM approvals WHERE status = 'pending'";
        unique(self, sql, params![], |row| row.get(0))
    }

    /// Deletes at most `max` requests that ended before a time and whose submissions are settled. Returns how many were deleted.
    pub fn prune_approvals(&self, before: Timestamp, max: usize) -> Result<usize, Error> {
        let sql = "DELETE FROM approvals WHERE approval IN (
                     SELECT a.approval FROM approvals AS a JOIN submissions AS s USING (submission)
                      WHERE a.status <> 'pending' AND a.updated_at < ?1 AND s.live = 0 LIMIT ?2)";
        self.changed_rows(sql, params![before, max])
    }
}

/// Selects requests together with their scopes.
const SELECT: &str = "SELECT a.*, s.connector, s.actor, s.conversation, s.thread
     FROM approvals AS a LEFT JOIN scopes AS s USING (scope)";

fn status(row: &dyn Row) -> Result<Status, Error> {
    word(row, "approvals.status", Status::named)
}

fn record(row: &dyn Row) -> Result<Approval, Error> {
    let request = present(row, stored(row, "request")?, "request")?;
    record_of(row, request)
}

fn record_of(row: &dyn Row, request: Request) -> Result<Approval, Error> {
    let mut record = Approval::new(request, status(row)?, row.get("updated_at")?, optional_scope(row)?);
    record.decision = stored(row, "decision")?;
    record.used_at = row.get("used_at")?;
    Ok(record)
}

fn approval(row: &dyn Row) -> Result<ApprovalRow, Error> {
    Ok(ApprovalRow {
        key: row.get("approval")?,
        submission: row.get("submission")?,
        session: row.get("session")?,
        record: record(row)?,
        decide_key: row.get("decide_key")?,
        use_key: row.get("use_key")?,
    })
}

/// Reads the requests of a list. Those whose texts were left out, because they are too large together with those before them, are read one
/// after the other and cut.
fn shortened(database: &dyn Sql, sql: &str, values: Parameters<'_>) -> Result<Vec<Approval>, Error> {
    all(database, sql, values, |row| {
        let request = match stored(row, "request")? {
            Some(request) => request,
            None => cut_request(database, row.get("approval")?)?,
        };
        record_of(row, request)
    })
}

/// Returns a request without its action and its diff, marked as cut.
fn cut_request(database: &dyn Sql, key: i64) -> Result<Request, Error> {
    let sql = "SELECT request FROM approvals WHERE approval = ?1";
    unique(database, sql, params![key], |row| {
        let request: Option<Map<String, Value>> = stored(row, "request")?;
        let mut request = request.unwrap_or_default();
        if let Some(Value::Object(metadata)) = request.get_mut("metadata") {
            metadata.retain(|name, _| name != "action" && name != "diff");
            metadata.insert("cut".into(), true.into());
        }
        serde_json::from_value(Value::Object(request)).map_err(|error| row.unreadable("request", &error))
    })
}

fn for_session(decision: Option<&Decision>) -> bool {
    decision.is_some_and(|decision| decision.approved && decision.scope == GrantScope::Session)
}
