//! Scopes, sessions and events.

use ken_types::id::{EventId, Origin, SessionId};
use ken_types::ops::store::{Image, Memory, Scope, Session};
use ken_types::{Error, Timestamp};
use serde_json::Value;

use super::Tables;
use super::columns::{json, optional_scope, optional_word, scope, scope_text, stored, to_json, word};
use super::logs::purged;
use super::sql::{Row, all, first, params, unique};

/// The stored scopes. Each has a key.
impl dyn Tables + '_ {
    pub fn scope_key(&self, scope: &Scope) -> Result<Option<i64>, Error> {
        let sql = "SELECT scope FROM scopes WHERE key = ?1";
        first(self, sql, params![scope_text(scope)?], |row| row.get(0))
    }

    pub fn insert_scope(&self, scope: &Scope) -> Result<i64, Error> {
        let sql = "INSERT INTO scopes (key, connector, actor, conversation, thread) VALUES (?1, ?2, ?3, ?4, ?5)";
        let values =
            params![scope_text(scope)?, scope.connector, scope.actor_id, scope.conversation_id, scope.thread_id];
        self.insert(sql, "scope", values)
    }

    pub fn scope(&self, key: i64) -> Result<Option<Scope>, Error> {
        first(self, "SELECT * FROM scopes WHERE scope = ?1", params![key], scope)
    }

    /// Returns those conversations of an actor in which nobody else has written. Only the current conversation and the actor's newest
    /// `max` are examined.
    pub fn private_conversations(
        &self,
        connector: &str,
        actor: &str,
        current: &str,
        max: usize,
    ) -> Result<Vec<String>, Error> {
        // The limit is inside the subquery, because an actor can have very many conversations.
        let sql = "SELECT conversation FROM (
                     SELECT conversation FROM (
                       SELECT conversation FROM scopes WHERE connector = ?1 AND actor = ?2 ORDER BY scope DESC LIMIT ?4) AS newest
                     UNION SELECT conversation FROM scopes WHERE connector = ?1 AND conversation = ?3 AND actor = ?2
                   ) AS s WHERE NOT EXISTS (
                     SELECT 1 FROM scopes AS o WHERE o.connector = ?1 AND o.conversation = s.conversation AND o.actor <> ?2)";
        let values = params![connector, actor, current, max];
        all(self, sql, values, |row| row.get(0))
    }
}

/// A session. Its key is that of its stream.
#[derive(Debug, Clone)]
pub struct SessionRow {
    pub stream: i64,
    pub id: SessionId,
    pub scope: i64,
    pub origin: Origin,
    /// The automatic title, which is derived from the first visible prompt.
    pub title: Option<String>,
    /// The name that a user has given to the session.
    pub name: Option<String>,
    pub archived: bool,
    /// The trusted folder in which it works.
    pub workspace: Option<String>,
    /// What it remembers, if that was set for it.
    pub memory: Option<Memory>,
    /// The only model that answers.
    pub model: Option<String>,
}

/// The settings of a session that its turns need.
#[derive(Debug, Clone, Default)]
pub struct SessionSettings {
    pub workspace: Option<String>,
    pub model: Option<String>,
}

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    Talk,
    /// A run of a schedule.
    Run,
}

/// Selects a page of sessions, newest first, that begins after the position `after`.
#[derive(Debug, Clone, Copy)]
pub struct SessionList {
    pub scope: Option<i64>,
    pub archived: bool,
    /// Whether sessions without a title are included.
    pub empty: bool,
    /// Whether those of the runs of schedules are included.
    pub scheduled: bool,
    pub after: (i64, i64),
}

impl SessionList {
    /// Returns the condition for the sessions `s`. Its parameters are the scope and the two parts of the position. A filter that is not used is
    /// left out, so that the index of the list can be used.
    fn condition(&self) -> String {
        let of_scope = self.scope.map_or("CAST(?1 AS bigint) IS NULL", |_| "s.scope = ?1");
        let chosen = if self.scheduled { "" } else { "AND substr(s.id, 1, 9) <> 'schedule:'" };
        let archived = if self.archived { "NOT NULL" } else { "NULL" };
        format!("{of_scope} {chosen} AND s.archived_at IS {archived} AND (s.updated_at, s.stream) < (?2, ?3)")
    }
}

