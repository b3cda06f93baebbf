//! The messaging connector: its updates, each of which is processed once, and the policy that says who can write to the agent. The policy is
//! applied in the transaction that accepts an update.

use ken_types::ops::Nothing;
use ken_types::ops::messenger::*;
use ken_types::ops::outbox::PutMessage;
use ken_types::ops::store::{Accept, Accepted, ChatAccept, State};
use ken_types::{Error, Timestamp};
use serde_json::json;

use crate::engine::change::Change;
use crate::ops::{Read, Write, outbox};
use crate::rules::admission::{Rejection, Standing, admit};
use crate::rules::check;
use crate::tables::{NewUpdate, PairingRow, Tables};

const CONNECTOR: &str = "messenger";
/// The maximum length of the id of a user, chat or group, in characters.
const ID_CHARACTERS: usize = 64;
const ALLOW_FROM: usize = 1_000;
/// How long an update is stored, in milliseconds. The platform can repeat an update for a day.
const RETENTION_MS: i64 = 30 * 24 * 3_600_000;
/// The maximum number of updates that one slice of background work deletes.
const SLICE: usize = 1_000;
/// The limits of pairing codes: how long a code is valid (in milliseconds), how many can be pending in a chat, how many times one code is
/// sent to its requester, and how many are created in an hour.
const CODE_MS: i64 = 3_600_000;
const CODES_OF_CHAT: usize = 3;
const REPLIES: u32 = 3;
const CODES_AN_HOUR: u64 = 20;
const HOUR_MS: i64 = 3_600_000;

fn name(what: &str) -> String {
    format!("{CONNECTOR}.{what}")
}

fn dm_policy(tables: &dyn Tables) -> Result<DmPolicy, Error> {
    let Some(stored) = tables.stored_value(&name("dm_policy"))? else {
        return Ok(DmPolicy::default());
    };
    let unknown = || Error::internal(format!("table facts, column value: {stored:?} is not known as a policy"));
    DmPolicy::named(&stored).ok_or_else(unknown)
}

/// Returns the policy for a sender and the chat of a message.
fn standing(tables: &dyn Tables, sender: &str, chat: &str, message: &IncomingMessage) -> Result<Standing, Error> {
    Ok(Standing {
        dm_policy: dm_policy(tables)?,
        is_allowed: message.is_configured || tables.allowed_user(sender)?.is_some(),
        group: match message.chat_kind {
            ChatKind::Group => tables.group(chat)?,
            ChatKind::Direct | ChatKind::Unsupported => None,
        },
    })
}

#[derive(Debug, Clone, Copy)]
enum UpdateDecision<'a> {
    /// The update is a message whose sender may write in its chat.
    Admitted(&'a Accept),
    /// The update is a press of a button.
    Pressed,
    /// ken does not handle the update, for this reason.
    Ignored(&'a str),
    /// The update is a message whose sender may not write in its chat.
    Rejected(Rejection),
}

impl<'a> UpdateDecision<'a> {
    fn of(tables: &dyn Tables, args: &'a AcceptUpdate) -> Result<UpdateDecision<'a>, Error> {
        let message = match &args.content {
            UpdateContent::Message(message) => message,
            UpdateContent::Pressed => return Ok(UpdateDecision::Pressed),
            UpdateContent::Ignored(why) => return Ok(UpdateDecision::Ignored(why)),
        };
        // A missing id is treated as an empty one, which no stored user or group has.
        let sender = args.sender_id.as_deref().unwrap_or_default();
        let chat = args.chat_id.as_deref().unwrap_or_default();
        let admitted = admit(sender, message, &standing(tables, sender, chat, message)?);
        Ok(match (admitted, &message.if_admitted) {
            (Ok(()), IfAdmitted::Accept(accept)) => UpdateDecision::Admitted(accept),
            (Ok(()), IfAdmitted::Ignore(why)) => UpdateDecision::Ignored(why),
            (Err(rejection), _) => UpdateDecision::Rejected(rejection),
        })
    }

    fn name(self) -> &'static str {
        match self {
            UpdateDecision::Admitted(_) => "admitted",
            UpdateDecision::Pressed => "pressed",
            UpdateDecision::Ignored(_) => "ignored",
            UpdateDecision::Rejected(_) => "rejected",
        }
    }

    fn reason(self) -> Option<&'a str> {
        match self {
            UpdateDecision::Admitted(_) | UpdateDecision::Pressed => None,
            UpdateDecision::Ignored(why) => Some(why),
            UpdateDecision::Rejected(rejection) => Some(rejection.name()),
        }
    }
}

