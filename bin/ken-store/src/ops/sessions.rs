//! Sessions: their scopes, names and lists.

use ken_types::id::{Mint, SessionId};
use ken_types::ops::store::*;
use ken_types::ops::{Nothing, Page};
use ken_types::{Error, Timestamp};
use serde_json::json;

use crate::engine::change::{Change, Left};
use crate::ops::{Read, Write, logs, queue};
use crate::rules::check;
use crate::rules::cursor::List;
use crate::rules::search::{SessionWords, passage};
use crate::rules::terms::Query;
use crate::tables::{Index, SessionList, SessionRow, SubmissionRow, Tables, WordSearch};

/// The maximum number of exchanges that a fork gets: as many as the model can be shown.
const MAX_COPIED: u32 = 1_000;
/// The maximum number of bytes of text that a fork gets. Nothing else is written while they are copied.
const MAX_COPIED_BYTES: u64 = 16 << 20;
/// The connectors whose sessions can be forked. Elsewhere the newest session of a conversation is the one in which it goes on.
const FORKED: [&str; 2] = ["tui", "web-api"];
/// The maximum number of turns whose sessions a search for text examines. They are the newest ones with its words.
const MAX_TURNS: u32 = 5_000;
/// The maximum number of sessions that are examined for a page of those with a name. Few of very many may have the name that is looked for.
const MAX_EXAMINED: usize = 5_000;
/// The maximum number of sessions that the error for an ambiguous name lists.
const MAX_CANDIDATES: usize = 10;

/// How far in the future the last use of a session may lie before it is corrected, in milliseconds. Clocks are often set back a little.
const MAX_AHEAD_MS: i64 = 60_000;

impl SessionRow {
    pub(super) fn opened(&self, created: bool) -> OpenSession {
        OpenSession {
            id: self.id.clone(),
            surface: self.origin,
            created,
            title: self.name.clone(),
            workspace: self.workspace.clone(),
            model: self.model.clone(),
        }
    }

    fn owned_by(self, scope: Option<i64>) -> Result<SessionRow, Error> {
        if Some(self.scope) == scope {
            return Ok(self);
        }
        Err(Error::forbidden(format!("the session {} belongs to another scope", self.id)))
    }
}

impl Read for SessionsGet {
    fn run(tables: &dyn Tables, args: &OwnedSession) -> Result<Session, Error> {
        tables.session_record(any(tables, &args.id, args.scope.as_ref())?.stream)
    }
}

impl Read for SessionsScope {
    fn run(tables: &dyn Tables, args: &BySession) -> Result<Scope, Error> {
        let found = tables.session(&args.session_id)?;
        let scope = found.map(|found| tables.scope(found.scope)).transpose()?.flatten();
        let unknown = || Error::not_found(format!("there is no session {}", args.session_id));
        scope.ok_or_else(|| unknown().at("/session_id"))
    }
}

impl Write for SessionsCreate {
    fn run(tables: &dyn Tables, args: &CreateSession, change: &mut Change) -> Result<OpenSession, Error> {
        let scope = scope_key(tables, &args.scope)?;
        if let Some(found) = tables.session(args.fresh.id.as_str())? {
            return Ok(found.owned_by(Some(scope))?.opened(true));
        }
        Ok(insert(tables, scope, &args.fresh, change)?.opened(true))
    }
}

impl Write for SessionsResume {
    fn check(args: &ResumeSession) -> Result<(), Error> {
        match args.selector.trim() {
            "" => Err(Error::invalid("/selector", "the selector is blank")),
            _ => Ok(()),
        }
    }

    fn run(tables: &dyn Tables, args: &ResumeSession, change: &mut Change) -> Result<OpenSession, Error> {
        let scope = tables.scope_key(&args.scope)?;
        if let Some(found) = select(tables, scope, &args.selector)? {
            touch(tables, &found, change)?;
            return Ok(found.opened(false));
        }
        let Some(fresh) = &args.fresh else {
            return Err(unknown(&args.selector));
        };
        let scope = scope_key(tables, &args.scope)?;
        // An earlier attempt of this call may have created it.
        let made = match tables.session(fresh.id.as_str())? {
            Some(found) => found.owned_by(Some(scope))?,
            None => insert(tables, scope, fresh, change)?,
        };
        Ok(made.opened(true))
    }
}

