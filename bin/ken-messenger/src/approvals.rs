//! Approval requests of turns that came in here. Each is shown in its chat with two buttons, decided by whoever may decide,
//! and edited to show the decision, wherever it was made.
//!
//! A button carries the request's id, the decision, and a tag: the beginning of an HMAC under the webhook secret. So a forged
//! button is recognised without stored state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ken_approval::Request;
use ken_service::Stop;
use ken_types::ops::Nothing;
use ken_types::ops::approvals::{
    Approval, ApprovalsDecide, ApprovalsGet, ApprovalsPending, DecideApproval, DecidedAs, GetApproval, GrantScope,
    ListApprovals, Status,
};
use ken_types::ops::messenger::{DmPolicy, Group, MessengerState, MessengerStatus};
use ken_types::ops::outbox::{ListMessages, OutboxList, PutMessage};
use ken_types::{Code, Error, hex};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::api::{Api, CALL_TIMEOUT};
use crate::app::{ATTEMPT_TIMEOUT, App, CHANGE_TIMEOUT, NAME, READ_TIMEOUT, RETRY_PAUSE};
use crate::request::Shown;
use crate::update::Press;

/// How many notices about pressed buttons are on their way at a time.
const NOTICES: usize = 16;
/// How long one call waits for a change of the list.
const WAIT: Duration = Duration::from_secs(60);
/// The bytes of a button's tag; twice as many digits, since what a button sends has at most 64 bytes.
const TAG_BYTES: usize = 12;
/// How many of the newest messages are searched for requests that an earlier process has shown.
const MAX_SEARCHED: u32 = 100;

/// Follows the pending requests until it is told to stop.
pub(crate) async fn run(app: Arc<App>, mut stop: Stop) {
    tokio::select! {
        () = stop.stopped() => {}
        () = follow(&app) => {}
    }
}

