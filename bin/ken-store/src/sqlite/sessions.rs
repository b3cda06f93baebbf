//! Sessions: scopes, names, lists.

use ken_types::id::{Origin, SessionId};
use ken_types::ops::store::*;
use ken_types::{Error, Timestamp};
use rusqlite::{Connection, Row, params};
use serde_json::json;

use super::fault::{Done, Fault};
use super::{all, first, rows, run, scopes, streams, submissions, system, time};
use crate::backend::Change;
use crate::cursor::List;

/// A session as it stands in this transaction.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stream: i64,
    pub(super) id: SessionId,
    pub(super) scope: i64,
    pub(super) origin: Origin,
    pub(super) title: Option<String>,
    pub(super) name: Option<String>,
    archived: bool,
}

impl Found {
    pub(super) fn opened(&self, created: bool) -> OpenSession {
        OpenSession {
            id: self.id.clone(),
            surface: self.origin,
            created,
            title: self.name.clone(),
        }
    }

    fn owned_by(self, scope: Option<i64>) -> Result<Found, Error> {
        if Some(self.scope) == scope {
            return Ok(self);
        }
        Err(Error::forbidden(format!(
            "the session {} belongs to another scope",
            self.id
        )))
    }
}

fn origin(name: &str) -> Origin {
    let known = [Origin::Tui, Origin::Web, Origin::Connector];
    known
        .into_iter()
        .find(|origin| origin.name() == name)
        .unwrap_or(Origin::Connector)
}

fn read_found(row: &Row<'_>) -> rusqlite::Result<Found> {
    Ok(Found {
        stream: row.get("stream")?,
        id: SessionId(row.get("id")?),
        scope: row.get("scope")?,
        origin: origin(row.get_ref("origin")?.as_str()?),
        title: row.get("title")?,
        name: row.get("name")?,
        archived: row.get::<_, Option<i64>>("archived_at")?.is_some(),
    })
}

/// A session by its id, whosever it is.
pub(super) fn by_id(connection: &Connection, id: &str) -> Done<Option<Found>> {
    let sql = "SELECT s.* FROM streams JOIN sessions AS s USING (stream) WHERE streams.name = ?1";
    Ok(first(
        connection,
        sql,
        [[streams::AGENT, id].concat()],
        read_found,
    )?)
}

/// A session by its id, on behalf of a scope.
pub(super) fn owned(connection: &Connection, id: &SessionId, scope: &Scope) -> Done<Found> {
    let found = by_id(connection, id.as_str())?;
    let found = found.ok_or_else(|| missing(id))?;
    Ok(found.owned_by(scopes::find(connection, scope)?)?)
}

fn missing(id: &SessionId) -> Error {
    Error::not_found(format!("there is no session {id}"))
}

/// Sessions of one name that an error lists, the newest first.
const NAMESAKES: usize = 10;

/// An owned id, then an exact owned name. `None` when nothing matches.
pub(super) fn select(connection: &Connection, scope: Option<i64>, selector: &str) -> Done<Option<Found>> {
    if let Some(found) = by_id(connection, selector)? {
        return Ok(Some(found.owned_by(scope)?));
    }
    let sql = "SELECT * FROM sessions WHERE scope = ?1 AND name = ?2 AND archived_at IS NULL
               ORDER BY updated_at DESC LIMIT ?3";
    let mut named = all(
        connection,
        sql,
        params![scope, selector, rows(NAMESAKES)],
        read_found,
    )?;
    if named.len() > 1 {
        let ids: Vec<&str> = named.iter().map(|found| found.id.as_str()).collect();
        let message = format!("more than one session is named {selector:?}: {}", ids.join(", "));
        return Err(Error::conflict(message).hint("use an id").into());
    }
    Ok(named.pop())
}

/// The newest session of a scope.
pub(super) fn active(connection: &Connection, scope: i64) -> Done<Option<Found>> {
    let sql = "SELECT * FROM sessions WHERE scope = ?1 AND archived_at IS NULL ORDER BY updated_at DESC, stream DESC LIMIT 1";
    Ok(first(connection, sql, [scope], read_found)?)
}

