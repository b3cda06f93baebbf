//! Incoming events: a message or a command from a chat, or a prompt that is sent directly to an instance. One change stores the event, its
//! session and its submission.

use std::borrow::Cow;

use ken_types::fence::Outside;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;
use ken_types::{Code, Error};
use serde_json::{Value, json};

use crate::engine::change::Change;
use crate::ops::outbox::ANSWER;
use crate::ops::queue::{self, Entry};
use crate::ops::{Write, blobs, doors, logs, sessions};
use crate::rules::queue::Queue;
use crate::rules::title::title_of;
use crate::rules::{check, record};
use crate::tables::{LogRow, NewEvent, SessionRow, Tables};

/// The `workflow` of internal prompts, which transcripts and titles leave out.
const PREFLIGHT: &str = "tui.startup-preflight";

/// The origins of a message that a user has forwarded, of one by somebody else that a user has replied to, and of files and images
/// that came with a message.
const FORWARD: &str = "forward";
const QUOTE: &str = "quote";
const ATTACHMENT: &str = "attachment";

/// What an event will do. It is decided before anything is written.
struct Plan {
    session: Destination,
    /// The stream of a known session to which a prompt or a compaction is added.
    log: Option<LogRow>,
    /// The queue to which a prompt or a compaction is added.
    queue: Queue,
}

enum Destination {
    Nowhere,
    Known(SessionRow),
    New(FreshSession),
    /// A new session with the folder of the session with this key.
    Beside(FreshSession, i64),
    /// A new session that begins with what was said elsewhere.
    Seeded(FreshSession, Vec<ImportedExchange>),
}

impl Write for ChatAccept {
    const COMES_FIRST: bool = true;

    fn run(tables: &dyn Tables, args: &Accept, change: &mut Change) -> Result<Accepted, Error> {
        let args = with_whole_id(tables, args)?;
        let (answer, scope) = tables.answer_and_scope(args.event.id.as_str(), &args.event.scope)?;
        if let Some(answer) = answer {
            return record::read(&answer);
        }
        let name = name_of(&args.action)?;
        let scope = scope.map_or_else(|| tables.insert_scope(&args.event.scope), Ok)?;
        let Plan { session, log, queue } = match plan(tables, scope, &args) {
            Ok(plan) => plan,
            Err(error) if is_stored_refusal(error.code) => return refuse(tables, scope, &args.event, error),
            Err(error) => return Err(error),
        };
        let (args, owed) = with_owed(tables, args, &session)?;
        let args = &*args;
        let (mut session, created) = open_session(tables, scope, session, change)?;
        if let (Some(found), Some(name)) = (&mut session, name) {
            sessions::set_name(tables, found, &name, change)?;
        }
        if let (Some(found), Action::Model { name }) = (&mut session, &args.action) {
            sessions::set_model(tables, found, name)?;
        }
        let log = match (log, &session) {
            (None, Some(found)) => Some(tables.log_by_key(found.stream)?),
            (log, _) => log,
        };
        let mut entry = entry_of(args);
        if let Some(entry) = &mut entry {
            entry.outside.extend(outside_of_quoted(tables, args, session.as_ref())?);
        }
        let queued = log.as_ref().zip(entry);
        let accepted = Accepted {
            event_id: args.event.id.clone(),
            received_at: args.event.received_at,
            refused: None,
            session: session.as_ref().map(|found| found.opened(created)),
            offset: log.as_ref().map(LogRow::end),
            submission: queued
                .as_ref()
                .map(|(log, entry)| Admission { submission_id: entry.id.clone(), offset: log.end() }),
            owed,
        };
        insert_event(tables, scope, &args.event, &accepted)?;
        if let (Some((log, entry)), Some(found)) = (queued, &session) {
            queue::enqueue(tables, log, args.event.id.as_str(), &entry, &queue, change)?;
            if found.title.is_none() && entry.kind == SubmissionKind::Prompt && !entry.hidden {
                entitle(tables, found, args, created)?;
            }
        }
        Ok(accepted)
    }
}

