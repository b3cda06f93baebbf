//! Conversations: prompts, turns and sessions, on behalf of the person at the terminal.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ken_text::nearest;
use ken_types::id::Mint;
use ken_types::ops::store::Scope;
use ken_types::uri::{encode_query, encode_segment};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::gateway::Gateway;

/// The person at this machine's terminal, whose sessions all terminal programs share.
pub fn local() -> Scope {
    let actor = "local-tui";
    Scope { connector: "tui".into(), actor_id: actor.into(), conversation_id: actor.into(), thread_id: None }
}

/// Returns a scope as the query of a URL.
pub(crate) fn query(of: &Scope) -> String {
    let fields = json!(of);
    let pairs = fields.as_object().into_iter().flatten();
    let pairs = pairs.map(|(name, value)| format!("{name}={}", encode_query(value.as_str().unwrap_or_default())));
    pairs.collect::<Vec<_>>().join("&")
}

/// A message of the person at the terminal.
#[derive(Debug, Clone, Default)]
pub struct Prompt {
    pub text: String,
    /// Id or explicit name of the session. `None` opens a new one.
    pub session: Option<String>,
    /// The only model that may answer, as `provider/model`.
    pub model: Option<String>,
    /// At most 8 images.
    pub images: Vec<Image>,
    /// Whether the text contains files. They count as text from outside.
    pub attached: bool,
    /// The MCP server that has written a part of the text. It is recorded as its origin.
    pub mcp_server: Option<String>,
    /// The workflow to which the prompt belongs. It is stored with the prompt's event. Transcripts leave out the
    /// prompts of internal workflows.
    pub workflow: Option<String>,
    /// The `Idempotency-Key`. A later request with the same key does not add a second prompt; it gets the response to
    /// this one. `None` generates a key.
    pub key: Option<String>,
}

/// A session that the gateway has opened.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Session {
    pub id: String,
    /// Its explicit name.
    #[serde(rename = "title")]
    pub name: Option<String>,
    /// Whether this request created it.
    #[serde(default)]
    pub created: bool,
    /// The trusted folder in which it works.
    pub workspace: Option<String>,
}

impl Session {
    /// Returns the session that an answer of the gateway names.
    pub fn of(answer: &Value) -> Option<Session> {
        Session::deserialize(answer.get("session")?).ok()
    }
}

/// The maximum number of sessions in one answer of the gateway.
const MAX_PAGE: u32 = 100;

/// Which sessions are listed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chosen {
    /// The archived ones instead of the others.
    pub archived: bool,
    /// Also those of the runs of schedules.
    pub scheduled: bool,
}

/// An image that is sent with a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// The image in base64, at most 14 680 064 characters.
    pub data: String,
}

impl Image {
    /// Returns `None` if the bytes do not begin as one of the four formats that models accept.
    pub fn of_bytes(bytes: &[u8]) -> Option<Image> {
        let media_type = match bytes {
            [0x89, b'P', b'N', b'G', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'G', b'I', b'F', b'8', ..] => "image/gif",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            _ => return None,
        };
        Some(Image { media_type: media_type.to_owned(), data: STANDARD.encode(bytes) })
    }
}

impl Prompt {
    fn key(&self) -> Result<String, Error> {
        match &self.key {
            Some(key) => Ok(key.clone()),
            None => Ok(Mint::fresh()?.ulid()),
        }
    }
}

/// The response to a message that was accepted.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The whole body of the response.
    pub body: Value,
}

/// The turn that a prompt started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub submission: String,
    /// The path of its stream. The events of the turn come after `offset` and contain its `submissionId`.
    pub stream: String,
    pub offset: String,
}

impl Turn {
    /// Whether an event is one of this turn. The stream also has those of the turns before it in the session.
    pub fn owns(&self, event: &Value) -> bool {
        event.get("submissionId").is_some_and(|id| *id == *self.submission)
    }
}

