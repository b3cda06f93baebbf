//! The operations of the messaging connector. Those named `messenger.*` belong to `ken-store`, which stores the
//! connector's data; those named `connector.*` belong to `ken-messenger` itself. Users, chats and groups have the ids
//! of the platform, as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Nothing;
use super::outbox::OutboxCounts;
use super::store::{Accept, Accepted};
use crate::Timestamp;

crate::operations! {
    /// Decides by the stored policy whether the sender of an update is admitted, stores and counts the update with this
    /// verdict and, if it is admitted, accepts its event, all in one transaction. For a known update, the first reply is
    /// repeated and a duplicate is counted.
    MessengerAccept, "messenger.accept": AcceptUpdate => UpdateAnswer;
    /// Returns the newest updates and their verdicts.
    MessengerUpdates, "messenger.updates": ListUpdates => UpdateList;
    /// Returns the chats in which a turn runs.
    MessengerBusy, "messenger.busy": Nothing => BusyChats;
    /// Records an error that belongs to no message, or that what failed before works again.
    MessengerFault, "messenger.fault": Fault => Nothing;
    /// Returns the stored policy, users and groups.
    MessengerStatus, "messenger.status": Nothing => MessengerState;
    /// Adds a user, or changes the user's chat.
    MessengerAllow, "messenger.allow": Allow => Nothing;
    /// Removes a user. An unknown user is not an error.
    MessengerRemove, "messenger.remove": RemoveUser => Nothing;
    MessengerSetPolicy, "messenger.set_policy": SetPolicy => Nothing;
    MessengerPutGroup, "messenger.put_group": Group => Nothing;
    /// Removes a group. `not_found` if there is none.
    MessengerRemoveGroup, "messenger.remove_group": OfGroup => Nothing;
    /// Admits the user to whom a code was sent. `not_found` for an unknown or expired code, `conflict` for one that was
    /// already decided.
    MessengerPair, "messenger.pair": OfCode => Paired;
    /// Denies a code. Returns false for an unknown or expired code; `conflict` for one that was already decided.
    MessengerDeny, "messenger.deny": OfCode => Denied;

    /// Checks the secret of an update. `unavailable` if the connector is off, `unauthenticated` if the secret is wrong
    /// or missing.
    ConnectorAdmit, "connector.admit": Secret => Nothing;
    /// Receives an update from the platform, and replies when it is stored.
    ConnectorReceive, "connector.receive": ReceiveUpdate => Nothing;
    /// Returns the state of the connector's process.
    ConnectorState, "connector.state": Nothing => Connector;
    /// Registers the address of the webhook with the platform.
    ConnectorSetWebhook, "connector.set_webhook": SetWebhook => Nothing;
}

crate::named! {
    /// Who may write to the bot in a direct chat.
    #[derive(Default)]
    pub enum DmPolicy {
        /// Known users. Other users get a code with which an operator can admit them.
        #[default]
        Pairing = "pairing",
        /// Known users only.
        Allowlist = "allowlist",
        /// Nobody, neither in direct chats nor in groups.
        Disabled = "disabled",
    }
}

/// A group chat in which ken answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Group {
    pub group_id: String,
    /// Whether ken answers only messages that mention the bot.
    pub require_mention: bool,
    /// The users whose messages ken answers. If empty, every allowed user.
    pub allow_from: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfGroup {
    pub group_id: String,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptUpdate {
    /// The platform's number of the update, below 2^63.
    pub update_id: u64,
    /// The platform's name for the kind of the update: `message`, `edited_message`, …
    pub kind: String,
    pub sender_id: Option<String>,
    pub chat_id: Option<String>,
    pub content: UpdateContent,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateContent {
    /// A message or a command.
    Message(Box<IncomingMessage>),
    /// A press of a button below a message of ken.
    Pressed,
    /// Something that ken does not handle, for this reason.
    Ignored(String),
}

/// The properties of a message by which the stored policy admits or rejects it, and what to do if it is admitted.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncomingMessage {
    pub chat_kind: ChatKind,
    /// Whether the settings of the connector allow its sender. Otherwise the sender must be a stored user.
    pub is_configured: bool,
    pub mentions_bot: bool,
    pub if_admitted: IfAdmitted,
    /// A new code of 8 characters, for a sender who may request to be admitted. The reply says whether it was used.
    pub code: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfAdmitted {
    Accept(Box<Accept>),
    /// Ignore the message for this reason.
    Ignore(String),
}

/// The kind of a chat, as far as the policy distinguishes it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatKind {
    Direct,
    Group,
    #[default]
    Unsupported,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpdateAnswer {
    pub duplicate: bool,
    /// Whether the update was rejected because its sender may not write in its chat.
    pub rejected: bool,
    /// Set for an admitted update.
    pub accepted: Option<Accepted>,
    /// The code to send to the sender.
    pub pairing: Option<Pairing>,
}

/// A code that an operator has not decided yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pairing {
    pub code: String,
    pub sender_id: String,
    pub chat_id: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// The number of times that the code was sent.
    pub replies: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListUpdates {
    /// The maximum number of updates, 1 to 100.
    pub limit: u32,
    /// Whether to list only updates that were rejected or ignored.
    #[serde(default)]
    pub unanswered: bool,
}

/// The updates, newest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct UpdateList {
    pub updates: Vec<UpdateRecord>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateRecord {
    pub update_id: u64,
    pub at: Timestamp,
    pub kind: String,
    pub sender_id: Option<String>,
    pub chat_id: Option<String>,
    /// `admitted`, `pressed`, `ignored` or `rejected`.
    pub verdict: String,
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BusyChats {
    pub chats: Vec<BusyChat>,
    /// The number of chats with a queued turn.
    pub waiting: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BusyChat {
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The message of the error, which contains no secret. If absent, the connector works again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The connector's data in the store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessengerState {
    pub dm_policy: DmPolicy,
    pub allowed_users: Vec<AllowedUser>,
    /// Codes without a decision; some may have expired.
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

/// The numbers of events since the first start.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessengerCounts {
    /// The number of updates, without duplicates.
    pub updates: u64,
    pub duplicates: u64,
    pub ignored: u64,
    /// The number of rejected updates, by reason.
    pub rejected: BTreeMap<String, u64>,
    pub errors: u64,
    pub last_update_at: Option<Timestamp>,
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
    /// A message to the user's chat. It is sent only if the user was admitted before.
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
    /// The code, in upper or lower case.
    pub code: String,
    /// A message to the chat to which the code was sent. It is sent if the code is approved.
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
    /// The body as it was received, at most 1 MiB.
    pub update: String,
}

/// The state of the connector's process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Whether it has a token.
    pub enabled: bool,
    pub poller_running: bool,
    /// Users whom the settings admit, including administrators.
    pub configured_users: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWebhook {
    /// `https://…`; an empty URL removes the webhook.
    pub url: String,
}
