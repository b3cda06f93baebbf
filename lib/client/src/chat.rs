//! Conversations: prompts, turns and sessions, on behalf of an identity.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ken_types::id::Mint;
use ken_types::uri::{encode_query, encode_segment};
use ken_types::{Code, Error};
use serde_json::{Map, Value, json};

use crate::gateway::Gateway;
use crate::nearest::nearest;

/// The person or program on whose behalf a request is made, and the conversation. A session belongs to one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub connector: String,
    pub actor: String,
    pub conversation: String,
    pub thread: Option<String>,
}

impl Identity {
    /// Returns the identity of the person at this machine's terminal. All terminal programs share it.
    pub fn local() -> Identity {
        Identity {
            connector: "tui".to_owned(),
            actor: "local-tui".to_owned(),
            conversation: "local-tui".to_owned(),
            thread: None,
        }
    }

    /// Returns the identity that a record contains, for instance a session of a list.
    pub fn of(record: &Value) -> Option<Identity> {
        let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
        let connector = text("connector").or_else(|| {
            Some(match text("origin")?.as_str() {
                "tui" => "tui".to_owned(),
                "web" => "web-api".to_owned(),
                _ => "messenger".to_owned(),
            })
        });
        Some(Identity {
            connector: connector?,
            actor: text("actorId")?,
            conversation: text("conversationId")?,
            thread: text("threadId"),
        })
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("connector".to_owned(), self.connector.as_str().into());
        fields.insert("actorId".to_owned(), self.actor.as_str().into());
        fields.insert("conversationId".to_owned(), self.conversation.as_str().into());
        if let Some(thread) = &self.thread {
            fields.insert("threadId".to_owned(), thread.as_str().into());
        }
        fields
    }

    /// Returns connector, actor and conversation as a query, for lists that have no threads.
    pub(crate) fn query_of_scope(&self) -> String {
        let whole = Identity { thread: None, ..self.clone() };
        whole.query()
    }

    fn query(&self) -> String {
        let pairs = self.fields().into_iter().map(|(name, value)| {
            let value = value.as_str().map(encode_query).unwrap_or_default();
            format!("{name}={value}")
        });
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// A message with its sender and session.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub identity: Identity,
    pub text: String,
    /// Id or explicit name of the session. `None` opens a new one.
    pub session: Option<String>,
    /// The only model that may answer, as `provider/model`.
    pub model: Option<String>,
    /// At most 8 images.
    pub images: Vec<Image>,
    /// Whether the text contains files. They count as text from outside.
    pub attached: bool,
    /// The workflow to which the prompt belongs. It is stored with the prompt's event. Transcripts leave out the
    /// prompts of internal workflows.
    pub workflow: Option<String>,
    /// The `Idempotency-Key`. A later request with the same key does not add a second prompt; it gets the response to
    /// this one. `None` generates a key.
    pub key: Option<String>,
}

/// A session that the gateway has opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: String,
    /// Its explicit name.
    pub name: Option<String>,
    /// Whether this request created it.
    pub created: bool,
    /// The trusted folder in which it works.
    pub workspace: Option<String>,
}

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
    pub fn new(identity: Identity, text: &str) -> Prompt {
        Prompt {
            identity,
            text: text.to_owned(),
            session: None,
            model: None,
            images: Vec::new(),
            attached: false,
            workflow: None,
            key: None,
        }
    }

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
    body: Value,
}

/// The turn that a prompt started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub submission: String,
    /// The path of its stream. The events of the turn come after `offset` and contain its `submissionId`.
    pub stream: String,
    pub offset: String,
}