impl dyn Tables + '_ {
    /// Fails with `gone` if the session was deleted for good.
    pub fn session(&self, id: &str) -> Result<Option<SessionRow>, Error> {
        let sql =
            "SELECT s.*, l.purged_at AS purged_at FROM streams AS l LEFT JOIN sessions AS s ON s.stream = l.stream
                   WHERE l.name = 'agents/orchestrator/' || ?1";
        let found = first(self, sql, params![id], |row| {
            let (stream, purged_at): (Option<i64>, Option<i64>) = (row.get("stream")?, row.get("purged_at")?);
            Ok((stream.map(|_| session(row)).transpose()?, purged_at.is_some()))
        })?;
        match found {
            Some((_, true)) => Err(purged(id)),
            found => Ok(found.and_then(|(session, _)| session)),
        }
    }

    /// Returns what the turns of a session need. A stream without a session has no settings.
    pub fn session_settings(&self, stream: i64) -> Result<SessionSettings, Error> {
        let sql = "SELECT workspace, model FROM sessions WHERE stream = ?1";
        let found = first(self, sql, params![stream], |row| {
            Ok(SessionSettings { workspace: row.get("workspace")?, model: row.get("model")? })
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the sessions of this name that are not archived, the most recently used one first.
    pub fn sessions_named(&self, scope: Option<i64>, name: &str, max: usize) -> Result<Vec<SessionRow>, Error> {
        let sql = "SELECT * FROM sessions WHERE scope = ?1 AND name = ?2 AND archived_at IS NULL
                   ORDER BY updated_at DESC LIMIT ?3";
        all(self, sql, params![scope, name, max], session)
    }

    /// Returns the most recently used session of a scope that is not archived.
    pub fn newest_session(&self, scope: i64) -> Result<Option<SessionRow>, Error> {
        let of = |which: &str| format!("SELECT * FROM sessions WHERE scope = ?1 AND archived_at IS NULL AND {which}");
        let sql = format!("{} UNION ALL {} ORDER BY updated_at DESC, stream DESC LIMIT 1", of(SHOWN), of(HIDDEN));
        first(self, &sql, params![scope], session)
    }

    /// Returns the session of a stream as lists show it.
    pub fn session_record(&self, stream: i64) -> Result<Session, Error> {
        let sql = "SELECT s.*, connector, actor, conversation, thread
                   FROM sessions AS s JOIN scopes ON scopes.scope = s.scope WHERE s.stream = ?1";
        unique(self, sql, params![stream], |row| listed(row).map(|(_, session)| session))
    }

    pub fn insert_session(&self, session: &SessionRow, now: Timestamp) -> Result<(), Error> {
        let sql = "INSERT INTO sessions (stream, id, scope, origin, created_at, updated_at, workspace, memory, model)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6, ?7, ?8)";
        let SessionRow { stream, id, scope, origin, workspace, memory, model, .. } = session;
        let memory = memory.map(Memory::name);
        let values = params![stream, id.as_str(), scope, origin.name(), now, workspace, memory, model];
        self.execute(sql, values)
    }

    /// Sets `updated_at` to a later time, and takes the session out of the archive.
    pub fn touch_session(&self, stream: i64, now: Timestamp) -> Result<(), Error> {
        let sql = "UPDATE sessions SET updated_at = CASE WHEN updated_at < ?2 THEN ?2 ELSE updated_at END, archived_at = NULL WHERE stream = ?1";
        self.execute(sql, params![stream, now])
    }

    /// Sets `updated_at` to just before now where it is later than `future`, and keeps the order: these sessions were used while the clock was
    /// ahead. Without this, they would stand before all others in lists until the clock reaches that time.
    pub fn correct_last_use(&self, future: Timestamp, now: Timestamp) -> Result<(), Error> {
        let of = |which: &str| format!("SELECT stream, updated_at FROM sessions WHERE updated_at > ?1 AND {which}");
        let sql = format!(
            "UPDATE sessions SET updated_at = ?2 - ahead.place FROM (
               SELECT stream, row_number() OVER (ORDER BY updated_at DESC, stream DESC) AS place FROM ({}) AS listed) AS ahead
             WHERE sessions.stream = ahead.stream",
            by_index(of)
        );
        self.execute(&sql, params![future, now])
    }

    /// Returns when any session was last used.
    pub fn newest_use(&self) -> Result<Option<Timestamp>, Error> {
        unique(self, "SELECT max(updated_at) FROM sessions", params![], |row| row.get(0))
    }

    pub fn set_session_title(&self, stream: i64, title: &str) -> Result<(), Error> {
        let sql = "UPDATE sessions SET title = ?2 WHERE stream = ?1 AND title IS NULL";
        self.execute(sql, params![stream, title])
    }

    pub fn set_session_name(&self, stream: i64, name: &str) -> Result<(), Error> {
        let sql = "UPDATE sessions SET name = ?2 WHERE stream = ?1";
        self.execute(sql, params![stream, name])
    }

    pub fn set_session_memory(&self, stream: i64, memory: Memory) -> Result<(), Error> {
        self.execute("UPDATE sessions SET memory = ?2 WHERE stream = ?1", params![stream, memory.name()])
    }

    pub fn set_session_model(&self, stream: i64, model: Option<&str>) -> Result<(), Error> {
        self.execute("UPDATE sessions SET model = ?2 WHERE stream = ?1", params![stream, model])
    }

    /// Returns the ids of at most `max` sessions of a kind, archived or not, that were last used before a time.
    pub fn sessions_before(&self, kind: SessionKind, before: Timestamp, max: usize) -> Result<Vec<SessionId>, Error> {
        // By the scopes, the indexes find the conversations of runs among very many others that are kept. Whether there is still a record of
        // the run does not matter: records go earlier, with their schedule, or because newer ones took their places.
        let of_runs =
            "scope IN (SELECT scope FROM scopes WHERE connector = 'schedule') AND substr(id, 1, 9) = 'schedule:'";
        let is_of_kind = match kind {
            // A schedule that has not ended is in use, and with the session it would end.
            SessionKind::Talk => format!(
                "NOT ({of_runs}) AND stream NOT IN (
                   SELECT stream FROM schedules WHERE stream IS NOT NULL AND deleted_at IS NULL AND ended_at IS NULL)"
            ),
            SessionKind::Run => format!(
                "{of_runs} AND id NOT IN (
                   SELECT 'schedule:' || s.id || ':' || r.id FROM schedule_runs AS r JOIN schedules AS s USING (schedule)
                   WHERE r.active = 1)"
            ),
        };
        let of = |which: &str| format!("SELECT id FROM sessions WHERE updated_at < ?1 AND {which} AND {is_of_kind}");
        let sql = format!("SELECT id FROM ({}) AS old LIMIT ?2", by_index(of));
        all(self, &sql, params![before, max], |row| Ok(SessionId(row.get(0)?)))
    }

    /// Archives a session. Returns false if it was archived already.
    pub fn archive_session(&self, stream: i64, now: Timestamp) -> Result<bool, Error> {
        let sql = "UPDATE sessions SET archived_at = ?2 WHERE stream = ?1 AND archived_at IS NULL";
        Ok(self.changed_rows(sql, params![stream, now])? > 0)
    }

    /// Calls `see` with the stream key and the record of each session, until it returns false.
    pub fn list_sessions(&self, list: &SessionList, see: &mut dyn FnMut(i64, Session) -> bool) -> Result<(), Error> {
        let is_chosen = list.condition();
        let of = |which: &str| {
            format!(
                "SELECT s.*, connector, actor, conversation, thread
                 FROM sessions AS s JOIN scopes ON scopes.scope = s.scope WHERE {is_chosen} AND {which}"
            )
        };
        // All archived sessions are in one index, the others in two, which are merged.
        let sessions = match (list.empty, list.archived) {
            (false, _) => of(SHOWN),
            (true, true) => of("TRUE"),
            (true, false) => format!("{} UNION ALL {}", of(SHOWN), of(HIDDEN)),
        };
        let sql = format!("{sessions} ORDER BY updated_at DESC, stream DESC");
        let (at, stream) = list.after;
        let seen = self.query(&sql, params![list.scope, at, stream], Some(SESSIONS_PER_FETCH), &mut |row| {
            let (stream, session) = listed(row)?;
            Ok(see(stream, session))
        });
        seen.map(drop)
    }

    /// Like `list_sessions`, for the sessions to which these exchanges belong, those without a title too. `see` also gets the newest exchange
    /// of each.
    pub fn sessions_of_exchanges(
        &self,
        exchanges: &[i64],
        list: &SessionList,
        see: &mut dyn FnMut(i64, i64, Session) -> bool,
    ) -> Result<(), Error> {
        let sql = format!(
            "SELECT s.*, connector, actor, conversation, thread, newest FROM {} WHERE {}
             ORDER BY updated_at DESC, s.stream DESC",
            self.dialect().sessions_of_exchanges,
            list.condition()
        );
        let (at, stream) = list.after;
        let values = params![list.scope, at, stream, to_json(&exchanges)?];
        let seen = self.query(&sql, values, Some(SESSIONS_PER_FETCH), &mut |row| {
            let (stream, session) = listed(row)?;
            Ok(see(stream, row.get("newest")?, session))
        });
        seen.map(drop)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    pub id: &'a str,
    pub scope: Option<i64>,
    pub kind: &'a str,
    pub text: &'a str,
    pub received_at: Timestamp,
    pub context: Option<&'a Value>,
    pub raw: Option<&'a str>,
    pub images: &'a [Image],
    /// The answer to the event, as JSON.
    pub answer: &'a str,
}