impl Write for MessengerAccept {
    const COMES_FIRST: bool = true;

    fn check(args: &AcceptUpdate) -> Result<(), Error> {
        match i64::try_from(args.update_id) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid("/update_id", "an update_id is below 2^63")),
        }
    }

    fn run(tables: &dyn Tables, args: &AcceptUpdate, change: &mut Change) -> Result<UpdateAnswer, Error> {
        let decision = UpdateDecision::of(tables, args)?;
        let rejected = matches!(decision, UpdateDecision::Rejected(_));
        let known = tables.update(args.update_id.cast_signed())?;
        let accepted = match decision {
            UpdateDecision::Admitted(accept) => accept_once(tables, accept, known.is_some(), change)?,
            _ => None,
        };
        if let Some(code) = known {
            tables.count_up(&name("duplicates"))?;
            let pairing = code.map(|code| tables.pairing(&code)).transpose()?.flatten();
            let pairing = pairing.map(|row| row.pairing);
            return Ok(UpdateAnswer { duplicate: true, rejected, accepted, pairing });
        }
        let pairing = match decision {
            UpdateDecision::Rejected(Rejection::DmPairingRequired) => offer_code(tables, args, change)?,
            _ => None,
        };
        tables.insert_update(
            &NewUpdate {
                id: args.update_id.cast_signed(),
                kind: &args.kind,
                sender: args.sender_id.as_deref(),
                chat: args.chat_id.as_deref(),
                verdict: decision.name(),
                reason: decision.reason(),
                code: pairing.as_ref().map(|pairing| pairing.code.as_str()),
            },
            change.now,
        )?;
        tables.count_up(&name("updates"))?;
        match decision {
            UpdateDecision::Rejected(rejection) => tables.count_up(&name(&format!("rejected.{}", rejection.name())))?,
            UpdateDecision::Ignored(_) => tables.count_up(&name("ignored"))?,
            UpdateDecision::Admitted(_) | UpdateDecision::Pressed => {}
        }
        tables.set_stored_value(&name("last_update_at"), &change.now.millis().to_string())?;
        Ok(UpdateAnswer { duplicate: false, rejected, accepted, pairing })
    }
}

/// Accepts the event of an admitted update. If the update was processed before and not admitted, it is not admitted now either, even if the
/// policy has changed.
fn accept_once(
    tables: &dyn Tables,
    accept: &Accept,
    is_known: bool,
    change: &mut Change,
) -> Result<Option<Accepted>, Error> {
    if is_known && tables.event_answer(accept.event.id.as_str())?.is_none() {
        return Ok(None);
    }
    <ChatAccept as Write>::run(tables, accept, change).map(Some)
}

/// Returns a pairing code for a sender who is allowed to request admission: the pending code if there is one, or else a new one. `None` if
/// the sender is unknown or a limit is reached.
fn offer_code(tables: &dyn Tables, args: &AcceptUpdate, change: &mut Change) -> Result<Option<Pairing>, Error> {
    let UpdateContent::Message(message) = &args.content else {
        return Ok(None);
    };
    let (Some(code), Some(sender), Some(chat)) = (&message.code, &args.sender_id, &args.chat_id) else {
        return Ok(None);
    };
    let pending = tables.pending_pairings(change.now)?;
    if let Some(mut known) = pending.iter().find(|one| one.sender_id == *sender).cloned() {
        if known.replies >= REPLIES {
            return Ok(None);
        }
        known.replies += 1;
        tables.count_pairing_reply(&known.code)?;
        return Ok(Some(known));
    }
    let of_chat = pending.iter().filter(|one| one.chat_id == *chat).count();
    let lately = tables.pairings_since(change.now.plus_millis(-HOUR_MS))?;
    if of_chat >= CODES_OF_CHAT || lately >= CODES_AN_HOUR || tables.pairing(code)?.is_some() {
        return Ok(None);
    }
    let pairing = Pairing {
        code: code.clone(),
        sender_id: sender.clone(),
        chat_id: chat.clone(),
        created_at: change.now,
        expires_at: change.now.plus_millis(CODE_MS),
        replies: 1,
    };
    tables.insert_pairing(&pairing)?;
    publish("connector.pairing", "pending", json!({"userId": sender}), change);
    Ok(Some(pairing))
}