/// Completes the id of an event that is counted among equal ones.
fn with_whole_id<'a>(tables: &dyn Tables, args: &'a Accept) -> Result<Cow<'a, Accept>, Error> {
    if !args.counted {
        return Ok(Cow::Borrowed(args));
    }
    let id = doors::counted(tables, &args.event.id)?;
    Ok(Cow::Owned(Accept { event: InboundEvent { id, ..args.event.clone() }, ..args.clone() }))
}

/// Adds to the context of a prompt the turns of which its caller was sent a notice in place of the answer.
fn with_owed<'a>(
    tables: &dyn Tables,
    args: Cow<'a, Accept>,
    session: &Destination,
) -> Result<(Cow<'a, Accept>, Vec<SubmissionId>), Error> {
    let owed = match session {
        Destination::Known(found) if args.event.scope.connector == OPENAI => doors::take_owed(tables, found.stream)?,
        _ => Vec::new(),
    };
    if owed.is_empty() {
        return Ok((args, owed));
    }
    let mut args = args.into_owned();
    let context = args.event.context.get_or_insert_with(|| json!({}));
    if let Value::Object(fields) = context {
        fields.insert(ken_chat::door::OWED.to_owned(), json!(owed));
    }
    Ok((Cow::Owned(args), owed))
}

/// Gives a session its title. One of a caller who sends the whole conversation has none until its second exchange, and is not listed
/// before: many such programs ask for a title in a conversation of its own.
fn entitle(tables: &dyn Tables, session: &SessionRow, args: &Accept, created: bool) -> Result<(), Error> {
    let is_of_door = args.event.scope.connector == OPENAI;
    if is_of_door && created {
        return Ok(());
    }
    let first = if is_of_door { doors::first_prompt(tables, session)? } else { None };
    tables.set_session_title(
        session.stream,
        &title_of(first.as_ref().unwrap_or(&args.event.text), args.event.images.len()),
    )
}

/// Returns whether a refusal with this code is stored as the answer to the event. An invalid argument is not stored, because it is a
/// mistake of the caller. Other errors fail the whole change.
fn is_stored_refusal(code: Code) -> bool {
    matches!(code, Code::Forbidden | Code::NotFound | Code::Conflict | Code::Busy)
}

/// Returns the session of a plan, and whether it is new. It is created if necessary.
fn open_session(
    tables: &dyn Tables,
    scope: i64,
    session: Destination,
    change: &mut Change,
) -> Result<(Option<SessionRow>, bool), Error> {
    Ok(match session {
        Destination::Nowhere => (None, false),
        Destination::Known(found) => {
            sessions::touch(tables, &found, change)?;
            (Some(found), false)
        }
        Destination::New(fresh) => (Some(sessions::insert(tables, scope, &fresh, change)?), true),
        Destination::Beside(fresh, source) => {
            let session = sessions::insert(tables, scope, &fresh, change)?;
            tables.copy_home(source, session.stream)?;
            (Some(session), true)
        }
        Destination::Seeded(fresh, imported) => {
            let session = sessions::insert(tables, scope, &fresh, change)?;
            doors::import(tables, &session, &imported, change)?;
            (Some(session), true)
        }
    })
}

fn name_of(action: &Action) -> Result<Option<String>, Error> {
    match action {
        Action::Name { name } => check::name(name, "/action/name/name").map(Some),
        _ => Ok(None),
    }
}

/// Returns the submission that an accepted message creates; `None` if it creates none.
fn entry_of(args: &Accept) -> Option<Entry> {
    let (id, kind, policy) = match &args.action {
        Action::Prompt { submission_id, policy } => (submission_id, SubmissionKind::Prompt, *policy),
        Action::Compact { submission_id } => (submission_id, SubmissionKind::Compact, Policy::Queue),
        Action::Find | Action::Name { .. } | Action::Model { .. } => return None,
    };
    let context = args.event.context.as_ref();
    let workflow = context.and_then(|context| context.get("workflow"));
    let origins = [("/forwarded", FORWARD), ("/quoted/author", QUOTE), ("/attached", ATTACHMENT)].into_iter();
    let has = |field: &str| context.is_some_and(|context| context.pointer(field).is_some());
    let images = args.event.images.first().map(|_| ATTACHMENT);
    let server = context.and_then(|context| context.get("mcpServer")?.as_str()).map(origin_of_server);
    Some(Entry {
        id: id.clone(),
        kind,
        policy,
        hidden: workflow.and_then(Value::as_str) == Some(PREFLIGHT),
        outside: origins
            .filter_map(|(field, origin)| has(field).then_some(origin))
            .chain(images)
            .map(str::to_owned)
            .chain(server)
            .collect(),
    })
}