impl<'a> NewEvent<'a> {
    /// An event that nobody has sent, and whose answer says nothing.
    pub fn internal(id: &'a str, scope: Option<i64>, kind: &'a str, text: &'a str, now: Timestamp) -> NewEvent<'a> {
        NewEvent { id, scope, kind, text, received_at: now, context: None, raw: None, images: &[], answer: "{}" }
    }
}

#[derive(Debug, Clone)]
pub struct PromptRow {
    pub id: EventId,
    pub text: String,
    pub received_at: Timestamp,
    pub context: Option<Value>,
    pub scope: Option<Scope>,
}

impl dyn Tables + '_ {
    pub fn event_answer(&self, id: &str) -> Result<Option<String>, Error> {
        first(self, "SELECT answer FROM events WHERE id = ?1", params![id], |row| row.get(0))
    }

    /// Returns the answer to an event, if it is stored, and the key of a scope, if that is. It is one statement, because every event needs
    /// both.
    pub fn answer_and_scope(&self, id: &str, scope: &Scope) -> Result<(Option<String>, Option<i64>), Error> {
        let sql = "SELECT (SELECT answer FROM events WHERE id = ?1) AS answer, (SELECT scope FROM scopes WHERE key = ?2) AS scope";
        unique(self, sql, params![id, scope_text(scope)?], |row| Ok((row.get("answer")?, row.get("scope")?)))
    }

