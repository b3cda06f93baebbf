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
use serde_json::json;

use crate::app::Gateway;
use crate::body::{self, check_length, given, required};
use crate::idempotency::{ReplayableResponse, once};
use crate::part::{CALL_TIMEOUT, CHANGE, deadline_as_unavailable};

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
    let check_secret = async || gateway.messenger.call::<ConnectorAdmit>(&of_secret).await;
    // Nobody without the secret can make the gateway read a long body. With a short one, the call that stores the update
    // checks the secret, which saves a call for each update.
    if is_long(request.body_length()) {
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
    let taken = gateway.messenger.0.change::<ConnectorReceive>(&args, CALL_TIMEOUT, CHANGE).await;
    taken.map_err(deadline_as_unavailable)?;
    Ok(Response::empty(200))
}

/// Whether a body is, or may be, long. The length of one that comes in chunks is not known.
fn is_long(length: Option<u64>) -> bool {
    length.is_none_or(|length| length > SHORT_BODY)
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
    let connector = gateway.messenger.call::<ConnectorState>(&Nothing {}).await;
    if let Ok(connector) = connector {
        body["configuredUsers"] = json!(connector.configured_users);
    }
    Response::json(200, &body)
}

/// GET /api/connectors/messenger/health
pub(crate) async fn health(gateway: Arc<Gateway>, _: Request) -> Result<Response, Failure> {
    let state = read_state(&gateway).await?;
    let connector = gateway.messenger.call::<ConnectorState>(&Nothing {}).await?;
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
    if let Some(at) = counts.last_update_at {
        body["lastUpdateReceivedAt"] = json!(at);
    }
    if let Some(error) = &counts.last_error {
        body["lastError"] = error.as_str().into();
    }
    Response::json(200, &body)
}

/// Returns the stored state without expired codes.
async fn read_state(gateway: &Gateway) -> Result<MessengerState, Failure> {
    let mut state = gateway.store.call::<MessengerStatus>(&Nothing {}).await?;
    drop_expired(&mut state, Timestamp::now());
    Ok(state)
}

fn drop_expired(state: &mut MessengerState, now: Timestamp) {
    state.pending_pairings.retain(|pairing| pairing.expires_at > now);
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

#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct User {
    user_id: Option<String>,
    chat_id: Option<String>,
}

impl User {
    fn check(self) -> Result<Allow, Error> {
        let user_id = required("userId", self.user_id)?;
        check_id("/userId", &user_id)?;
        let (at, chat_id) = match self.chat_id {
            Some(chat_id) => ("/chatId", chat_id),
            None => ("/userId", user_id.clone()),
        };
        if !is_chat(&chat_id) {
            let message = "a chatId, or a userId without one, is digits, or @ and a name of 5 to 32 letters, digits and \
                           underscores";
            return Err(Error::invalid(at, message));
        }
        Ok(Allow { user_id, chat_id })
    }
}

