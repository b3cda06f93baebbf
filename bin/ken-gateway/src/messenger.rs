//! The messaging connector: its administration and its webhook. Stored state is read from the store. Only
//! `ken-messenger` knows the secret of the webhook.

use std::collections::BTreeSet;
use std::sync::Arc;

use ken_http::{Failure, Request, Response, plain};
use ken_types::id::Mint;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{
    Allow, ConnectorAdmit, ConnectorReceive, ConnectorState, DmPolicy, Group, MessengerAllow, MessengerDeny,
    MessengerPair, MessengerPutGroup, MessengerRemove, MessengerRemoveGroup, MessengerSetPolicy, MessengerState,
    MessengerStatus, OfCode, OfGroup, ReceiveUpdate, RemoveUser, Secret, SetPolicy,
};
use ken_types::{Error, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::app::Gateway;
use crate::body::{self, check_length, given, required};
use crate::idempotency::{ReplayableResponse, once};
use crate::store::{CALL_TIMEOUT, CHANGE, change_failed, deadline_as_unavailable};

/// The connector's name in replies.
const NAME: &str = "messenger";
const ID_CHARACTERS: usize = 64;
const CODE_CHARACTERS: usize = 64;
/// The maximum length of a body that is read before the secret is checked, in bytes. Most updates are shorter.
const SHORT_BODY: u64 = 16 * 1024;
const ADMITTED: &str = "You may write to me now. `/help` lists what else I understand.";
const REMOVED: &str = "You may no longer write to me.";

/// POST /channels/messenger/webhook: 200 with an empty body once the update is stored.
pub(crate) async fn webhook(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let named = |name| request.header(name).map(str::to_owned);
    let secret = named("x-telegram-bot-api-secret-token").or_else(|| named("x-messenger-secret-token"));
    let of_secret = Secret { secret: secret.clone() };
    let check_secret = async || {
        gateway.messenger.call::<ConnectorAdmit>(&of_secret, CALL_TIMEOUT).await.map_err(deadline_as_unavailable)
    };
    // Nobody without the secret can make the gateway read a long body. With a short one, the call that stores the update
    // checks the secret, which saves a call for each update.
    if request.body_length().is_none_or(|length| length > SHORT_BODY) {
        check_secret().await?;
    }
    let bytes = request.body().await?;
    let update = match String::from_utf8(bytes.to_vec()) {
        Ok(update) => update,
        Err(error) => {
            check_secret().await?;
            let at = error.utf8_error().valid_up_to();
            return Err(Error::invalid("", format!("the body is not UTF-8 at byte {at}")).into());
        }
    };
    let args = ReceiveUpdate { secret, update };
    // An update can be received twice without harm, so the call is repeated if the connector ends meanwhile. If it is
    // not certain that the update is stored, the reply is 503, so that the platform sends it again.
    let taken = gateway.messenger.change::<ConnectorReceive>(&args, CALL_TIMEOUT, CHANGE).await;
    taken.map_err(deadline_as_unavailable)?;
    Ok(Response::empty(200))
}

/// GET /api/connectors/messenger/status
pub(crate) async fn status(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let state = read_state(&gateway).await?;
    let mut body = json!({
        "connector": NAME,
        "dmPolicy": state.dm_policy,
        "allowedUsers": state.allowed_users,
        "pendingPairings": state.pending_pairings,
        "groups": state.groups,
    });
    // Only the connector knows who is admitted by the configuration. The stored policy is shown without it too.
    let connector = gateway.messenger.call::<ConnectorState>(&Nothing {}, CALL_TIMEOUT).await;
    if let (Ok(connector), Some(fields)) = (connector, body.as_object_mut()) {
        fields.insert("configuredUsers".to_owned(), json!(connector.configured_users));
    }
    Response::json(200, &body)
}

/// GET /api/connectors/messenger/health
pub(crate) async fn health(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let state = read_state(&gateway).await?;
    let connector = gateway.messenger.call::<ConnectorState>(&Nothing {}, CALL_TIMEOUT).await;
    let connector = connector.map_err(deadline_as_unavailable)?;
    let mut users: BTreeSet<&str> = connector.configured_users.iter().map(String::as_str).collect();
    users.extend(state.allowed_users.iter().map(|user| user.user_id.as_str()));
    let counts = &state.counts;
    let mut body = json!({
        "connector": NAME,
        "enabled": connector.enabled,
        "pollerRunning": connector.poller_running,
        "updateCount": counts.updates,
        "duplicateCount": counts.duplicates,
        "ignoredCount": counts.ignored,
        "rejected": counts.rejected,
        "errorCount": counts.errors,
        "pendingPairingCount": state.pending_pairings.len(),
        "allowedUserCount": users.len(),
        "dmPolicy": state.dm_policy,
        "outbox": state.outbox,
    });
    if let Some(fields) = body.as_object_mut() {
        if let Some(at) = counts.last_update_at {
            fields.insert("lastUpdateReceivedAt".to_owned(), json!(at));
        }
        if let Some(error) = &counts.last_error {
            fields.insert("lastError".to_owned(), error.as_str().into());
        }
    }
    Response::json(200, &body)
}

/// Returns the stored state without expired codes.
async fn read_state(gateway: &Gateway) -> Result<MessengerState, Failure> {
    let mut state = gateway.store.call::<MessengerStatus>(&Nothing {}, CALL_TIMEOUT).await?;
    let now = Timestamp::now();
    state.pending_pairings.retain(|pairing| pairing.expires_at > now);
    Ok(state)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Code {
    #[serde(default, deserialize_with = "given")]
    code: Option<String>,
}

impl Code {
    fn read(bytes: &[u8]) -> Result<String, Failure> {
        let code = required("code", body::read::<Code>(bytes)?.code)?;
        check_length("/code", code.trim(), 1, CODE_CHARACTERS)?;
        Ok(code)
    }
}

/// POST /api/connectors/messenger/pair
pub(crate) async fn pair(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let args = OfCode { code: Code::read(&bytes)?, notice: Some(ADMITTED.to_owned()) };
    let work = async |_: Mint| {
        let paired = gateway.store.change_once::<MessengerPair>(&args).await?;
        let body = json!({"approved": true, "userId": paired.user_id, "chatId": paired.chat_id});
        ReplayableResponse::json(200, &body)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// POST /api/connectors/messenger/deny
pub(crate) async fn deny(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let args = OfCode { code: Code::read(&bytes)?, notice: None };
    let work = async |_: Mint| {
        let denied = gateway.store.change_once::<MessengerDeny>(&args).await?;
        ReplayableResponse::json(200, &denied)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct User {
    #[serde(default, deserialize_with = "given")]
    user_id: Option<String>,
    #[serde(default, deserialize_with = "given")]
    chat_id: Option<String>,
}

/// POST /api/connectors/messenger/allow
pub(crate) async fn allow(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let user = body::read::<User>(&bytes)?;
    let user_id = required("userId", user.user_id)?;
    check_id("/userId", &user_id)?;
    let (at, chat_id) = match user.chat_id {
        Some(chat_id) => ("/chatId", chat_id),
        None => ("/userId", user_id.clone()),
    };
    if !is_chat(&chat_id) {
        let message =
            "a chatId, or a userId without one, is digits, or @ and a name of 5 to 32 letters, digits and underscores";
        return Err(Error::invalid(at, message).into());
    }
    let args = Allow { user_id, chat_id };
    let work = async |_: Mint| {
        gateway.store.change::<MessengerAllow>(&args, CHANGE).await?;
        let body = json!({"allowed": true, "userId": args.user_id, "chatId": args.chat_id});
        ReplayableResponse::json(200, &body)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

fn check_id(at: &str, id: &str) -> Result<(), Error> {
    check_length(at, id, 1, ID_CHARACTERS)?;
    if id.chars().any(char::is_control) || id.trim().is_empty() {
        Err(Error::invalid(at, "an id is not blank and has no control characters"))
    } else {
        Ok(())
    }
}

fn is_chat(id: &str) -> bool {
    let is_number = !id.is_empty() && id.len() <= ID_CHARACTERS && id.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = |name: &str| {
        (5..=32).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    is_number || id.strip_prefix('@').is_some_and(is_name)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Removal {
    #[serde(default, deserialize_with = "given")]
    user_id: Option<String>,
    #[serde(default)]
    notify: bool,
}

/// POST /api/connectors/messenger/remove
pub(crate) async fn remove(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let removal = body::read::<Removal>(&bytes)?;
    let user_id = required("userId", removal.user_id)?;
    check_id("/userId", &user_id)?;
    let args = RemoveUser { user_id, notice: removal.notify.then(|| REMOVED.to_owned()) };
    let work = async |_: Mint| {
        gateway.store.change::<MessengerRemove>(&args, CHANGE).await?;
        ReplayableResponse::json(200, &json!({"removed": true, "userId": args.user_id}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Policy {
    #[serde(default, deserialize_with = "given")]
    dm_policy: Option<String>,
    #[serde(default, deserialize_with = "given")]
    policy: Option<String>,
}

/// POST /api/connectors/messenger/policy
pub(crate) async fn policy(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let policy = body::read::<Policy>(&bytes)?;
    let (at, name) = match (policy.dm_policy, policy.policy) {
        (None, Some(name)) => ("/policy", name),
        (Some(name), None) => ("/dmPolicy", name),
        (Some(name), Some(other)) if name == other => ("/dmPolicy", name),
        (Some(_), Some(_)) => return Err(Error::invalid("/policy", "policy and dmPolicy differ").into()),
        (None, None) => return Err(Error::invalid("/dmPolicy", "dmPolicy is missing").into()),
    };
    let Some(dm_policy) = DmPolicy::named(&name) else {
        let message = format!("{name:?} is not `pairing`, `allowlist` or `disabled`");
        return Err(Error::invalid(at, message).into());
    };
    let work = async |_: Mint| {
        let args = SetPolicy { dm_policy };
        gateway.store.change::<MessengerSetPolicy>(&args, CHANGE).await?;
        ReplayableResponse::json(200, &json!({"policy": true, "dmPolicy": dm_policy}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// GET /api/connectors/messenger/groups
pub(crate) async fn groups(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    Response::json(200, &json!({"groups": read_state(&gateway).await?.groups}))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupBody {
    #[serde(default, deserialize_with = "given")]
    group_id: Option<String>,
    #[serde(default = "default_true")]
    require_mention: bool,
    #[serde(default)]
    allow_from: Vec<String>,
}

fn default_true() -> bool {
    true
}

/// POST /api/connectors/messenger/group
pub(crate) async fn group(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let body = body::read::<GroupBody>(&bytes)?;
    let group = Group {
        group_id: required("groupId", body.group_id)?,
        require_mention: body.require_mention,
        allow_from: body.allow_from,
    };
    check_id("/groupId", &group.group_id)?;
    for (number, user) in group.allow_from.iter().enumerate() {
        check_id(&format!("/allowFrom/{number}"), user)?;
    }
    let work = async |_: Mint| {
        gateway.store.change::<MessengerPutGroup>(&group, CHANGE).await?;
        let mut body = json!(group);
        if let Value::Object(fields) = &mut body {
            fields.insert("configured".to_owned(), true.into());
        }
        ReplayableResponse::json(200, &body)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// DELETE /api/connectors/messenger/group/:groupId
pub(crate) async fn remove_group(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = OfGroup { group_id: request.segment("groupId").to_owned() };
    let removed = gateway.store.change_once::<MessengerRemoveGroup>(&args).await;
    removed.map_err(change_failed)?;
    Response::json(200, &json!({"removed": true, "groupId": args.group_id}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_an_id() {
        let [longest, longer] = [ID_CHARACTERS, ID_CHARACTERS + 1].map(|length| "7".repeat(length));
        assert!(is_chat(&longest) && !is_chat(&longer) && !is_chat(""));
        assert!(check_id("/id", &longest).is_ok() && check_id("/id", &longer).is_err());
        for (length, fits) in [(4, false), (5, true), (32, true), (33, false)] {
            assert_eq!(is_chat(&format!("@{}", "a".repeat(length))), fits, "{length}");
        }
    }
}
