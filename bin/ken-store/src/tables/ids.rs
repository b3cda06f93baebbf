//! Things of every kind by their ids.

use ken_types::ops::ids::{FoundId, IdKind};
use ken_types::{Error, Offset};

use super::Tables;
use super::columns::scope;
use super::sql::{Parameters, Row, Sql, first, params};

/// Things by their ids. `see` is called with each, until it returns false.
impl dyn Tables + '_ {
    pub fn with_id(&self, kind: IdKind, id: &str) -> Result<Option<FoundId>, Error> {
        let Parts { select, whole, .. } = parts(kind);
        let sql = format!("{select} WHERE {whole}").replace("{json}", self.dialect().json);
        first(self, &sql, params![id], |row| found(kind, row))
    }

    /// Those whose ids contain a word, and sessions of this name, newest first.
    pub fn containing(&self, kind: IdKind, word: &str, see: &mut dyn FnMut(FoundId) -> bool) -> Result<(), Error> {
        let Parts { select, part, order, .. } = parts(kind);
        see_each(self, kind, &format!("{select} WHERE {part} ORDER BY {order}"), params![word], see)
    }

    /// All that people know of, newest first.
    pub fn newest(&self, kind: IdKind, see: &mut dyn FnMut(FoundId) -> bool) -> Result<(), Error> {
        let Parts { select, known, order, .. } = parts(kind);
        see_each(self, kind, &format!("{select} WHERE {known} ORDER BY {order}"), params![], see)
    }
}

/// The parts of the statements about one kind. What belongs to a session that is being deleted is left out.
struct Parts {
    /// Selects `id`, `at`, `label`, `session` and `turn`, the start of a turn, and the scope of a session.
    select: &'static str,
    /// The condition of the thing with the id ?1.
    whole: &'static str,
    /// The condition of those whose ids contain ?1.
    part: &'static str,
    /// The condition of those that people know of.
    known: &'static str,
    order: &'static str,
}

fn parts(kind: IdKind) -> Parts {
    match kind {
        IdKind::Session => Parts {
            select:
                "SELECT s.id, s.updated_at AS at, coalesce(s.name, s.title) AS label, NULL AS session, NULL AS turn,
                       c.connector, c.actor, c.conversation, c.thread
                     FROM sessions AS s JOIN scopes AS c USING (scope)",
            whole: "s.stream = (SELECT stream FROM streams WHERE name = 'agents/orchestrator/' || ?1)",
            part: "{position}(s.id, ?1) > 0 OR s.archived_at IS NULL AND s.name = ?1",
            known: "s.archived_at IS NULL AND (s.title IS NOT NULL OR s.name IS NOT NULL)",
            order: "s.updated_at DESC, s.stream DESC",
        },
        IdKind::Turn => Parts {
            select: "SELECT s.id, e.received_at AS at, e.text AS label,
                       substr(t.name, length('agents/orchestrator/') + 1) AS session, s.id AS turn,
                       s.recorded_from
                     FROM submissions AS s JOIN events AS e USING (event)
                       JOIN streams AS t ON t.stream = s.stream AND t.purged_at IS NULL",
            whole: "s.id = ?1 AND s.kind <> 'workflow'",
            part: "s.submission IN (SELECT submission FROM submissions WHERE {position}(id, ?1) > 0) AND s.kind <> 'workflow'",
            known: "s.hidden = 0 AND s.kind <> 'workflow'",
            order: "s.submission DESC",
        },
        IdKind::Run => Parts {
            select: "SELECT s.id, r.started_at AS at, r.workflow AS label, NULL AS session, NULL AS turn
                     FROM runs AS r JOIN submissions AS s USING (submission)",
            whole: "s.id = ?1",
            part: "{position}(s.id, ?1) > 0",
            known: "true",
            order: "r.submission DESC",
        },
        IdKind::Approval => Parts {
            select: "SELECT a.id, a.updated_at AS at, a.request{json} ->> 'summary' AS label, a.session AS session,
                       s.id AS turn
                     FROM approvals AS a JOIN submissions AS s USING (submission)
                       JOIN streams AS t ON t.stream = s.stream AND t.purged_at IS NULL",
            whole: "a.id = ?1",
            part: "{position}(a.id, ?1) > 0",
            known: "true",
            order: "a.approval DESC",
        },
        IdKind::Knowledge => Parts {
            select: "SELECT k.id, k.updated_at AS at, k.title AS label, NULL AS session, NULL AS turn
                     FROM (SELECT * FROM knowledge WHERE stream IS NULL OR stream NOT IN (SELECT stream FROM purges)) AS k",
            whole: "k.id = ?1",
            part: "k.entry IN (SELECT entry FROM knowledge WHERE {position}(id, ?1) > 0)",
            known: "true",
            order: "k.entry DESC",
        },
        IdKind::ScheduleRun => Parts {
            select:
                "SELECT r.id, coalesce(r.started_at, r.slot_at, r.not_before) AS at, s.slug AS label, NULL AS session,
                       r.submission AS turn
                     FROM schedule_runs AS r JOIN schedules AS s USING (schedule)",
            whole: "r.id = ?1",
            part: "{position}(r.id, ?1) > 0",
            known: "true",
            order: "r.run DESC",
        },
        // The event of a prompt to an instance, and that of a run, has the id of its submission, which is the better answer.
        IdKind::Event => Parts {
            select: "SELECT e.id, e.received_at AS at, e.text AS label, NULL AS session,
                       e.answer{json} -> 'submission' ->> 'submission_id' AS turn
                     FROM (SELECT * FROM events WHERE NOT EXISTS
                       (SELECT 1 FROM submissions AS s JOIN streams AS t ON t.stream = s.stream
                        WHERE s.event = events.event AND t.purged_at IS NOT NULL)) AS e",
            whole: "e.id = ?1 AND NOT EXISTS (SELECT 1 FROM submissions AS s WHERE s.id = e.id)",
            part: "e.event IN (SELECT event FROM events WHERE {position}(id, ?1) > 0)
                   AND NOT EXISTS (SELECT 1 FROM submissions AS s WHERE s.id = e.id)",
            known: "NOT EXISTS (SELECT 1 FROM submissions AS s WHERE s.id = e.id)",
            order: "e.event DESC",
        },
    }
}

fn found(kind: IdKind, row: &dyn Row) -> Result<FoundId, Error> {
    Ok(FoundId {
        kind,
        id: row.get("id")?,
        at: row.get("at")?,
        label: row.get("label")?,
        session_id: row.get("session")?,
        submission_id: row.get("turn")?,
        offset: (kind == IdKind::Turn).then(|| row.get("recorded_from").map(Offset::end)).transpose()?,
        scope: (kind == IdKind::Session).then(|| scope(row)).transpose()?,
    })
}

/// How many things are fetched at a time.
const FOUND: u32 = 64;

fn see_each(
    database: &dyn Sql,
    kind: IdKind,
    sql: &str,
    values: Parameters<'_>,
    see: &mut dyn FnMut(FoundId) -> bool,
) -> Result<(), Error> {
    let dialect = database.dialect();
    let sql = sql.replace("{json}", dialect.json).replace("{position}", dialect.position);
    database.query(&sql, values, Some(FOUND), &mut |row| Ok(see(found(kind, row)?))).map(drop)
}