/// A new session and its stream, which may be there already as that of an instance without an actor.
pub(super) fn insert(
    connection: &Connection,
    scope: i64,
    fresh: &FreshSession,
    change: &mut Change,
) -> Done<Found> {
    let now = change.now;
    let stream = streams::of_instance(connection, fresh.id.as_str(), now)?;
    let sql = "INSERT INTO sessions (stream, id, scope, origin, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
    run(
        connection,
        sql,
        params![
            stream.id,
            fresh.id.as_str(),
            scope,
            fresh.origin.name(),
            now.millis()
        ],
    )?;
    let found = Found {
        stream: stream.id,
        id: fresh.id.clone(),
        scope,
        origin: fresh.origin,
        title: None,
        name: None,
        archived: false,
    };
    tell(connection, "session.created", &found, change)?;
    Ok(found)
}

/// Tells consoles what became of a session.
fn tell(connection: &Connection, kind: &'static str, found: &Found, change: &mut Change) -> Done<()> {
    let sql = "SELECT connector FROM scopes WHERE scope = ?1";
    let connector: Option<String> = first(connection, sql, [found.scope], |row| row.get(0))?;
    system::happened(
        change,
        kind,
        json!({"sessionId": found.id, "connector": connector}),
    );
    Ok(())
}

/// A session was used: it is the newest now, and back if it was archived.
pub(super) fn touch(connection: &Connection, found: &Found, change: &mut Change) -> Done<()> {
    let sql = "UPDATE sessions SET updated_at = max(updated_at, ?2), archived_at = NULL WHERE stream = ?1";
    run(connection, sql, params![found.stream, change.now.millis()])?;
    if found.archived {
        tell(connection, "session.restored", found, change)?;
    }
    Ok(())
}

pub(super) fn set_title(connection: &Connection, stream: i64, title: &str) -> Done<()> {
    let sql = "UPDATE sessions SET title = ?2 WHERE stream = ?1 AND title IS NULL";
    run(connection, sql, params![stream, title])?;
    Ok(())
}

pub(super) fn set_name(
    connection: &Connection,
    found: &mut Found,
    name: &str,
    change: &mut Change,
) -> Done<()> {
    run(
        connection,
        "UPDATE sessions SET name = ?2 WHERE stream = ?1",
        params![found.stream, name],
    )?;
    found.name = Some(name.to_owned());
    tell(connection, "session.renamed", found, change)
}

pub(super) fn create(
    connection: &Connection,
    args: &CreateSession,
    change: &mut Change,
) -> Done<OpenSession> {
    let scope = scopes::ensure(connection, &args.scope)?;
    if let Some(found) = by_id(connection, args.id.as_str())? {
        return Ok(found.owned_by(Some(scope))?.opened(true));
    }
    let fresh = FreshSession {
        id: args.id.clone(),
        origin: args.origin,
    };
    Ok(insert(connection, scope, &fresh, change)?.opened(true))
}

pub(super) fn resume(
    connection: &Connection,
    args: &ResumeSession,
    change: &mut Change,
) -> Done<OpenSession> {
    let scope = scopes::find(connection, &args.scope)?;
    if let Some(found) = select(connection, scope, &args.selector)? {
        touch(connection, &found, change)?;
        return Ok(found.opened(false));
    }
    let Some(fresh) = &args.fresh else {
        return Err(unknown(&args.selector).into());
    };
    let scope = scopes::ensure(connection, &args.scope)?;
    // The first try of the same call may have made it.
    let made = match by_id(connection, fresh.id.as_str())? {
        Some(found) => found.owned_by(Some(scope))?,
        None => insert(connection, scope, fresh, change)?,
    };
    Ok(made.opened(true))
}

pub(super) fn unknown(selector: &str) -> Error {
    Error::not_found(format!("there is no session with the id or name {selector:?}"))
}

pub(super) fn archive(connection: &Connection, args: &OwnedSession, change: &mut Change) -> Done<()> {
    let found = match &args.scope {
        Some(scope) => owned(connection, &args.id, scope)?,
        None => by_id(connection, args.id.as_str())?.ok_or_else(|| missing(&args.id))?,
    };
    if submissions::is_busy(connection, found.stream)? {
        let error = Error::conflict(format!("a turn runs or waits in the session {}", args.id));
        return Err(error.hint("cancel it, or wait for it").into());
    }
    let sql = "UPDATE sessions SET archived_at = ?2 WHERE stream = ?1 AND archived_at IS NULL";
    if run(connection, sql, params![found.stream, change.now.millis()])? > 0 {
        tell(connection, "session.archived", &found, change)?;
    }
    Ok(())
}