    pub fn insert_event(&self, event: &NewEvent<'_>) -> Result<(), Error> {
        let sql = "INSERT INTO events (id, scope, kind, text, received_at, context, raw, images, answer)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let NewEvent { id, scope, kind, text, received_at, context, raw, images, answer } = *event;
        let (context, images) = (json(context)?, json(Some(images).filter(|images| !images.is_empty()))?);
        self.execute(sql, params![id, scope, kind, text, received_at, context, raw, images, answer])
    }

    pub fn event(&self, key: i64) -> Result<Option<PromptRow>, Error> {
        let sql = "SELECT id, text, received_at, context, c.scope, connector, actor, conversation, thread
                   FROM events AS e LEFT JOIN scopes AS c ON c.scope = e.scope WHERE event = ?1";
        first(self, sql, params![key], |row| {
            Ok(PromptRow {
                id: EventId(row.get("id")?),
                text: row.get("text")?,
                received_at: row.get("received_at")?,
                context: stored(row, "context")?,
                scope: optional_scope(row)?,
            })
        })
    }
}

pub(super) fn session(row: &dyn Row) -> Result<SessionRow, Error> {
    Ok(SessionRow {
        stream: row.get("stream")?,
        id: SessionId(row.get("id")?),
        scope: row.get("scope")?,
        origin: word(row, "sessions.origin", Origin::named)?,
        title: row.get("title")?,
        name: row.get("name")?,
        archived: row.get::<Option<i64>>("archived_at")?.is_some(),
        workspace: row.get("workspace")?,
        memory: optional_word(row, "sessions.memory", Memory::named)?,
        model: row.get("model")?,
    })
}

fn listed(row: &dyn Row) -> Result<(i64, Session), Error> {
    let found = session(row)?;
    let scope = scope(row)?;
    let session = Session {
        session_id: found.id,
        origin: found.origin,
        connector: scope.connector,
        actor_id: scope.actor_id,
        conversation_id: scope.conversation_id,
        thread_id: scope.thread_id,
        title: found.title,
        display_name: found.name,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        archived_at: row.get("archived_at")?,
        workspace: found.workspace,
        memory: found.memory,
        model: found.model,
        found: None,
    };
    Ok((found.stream, session))
}

/// The sessions that lists show, and the others. The server uses the indexes `shown_…` and `hidden_…` only for the same words.
const SHOWN: &str = "(title IS NOT NULL OR name IS NOT NULL)";

const HIDDEN: &str = "title IS NULL AND name IS NULL";

/// Returns a query of sessions by their time, of all of them, so that the three indexes are used. `of` returns that of some.
fn by_index(of: impl Fn(&str) -> String) -> String {
    let [shown, hidden] = [SHOWN, HIDDEN].map(|which| of(&format!("archived_at IS NULL AND {which}")));
    format!("{shown} UNION ALL {hidden} UNION ALL {}", of("archived_at IS NOT NULL"))
}

/// How many sessions are fetched at a time.
const SESSIONS_PER_FETCH: u32 = 128;