/// Each kind of list (all sessions or those of a scope, archived or not) has an index of its own in the database.
impl Read for SessionsList {
    fn check(args: &ListSessions) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &ListSessions) -> Result<SessionPage, Error> {
        let name = list_name(args);
        let [at, stream] = match &args.after {
            Some(cursor) => name.position(cursor, "?after")?,
            None => [i64::MAX, i64::MAX],
        };
        let scope = args.scope.as_ref().map(|scope| tables.scope_key(scope)).transpose()?;
        // A scope that is not stored has no sessions.
        if scope == Some(None) {
            return Ok(page(Vec::new(), args.limit, &name));
        }
        let ListSessions { archived, empty, scheduled, .. } = *args;
        // Those of programs that send the whole conversation have no title at first, and are no empty ones.
        let empty_too = empty || scheduled;
        let list = SessionList { scope: scope.flatten(), archived, empty: empty_too, scheduled, after: (at, stream) };
        let words = SessionWords::of(args.q.as_deref());
        let is_listed = |session: &Session| (empty || is_begun(session)) && words.are_in(session);
        let found = match args.text.as_deref().map(str::trim) {
            None | Some("") => {
                let is_searched = args.q.as_ref().is_some_and(|q| !q.trim().is_empty());
                let max = if is_searched { MAX_EXAMINED } else { usize::MAX };
                let (found, stopped) = all_sessions(tables, &list, (args.limit, max), &is_listed)?;
                let mut listed = page(found, args.limit, &name);
                if let Some(at) = stopped {
                    listed.page = Page { has_more: true, after: Some(name.cursor(at)), ..listed.page };
                }
                return Ok(listed);
            }
            Some(text) => sessions_with(tables, text, &list, args.limit, &is_listed),
        };
        Ok(page(found?, args.limit, &name))
    }
}

/// Sessions, each with the key of its stream.
type Found = Vec<(i64, Session)>;

/// Returns the sessions of a page, and one more if there is one; or the place of the last one that was examined, if the page does not
/// become full in time. The next page then goes on from there.
fn all_sessions(
    tables: &dyn Tables,
    list: &SessionList,
    (limit, max): (u32, usize),
    is_listed: &dyn Fn(&Session) -> bool,
) -> Result<(Found, Option<[i64; 2]>), Error> {
    let (mut found, mut examined, mut stopped) = (Vec::new(), 0, None);
    tables.list_sessions(list, &mut |stream, session| {
        examined += 1;
        let place = [session.updated_at.millis(), stream];
        if is_listed(&session) {
            found.push((stream, session));
        }
        let is_full = found.len() > limit as usize;
        stopped = Some(place).filter(|_| examined == max && !is_full);
        !is_full && stopped.is_none()
    })?;
    Ok((found, stopped))
}

/// Like [`all_sessions`], for those with a turn in which all words of a text stand.
fn sessions_with(
    tables: &dyn Tables,
    text: &str,
    list: &SessionList,
    limit: u32,
    is_listed: &dyn Fn(&Session) -> bool,
) -> Result<Found, Error> {
    let query = Query::of_list(text);
    let words: Vec<&[String]> = query.terms().iter().map(|term| term.stems.as_slice()).collect();
    let search = WordSearch { index: Index::Memory, words: &words, match_all: true, scope_words: None };
    let turns = tables.matching(&search, MAX_TURNS)?;
    let mut found = Vec::new();
    tables.sessions_of_exchanges(&turns, list, &mut |stream, turn, session| {
        if is_listed(&session) {
            found.push((stream, turn, session));
        }
        found.len() <= limit as usize
    })?;
    let with_turn = |(stream, turn, session): (i64, i64, Session)| {
        let PastExchange { id, at, prompt, answer, .. } = tables.exchange(turn)?;
        let found = FoundTurn { submission_id: id, at, passage: passage(&query, [&prompt, &answer]) };
        Ok((stream, Session { found: Some(found), ..session }))
    };
    found.into_iter().map(with_turn).collect()
}

/// Whether something was said in a session, or it has a name.
fn is_begun(session: &Session) -> bool {
    session.title.is_some() || session.display_name.is_some() || session.connector == OPENAI
}

fn list_name(args: &ListSessions) -> List {
    let archived = if args.archived { "archived" } else { "open" };
    let empty = args.empty.then_some("empty");
    let scheduled = args.scheduled.then_some("scheduled");
    let scope = args.scope.as_ref();
    let part = |pick: fn(&Scope) -> &str| scope.map(pick);
    List::named(
        "sessions",
        &[
            Some(archived),
            empty,
            scheduled,
            args.q.as_deref(),
            args.text.as_deref(),
            part(|scope| &scope.connector),
            part(|scope| &scope.actor_id),
            part(|scope| &scope.conversation_id),
            scope.and_then(|scope| scope.thread_id.as_deref()),
        ],
    )
}