impl Accepted {
    fn text(&self, pointer: &str) -> Option<String> {
        self.body.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns the session of the message. Commands such as `/help` have none.
    pub fn session(&self) -> Option<String> {
        self.text("/session/id")
    }

    /// Returns the reply of a command, which has no turn.
    pub fn result(&self) -> Option<String> {
        self.text("/result/text")
    }

    /// Returns the turn of a prompt.
    pub fn turn(&self) -> Option<Turn> {
        let url = self.text("/streamUrl")?;
        let path = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        Some(Turn {
            submission: self.text("/submissionId")?,
            stream: path.find('/').and_then(|at| path.get(at..))?.to_owned(),
            offset: self.text("/offset")?,
        })
    }
}

impl Gateway {
    /// Sends a message. Returns as soon as it is accepted.
    ///
    /// # Errors
    /// As [`Gateway::call`]. A repeated request never adds a second prompt. If the gateway refuses the message because
    /// no model is configured, the request is not repeated.
    pub fn chat(&mut self, prompt: &Prompt) -> Result<Accepted, Error> {
        if !prompt.images.is_empty() {
            return self.chat_with_images(prompt);
        }
        let mut body = json!(local());
        body["text"] = prompt.text.as_str().into();
        for (name, value) in [
            ("session", &prompt.session),
            ("model", &prompt.model),
            ("workflow", &prompt.workflow),
            ("mcpServer", &prompt.mcp_server),
        ] {
            if let Some(value) = value {
                body[name] = value.as_str().into();
            }
        }
        if prompt.attached {
            body["attached"] = true.into();
        }
        let body = self.post_with_key("/api/chat/events", &prompt.key()?, &body)?;
        Ok(Accepted { body })
    }

    /// A message with images is sent to the session's agent directly, so the session has to be opened first.
    fn chat_with_images(&mut self, prompt: &Prompt) -> Result<Accepted, Error> {
        let id = match &prompt.session {
            Some(selector) => self.existing_session(selector)?.id,
            None => self.create_session(None)?.id,
        };
        let images = prompt
            .images
            .iter()
            .map(|image| json!({"type": "image", "data": image.data, "mimeType": image.media_type}));
        let mut body = json!({"message": prompt.text, "images": images.collect::<Vec<_>>()});
        for (name, value) in [("model", &prompt.model), ("mcpServer", &prompt.mcp_server)] {
            if let Some(value) = value {
                body[name] = value.as_str().into();
            }
        }
        let target = format!("/agents/orchestrator/{}", encode_segment(&id));
        let mut body = self.post_with_key(&target, &prompt.key()?, &body)?;
        if body.is_object() {
            body["session"] = json!({"id": id});
        }
        Ok(Accepted { body })
    }

    /// Opens a new session, which works in this trusted folder or else in the workspace of the system.
    ///
    /// # Errors
    /// As [`Gateway::call`]: `forbidden` if the folder is not trusted.
    pub fn create_session(&mut self, folder: Option<&Path>) -> Result<Session, Error> {
        self.open_session("/api/chat/sessions", folder)
    }

    fn open_session(&mut self, target: &str, folder: Option<&Path>) -> Result<Session, Error> {
        let mut body = json!(local());
        if let Some(folder) = folder {
            body["workspace"] = folder.display().to_string().into();
        }
        session_of(&self.post(target, &body)?)
    }