impl Accepted {
    /// Returns the whole body of the response.
    pub fn body(&self) -> &Value {
        &self.body
    }

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
        let mut body = prompt.identity.fields();
        body.insert("text".to_owned(), prompt.text.as_str().into());
        for (name, value) in [("session", &prompt.session), ("model", &prompt.model), ("workflow", &prompt.workflow)] {
            body.extend(value.as_deref().map(|value| (name.to_owned(), value.into())));
        }
        if prompt.attached {
            body.insert("attached".to_owned(), true.into());
        }
        let body = self.post_with_key("/api/chat/events", &prompt.key()?, &Value::Object(body))?;
        Ok(Accepted { body })
    }

    /// A message with images is sent to the session's agent directly, so the session has to be opened first.
    fn chat_with_images(&mut self, prompt: &Prompt) -> Result<Accepted, Error> {
        let id = match &prompt.session {
            Some(selector) => self.existing_session(&prompt.identity, selector)?.id,
            None => self.create_session(&prompt.identity, None)?.id,
        };
        let images = prompt
            .images
            .iter()
            .map(|image| json!({"type": "image", "data": image.data, "mimeType": image.media_type}));
        let mut body = json!({"message": prompt.text, "images": images.collect::<Vec<_>>()});
        if let Some(model) = &prompt.model {
            body["model"] = model.as_str().into();
        }
        let target = format!("/agents/orchestrator/{}", encode_segment(&id));
        let mut body = self.post_with_key(&target, &prompt.key()?, &body)?;
        if let Value::Object(fields) = &mut body {
            fields.insert("session".to_owned(), json!({"id": id}));
        }
        Ok(Accepted { body })
    }

    /// Opens a new session, which works in this trusted folder or else in the workspace of the system.
    ///
    /// # Errors
    /// As [`Gateway::call`]: `forbidden` if the folder is not trusted.
    pub fn create_session(&mut self, identity: &Identity, folder: Option<&Path>) -> Result<Session, Error> {
        let mut body = identity.fields();
        body.extend(folder.map(|folder| ("workspace".to_owned(), folder.display().to_string().into())));
        self.open("/api/chat/sessions", body)
    }

    /// Returns the session with this id or explicit name. Unlike [`Gateway::resume_session`], it never makes one.
    ///
    /// # Errors
    /// As [`Gateway::call`]: `not_found` with the nearest name if there is no such session, `forbidden` and `conflict` as
    /// there.
    pub fn existing_session(&mut self, identity: &Identity, selector: &str) -> Result<Session, Error> {
        // The command fails where the route of the same name makes a session.
        match self.chat(&Prompt::new(identity.clone(), &format!("/resume {selector}"))) {
            Ok(accepted) => session_of(accepted.body()),
            Err(error) if error.code == Code::NotFound => {
                let list = "`ken sessions` lists them";
                let hint = match self.nearest_session(identity, selector) {
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
    pub fn nearest_session(&mut self, identity: &Identity, word: &str) -> Option<String> {
        let sessions = self.sessions(Some(identity), Chosen::default(), 100).ok()?;
        let names = sessions.iter().flat_map(|session| ["displayName", "sessionId"].map(|name| session.get(name)));
        nearest(word, names.flatten().filter_map(Value::as_str)).map(str::to_owned)
    }

    /// Opens the session with this id or explicit name, or a new one if nothing matches.
    ///
    /// # Errors
    /// As [`Gateway::call`]: `forbidden` for the id of another identity, `conflict` for a name that several sessions have.
    pub fn resume_session(&mut self, identity: &Identity, selector: &str) -> Result<Session, Error> {
        let target = format!("/api/chat/sessions/{}/resume", encode_segment(selector));
        self.open(&target, identity.fields())
    }

    fn open(&mut self, target: &str, body: Map<String, Value>) -> Result<Session, Error> {
        session_of(&self.post(target, &Value::Object(body))?)
    }

    /// Returns the newest sessions of one identity or of all, at most `limit` (1 to 100), without those that have neither
    /// a visible prompt nor a name.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn sessions(&mut self, of: Option<&Identity>, chosen: Chosen, limit: u32) -> Result<Vec<Value>, Error> {
        let mut target = format!("/api/chat/sessions?empty=0&limit={limit}");
        if chosen.archived {
            target += "&archived=1";
        }
        if !chosen.scheduled {
            target += "&scheduled=0";
        }
        if let Some(identity) = of {
            target += &format!("&{}", identity.query());
        }
        match self.get(&target)?.get_mut("sessions").map(Value::take) {
            Some(Value::Array(sessions)) => Ok(sessions),
            _ => Err(Error::internal("the gateway's answer has no list of sessions")),
        }
    }

    /// Returns a page of the sessions of an identity, newest first, in the form of the gateway's response, without those
    /// that have neither a visible prompt nor a name. `after` is the cursor of the previous page.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn session_page(&mut self, identity: &Identity, limit: u32, after: Option<&str>) -> Result<Value, Error> {
        let query = identity.query();
        let after = after.map_or_else(String::new, |after| format!("&after={}", encode_query(after)));
        self.get(&format!("/api/chat/sessions?empty=0&limit={limit}&{query}{after}"))
    }

    /// Returns the newest exchanges of a session, oldest first, at most `limit` (1 to 100). `before` is the cursor of a page: they are
    /// then those before that page.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn transcript(
        &mut self,
        identity: &Identity,
        session: &str,
        limit: u32,
        before: Option<&str>,
    ) -> Result<Value, Error> {
        let session = encode_segment(session);
        let query = identity.query();
        let before = before.map_or_else(String::new, |before| format!("&before={}", encode_query(before)));
        self.get(&format!("/api/chat/sessions/{session}/transcript?limit={limit}&{query}{before}"))
    }

    /// Cancels a session's running turn, or only the one of this submission. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn cancel(&mut self, identity: &Identity, session: &str, submission: Option<&str>) -> Result<bool, Error> {
        let target = format!("/api/chat/sessions/{}/cancel", encode_segment(session));
        let mut body = identity.fields();
        body.extend(submission.map(|id| ("submissionId".to_owned(), id.into())));
        let answer = self.post(&target, &Value::Object(body))?;
        Ok(answer.get("cancelled") == Some(&json!(true)))
    }
}

/// Returns the reason why a turn failed, from its last event or from its exchange.
pub fn failure(turn: &Value) -> &str {
    let error = turn.get("error");
    let message = error.and_then(Value::as_str).or_else(|| error?.get("message")?.as_str());
    message.unwrap_or("the turn failed")
}

/// Returns the session that an answer of the gateway names.
fn session_of(answer: &Value) -> Result<Session, Error> {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Ok(Session {
        id: text("/session/id").ok_or_else(|| Error::internal("the gateway's answer names no session"))?,
        name: text("/session/title"),
        created: answer.pointer("/session/created") == Some(&json!(true)),
        workspace: text("/session/workspace"),
    })
}
