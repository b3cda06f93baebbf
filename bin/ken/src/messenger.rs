//! `ken messenger`: manages who may write through the messaging connector, and its webhook, groups and messages.

use std::time::Duration;

use clap::{Args, Subcommand};
use ken_client::Gateway;
use ken_types::Error;
use ken_types::ops::messenger::{ConnectorSetWebhook, ListUpdates, MessengerUpdates, SetWebhook, UpdateRecord};
use ken_types::ops::outbox::{ListMessages, MessageRecord, OutboxList};
use ken_types::ops::{Nothing, Op};
use ken_types::uri::encode_segment;
use serde_json::{Value, json};

use crate::client;
use crate::gateway;
use crate::globals::Globals;
use crate::ids::{field, items};
use crate::output::{print_json, print_line, print_list};

/// The timeout of a call to a part. Some calls wait for a reply of the messaging platform.
const CALL_TIMEOUT: Duration = Duration::from_secs(70);
const TARGET: &str = "/api/connectors/messenger";

const EXAMPLES: &str = "Examples:
  ken messenger status
  ken messenger allow 123456789
  ken messenger set-webhook https://ken.example/channels/messenger/webhook
  ken messenger updates --rejected";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Messenger {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the policy, who may write, and the counters
    Status(Format),
    /// Admit the person who received this code
    Pair(Code),
    /// Refuse the person who received this code
    Deny(Code),
    /// Admit a user
    Allow(Allow),
    /// Remove a user
    Remove(Remove),
    /// Set who may send direct messages: pairing, allowlist or disabled
    Policy(Policy),
    /// List groups, or admit, change or remove one
    Group(Group),
    /// List the newest updates, and why some were not answered
    Updates(Updates),
    /// List the newest outgoing messages, and what became of them
    Outbox(Listed),
    /// Tell the platform where to post updates; without a URL, remove the webhook
    SetWebhook(Webhook),
}

#[derive(Debug, Args)]
struct Format {
    /// Print the two replies of the gateway as JSON, one per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Code {
    /// Code of eight letters and digits
    code: String,
}

#[derive(Debug, Args)]
struct Allow {
    /// Id of the user, digits
    user: String,
    /// Chat for messages to the user: digits, or @name [default: the user's id]
    #[arg(long, value_name = "ID")]
    chat: Option<String>,
}

#[derive(Debug, Args)]
struct Remove {
    /// Id of the user
    user: String,
    /// Tell the user
    #[arg(long)]
    notify: bool,
}

#[derive(Debug, Args)]
struct Policy {
    #[arg(value_parser = ["pairing", "allowlist", "disabled"])]
    policy: String,
}

#[derive(Debug, Args)]
struct Group {
    /// Id of the group
    #[arg(allow_negative_numbers = true)]
    group: Option<String>,
    /// Also answer messages that do not mention the agent
    #[arg(long, requires = "group")]
    no_mention: bool,
    /// Answer only this user; may be repeated
    #[arg(long, value_name = "USER", requires = "group")]
    from: Vec<String>,
    /// Remove the group
    #[arg(long, requires = "group", conflicts_with_all = ["no_mention", "from"])]
    rm: bool,
}