fn page(mut found: Vec<(i64, Session)>, limit: u32, name: &List) -> SessionPage {
    let page = name.page(&mut found, limit, |(stream, session)| [session.updated_at.millis(), *stream]);
    let sessions = found.into_iter().map(|(_, session)| session).collect();
    SessionPage { sessions, page }
}

impl Write for SessionsCancel {
    fn run(tables: &dyn Tables, args: &CancelSession, change: &mut Change) -> Result<Cancelled, Error> {
        let found = owned(tables, &args.id, &args.scope)?;
        let stopped = queue::stop(tables, found.stream, args.submission_id.as_ref(), change)?;
        Ok(Cancelled { submission_id: stopped })
    }
}

impl Write for SessionsArchive {
    fn run(tables: &dyn Tables, args: &OwnedSession, change: &mut Change) -> Result<Nothing, Error> {
        let found = any(tables, &args.id, args.scope.as_ref())?;
        if !tables.queue(found.stream)?.is_empty() {
            let error = Error::conflict(format!("a turn runs or waits in the session {}", args.id));
            return Err(error.hint("cancel it, or wait for it"));
        }
        if tables.archive_session(found.stream, change.now)? {
            publish(tables, "session.archived", &found, change)?;
        }
        Ok(Nothing {})
    }
}

impl Write for SessionsUpdate {
    fn run(tables: &dyn Tables, args: &UpdateSession, change: &mut Change) -> Result<Session, Error> {
        let mut found = any(tables, &args.id, args.scope.as_ref())?;
        if let Some(name) = &args.display_name {
            set_name(tables, &mut found, &check::name(name, "/display_name")?, change)?;
        }
        if let Some(memory) = args.memory {
            tables.set_session_memory(found.stream, memory)?;
        }
        if let Some(model) = &args.model {
            set_model(tables, &mut found, model)?;
        }
        touch(tables, &found, change)?;
        tables.session_record(found.stream)
    }
}

impl Write for SessionsFork {
    fn run(tables: &dyn Tables, args: &ForkSession, change: &mut Change) -> Result<OpenSession, Error> {
        let source = any(tables, &args.id, args.scope.as_ref())?;
        if let Some(found) = tables.session(args.fork.as_str())? {
            return Ok(found.owned_by(Some(source.scope))?.opened(true));
        }
        if !tables.scope(source.scope)?.is_some_and(|scope| FORKED.contains(&scope.connector.as_str())) {
            let error = Error::conflict(format!("the session {} belongs to another program", args.id));
            return Err(error.hint("only sessions of the terminal, the console and /api/chat can be forked"));
        }
        let before = tables.submission(args.before.as_str())?;
        let is_message = |found: &SubmissionRow| {
            found.stream == source.stream && found.kind == SubmissionKind::Prompt && !found.hidden
        };
        let before = before.filter(is_message).ok_or_else(|| {
            Error::not_found(format!("the session {} has no message {}", args.id, args.before)).at("/before")
        })?;
        let fresh = FreshSession {
            workspace: source.workspace.clone(),
            memory: source.memory,
            model: source.model.clone(),
            ..FreshSession::new(args.fork.clone(), source.origin)
        };
        let fork = insert(tables, source.scope, &fresh, change)?;
        tables.copy_home(source.stream, fork.stream)?;
        let mut mint = Mint::fresh()?;
        let mut ids = || (format!("copy:{}", mint.ulid()), mint.submission());
        tables.copy_exchanges(source.stream, fork.stream, before.key, (MAX_COPIED, MAX_COPIED_BYTES), &mut ids)?;
        if tables.instance(fork.stream)?.is_some_and(|found| found.summary.is_some()) {
            // The summary can tell of turns that were not copied.
            tables.set_outside_of_first(fork.stream, &tables.outside_of_stream(source.stream)?)?;
        }
        // Without an exchange it gets its title from its first message, as every session.
        if let Some(title) = source.title.filter(|_| tables.instance(fork.stream).is_ok_and(|found| found.is_some())) {
            tables.set_session_title(fork.stream, &title)?;
        }
        Ok(fork.opened(true))
    }
}