    /// Returns the session with this id or explicit name. Unlike [`Gateway::resume_session`], it never makes one.
    ///
    /// # Errors
    /// As [`Gateway::call`]: `not_found` with the nearest name if there is no such session, `forbidden` and `conflict` as
    /// there.
    pub fn existing_session(&mut self, selector: &str) -> Result<Session, Error> {
        // The command fails where the route of the same name makes a session.
        match self.chat(&Prompt { text: format!("/resume {selector}"), ..Prompt::default() }) {
            Ok(accepted) => session_of(&accepted.body),
            Err(error) if error.code == Code::NotFound => {
                let list = "`ken sessions` lists them";
                let hint = match self.nearest_session(selector) {
                    Some(name) => format!("the nearest is `{name}`; {list}"),
                    None => list.to_owned(),
                };
                Err(Error::not_found(format!("there is no session `{selector}`")).hint(hint))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the id of the only session of which a word is a piece of the id or the name; else the word itself.
    pub fn session_of_word(&mut self, word: &str) -> String {
        let found = self.get(&format!("/api/ids?limit=2&kind=session&word={}", encode_query(word))).unwrap_or_default();
        match found.get("ids").and_then(Value::as_array).map(Vec::as_slice) {
            Some([one]) => one.get("id").and_then(Value::as_str).unwrap_or(word).to_owned(),
            _ => word.to_owned(),
        }
    }

    /// Returns the name or id of a recent session that is most like a word, if one is like it.
    pub fn nearest_session(&mut self, word: &str) -> Option<String> {
        let sessions = self.own_sessions(100).ok()?;
        let names = sessions.iter().flat_map(|session| ["displayName", "sessionId"].map(|name| session.get(name)));
        nearest(word, names.flatten().filter_map(Value::as_str)).map(str::to_owned)
    }

    /// Opens the session with this id or explicit name, or a new one if nothing matches, which works in this folder as by
    /// [`Gateway::create_session`].
    ///
    /// # Errors
    /// As [`Gateway::call`]: `forbidden` for the id of another identity, `conflict` for a name that several sessions have.
    pub fn resume_session(&mut self, selector: &str, folder: Option<&Path>) -> Result<Session, Error> {
        self.open_session(&format!("/api/chat/sessions/{}/resume", encode_segment(selector)), folder)
    }

    /// Returns the newest sessions of everybody, at most `limit`, without those that have neither a visible prompt nor a name, and
    /// whether there are more.
    pub fn sessions(&mut self, chosen: Chosen, limit: u32) -> Result<(Vec<Value>, bool), Error> {
        let archived = if chosen.archived { "&archived=1" } else { "" };
        let scheduled = if chosen.scheduled { "" } else { "&scheduled=0" };
        let (mut sessions, mut left, mut after) = (Vec::new(), limit, String::new());
        loop {
            let count = left.min(MAX_PAGE);
            let page = self.get(&format!("/api/chat/sessions?empty=0&limit={count}{archived}{scheduled}{after}"))?;
            sessions.extend(list_of(&page)?.iter().cloned());
            left -= count;
            match page.pointer("/page/after").and_then(Value::as_str) {
                Some(next) if left > 0 => after = format!("&after={}", encode_query(next)),
                next => return Ok((sessions, next.is_some())),
            }
        }
    }

    /// Returns the newest sessions of the person at the terminal, at most `limit` (1 to 100), as [`Gateway::sessions`], without those of
    /// schedules.
    pub fn own_sessions(&mut self, limit: u32) -> Result<Vec<Value>, Error> {
        let target = format!("/api/chat/sessions?empty=0&limit={limit}&scheduled=0&{}", query(&local()));
        list_of(&self.get(&target)?).map(<[Value]>::to_vec)
    }

    /// Returns a page of the sessions of the person at the terminal, newest first, in the form of the gateway's response, without
    /// those that have neither a visible prompt nor a name. `after` is the cursor of the previous page.
    pub fn session_page(&mut self, limit: u32, after: Option<&str>) -> Result<Value, Error> {
        let after = after.map_or_else(String::new, |after| format!("&after={}", encode_query(after)));
        self.get(&format!("/api/chat/sessions?empty=0&limit={limit}&{}{after}", query(&local())))
    }

    /// Returns the newest exchanges of somebody's session, oldest first, at most `limit` (1 to 100). `before` is the cursor of a page:
    /// they are then those before that page.
    pub fn transcript(&mut self, of: &Scope, session: &str, limit: u32, before: Option<&str>) -> Result<Value, Error> {
        let (session, query) = (encode_segment(session), query(of));
        let before = before.map_or_else(String::new, |before| format!("&before={}", encode_query(before)));
        self.get(&format!("/api/chat/sessions/{session}/transcript?limit={limit}&{query}{before}"))
    }

    /// Cancels a session's running turn, or only the one of this submission. Returns whether there was one.
    pub fn cancel(&mut self, of: &Scope, session: &str, submission: Option<&str>) -> Result<bool, Error> {
        let target = format!("/api/chat/sessions/{}/cancel", encode_segment(session));
        let mut body = json!(of);
        if let Some(id) = submission {
            body["submissionId"] = id.into();
        }
        let answer = self.post(&target, &body)?;
        Ok(answer.get("cancelled") == Some(&json!(true)))
    }
}

/// Returns the reason why a turn failed, from its last event or from its exchange.
pub fn failure(turn: &Value) -> &str {
    let error = turn.get("error");
    let message = error.and_then(Value::as_str).or_else(|| error?.get("message")?.as_str());
    message.unwrap_or("the turn failed")
}

fn list_of(page: &Value) -> Result<&[Value], Error> {
    let sessions = page.get("sessions").and_then(Value::as_array);
    sessions.map(Vec::as_slice).ok_or_else(|| Error::internal("the gateway's answer has no list of sessions"))
}

fn session_of(answer: &Value) -> Result<Session, Error> {
    Session::of(answer).ok_or_else(|| Error::internal("the gateway's answer names no session"))
}