pub(super) fn cancel(connection: &Connection, args: &CancelSession, change: &mut Change) -> Done<Cancelled> {
    let found = owned(connection, &args.id, &args.scope)?;
    let stopped = submissions::stop(connection, found.stream, args.submission_id.as_ref(), change)?;
    Ok(Cancelled {
        submission_id: stopped,
    })
}

/// Four lists: all sessions or those of a scope, archived or not; each has its index.
pub(super) fn list(connection: &Connection, args: &ListSessions) -> Done<SessionPage> {
    let name = list_name(args);
    let [at, stream] = match &args.after {
        Some(cursor) => name.position(cursor, "?after")?,
        None => [i64::MAX, i64::MAX],
    };
    let scope = match &args.scope {
        None => None,
        Some(scope) => match scopes::find(connection, scope)? {
            Some(found) => Some(found),
            None => return Ok(end_of(Vec::new(), args.limit, &name)),
        },
    };
    let archived = if args.archived { "NOT NULL" } else { "NULL" };
    let of_scope = if scope.is_some() {
        "s.scope = ?1 AND"
    } else {
        "?1 IS NULL AND"
    };
    // The first prompt is the title.
    let empty = if args.empty { "" } else { "s.title IS NOT NULL AND" };
    let sql = format!(
        "SELECT s.*, connector, actor, conversation, thread FROM sessions AS s JOIN scopes ON scopes.scope = s.scope
         WHERE {of_scope} {empty} s.archived_at IS {archived} AND (s.updated_at, s.stream) < (?2, ?3)
         ORDER BY s.updated_at DESC, s.stream DESC"
    );
    let wanted = Wanted::of(args.q.as_deref());
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query(params![scope, at, stream])?;
    let mut found = Vec::new();
    while found.len() <= args.limit as usize
        && let Some(row) = rows.next()?
    {
        let (place, session) = read_listed(row)?;
        if wanted.is_in(&session) {
            found.push((place, session));
        }
    }
    Ok(end_of(found, args.limit, &name))
}

/// The words that a list is searched for.
struct Wanted(Vec<String>);

impl Wanted {
    fn of(q: Option<&str>) -> Wanted {
        let words = q.unwrap_or_default().split_whitespace();
        Wanted(words.map(str::to_lowercase).collect())
    }

    fn is_in(&self, session: &Session) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let texts = [
            session.display_name.as_deref(),
            session.title.as_deref(),
            Some(session.session_id.as_str()),
        ];
        let text = texts.map(Option::unwrap_or_default).join("\n").to_lowercase();
        self.0.iter().all(|word| text.contains(word))
    }
}

fn list_name(args: &ListSessions) -> List {
    let archived = if args.archived { "archived" } else { "open" };
    let empty = args.empty.then_some("empty");
    let scope = args.scope.as_ref();
    let part = |pick: fn(&Scope) -> &str| scope.map(pick);
    List::named(
        "sessions",
        &[
            Some(archived),
            empty,
            args.q.as_deref(),
            part(|scope| &scope.connector),
            part(|scope| &scope.actor_id),
            part(|scope| &scope.conversation_id),
            scope.and_then(|scope| scope.thread_id.as_deref()),
        ],
    )
}

fn end_of(mut found: Vec<(i64, Session)>, limit: u32, name: &List) -> SessionPage {
    let has_more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let last = found.last().filter(|_| has_more);
    let after = last.map(|(stream, session)| name.cursor([session.updated_at.millis(), *stream]));
    SessionPage {
        sessions: found.into_iter().map(|(_, session)| session).collect(),
        page: Page {
            limit,
            has_more,
            after,
        },
    }
}

fn read_listed(row: &Row<'_>) -> rusqlite::Result<(i64, Session)> {
    let found = read_found(row)?;
    let scope = scopes::read(row)?;
    let archived_at: Option<i64> = row.get("archived_at")?;
    let session = Session {
        session_id: found.id,
        origin: found.origin,
        connector: scope.connector,
        actor_id: scope.actor_id,
        conversation_id: scope.conversation_id,
        thread_id: scope.thread_id,
        title: found.title,
        display_name: found.name,
        created_at: time(row, "created_at")?,
        updated_at: time(row, "updated_at")?,
        archived_at: archived_at.map(Timestamp::from_millis),
    };
    Ok((found.stream, session))
}

/// A refusal that the event's record keeps; anything else is a failure of the whole change.
pub(super) fn refusal<T>(done: Done<T>) -> Done<Result<T, Error>> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(Fault::Refused(error)) => Ok(Err(error)),
        Err(fault) => Err(fault),
    }
}