/// Returns the session with this id: of a scope, or of any.
fn any(tables: &dyn Tables, id: &SessionId, scope: Option<&Scope>) -> Result<SessionRow, Error> {
    match scope {
        Some(scope) => owned(tables, id, scope),
        None => tables.session(id.as_str())?.ok_or_else(|| missing(id)),
    }
}

/// Returns the key of a scope. Stores the scope if it is new.
pub(super) fn scope_key(tables: &dyn Tables, scope: &Scope) -> Result<i64, Error> {
    match tables.scope_key(scope)? {
        Some(found) => Ok(found),
        None => tables.insert_scope(scope),
    }
}

/// Returns the session with this id. Fails with `not_found` if there is none, and with `forbidden` if it belongs to another scope.
pub(super) fn owned(tables: &dyn Tables, id: &SessionId, scope: &Scope) -> Result<SessionRow, Error> {
    let found = tables.session(id.as_str())?;
    found.ok_or_else(|| missing(id))?.owned_by(tables.scope_key(scope)?)
}

/// Finds a session by its id or, if no session has this id, by its exact name. `None` if nothing matches.
pub(super) fn select(tables: &dyn Tables, scope: Option<i64>, selector: &str) -> Result<Option<SessionRow>, Error> {
    if let Some(found) = tables.session(selector)? {
        return Ok(Some(found.owned_by(scope)?));
    }
    let mut named = tables.sessions_named(scope, selector, MAX_CANDIDATES)?;
    if named.len() > 1 {
        let ids: Vec<&str> = named.iter().map(|found| found.id.as_str()).collect();
        let message = format!("more than one session is named {selector:?}: {}", ids.join(", "));
        return Err(Error::conflict(message).hint("use an id"));
    }
    Ok(named.pop())
}

/// Creates a session and its stream. The stream already exists if the instance was used without an actor before.
pub(super) fn insert(
    tables: &dyn Tables,
    scope: i64,
    fresh: &FreshSession,
    change: &mut Change,
) -> Result<SessionRow, Error> {
    let log = logs::of_instance(tables, fresh.id.as_str(), change.now)?;
    let session = SessionRow {
        stream: log.key,
        id: fresh.id.clone(),
        scope,
        origin: fresh.origin,
        title: None,
        name: None,
        archived: false,
        workspace: fresh.workspace.clone(),
        memory: fresh.memory,
        model: fresh.model.clone(),
    };
    tables.insert_session(&session, change.now)?;
    publish(tables, "session.created", &session, change)?;
    Ok(session)
}

/// Reports a change of a session on the system stream.
fn publish(tables: &dyn Tables, kind: &'static str, session: &SessionRow, change: &mut Change) -> Result<(), Error> {
    let scope = tables.scope(session.scope)?;
    let connector = scope.map(|scope| scope.connector);
    change.publish(kind, json!({"sessionId": session.id, "connector": connector}));
    Ok(())
}

/// Sets the time of the session's last use to now. An archived session is taken out of the archive.
pub(super) fn touch(tables: &dyn Tables, session: &SessionRow, change: &mut Change) -> Result<(), Error> {
    tables.touch_session(session.stream, change.now)?;
    if session.archived {
        publish(tables, "session.restored", session, change)?;
    }
    Ok(())
}

/// Corrects when sessions were last used, if that was while the clock was ahead.
pub(super) fn correct_last_use(tables: &dyn Tables, now: Timestamp) -> Result<Left, Error> {
    tables.correct_last_use(now.plus_millis(MAX_AHEAD_MS), now)?;
    Ok(Left::Nothing)
}

pub(super) fn set_name(
    tables: &dyn Tables,
    session: &mut SessionRow,
    name: &str,
    change: &mut Change,
) -> Result<(), Error> {
    tables.set_session_name(session.stream, name)?;
    session.name = Some(name.to_owned());
    publish(tables, "session.renamed", session, change)
}

/// An empty name stands for the configured models.
pub(super) fn set_model(tables: &dyn Tables, session: &mut SessionRow, name: &str) -> Result<(), Error> {
    session.model = Some(name.to_owned()).filter(|name| !name.is_empty());
    tables.set_session_model(session.stream, session.model.as_deref())
}

pub(super) fn missing(id: &SessionId) -> Error {
    Error::not_found(format!("there is no session {id}"))
}

pub(super) fn unknown(selector: &str) -> Error {
    Error::not_found(format!("there is no session with the id or name {selector:?}"))
}
