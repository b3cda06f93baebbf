//! What comes in: a message or command of a chat, or a prompt straight to an instance. Each is one change: its event,
//! its session and its submission.

use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::store::*;
use rusqlite::{Connection, params};
use serde_json::Value;

use super::fault::Done;
use super::sessions::{self, Found};
use super::submissions::{self, Entry, Room};
use super::{first, run, scopes, streams};
use crate::backend::Change;
use crate::check;
use crate::title::title;

/// The workflow of internal prompts.
const PREFLIGHT: &str = "tui.startup-preflight";

/// What is done with an event, decided before anything is written.
struct Plan {
    session: Where,
    /// Of a prompt or a compaction.
    room: Option<Room>,
}

enum Where {
    Nowhere,
    There(Found),
    New(FreshSession),
}

pub(super) fn accept(connection: &Connection, args: &Accept, change: &mut Change) -> Done<Accepted> {
    if let Some(answer) = answered(connection, args.event.id.as_str())? {
        return Ok(serde_json::from_str(&answer)?);
    }
    let name = name_of(&args.action)?;
    let scope = scopes::ensure(connection, &args.event.scope)?;
    let plan = match sessions::refusal(plan(connection, scope, args))? {
        Ok(plan) => plan,
        Err(error) => return refuse(connection, scope, &args.event, error),
    };
    let (mut session, created) = open_session(connection, scope, plan.session, change)?;
    if let (Some(found), Some(name)) = (&mut session, name) {
        sessions::set_name(connection, found, &name, change)?;
    }
    let stream = session
        .as_ref()
        .map(|found| streams::by_id(connection, found.stream))
        .transpose()?;
    let queued = stream.as_ref().zip(entry_of(args));
    let accepted = Accepted {
        event_id: args.event.id.clone(),
        received_at: args.event.received_at,
        refused: None,
        session: session.as_ref().map(|found| found.opened(created)),
        offset: stream.as_ref().map(streams::Stream::end),
        submission: queued.as_ref().map(|(stream, entry)| Admission {
            submission_id: entry.id.clone(),
            offset: stream.end(),
        }),
    };
    let event = store_event(connection, scope, &args.event, &accepted)?;
    if let (Some((stream, entry)), Some(found)) = (queued, &session) {
        submissions::admit(
            connection,
            stream,
            event,
            &entry,
            &plan.room.unwrap_or_default(),
            change,
        )?;
        if found.title.is_none() && entry.kind == SubmissionKind::Prompt && !entry.hidden {
            sessions::set_title(connection, found.stream, &title(&args.event.text))?;
        }
    }
    Ok(accepted)
}

/// The session that was decided on, and whether it is new.
fn open_session(
    connection: &Connection,
    scope: i64,
    session: Where,
    change: &mut Change,
) -> Done<(Option<Found>, bool)> {
    Ok(match session {
        Where::Nowhere => (None, false),
        Where::There(found) => {
            sessions::touch(connection, &found, change)?;
            (Some(found), false)
        }
        Where::New(fresh) => (Some(sessions::insert(connection, scope, &fresh, change)?), true),
    })
}

fn name_of(action: &Action) -> Result<Option<String>, Error> {
    match action {
        Action::Name { name } => check::name(name, "/action/name/name").map(Some),
        _ => Ok(None),
    }
}

/// The submission that an accepted message makes.
fn entry_of(args: &Accept) -> Option<Entry> {
    let (id, kind, policy) = match &args.action {
        Action::Prompt {
            submission_id,
            policy,
        } => (submission_id, SubmissionKind::Prompt, *policy),
        Action::Compact { submission_id } => (submission_id, SubmissionKind::Compact, Policy::Queue),
        Action::Find | Action::Name { .. } => return None,
    };
    let workflow = args
        .event
        .context
        .as_ref()
        .and_then(|context| context.get("workflow"));
    Some(Entry {
        id: id.clone(),
        kind,
        policy,
        hidden: workflow.and_then(Value::as_str) == Some(PREFLIGHT),
    })
}

fn plan(connection: &Connection, scope: i64, args: &Accept) -> Done<Plan> {
    let session = find(connection, scope, &args.target)?;
    let entry = entry_of(args);
    let room = match (&session, &entry) {
        (Where::There(found), Some(entry)) => {
            Some(submissions::room(connection, found.stream, entry.policy)?)
        }
        (Where::New(_), Some(_)) => Some(Room::default()),
        (Where::Nowhere, Some(_)) => {
            return Err(Error::invalid("/target", "a prompt needs a session").into());
        }
        (_, None) => None,
    };
    Ok(Plan { session, room })
}