fn publish(kind: &'static str, status: &str, mut fields: serde_json::Value, change: &mut Change) {
    if let Some(fields) = fields.as_object_mut() {
        fields.insert("connector".into(), CONNECTOR.into());
        fields.insert("status".into(), status.into());
    }
    change.publish(kind, fields);
}

impl Read for MessengerUpdates {
    fn check(args: &ListUpdates) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &ListUpdates) -> Result<UpdateList, Error> {
        let updates = tables.updates(args.unanswered, args.limit)?;
        Ok(UpdateList { updates })
    }
}

impl Read for MessengerBusy {
    fn run(tables: &dyn Tables, _: &Nothing) -> Result<BusyChats, Error> {
        Ok(BusyChats {
            chats: tables.busy_chats(State::Running)?,
            waiting: tables.busy_chats(State::Queued)?.len() as u64,
        })
    }
}

impl Write for MessengerFault {
    fn run(tables: &dyn Tables, args: &Fault, _: &mut Change) -> Result<Nothing, Error> {
        outbox::note_error(tables, CONNECTOR, args.message.as_deref())?;
        Ok(Nothing {})
    }
}

impl Read for MessengerStatus {
    fn run(tables: &dyn Tables, _: &Nothing) -> Result<MessengerState, Error> {
        Ok(MessengerState {
            dm_policy: dm_policy(tables)?,
            allowed_users: tables.allowed_users()?,
            pending_pairings: tables.pending_pairings(Timestamp::default())?,
            groups: tables.groups()?,
            counts: counts(tables)?,
            outbox: outbox::counts(tables, CONNECTOR)?,
        })
    }
}

fn counts(tables: &dyn Tables) -> Result<MessengerCounts, Error> {
    let mut counts = MessengerCounts::default();
    for (counter, value) in tables.counters(&name(""))? {
        match counter.as_str() {
            "updates" => counts.updates = value,
            "duplicates" => counts.duplicates = value,
            "ignored" => counts.ignored = value,
            "errors" => counts.errors = value,
            other => {
                if let Some(reason) = other.strip_prefix("rejected.") {
                    counts.rejected.insert(reason.to_owned(), value);
                }
            }
        }
    }
    let at = tables.stored_value(&name("last_update_at"))?;
    counts.last_update_at = at.and_then(|at| at.parse().ok()).map(Timestamp::from_millis);
    counts.last_error = tables.stored_value(&name("last_error"))?;
    Ok(counts)
}

fn check_id(at: &str, id: &str) -> Result<(), Error> {
    if (1..=ID_CHARACTERS).contains(&id.chars().count()) && !id.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("an id has 1 to {ID_CHARACTERS} characters, without control characters");
    Err(Error::invalid(at, message))
}

impl Write for MessengerAllow {
    fn check(args: &Allow) -> Result<(), Error> {
        check_id("/userId", &args.user_id)?;
        check_id("/chatId", &args.chat_id)
    }

    fn run(tables: &dyn Tables, args: &Allow, change: &mut Change) -> Result<Nothing, Error> {
        allow(tables, &args.user_id, &args.chat_id, change)?;
        Ok(Nothing {})
    }
}

fn allow(tables: &dyn Tables, user: &str, chat: &str, change: &mut Change) -> Result<(), Error> {
    tables.put_allowed_user(user, chat, change.now)?;
    publish("connector.user", "allowed", json!({"userId": user}), change);
    Ok(())
}

impl Write for MessengerRemove {
    fn check(args: &RemoveUser) -> Result<(), Error> {
        check_id("/userId", &args.user_id)
    }

    fn run(tables: &dyn Tables, args: &RemoveUser, change: &mut Change) -> Result<Nothing, Error> {
        let Some(known) = tables.allowed_user(&args.user_id)? else {
            return Ok(Nothing {});
        };
        tables.delete_allowed_user(&args.user_id)?;
        // The key contains when the user was added, so there is one notice for each time that the user is removed.
        let key = format!("removed:{}:{}", known.user_id, known.added_at.millis());
        notify(tables, &known.chat_id, args.notice.as_deref(), key, change)?;
        publish("connector.user", "removed", json!({"userId": args.user_id}), change);
        Ok(Nothing {})
    }
}