#[derive(Debug, Args)]
struct Listed {
    /// Maximum number
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Updates {
    /// Show only updates that were rejected or ignored
    #[arg(long)]
    rejected: bool,
    #[command(flatten)]
    list: Listed,
}

#[derive(Debug, Args)]
struct Webhook {
    /// Address that the platform can reach, ending in /channels/messenger/webhook
    url: Option<String>,
}

pub(crate) fn run(globals: &Globals, messenger: &Messenger) -> Result<(), Error> {
    match &messenger.command {
        Command::Status(format) => status(&mut gateway::find(globals)?, format),
        Command::Pair(code) => {
            let answer = post(globals, "pair", &json!({"code": code.code}))?;
            print_line(&format!("admitted user {}", field(&answer, "userId")))
        }
        Command::Deny(code) => {
            let answer = post(globals, "deny", &json!({"code": code.code}))?;
            if answer.get("denied") != Some(&Value::Bool(true)) {
                return Err(Error::not_found("the code is unknown or has expired"));
            }
            print_line("denied")
        }
        Command::Allow(user) => {
            let mut body = json!({"userId": user.user});
            if let Some(chat) = &user.chat {
                body["chatId"] = chat.as_str().into();
            }
            post(globals, "allow", &body)?;
            print_line(&format!("allowed user {}", user.user))
        }
        Command::Remove(user) => {
            check_admitted(globals, &user.user)?;
            post(globals, "remove", &json!({"userId": user.user, "notify": user.notify}))?;
            print_line(&format!("removed user {}", user.user))
        }
        Command::Policy(policy) => {
            post(globals, "policy", &json!({"dmPolicy": policy.policy}))?;
            print_line(&format!("policy {}", policy.policy))
        }
        Command::Group(group) => set_group(globals, group),
        Command::Updates(updates) => list_updates(globals, updates),
        Command::Outbox(list) => list_outbox(globals, list),
        Command::SetWebhook(webhook) => set_webhook(globals, webhook),
    }
}

/// Refuses a user who is not admitted, or not by a command. A person who has mistyped an id would believe that a user is removed.
fn check_admitted(globals: &Globals, user: &str) -> Result<(), Error> {
    let status = gateway::find(globals)?.get(&format!("{TARGET}/status"))?;
    let is_admitted = items(&status, "allowedUsers").iter().any(|known| field(known, "userId") == user);
    let is_configured = items(&status, "configuredUsers").iter().any(|known| known == user);
    match (is_admitted, is_configured) {
        (_, true) => Err(Error::conflict(format!("user {user} is admitted by the configuration"))
            .hint("take the id out of MESSENGER_APPROVED_USER_IDS or MESSENGER_ADMIN_USER_IDS")),
        (true, false) => Ok(()),
        (false, false) => Err(Error::not_found(format!("user {user} is not admitted"))
            .hint("`ken messenger status` lists the admitted users")),
    }
}

fn post(globals: &Globals, route: &str, body: &Value) -> Result<Value, Error> {
    gateway::find(globals)?.post(&format!("{TARGET}/{route}"), body)
}

fn status(gateway: &mut Gateway, format: &Format) -> Result<(), Error> {
    let status = gateway.get(&format!("{TARGET}/status"))?;
    let health = gateway.get(&format!("{TARGET}/health"))?;
    if format.json {
        print_json(&status)?;
        return print_json(&health);
    }
    let is = |name: &str| health.get(name) == Some(&Value::Bool(true));
    let state = match (is("enabled"), is("pollerRunning")) {
        (false, _) => "off: MESSENGER_BOT_TOKEN is not set",
        (true, true) => "on, asks for updates",
        (true, false) => "on",
    };
    let number = |pointer: &str| health.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    print_line(&format!("connector  {state}"))?;
    print_line(&format!("policy     {}", field(&status, "dmPolicy")))?;
    print_line(&format!(
        "updates    {}, repeated {}, ignored {}; last {}",
        number("/updateCount"),
        number("/duplicateCount"),
        number("/ignoredCount"),
        Some(field(&health, "lastUpdateReceivedAt")).filter(|at| !at.is_empty()).unwrap_or("never")
    ))?;
    let rejected = health.get("rejected").and_then(Value::as_object);
    for (reason, count) in rejected.into_iter().flatten() {
        print_line(&format!("rejected   {count} {reason}"))?;
    }
    print_line(&format!(
        "outbox     pending {}, sent {}, failed {}, unknown {}",
        number("/outbox/pending"),
        number("/outbox/sent"),
        number("/outbox/failed"),
        number("/outbox/unknown")
    ))?;
    if number("/errorCount") > 0 {
        print_line(&format!("errors     {}; last: {}", number("/errorCount"), field(&health, "lastError")))?;
    }
    for user in items(&status, "allowedUsers") {
        let (id, chat, since) = (field(user, "userId"), field(user, "chatId"), field(user, "addedAt"));
        let chat = if chat == id { String::new() } else { format!(", chat {chat}") };
        print_line(&format!("user       {id}{chat}, since {since}"))?;
    }
    for user in items(&status, "configuredUsers").iter().filter_map(Value::as_str) {
        print_line(&format!("user       {user}, by the configuration"))?;
    }
    for pairing in items(&status, "pendingPairings") {
        print_line(&format!(
            "waiting    {} of user {}, until {}",
            field(pairing, "code"),
            field(pairing, "senderId"),
            field(pairing, "expiresAt")
        ))?;
    }
    items(&status, "groups").iter().try_for_each(print_group)
}

fn print_group(group: &Value) -> Result<(), Error> {
    let mention = match group.get("requireMention") {
        Some(Value::Bool(false)) => "every message",
        _ => "mentions only",
    };
    let from = items(group, "allowFrom").iter().filter_map(Value::as_str);
    let from = match from.collect::<Vec<_>>().join(", ").as_str() {
        "" => String::new(),
        users => format!(", from {users}"),
    };
    print_line(&format!("group      {} {mention}{from}", field(group, "groupId")))
}

fn set_group(globals: &Globals, group: &Group) -> Result<(), Error> {
    let Some(id) = &group.group else {
        let groups = gateway::find(globals)?.get(&format!("{TARGET}/groups"))?;
        return items(&groups, "groups").iter().try_for_each(print_group);
    };
    if group.rm {
        gateway::find(globals)?.delete(&format!("{TARGET}/group/{}", encode_segment(id)))?;
        return print_line(&format!("removed group {id}"));
    }
    let body = json!({"groupId": id, "requireMention": !group.no_mention, "allowFrom": group.from});
    print_group(&post(globals, "group", &body)?)
}

/// Calls a part of this system directly. It is used for operations without a route in the gateway.
fn part<O: Op>(globals: &Globals, part: &str, args: &O::Args) -> Result<O::Reply, Error> {
    client::call::<O>(&globals.places()?, part, args, Some(CALL_TIMEOUT))
}

fn list_updates(globals: &Globals, updates: &Updates) -> Result<(), Error> {
    let args = ListUpdates { limit: updates.list.limit, unanswered: updates.rejected };
    let found = part::<MessengerUpdates>(globals, "store", &args)?.updates;
    let row = |update: &UpdateRecord| {
        let id = |id: &Option<String>| id.clone().unwrap_or_else(|| "-".to_owned());
        let why = update.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        [
            update.update_id.to_string(),
            update.at.to_string(),
            update.kind.clone(),
            id(&update.sender_id),
            id(&update.chat_id),
            format!("{}{why}", update.verdict),
        ]
    };
    print_list(&found, updates.list.json, ["UPDATE", "AT", "KIND", "SENDER", "CHAT", "VERDICT"], row)
}

fn list_outbox(globals: &Globals, list: &Listed) -> Result<(), Error> {
    let args = ListMessages { connector: "messenger".to_owned(), limit: list.limit };
    let messages = part::<OutboxList>(globals, "store", &args)?.messages;
    let row = |message: &MessageRecord| {
        [
            message.id.to_string(),
            message.created_at.to_string(),
            message.chat_id.clone(),
            message.state.name().to_owned(),
            message.key.clone(),
            message.error.clone().unwrap_or_default(),
        ]
    };
    print_list(&messages, list.json, ["MESSAGE", "AT", "CHAT", "STATE", "KEY", "ERROR"], row)
}

fn set_webhook(globals: &Globals, webhook: &Webhook) -> Result<(), Error> {
    let url = webhook.url.clone().unwrap_or_default();
    if !url.is_empty() && !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(Error::invalid("URL", "an address as https://HOST/channels/messenger/webhook is expected"));
    }
    let Nothing {} = part::<ConnectorSetWebhook>(globals, "messenger", &SetWebhook { url: url.clone() })?;
    print_line(if url.is_empty() {
        "the platform posts no updates any more"
    } else {
        "the platform posts updates there now"
    })
}
