//! `ken acp`: the agent for editors, by the Agent Client Protocol over standard input and output. See ken-acp(1).
//!
//! The editor's own files and terminals are not used: what ken changes, ken-coder writes, behind ken's approvals.

mod peer;
mod prompt;
mod turn;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use clap::Args;
use ken_client::Gateway;
use ken_client::chat::Prompt;
use ken_trusted::Folders;
use ken_types::Error;
use ken_types::live_text::prompt_text;
use ken_types::places::Places;
use ken_types::uri::encode_segment;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::gateway;
use crate::globals::Globals;
use crate::ids::{field, items};
use peer::{INVALID_REQUEST, METHOD_NOT_FOUND, Message, Peer};
use turn::TurnUpdates;

const VERSION: u64 = 1;
/// The maximum number of requests that are answered at the same time.
const MAX_REQUESTS: usize = 64;

const ABOUT: &str = "An editor starts this command; see ken-acp(1) for its configuration.";

#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub(crate) struct Acp {}

pub(crate) fn run(globals: &Globals) -> Result<(), Error> {
    let agent = Arc::new(Agent {
        peer: Peer::default(),
        gateway: gateway::find(globals)?,
        places: globals.url.is_none().then(|| globals.places()).transpose()?,
        ken: globals.command(),
        stops: Mutex::default(),
        open: AtomicUsize::new(0),
    });
    let mut input = std::io::stdin().lock();
    let failed = |error: std::io::Error| Error::unavailable(format!("standard input: {error}"));
    // At the end of the input the editor is gone. What it has asked for goes on in ken, and other clients show it.
    while let Some(message) = agent.peer.next(&mut input).map_err(failed)? {
        agent.take(message);
    }
    Ok(())
}

/// The agent, as the editor sees it.
struct Agent {
    peer: Peer,
    gateway: Gateway,
    /// Those of the system; `None` for a gateway that the command line names.
    places: Option<Places>,
    /// The command `ken` for the same system.
    ken: String,
    /// The sessions with a turn of this editor, and whether it is to stop.
    stops: Mutex<HashMap<String, Arc<AtomicBool>>>,
    /// The number of requests that are being answered.
    open: AtomicUsize,
}

impl Agent {
    fn take(self: &Arc<Agent>, message: Message) {
        match message {
            Message::Notification { method, params } if method == "session/cancel" => self.cancel(&params),
            Message::Notification { .. } => {}
            Message::Request { id, method, params } => self.request(id, method, params),
        }
    }