fn find(connection: &Connection, scope: i64, target: &Target) -> Done<Where> {
    let there = |found: Option<Found>| found.map(Where::There);
    Ok(match target {
        Target::None => Where::Nowhere,
        Target::Fresh(fresh) => Where::New(fresh.clone()),
        Target::Selector(selector) => there(sessions::select(connection, Some(scope), selector)?)
            .ok_or_else(|| sessions::unknown(selector))?,
        Target::SelectorOrNew(fresh) => {
            let found = sessions::select(connection, Some(scope), fresh.id.as_str())?;
            there(found).unwrap_or_else(|| Where::New(fresh.clone()))
        }
        Target::Active(fresh) => {
            there(sessions::active(connection, scope)?).unwrap_or_else(|| Where::New(fresh.clone()))
        }
    })
}

/// Keeps the event and why nothing was done.
fn refuse(connection: &Connection, scope: i64, event: &InboundEvent, error: Error) -> Done<Accepted> {
    if error.code == ken_types::Code::Invalid {
        return Err(error.into());
    }
    let accepted = Accepted {
        event_id: event.id.clone(),
        received_at: event.received_at,
        refused: Some(error),
        session: None,
        offset: None,
        submission: None,
    };
    store_event(connection, scope, event, &accepted)?;
    Ok(accepted)
}

/// What was answered to an event.
pub(super) fn answered(connection: &Connection, id: &str) -> Done<Option<String>> {
    Ok(first(
        connection,
        "SELECT answer FROM events WHERE id = ?1",
        [id],
        |row| row.get(0),
    )?)
}

fn store_event(
    connection: &Connection,
    scope: i64,
    event: &InboundEvent,
    answer: &impl serde::Serialize,
) -> Done<i64> {
    let context = event.context.as_ref().map(serde_json::to_string).transpose()?;
    let raw = event.raw.as_deref();
    let sql = "INSERT INTO events (id, scope, kind, text, received_at, context, raw, answer)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values = params![
        event.id.as_str(),
        scope,
        event.kind,
        event.text,
        event.received_at.millis(),
        context,
        raw,
        serde_json::to_string(answer)?,
    ];
    run(connection, sql, values)?;
    Ok(connection.last_insert_rowid())
}

/// A prompt to an instance. Its event has the submission's id.
pub(super) fn admit(connection: &Connection, args: &Admit, change: &mut Change) -> Done<Admission> {
    if let Some(answer) = answered(connection, args.submission_id.as_str())? {
        return Ok(serde_json::from_str(&answer)?);
    }
    check::instance(&args.instance)?;
    let session = sessions::by_id(connection, &args.instance)?;
    let stream = streams::of_instance(connection, &args.instance, change.now)?;
    let room = submissions::room(connection, stream.id, args.policy)?;
    let entry = Entry {
        id: args.submission_id.clone(),
        kind: SubmissionKind::Prompt,
        policy: args.policy,
        hidden: false,
    };
    let admission = Admission {
        submission_id: entry.id.clone(),
        offset: stream.end(),
    };
    let scope = session.as_ref().map(|found| found.scope);
    let event = store_prompt(connection, scope, args, &admission, change)?;
    submissions::admit(connection, &stream, event, &entry, &room, change)?;
    if let Some(found) = session {
        sessions::touch(connection, &found, change)?;
        if found.title.is_none() {
            sessions::set_title(connection, found.stream, &title(&args.message))?;
        }
    }
    Ok(admission)
}

fn store_prompt(
    connection: &Connection,
    scope: Option<i64>,
    args: &Admit,
    admission: &Admission,
    change: &Change,
) -> Done<i64> {
    let SubmissionId(id) = &args.submission_id;
    let sql = "INSERT INTO events (id, scope, kind, text, received_at, images, answer)
               VALUES (?1, ?2, 'agent.prompt', ?3, ?4, ?5, ?6)";
    let images = Some(&args.images).filter(|images| !images.is_empty());
    let images = images.map(serde_json::to_string).transpose()?;
    let answer = serde_json::to_string(admission)?;
    run(
        connection,
        sql,
        params![id, scope, args.message, change.now.millis(), images, answer],
    )?;
    Ok(connection.last_insert_rowid())
}