fn origin_of_server(name: &str) -> String {
    format!("mcp {name}")
}

/// Returns the origins of a text of ken itself that a message replies to. They are those of the session in which ken has written it;
/// what this session itself has read counts without this. A text that is no answer of a known session may come from anywhere.
fn outside_of_quoted(tables: &dyn Tables, args: &Accept, session: Option<&SessionRow>) -> Result<Outside, Error> {
    let context = args.event.context.as_ref();
    let Some(id) = context.and_then(|context| context.get(ken_chat::QUOTED_ID)?.as_str()) else {
        return Ok(Outside::new());
    };
    let Scope { connector, conversation_id, .. } = &args.event.scope;
    let keys = tables.keys_of_sent(connector, conversation_id, id)?;
    let mut outside = Outside::new();
    if keys.is_empty() {
        outside.insert(QUOTE.to_owned());
    }
    for key in keys {
        let stream = match key.strip_suffix(ANSWER) {
            Some(event) => tables.stream_of_event(event)?,
            None => None,
        };
        match stream {
            Some(stream) if session.is_some_and(|session| session.stream == stream) => {}
            Some(stream) => outside.extend(tables.outside_of_stream(stream)?),
            None => drop(outside.insert(QUOTE.to_owned())),
        }
    }
    Ok(outside)
}

fn plan(tables: &dyn Tables, scope: i64, args: &Accept) -> Result<Plan, Error> {
    let session = find(tables, scope, &args.target)?;
    let (log, queue) = match (&session, &entry_of(args)) {
        (Destination::Known(found), Some(entry)) => {
            let (log, queue) = queue::queue_if_not_full(tables, found.stream, entry.policy)?;
            (Some(log), queue)
        }
        (Destination::Nowhere, Some(_)) => return Err(Error::invalid("/target", "a prompt needs a session")),
        (Destination::New(_) | Destination::Beside(..) | Destination::Seeded(..), _) | (_, None) => {
            (None, Queue::default())
        }
    };
    Ok(Plan { session, log, queue })
}

fn find(tables: &dyn Tables, scope: i64, target: &Target) -> Result<Destination, Error> {
    let known = |found: Option<SessionRow>| found.map(Destination::Known);
    Ok(match target {
        Target::None => Destination::Nowhere,
        Target::Fresh(fresh) => Destination::New(fresh.clone()),
        Target::Beside(fresh, selector) => match sessions::select(tables, Some(scope), selector).ok().flatten() {
            Some(SessionRow { stream, workspace: Some(folder), .. }) => {
                Destination::Beside(FreshSession { workspace: Some(folder), ..fresh.clone() }, stream)
            }
            _ => Destination::New(FreshSession { workspace: None, ..fresh.clone() }),
        },
        Target::Selector(selector) => {
            let found = sessions::select(tables, Some(scope), selector)?;
            known(found).ok_or_else(|| sessions::unknown(selector))?
        }
        Target::SelectorOrNew(fresh) => {
            let found = sessions::select(tables, Some(scope), fresh.id.as_str())?;
            known(found).unwrap_or_else(|| Destination::New(fresh.clone()))
        }
        Target::Continued(given) => match doors::session(tables, scope, given)? {
            Some(found) => Destination::Known(found),
            None => Destination::Seeded(given.fresh.clone(), doors::history(tables, scope, given)?),
        },
        Target::Active(fresh) => {
            known(tables.newest_session(scope)?).unwrap_or_else(|| Destination::New(fresh.clone()))
        }
    })
}

