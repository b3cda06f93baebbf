//! The messaging connector: what `ken-store` keeps for it (`messenger.*`), and what `ken-messenger` itself answers
//! (`connector.*`). Users, chats and groups have the platform's own ids, as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Nothing;
use super::outbox::{OutboxCounts, PutMessage};
use super::store::{Accept, Accepted};
use crate::Timestamp;

crate::operations! {
    /// The stored policy as far as it concerns a sender and a chat.
    MessengerStanding, "messenger.standing": OfSender => Standing;
    /// Stores an update: its count, its verdict and, if it was admitted, its event, session and submission, in one
    /// transaction. A known update gets its first answer again and is counted as a duplicate.
    MessengerAccept, "messenger.accept": AcceptUpdate => UpdateAnswer;
    /// The newest updates and their verdicts.
    MessengerUpdates, "messenger.updates": ListUpdates => UpdateList;
    /// Chats in which a turn runs.
    MessengerBusy, "messenger.busy": Nothing => BusyChats;
    /// The texts so far of the turns that run.
    MessengerDrafts, "messenger.drafts": Nothing => Drafts;
    /// Counts an error that belongs to no message.
    MessengerFault, "messenger.fault": Fault => Nothing;
    /// The stored policy, and who is known.
    MessengerStatus, "messenger.status": Nothing => MessengerState;
    /// Admits a user, or moves the user's chat.
    MessengerAllow, "messenger.allow": Allow => Nothing;
    /// Removes a user, if there is one.
    MessengerRemove, "messenger.remove": RemoveUser => Nothing;
    MessengerSetPolicy, "messenger.set_policy": SetPolicy => Nothing;
    MessengerPutGroup, "messenger.put_group": Group => Nothing;
    /// `not_found` when there is none.
    MessengerRemoveGroup, "messenger.remove_group": OfGroup => Nothing;
    /// Admits the holder of a code. `not_found` for an unknown or expired code, `conflict` for one that is already decided.
    MessengerPair, "messenger.pair": OfCode => Paired;
    /// Refuses a code; false for an unknown or expired one, `conflict` for one that is already decided.
    MessengerDeny, "messenger.deny": OfCode => Denied;

    /// Whether the connector takes updates with this secret: `unavailable` when it is off, `unauthenticated` when the
    /// secret is wrong or missing.
    ConnectorAdmit, "connector.admit": Secret => Nothing;
    /// Receives an update of the platform; answers once it is stored.
    ConnectorReceive, "connector.receive": ReceiveUpdate => Nothing;
    /// The state of the connector's process.
    ConnectorState, "connector.state": Nothing => Connector;
    /// Tells the platform where the webhook is.
    ConnectorSetWebhook, "connector.set_webhook": SetWebhook => Nothing;
}

/// Who may write in a direct chat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DmPolicy {
    /// Users that are known; others may be admitted by a code.
    #[default]
    Pairing,
    /// Users that are known.
    Allowlist,
    /// Nobody, in direct chats and in groups.
    Disabled,
}

impl DmPolicy {
    pub fn name(self) -> &'static str {
        match self {
            DmPolicy::Pairing => "pairing",
            DmPolicy::Allowlist => "allowlist",
            DmPolicy::Disabled => "disabled",
        }
    }

    pub fn of(name: &str) -> Option<DmPolicy> {
        match name {
            "pairing" => Some(DmPolicy::Pairing),
            "allowlist" => Some(DmPolicy::Allowlist),
            "disabled" => Some(DmPolicy::Disabled),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfSender {
    pub user_id: String,
    pub chat_id: String,
}

/// The stored policy, as far as it concerns one sender in one chat.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub dm_policy: DmPolicy,
    /// Whether the sender is stored as allowed.
    pub is_allowed: bool,
    /// The record of the chat, if it is a group that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
}

/// A group chat in which ken answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Group {
    pub group_id: String,
    /// Only messages that mention the bot.
    pub require_mention: bool,
    /// Only these users; everyone who is allowed when empty.
    pub allow_from: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfGroup {
    pub group_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptUpdate {
    /// Below 2^63.
    pub update_id: u64,
    /// The platform's name for the kind of the update: `message`, `edited_message`, …
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    pub verdict: UpdateVerdict,
    /// A code for a sender who may ask to be admitted: 8 characters. The answer tells whether it was given out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

/// What is done with an update.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateVerdict {
    /// It is a message or a command.
    Admitted(Box<Accept>),
    /// A button of ken was pressed.
    Pressed,
    /// ken does not handle it, for this reason.
    Ignored(String),
    /// Its sender may not write here, for this reason.
    Rejected(String),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpdateAnswer {
    pub duplicate: bool,
    /// Set for an admitted update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
    /// The code to send to the sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing: Option<Pairing>,
}

/// A code that waits for an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pairing {
    pub code: String,
    pub sender_id: String,
    pub chat_id: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// How often the code was sent.
    pub replies: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListUpdates {
    /// 1 to 100.
    pub limit: u32,
    /// Only updates that were rejected or ignored.
    #[serde(default)]
    pub unanswered: bool,
}

/// Newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UpdateList {
    pub updates: Vec<UpdateRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRecord {
    pub update_id: u64,
    pub at: Timestamp,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id: Option<String>,
    /// `admitted`, `pressed`, `ignored` or `rejected`.
    pub verdict: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BusyChats {
    pub chats: Vec<BusyChat>,
    /// Chats with a turn that is queued.
    pub waiting: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BusyChat {
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Drafts {
    /// Each with the key of the answer that it will become.
    pub drafts: Vec<PutMessage>,
    /// Turns that run or are queued.
    pub turns: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Without any secret.
    pub message: String,
}

/// What is stored for the connector.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessengerState {
    pub dm_policy: DmPolicy,
    pub allowed_users: Vec<AllowedUser>,
    /// Codes that are not decided; some may have expired.
    pub pending_pairings: Vec<Pairing>,
    pub groups: Vec<Group>,
    pub counts: MessengerCounts,
    pub outbox: OutboxCounts,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedUser {
    pub user_id: String,
    pub chat_id: String,
    pub added_at: Timestamp,
}

/// Counted from the first start on.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessengerCounts {
    /// Updates without their duplicates.
    pub updates: u64,
    pub duplicates: u64,
    pub ignored: u64,
    /// By reason.
    pub rejected: BTreeMap<String, u64>,
    pub errors: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    pub user_id: String,
    pub chat_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveUser {
    pub user_id: String,
    /// A message to the user's chat, sent if the user was admitted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    pub dm_policy: DmPolicy,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfCode {
    /// Case is ignored.
    pub code: String,
    /// A message to the chat of the code, sent if the code is approved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paired {
    pub user_id: String,
    pub chat_id: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Denied {
    pub denied: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveUpdate {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The body as it came, at most 1 MiB.
    pub update: String,
}

/// The state of the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Whether it has a token.
    pub enabled: bool,
    pub poller_running: bool,
    /// Users that the settings admit, administrators among them.
    pub configured_users: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWebhook {
    /// `https://…`; empty removes the webhook.
    pub url: String,
}
