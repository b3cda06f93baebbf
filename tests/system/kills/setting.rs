//! The system that is tortured: its model, its tools and its settings.

use std::path::PathBuf;
use std::time::Duration;

use ken_tests::bot_api::{BotApi, SECRET, TOKEN};
use ken_tests::provider::{Piece, Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, System, until};
use serde_json::{Value, json};

/// The user whose updates the messenger accepts, and the chat of the same number.
pub(crate) const USER: i64 = 7;

/// A model that does what a prompt says: `[[note X]]` calls the tool `note` with X, `[[gated X]]` the tool `gated`, which
/// needs an approval, and `[[say X]]` none. The answer names X, so that an answer to another prompt is seen.
pub(crate) fn provider() -> Provider {
    Provider::answering(reply)
}

pub(crate) fn answer_to(label: &str) -> String {
    format!("This is the answer to {label}.")
}

pub(crate) fn prompt(what: &str, label: &str) -> String {
    format!("Please: [[{what} {label}]]")
}

fn reply(request: &ReceivedRequest) -> Reply {
    // The body is cut off if its sender is killed meanwhile.
    let messages = request.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some((what, label)) = messages.iter().rev().find_map(order) else {
        return Reply::Stream(openai(&["Nothing is asked."], &[]));
    };
    let called = messages.iter().any(|message| message["tool_call_id"] == label);
    let arguments = json!({"word": label}).to_string();
    let (text, calls) = if what == "say" || called {
        (answer_to(&label), vec![])
    } else {
        (String::new(), vec![(label.as_str(), what.as_str(), arguments.as_str())])
    };
    // An answer that was cut off is continued, as ken-agent asks for.
    let sent = match messages {
        [.., before, last] if last["content"].as_str().is_some_and(|note| note.starts_with("Your answer was cut")) => {
            before["content"].as_str().unwrap_or_default()
        }
        _ => "",
    };
    let rest = text.strip_prefix(sent).unwrap_or(&text).trim_start();
    let texts: Vec<&str> = rest.split_inclusive(' ').collect();
    let pieces = openai(&texts, &calls).into_iter();
    Reply::Stream(pieces.flat_map(|piece| [piece, Piece::Pause(Duration::from_millis(10))]).collect())
}

/// What a message of a person orders, and its label.
fn order(message: &Value) -> Option<(String, String)> {
    let text = message["content"].as_str().filter(|_| message["role"] == "user")?;
    let (_, order) = text.rsplit_once("[[")?;
    let (what, label) = order.split_once("]]")?.0.split_once(' ')?;
    Some((what.to_owned(), label.to_owned()))
}

/// The file to which a tool appends a line when it begins, and one when it ends. It is not on the disk of the system, which can be full.
pub(crate) fn tool_runs(system: &System) -> PathBuf {
    scratch(system).join("runs")
}

pub(crate) fn scratch(system: &System) -> PathBuf {
    let name = system.home().file_name().expect("a name").display().to_string();
    std::env::temp_dir().join(format!("ken-kills{name}"))
}

pub(crate) fn start(builder: Builder, platform: &BotApi, provider: &Provider) -> System {
    let system = builder
        .config("[chat]\nmemory = \"off\"\n[approvals]\nunattended = \"ask\"\nexpiry_ms = 7200000\n")
        .secrets(&format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n"))
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_APPROVED_USER_IDS", &USER.to_string())
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    std::fs::create_dir_all(scratch(&system)).expect("a folder");
    std::fs::create_dir_all(system.home().join("tools.d")).expect("a folder");
    add_tool(&system, "note", json!({"approval": "none"}));
    add_tool(&system, "gated", json!({}));
    system
}

/// A tool that may not be repeated.
fn add_tool(system: &System, name: &str, fields: Value) {
    let script = format!(
        "read line; [ -n \"$line\" ] || exit 1; echo \"begin $line\" >> '{0}'; sleep 0.03; echo \"end $line\" >> '{0}'; echo did it",
        tool_runs(system).display()
    );
    let mut entry = json!({"name": name, "description": "A tool.", "command": ["sh", "-c", script],
        "input": {"type": "object"}, "writes": "text", "agents": ["orchestrator"], "idempotent": false,
        "touch": {"write": [scratch(system)]}});
    entry.as_object_mut().expect("an entry").extend(fields.as_object().expect("fields").clone());
    std::fs::write(system.home().join(format!("tools.d/{name}.json")), entry.to_string()).expect("a manifest");
    until("the tool is listed", || {
        let listed = system.call("tools", "tools.list", &[]);
        listed["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name))
    });
}