/// Stores the event, with the reason of the refusal as its answer.
fn refuse(tables: &dyn Tables, scope: i64, event: &InboundEvent, error: Error) -> Result<Accepted, Error> {
    let accepted = Accepted {
        event_id: event.id.clone(),
        received_at: event.received_at,
        refused: Some(error),
        session: None,
        offset: None,
        submission: None,
        owed: Vec::new(),
    };
    insert_event(tables, scope, event, &accepted)?;
    Ok(accepted)
}

/// Stores an event. Of a refused one, only the answer is stored: it belongs to no session, so its text would stay when one is deleted.
fn insert_event(tables: &dyn Tables, scope: i64, event: &InboundEvent, answer: &Accepted) -> Result<(), Error> {
    let (id, scope, at, answer_text) = (event.id.as_str(), Some(scope), event.received_at, record::write(answer)?);
    let bare = NewEvent { answer: &answer_text, ..NewEvent::internal(id, scope, &event.kind, "", at) };
    tables.insert_event(&match answer.refused {
        Some(_) => bare,
        None => NewEvent {
            text: &event.text,
            context: event.context.as_ref(),
            raw: event.raw.as_deref(),
            images: &event.images,
            ..bare
        },
    })
}

/// Adds a prompt to the queue of an instance. Its event has the id of the submission.
impl Write for SubmissionsAdmit {
    const COMES_FIRST: bool = true;

    fn check(args: &Admit) -> Result<(), Error> {
        check::instance(&args.instance)
    }

    fn run(tables: &dyn Tables, args: &Admit, change: &mut Change) -> Result<Admitted, Error> {
        if let Some(answer) = tables.event_answer(args.submission_id.as_str())? {
            return record::read(&answer);
        }
        let session = tables.session(&args.instance)?;
        let scope = session.as_ref().map(|found| found.scope);
        let log = logs::of_instance(tables, &args.instance, change.now)?;
        let queue = match queue::queue_if_not_full(tables, log.key, args.policy) {
            Ok((_, queue)) => queue,
            Err(refused) if is_stored_refusal(refused.code) => {
                // The refusal is stored, so that a repeat of the same prompt over another connection gets the same answer, even if there is
                // room by then.
                let admitted = Admitted::Refused { refused };
                insert_prompt(tables, scope, args, &admitted, change)?;
                return Ok(admitted);
            }
            Err(error) => return Err(error),
        };
        let entry = Entry {
            id: args.submission_id.clone(),
            kind: SubmissionKind::Prompt,
            policy: args.policy,
            hidden: false,
            outside: args
                .images
                .first()
                .map(|_| ATTACHMENT.to_owned())
                .into_iter()
                .chain(args.mcp_server.as_deref().map(origin_of_server))
                .collect(),
        };
        let admitted = Admitted::Accepted(Admission { submission_id: entry.id.clone(), offset: log.end() });
        insert_prompt(tables, scope, args, &admitted, change)?;
        let event = args.submission_id.as_str();
        blobs::refer(tables, &args.blobs, event)?;
        queue::enqueue(tables, &log, event, &entry, &queue, change)?;
        if let Some(found) = session {
            sessions::touch(tables, &found, change)?;
            if found.title.is_none() {
                tables.set_session_title(found.stream, &title_of(&args.message, args.images.len()))?;
            }
        }
        Ok(admitted)
    }
}

/// Stores the event of a prompt. For a refused prompt, only the answer is stored.
fn insert_prompt(
    tables: &dyn Tables,
    scope: Option<i64>,
    args: &Admit,
    admitted: &Admitted,
    change: &Change,
) -> Result<(), Error> {
    let (text, images) = match admitted {
        Admitted::Accepted(_) => (args.message.as_str(), args.images.as_slice()),
        Admitted::Refused { .. } => ("", [].as_slice()),
    };
    let context = args.model.as_ref().map(|model| json!({"model": model}));
    tables.insert_event(&NewEvent {
        id: args.submission_id.as_str(),
        scope,
        kind: "agent.prompt",
        text,
        received_at: change.now,
        context: context.as_ref(),
        raw: None,
        images,
        answer: &record::write(admitted)?,
    })
}
