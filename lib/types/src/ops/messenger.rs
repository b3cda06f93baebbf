//! The operations of the messaging connector: those of `ken-store`, which keeps its data (`messenger.*`), and those of
//! `ken-messenger` itself (`connector.*`). Users, chats and groups have the ids of the platform, as text.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Nothing;
use super::outbox::{OutboxCounts, PutMessage};
use super::store::{Accept, Accepted};
use crate::Timestamp;
use crate::id::SubmissionId;

crate::operations! {
    /// The stored policy as far as it concerns a sender and a chat.
    MessengerStanding, "messenger.standing": OfSender => Standing;
    /// Stores and counts an update with its verdict and, if it was admitted, its event, session and submission, in one transaction.
    /// A known update gets its first answer again and counts as a duplicate.
    MessengerAccept, "messenger.accept": AcceptUpdate => UpdateAnswer;
    /// The newest updates and their verdicts.
    MessengerUpdates, "messenger.updates": ListUpdates => UpdateList;
    /// Chats in which a turn runs.
    MessengerBusy, "messenger.busy": Nothing => BusyChats;
    /// What running and waiting turns have written since the caller has last read it.
    MessengerDrafts, "messenger.drafts": ReadTurns => Drafts;
    /// Records an error that belongs to no message.
    MessengerFault, "messenger.fault": Fault => Nothing;
    /// The stored policy, users and groups.
    MessengerStatus, "messenger.status": Nothing => MessengerState;
    /// Adds a user, or changes the user's chat.
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

    /// Whether the connector accepts updates with this secret: `unavailable` if it is off, `unauthenticated` if the secret is wrong
    /// or missing.
    ConnectorAdmit, "connector.admit": Secret => Nothing;
    /// Receives an update from the platform; replies when it is stored.
    ConnectorReceive, "connector.receive": ReceiveUpdate => Nothing;
    /// The state of the connector's process.
    ConnectorState, "connector.state": Nothing => Connector;
    /// Tells the platform where the webhook is.
    ConnectorSetWebhook, "connector.set_webhook": SetWebhook => Nothing;
}

crate::named! {
    /// Who may write to the bot in a direct chat.
    #[derive(Default)]
    pub enum DmPolicy {
        /// Known users. Others get a code, by which an operator can admit them.
        #[default]
        Pairing = "pairing",
        /// Known users.
        Allowlist = "allowlist",
        /// Nobody, in direct chats and in groups.
        Disabled = "disabled",
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
    /// Whether only messages that mention the bot are answered.
    pub require_mention: bool,
    /// The users that are answered; if empty, every allowed user.
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
    /// Below 2^63.
    pub update_id: u64,
    /// The platform's name for the kind of the update: `message`, `edited_message`, …
    pub kind: String,
    pub sender_id: Option<String>,
    pub chat_id: Option<String>,
    pub verdict: UpdateVerdict,
    /// A new code, 8 characters, for a sender who may ask to be admitted. The answer says whether it was used.
    pub code: Option<String>,
}

/// The decision on an update.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateVerdict {
    /// It is a message or a command.
    Admitted(Box<Accept>),
    /// A button of a message of ken was pressed.
    Pressed,
    /// ken does not handle it, for this reason.
    Ignored(String),
    /// Its sender may not write here, for this reason.
    Rejected(String),
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpdateAnswer {
    pub duplicate: bool,
    /// Set for an admitted update.
    pub accepted: Option<Accepted>,
    /// The code to send to the sender.
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
    /// The number of times that the code was sent.
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

/// How far the caller has read the turns that it knows.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTurns {
    #[serde(default)]
    pub read: BTreeMap<SubmissionId, ReadUpTo>,
}

/// How far a turn is read. Only the store interprets it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadUpTo {
    /// The position of the first event that has not been read.
    pub position: u64,
    /// Whether a message has begun that has no text yet.
    pub is_new: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Drafts {
    pub drafts: Vec<Draft>,
    /// The number of turns that run or are queued. A turn that waits for an approval writes nothing meanwhile.
    pub turns: u64,
}

/// What a turn has written since the caller has last read it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Draft {
    pub submission_id: SubmissionId,
    pub read: ReadUpTo,
    /// Whether there is more to read: one call reads a limited number of events.
    pub has_more: bool,
    /// Whether `text` begins a message, instead of continuing the text that the caller has.
    pub begins: bool,
    /// The text of the newest message that has any.
    pub text: String,
    /// The complete answer, but for its text.
    pub answer: PutMessage,
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

/// Counted since the first start.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessengerCounts {
    /// Updates, without duplicates.
    pub updates: u64,
    pub duplicates: u64,
    pub ignored: u64,
    /// By reason.
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
    /// The body as it was received, at most 1 MiB.
    pub update: String,
}

/// The state of the process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Connector {
    /// Whether it has a token.
    pub enabled: bool,
    pub poller_running: bool,
    /// Users that the settings admit, including administrators.
    pub configured_users: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWebhook {
    /// `https://…`; empty removes the webhook.
    pub url: String,
}