async fn follow(app: &App) {
    let mut shown = requests_shown_earlier(app).await;
    let mut unless = None;
    loop {
        let args = ListApprovals {
            connector: Some(NAME.to_owned()),
            // With the first list, requests that an earlier process has shown may be decided already.
            wait_ms: unless.as_ref().map_or(0, |_: &String| WAIT.as_millis() as u64),
            unless: unless.clone(),
            ..ListApprovals::default()
        };
        let step = match app.store.call::<ApprovalsPending>(&args, WAIT + READ_TIMEOUT).await {
            Ok(list) => {
                unless = Some(list.tag);
                step(app, &mut shown, &list.approvals).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = step {
            tracing::debug!("approvals cannot be followed: {error}");
            unless = None;
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// Shows new requests, and edits those that are decided or expired.
async fn step(app: &App, shown: &mut BTreeSet<String>, pending: &[Approval]) -> Result<(), Error> {
    let mut new = Vec::new();
    let is_new = |approval: &Approval| !shown.contains(&approval.request_id);
    for approval in pending.iter().filter(|approval| is_new(approval)) {
        // The list leaves out the actions of the later requests if they are long.
        let whole = get(app, &approval.request_id).await?;
        if let Some(message) = request(app, &whole) {
            app.put(&message).await?;
        }
        new.push(approval.request_id.clone());
    }
    shown.extend(new);
    let is_pending = |id: &String| pending.iter().any(|approval| approval.request_id == *id);
    let no_longer_pending: Vec<String> = shown.iter().filter(|id| !is_pending(id)).cloned().collect();
    for id in no_longer_pending {
        let approval = match get(app, &id).await {
            // It was deleted with its session, and with the messages about it.
            Err(error) if error.code == Code::NotFound => {
                shown.remove(&id);
                continue;
            }
            approval => approval?,
        };
        if approval.status != Status::Pending {
            if let Some(message) = outcome(&approval) {
                app.put(&message).await?;
            }
            shown.remove(&id);
            app.typing.notify_one();
        }
    }
    Ok(())
}

/// Returns the requests that an earlier process has shown, and whose outcome it has not shown.
async fn requests_shown_earlier(app: &App) -> BTreeSet<String> {
    let args = ListMessages { connector: NAME.to_owned(), limit: MAX_SEARCHED };
    loop {
        match app.store.call::<OutboxList>(&args, READ_TIMEOUT).await {
            Ok(list) => {
                let keys: BTreeSet<String> = list.messages.into_iter().map(|message| message.key).collect();
                let is_open = |id: &&str| !keys.contains(&format!("approval:{id}:end"));
                let ids = keys.iter().filter_map(|key| key.strip_prefix("approval:"));
                return ids.filter(|id| !id.contains(':')).filter(is_open).map(str::to_owned).collect();
            }
            Err(_) => sleep(RETRY_PAUSE).await,
        }
    }
}

async fn get(app: &App, id: &str) -> Result<Approval, Error> {
    let args = GetApproval { id: id.to_owned(), wait_ms: 0 };
    app.store.call::<ApprovalsGet>(&args, READ_TIMEOUT).await
}

fn message(approval: &Approval, key: String, text: String) -> PutMessage {
    PutMessage {
        connector: NAME.to_owned(),
        chat_id: approval.conversation_id.clone(),
        thread_id: approval.thread_id.clone(),
        text,
        key,
        ..PutMessage::default()
    }
}

/// Returns the messages of a request with their buttons. What is not shown whole cannot be approved here.
fn request(app: &App, approval: &Approval) -> Option<PutMessage> {
    let (shown, _) = shown(approval)?;
    let id = &approval.request_id;
    let button = |text: &str, approved: bool| json!({"text": text, "data": data(app, id, approved)});
    let approve = shown.is_whole.then(|| button("Approve", true));
    let buttons: Vec<Value> = approve.into_iter().chain([button("Deny", false)]).collect();
    Some(PutMessage { buttons: Some(json!([buttons])), ..message(approval, format!("approval:{id}"), shown.pending()) })
}

fn outcome(approval: &Approval) -> Option<PutMessage> {
    let (shown, request) = shown(approval)?;
    let id = &approval.request_id;
    let text = shown.ended(&request, request.outcome.as_deref().unwrap_or(approval.status.name()));
    Some(PutMessage { edits: Some(format!("approval:{id}")), ..message(approval, format!("approval:{id}:end"), text) })
}

fn shown(approval: &Approval) -> Option<(Shown, Request)> {
    let request = Request::of(&serde_json::to_value(approval).ok()?)?;
    Some((Shown::of(&request), request))
}

/// What a button sends: the decision, the request, and the tag of both.
fn data(app: &App, id: &str, approved: bool) -> String {
    let letter = if approved { 'y' } else { 'n' };
    let secret = app.settings.keys.as_ref().map_or("", |keys| keys.secret.as_str());
    let code = ken_service::hmac_sha256(secret.as_bytes(), format!("approval:{letter}:{id}").as_bytes());
    format!("{letter}:{id}:{}", hex::encode(code.get(..TAG_BYTES).unwrap_or(&code)))
}

/// Reads the data of a button: the request and the decision. `None` if this connector has not made the button.
fn read(app: &App, given: &str) -> Option<(String, bool)> {
    let id = given.split(':').nth(1)?;
    let is_own = |approved: &bool| data(app, id, *approved).as_bytes().ct_eq(given.as_bytes()).into();
    [true, false].into_iter().find(is_own).map(|approved| (id.to_owned(), approved))
}

/// Handles a pressed button; false when the button is not ken's. Tells the user who pressed it the outcome.
pub(crate) async fn press(app: &App, api: &Api, press: &Press) -> Result<bool, Error> {
    let Some((id, approved)) = read(app, &press.data) else {
        show_notice(api, press, "This button is not valid.");
        return Ok(false);
    };
    let outcome = match get(app, &id).await {
        Ok(approval) => match refusal(&app.settings.admins, &approval, approved, &press.sender_id) {
            Some(why) => why,
            None if !is_admitted(app, &approval, &press.sender_id).await? => "You are no longer admitted.".to_owned(),
            None => decide(app, &id, approved, press).await?,
        },
        Err(error) if error.code == Code::NotFound => "There is no such request.".to_owned(),
        Err(error) => return Err(error),
    };
    show_notice(api, press, &outcome);
    Ok(true)
}

/// Whether a user may still write where a request came from. The button stays when the user is removed, or when the policy changes.
async fn is_admitted(app: &App, approval: &Approval, user: &str) -> Result<bool, Error> {
    let MessengerState { dm_policy, allowed_users, groups, .. } =
        app.store.call::<MessengerStatus>(&Nothing {}, READ_TIMEOUT).await?;
    let (settings, chat) = (&app.settings, approval.conversation_id.as_str());
    let is_named = |users: &[String]| users.iter().any(|known| known == user);
    let is_allowed = is_named(&settings.users) || allowed_users.iter().any(|known| known.user_id == user);
    let may_in = |group: &Group| group.group_id == chat && (group.allow_from.is_empty() || is_named(&group.allow_from));
    // The chat of one user has the id of that user.
    let is_open = dm_policy != DmPolicy::Disabled && is_allowed && (chat == user || groups.iter().any(may_in));
    Ok(is_open || is_named(&settings.admins))
}

/// Returns why this user cannot decide a request so.
fn refusal(admins: &[String], approval: &Approval, approved: bool, user: &str) -> Option<String> {
    let has_asked = approval.connector == NAME && approval.actor_id == user;
    if !has_asked && !admins.iter().any(|admin| admin == user) {
        return Some("Only an administrator or the user who asked may decide this.".to_owned());
    }
    // The button may be one of an earlier version, which showed less. What nobody could read can still be denied.
    let is_whole = shown(approval).is_some_and(|(shown, _)| shown.is_whole);
    (approved && !is_whole).then(|| {
        let id = &approval.request_id;
        format!("This request is too long to be approved here: ken approvals {id} shows all of it.")
    })
}

async fn decide(app: &App, id: &str, approved: bool, press: &Press) -> Result<String, Error> {
    let args = DecideApproval {
        id: id.to_owned(),
        approved,
        decided_by: format!("{NAME}:{}", press.sender_id),
        reason: None,
        scope: GrantScope::Once,
        digest: None,
        decided_as: Some(DecidedAs::Messenger { user_id: press.sender_id.clone() }),
        // A press that comes twice is one decision.
        key: Some(format!("{NAME}:{}", press.id)).filter(|key| key.len() <= 64),
    };
    match app.store.change::<ApprovalsDecide>(&args, ATTEMPT_TIMEOUT, CHANGE_TIMEOUT).await {
        Ok(decision) if decision.approved => Ok("Approved.".to_owned()),
        Ok(_) => Ok("Denied.".to_owned()),
        Err(error) if error.code == Code::Conflict => Ok(error.message),
        Err(error) => Err(error),
    }
}

/// Shows a text to the user who has pressed a button. Neither the press nor the updates after it wait for the platform: an
/// error is ignored, and beyond `NOTICES` at a time nothing is shown, since the message itself is edited in any case.
fn show_notice(api: &Api, press: &Press, text: &str) {
    static PERMITS: Semaphore = Semaphore::const_new(NOTICES);
    let Ok(permit) = PERMITS.try_acquire() else { return };
    let text: String = text.chars().take(200).collect();
    let fields = json!({"callback_query_id": press.id, "text": text});
    let api = api.clone();
    tokio::spawn(async move {
        api.call("answerCallbackQuery", fields, CALL_TIMEOUT).await;
        drop(permit);
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn approval(connector: &str, actor: &str, diff: &str) -> Approval {
        let time = "2026-11-23T18:00:00.000Z";
        let record = json!({
            "request": {"id": "apr_1", "dedupeKey": "", "taskId": "s", "actionType": "file.edit", "summary": "Edit a file",
                "reason": "", "risk": "low", "target": "repos/a", "requestedBy": "coding-worker", "fingerprint": "",
                "createdAt": time, "expiresAt": time, "metadata": {"action": {"path": "a"}, "diff": diff}},
            "status": "pending", "updatedAt": time, "requestId": "apr_1", "taskType": "file.edit", "description": "Edit a file",
            "actorId": actor, "conversationId": "7", "connector": connector, "createdAt": time,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn who_may_decide_what_in_a_chat() {
        let (whole, cut) = ("+x", "+x\n[cut: 131072 of 1900000 bytes are shown]");
        let admins = ["1".to_owned(), "2".to_owned()];
        for (connector, user, may_decide) in [
            (NAME, "7", true),
            (NAME, "2", true),
            (NAME, "8", false),
            ("tui", "7", false), // another connector's user of the same name
            ("tui", "2", true),
        ] {
            for (diff, approved, refused) in
                [(whole, true, None), (whole, false, None), (cut, true, Some("too long")), (cut, false, None)]
            {
                let expected = if may_decide { refused } else { Some("Only an administrator") };
                let why = refusal(&admins, &approval(connector, "7", diff), approved, user);
                assert_eq!(why.is_some(), expected.is_some(), "{connector} {user} {diff} {approved}: {why:?}");
                assert!(why.unwrap_or_default().contains(expected.unwrap_or_default()));
            }
        }
    }
}