    /// Answers a request in a thread of its own, so that the editor can cancel meanwhile.
    fn request(self: &Arc<Agent>, id: Value, method: String, params: Value) {
        if self.open.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return self.peer.refuse(&id, INVALID_REQUEST, "too many requests at the same time");
        }
        let agent = self.clone();
        std::thread::spawn(move || {
            match agent.answer(&method, &params) {
                Some(Ok(result)) => agent.peer.reply(&id, &result),
                Some(Err(error)) => agent.peer.fail(&id, &error),
                None => agent.peer.refuse(&id, METHOD_NOT_FOUND, &format!("there is no method `{method}`")),
            }
            agent.open.fetch_sub(1, Ordering::Relaxed);
        });
    }

    fn answer(&self, method: &str, params: &Value) -> Option<Result<Value, Error>> {
        Some(match method {
            "initialize" => Ok(initialized()),
            "authenticate" => Ok(json!({})),
            "session/new" => self.new_session(params),
            "session/load" => self.load(params),
            "session/prompt" => self.prompt(params),
            _ => return None,
        })
    }

    fn new_session(&self, params: &Value) -> Result<Value, Error> {
        let folder = self.workspace(params)?;
        let session = self.gateway.clone().create_session(Some(&folder))?;
        Ok(json!({"sessionId": session.id}))
    }

    /// Checks the folder and the servers that an editor names for a session.
    fn workspace(&self, params: &Value) -> Result<PathBuf, Error> {
        let servers = items(params, "mcpServers").iter();
        let names: Vec<&str> =
            servers.map(|server| server.get("name").and_then(Value::as_str).unwrap_or("?")).collect();
        if let Some(first) = names.first() {
            let message = format!("MCP servers of the editor are not used: {}", names.join(", "));
            let hint =
                format!("`{0} mcp add` installs one in ken, and `{0} accept {first}` lets agents use it", self.ken);
            return Err(Error::invalid("/mcpServers", message).hint(hint));
        }
        let cwd = Path::new(field(params, "cwd"));
        if !cwd.is_absolute() {
            return Err(Error::invalid("/cwd", "cwd is not an absolute path"));
        }
        let Some(places) = &self.places else { return Ok(cwd.to_owned()) };
        let unusable = |error| Error::invalid("/cwd", format!("{} cannot be used: {error}", cwd.display()));
        let path = cwd.canonicalize().map_err(unusable)?;
        let folders = Folders::read(&places.state)?;
        let folder = folders.around(&path).unwrap_or(&path);
        folders.open(folder).map_err(|error| {
            let hint = format!("`{} workspace trust {}` lets agents work there", self.ken, path.display());
            Error::forbidden(error.message).at("/cwd").hint(hint)
        })?;
        Ok(folder.to_owned())
    }

    /// Tells the editor what was said and done in a session.
    fn load(&self, params: &Value) -> Result<Value, Error> {
        let folder = self.workspace(params)?;
        let mut gateway = self.gateway.clone();
        let session = gateway.existing_session(session_id(params)?)?;
        if session.workspace.as_deref().is_some_and(|own| Path::new(own) != folder) {
            let own = session.workspace.unwrap_or_default();
            return Err(Error::invalid("/cwd", format!("the session works in {own}, not in {}", folder.display())));
        }
        let target = format!("/api/chat/sessions/{}/export?format=json", encode_segment(&session.id));
        let whole = gateway.get(&target)?;
        let tell = |kind: &str, text: &str| self.peer.chunk(&session.id, kind, text);
        for exchange in items(&whole, "exchanges") {
            let text = |pointer: &str| exchange.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            tell("user_message_chunk", &prompt_text(exchange));
            // A task is an activity of its own, beside the call that has begun it.
            let is_shown = |activity: &&Value| activity["kind"] != "tool" || activity["name"] != "task";
            for activity in items(exchange, "activities").iter().filter(is_shown) {
                match field(activity, "kind") {
                    "thinking" => tell("agent_thought_chunk", field(activity, "preview")),
                    "tool" | "task" | "approval" => self.peer.update(&session.id, &turn::past_call(activity)),
                    _ => {}
                }
            }
            tell("agent_message_chunk", text("/assistant/text"));
        }
        Ok(json!({}))
    }

    fn prompt(&self, params: &Value) -> Result<Value, Error> {
        let session = session_id(params)?;
        let prompt = prompt::read(params.get("prompt").unwrap_or(&Value::Null))?;
        // It is entered before the prompt is sent, so that no wish to stop is lost.
        let stops = self.enter(session)?;
        let reason = self.turn(session, prompt, &stops);
        self.stops.lock().remove(session);
        Ok(json!({"stopReason": reason?}))
    }

    fn turn(&self, session: &str, prompt: Prompt, stops: &AtomicBool) -> Result<&'static str, Error> {
        let mut gateway = self.gateway.clone();
        let accepted = gateway.chat(&Prompt { session: Some(session.to_owned()), ..prompt })?;
        let Some(turn) = accepted.turn() else {
            self.peer.chunk(session, "agent_message_chunk", &accepted.result().unwrap_or_default());
            return Ok("end_turn");
        };
        TurnUpdates { peer: &self.peer, gateway, session, turn: &turn, stops }.follow()
    }

    fn enter(&self, session: &str) -> Result<Arc<AtomicBool>, Error> {
        let mut all = self.stops.lock();
        if all.contains_key(session) {
            return Err(Error::invalid("/sessionId", "the last prompt of this session is not answered yet"));
        }
        let stops = Arc::<AtomicBool>::default();
        all.insert(session.to_owned(), stops.clone());
        Ok(stops)
    }

    fn cancel(&self, params: &Value) {
        let all = self.stops.lock();
        if let Some(stops) = session_id(params).ok().and_then(|session| all.get(session)) {
            stops.store(true, Ordering::Relaxed);
        }
    }
}

fn session_id(params: &Value) -> Result<&str, Error> {
    match field(params, "sessionId") {
        "" => Err(Error::invalid("/sessionId", "sessionId is missing")),
        id => Ok(id),
    }
}

/// An editor of another version gets this one, and decides itself whether it goes on.
fn initialized() -> Value {
    json!({
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": false, "sse": false},
        },
        "agentInfo": {"name": "ken", "title": "ken", "version": env!("CARGO_PKG_VERSION")},
        "authMethods": [],
    })
}