/// POST /api/connectors/messenger/allow
pub(crate) async fn allow(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let args = body::read::<User>(&bytes)?.check()?;
    let work = async |_: Mint| {
        gateway.store.change::<MessengerAllow>(&args).await?;
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

impl Removal {
    fn check(self) -> Result<RemoveUser, Error> {
        let user_id = required("userId", self.user_id)?;
        check_id("/userId", &user_id)?;
        Ok(RemoveUser { user_id, notice: self.notify.then(|| REMOVED.to_owned()) })
    }
}

/// POST /api/connectors/messenger/remove
pub(crate) async fn remove(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let args = body::read::<Removal>(&bytes)?.check()?;
    let work = async |_: Mint| {
        gateway.store.change::<MessengerRemove>(&args).await?;
        ReplayableResponse::json(200, &json!({"removed": true, "userId": args.user_id}))
    };
    once(&gateway, &request, &bytes, plain, work).await
}

#[serde_with::apply(Option => #[serde(default, deserialize_with = "given")])]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Policy {
    dm_policy: Option<String>,
    policy: Option<String>,
}

impl Policy {
    fn check(self) -> Result<DmPolicy, Error> {
        let (at, name) = match (self.dm_policy, self.policy) {
            (None, Some(name)) => ("/policy", name),
            (Some(name), None) => ("/dmPolicy", name),
            (Some(name), Some(other)) if name == other => ("/dmPolicy", name),
            (Some(_), Some(_)) => return Err(Error::invalid("/policy", "policy and dmPolicy differ")),
            (None, None) => return Err(Error::invalid("/dmPolicy", "dmPolicy is missing")),
        };
        DmPolicy::named(&name)
            .ok_or_else(|| Error::invalid(at, format!("{name:?} is not `pairing`, `allowlist` or `disabled`")))
    }
}

/// POST /api/connectors/messenger/policy
pub(crate) async fn policy(gateway: Arc<Gateway>, mut request: Request) -> Result<Response, Failure> {
    let bytes = request.body().await?;
    let dm_policy = body::read::<Policy>(&bytes)?.check()?;
    let work = async |_: Mint| {
        let args = SetPolicy { dm_policy };
        gateway.store.change::<MessengerSetPolicy>(&args).await?;
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
        gateway.store.change::<MessengerPutGroup>(&group).await?;
        let mut body = json!(group);
        body["configured"] = true.into();
        ReplayableResponse::json(200, &body)
    };
    once(&gateway, &request, &bytes, plain, work).await
}

/// DELETE /api/connectors/messenger/group/:groupId
pub(crate) async fn remove_group(gateway: Arc<Gateway>, request: Request) -> Result<Response, Failure> {
    let args = OfGroup { group_id: request.segment("groupId").to_owned() };
    gateway.store.change_once::<MessengerRemoveGroup>(&args).await?;
    Response::json(200, &json!({"removed": true, "groupId": args.group_id}))
}

#[cfg(test)]
mod tests {
    use ken_types::ops::messenger::Pairing;
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_length_of_an_id() {
        let [longest, longer] = [ID_CHARACTERS, ID_CHARACTERS + 1].map(|length| "7".repeat(length));
        assert!(is_chat(&longest) && !is_chat(&longer) && !is_chat(""));
        assert!(check_id("/id", &longest).is_ok() && check_id("/id", &longer).is_err());
        for (length, fits) in [(4, false), (5, true), (32, true), (33, false)] {
            assert_eq!(is_chat(&format!("@{}", "a".repeat(length))), fits, "{length}");
        }
        for (id, is_id) in [("7", true), (" 7", true), ("Ä", true), (" ", false), ("7\n", false), ("\u{7f}", false)] {
            assert_eq!(check_id("/id", id).is_ok(), is_id, "{id:?}");
        }
        for (chat, is) in [("@Ken_07", true), ("@ken-07", false), ("@kenä7", false), ("ken_07", false), ("-7", false)]
        {
            assert_eq!(is_chat(chat), is, "{chat}");
        }
    }

    /// Returns what is read from the body of a request, or the place of its error.
    fn read<T: serde::de::DeserializeOwned, R>(body: Value, check: fn(T) -> Result<R, Error>) -> Result<R, String> {
        let read = serde_json::from_value(body).map_err(|error| error.to_string())?;
        check(read).map_err(|error| error.at.unwrap_or_default())
    }

    #[test]
    fn both_names_of_the_policy_must_agree() {
        use DmPolicy::{Allowlist, Disabled};
        for (body, expected) in [
            (json!({}), Err("/dmPolicy")),
            (json!({"policy": "disabled"}), Ok(Disabled)),
            (json!({"dmPolicy": "allowlist"}), Ok(Allowlist)),
            (json!({"policy": "disabled", "dmPolicy": "disabled"}), Ok(Disabled)),
            (json!({"policy": "disabled", "dmPolicy": "pairing"}), Err("/policy")),
            (json!({"policy": "open"}), Err("/policy")),
            (json!({"dmPolicy": "open"}), Err("/dmPolicy")),
            (json!({"policy": "open", "dmPolicy": "open"}), Err("/dmPolicy")),
        ] {
            assert_eq!(read(body.clone(), Policy::check), expected.map_err(str::to_owned), "{body}");
        }
    }

    #[test]
    fn who_is_allowed_and_who_is_removed() {
        for (body, expected) in [
            (json!({"userId": "7"}), Ok(("7", "7"))),
            (json!({"userId": "7", "chatId": "@ken_07"}), Ok(("7", "@ken_07"))),
            // The id of this user is not the id of a chat, so that the chat has to be named.
            (json!({"userId": "ada", "chatId": "8"}), Ok(("ada", "8"))),
            (json!({"userId": "ada"}), Err("/userId")),
            (json!({"userId": "7", "chatId": "ada"}), Err("/chatId")),
            (json!({"userId": " "}), Err("/userId")),
            (json!({"chatId": "8"}), Err("/userId")),
        ] {
            let allowed = read(body.clone(), User::check).map(|allow| (allow.user_id, allow.chat_id));
            let expected = expected.map(|(user, chat)| (user.to_owned(), chat.to_owned()));
            assert_eq!(allowed, expected.map_err(str::to_owned), "{body}");
        }
        for (body, is_told) in [(json!({"userId": "7"}), false), (json!({"userId": "7", "notify": true}), true)] {
            assert_eq!(read(body, Removal::check).unwrap().notice.is_some(), is_told);
        }
        assert_eq!(read(json!({"userId": "\u{1}"}), Removal::check).err().as_deref(), Some("/userId"));
    }

    #[test]
    fn a_long_body_needs_the_secret_first() {
        for (length, is) in [(None, true), (Some(SHORT_BODY), false), (Some(SHORT_BODY + 1), true)] {
            assert_eq!(is_long(length), is, "{length:?}");
        }
    }

    #[test]
    fn a_code_ends_at_its_time() {
        let at = Timestamp::from_millis;
        let pairing = |end: i64| {
            let user = || "7".to_owned();
            Pairing {
                code: user(),
                sender_id: user(),
                chat_id: user(),
                created_at: at(0),
                expires_at: at(end),
                replies: 1,
            }
        };
        let mut state =
            MessengerState { pending_pairings: [1, 2, 3].map(pairing).to_vec(), ..MessengerState::default() };
        drop_expired(&mut state, at(2));
        assert_eq!(state.pending_pairings, [pairing(3)]);
    }
}