fn notify(
    tables: &dyn Tables,
    chat: &str,
    notice: Option<&str>,
    key: String,
    change: &mut Change,
) -> Result<(), Error> {
    let Some(text) = notice else {
        return Ok(());
    };
    let message = PutMessage {
        connector: CONNECTOR.into(),
        chat_id: chat.to_owned(),
        text: text.to_owned(),
        key,
        ..PutMessage::default()
    };
    outbox::put(tables, &message, change).map(drop)
}

impl Write for MessengerSetPolicy {
    fn run(tables: &dyn Tables, args: &SetPolicy, change: &mut Change) -> Result<Nothing, Error> {
        tables.set_stored_value(&name("dm_policy"), args.dm_policy.name())?;
        publish("connector.policy", args.dm_policy.name(), json!({}), change);
        Ok(Nothing {})
    }
}

impl Write for MessengerPutGroup {
    fn check(args: &Group) -> Result<(), Error> {
        check_id("/groupId", &args.group_id)?;
        if args.allow_from.len() > ALLOW_FROM {
            let message = format!("at most {ALLOW_FROM} users are allowed");
            return Err(Error::invalid("/allowFrom", message));
        }
        let mut users = args.allow_from.iter().enumerate();
        users.try_for_each(|(number, user)| check_id(&format!("/allowFrom/{number}"), user))
    }

    fn run(tables: &dyn Tables, args: &Group, change: &mut Change) -> Result<Nothing, Error> {
        tables.put_group(args)?;
        publish("connector.group", "configured", json!({"groupId": args.group_id}), change);
        Ok(Nothing {})
    }
}

impl Write for MessengerRemoveGroup {
    fn run(tables: &dyn Tables, args: &OfGroup, change: &mut Change) -> Result<Nothing, Error> {
        if !tables.delete_group(&args.group_id)? {
            return Err(Error::not_found(format!("there is no group {}", args.group_id)));
        }
        publish("connector.group", "removed", json!({"groupId": args.group_id}), change);
        Ok(Nothing {})
    }
}

/// Returns a pending code; `None` if it is unknown or has expired. Fails with `conflict` if it has been decided.
fn pending(tables: &dyn Tables, code: &str, now: Timestamp) -> Result<Option<Pairing>, Error> {
    match tables.pairing(&code.trim().to_ascii_uppercase())? {
        Some(PairingRow { state, .. }) if state != "pending" => {
            Err(Error::conflict(format!("the code was {state} already")))
        }
        Some(PairingRow { pairing, .. }) if pairing.expires_at > now => Ok(Some(pairing)),
        _ => Ok(None),
    }
}

impl Write for MessengerPair {
    fn run(tables: &dyn Tables, args: &OfCode, change: &mut Change) -> Result<Paired, Error> {
        let Some(found) = pending(tables, &args.code, change.now)? else {
            return Err(Error::not_found("the code is unknown or has expired").at("/code"));
        };
        tables.set_pairing_state(&found.code, "approved")?;
        allow(tables, &found.sender_id, &found.chat_id, change)?;
        let key = format!("paired:{}", found.code);
        notify(tables, &found.chat_id, args.notice.as_deref(), key, change)?;
        publish("connector.pairing", "approved", json!({"userId": found.sender_id}), change);
        Ok(Paired { user_id: found.sender_id, chat_id: found.chat_id })
    }
}

impl Write for MessengerDeny {
    fn run(tables: &dyn Tables, args: &OfCode, change: &mut Change) -> Result<Denied, Error> {
        let Some(found) = pending(tables, &args.code, change.now)? else {
            return Ok(Denied { denied: false });
        };
        tables.set_pairing_state(&found.code, "denied")?;
        publish("connector.pairing", "denied", json!({"userId": found.sender_id}), change);
        Ok(Denied { denied: true })
    }
}

/// Deletes some of the updates that are old enough. Returns true if there may be more.
pub(super) fn prune(tables: &dyn Tables, now: Timestamp) -> Result<bool, Error> {
    Ok(tables.prune_updates(now.plus_millis(-RETENTION_MS), SLICE)? == SLICE)
}
