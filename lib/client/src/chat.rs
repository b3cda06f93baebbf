//! Conversations: prompts, turns and sessions, on behalf of somebody.

use ken_types::Error;
use ken_types::id::Mint;
use ken_types::uri::{encode_query, encode_segment};
use serde_json::{Map, Value, json};

use crate::gateway::Gateway;

/// On whose behalf: sessions belong to one identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub connector: String,
    pub actor: String,
    pub conversation: String,
    pub thread: Option<String>,
}

impl Identity {
    /// The person at this machine's terminal, which all terminal programs share.
    pub fn local() -> Identity {
        Identity {
            connector: "tui".to_owned(),
            actor: "local-tui".to_owned(),
            conversation: "local-tui".to_owned(),
            thread: None,
        }
    }

    /// The identity that a record names: a session of a list, for instance.
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

    fn query(&self) -> String {
        let pairs = self.fields().into_iter().map(|(name, value)| {
            let value = value.as_str().map(encode_query).unwrap_or_default();
            format!("{name}={value}")
        });
        pairs.collect::<Vec<_>>().join("&")
    }
}

/// What is said, by whom, in which session.
#[derive(Debug, Clone)]
pub struct Prompt {
    pub identity: Identity,
    pub text: String,
    /// Id or explicit name; a fresh session without it.
    pub session: Option<String>,
    /// The only model that may answer, as `provider/model`.
    pub model: Option<String>,
    /// At most 8.
    pub images: Vec<Image>,
}

/// A picture that goes with a prompt.
#[derive(Debug, Clone)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// Base64, at most 14 680 064 characters.
    pub data: String,
}

impl Prompt {
    pub fn new(identity: Identity, text: &str) -> Prompt {
        Prompt {
            identity,
            text: text.to_owned(),
            session: None,
            model: None,
            images: Vec::new(),
        }
    }
}

/// The answer to a message that was accepted.
#[derive(Debug, Clone)]
pub struct Accepted {
    body: Value,
}

/// The turn that a prompt started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    pub submission: String,
    /// The path of its stream; the turn's events follow `offset` and carry its `submissionId`.
    pub stream: String,
    pub offset: String,
}

impl Accepted {
    fn text(&self, pointer: &str) -> Option<String> {
        self.body
            .pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    }

    /// The session it went to; commands such as `/help` have none.
    pub fn session(&self) -> Option<String> {
        self.text("/session/id")
    }

    /// The answer of a command, which has no turn.
    pub fn result(&self) -> Option<String> {
        self.text("/result/text")
    }

    /// The turn of a prompt.
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
    /// Says something, and returns as soon as it is accepted.
    ///
    /// # Errors
    /// As [`Gateway::call`]; a repeat is never a second prompt.
    pub fn chat(&mut self, prompt: &Prompt) -> Result<Accepted, Error> {
        if !prompt.images.is_empty() {
            return self.chat_with_images(prompt);
        }
        let mut body = prompt.identity.fields();
        body.insert("text".to_owned(), prompt.text.as_str().into());
        if let Some(session) = &prompt.session {
            body.insert("session".to_owned(), session.as_str().into());
        }
        if let Some(model) = &prompt.model {
            body.insert("model".to_owned(), model.as_str().into());
        }
        let key = Mint::fresh()?.ulid();
        let body = self.post("/api/chat/events", &key, &Value::Object(body))?;
        Ok(Accepted { body })
    }

    /// Images go to the session's agent itself, so the session has to be known before.
    fn chat_with_images(&mut self, prompt: &Prompt) -> Result<Accepted, Error> {
        let session = match &prompt.session {
            Some(selector) => {
                let target = format!("/api/chat/sessions/{}/resume", encode_segment(selector));
                self.post(
                    &target,
                    &Mint::fresh()?.ulid(),
                    &Value::Object(prompt.identity.fields()),
                )?
            }
            None => {
                let fields = Value::Object(prompt.identity.fields());
                self.post("/api/chat/sessions", &Mint::fresh()?.ulid(), &fields)?
            }
        };
        let id = session.pointer("/session/id").and_then(Value::as_str);
        let id = id.ok_or_else(|| Error::internal("the gateway's answer has no session"))?;
        let images = prompt
            .images
            .iter()
            .map(|image| json!({"type": "image", "data": image.data, "mimeType": image.media_type}));
        let mut body = json!({"message": prompt.text, "images": images.collect::<Vec<_>>()});
        if let (Some(model), Value::Object(fields)) = (&prompt.model, &mut body) {
            fields.insert("model".to_owned(), model.as_str().into());
        }
        let target = format!("/agents/orchestrator/{}", encode_segment(id));
        let mut body = self.post(&target, &Mint::fresh()?.ulid(), &body)?;
        if let Value::Object(fields) = &mut body {
            fields.insert("session".to_owned(), json!({"id": id}));
        }
        Ok(Accepted { body })
    }

    /// The newest sessions, of one identity or of all: at most `limit`, 1 to 100.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn sessions(
        &mut self,
        of: Option<&Identity>,
        archived: bool,
        limit: u32,
    ) -> Result<Vec<Value>, Error> {
        let mut target = format!("/api/chat/sessions?limit={limit}");
        if archived {
            target += "&archived=1";
        }
        if let Some(identity) = of {
            target += &format!("&{}", identity.query());
        }
        match self.get(&target)?.get_mut("sessions").map(Value::take) {
            Some(Value::Array(sessions)) => Ok(sessions),
            _ => Err(Error::internal("the gateway's answer has no list of sessions")),
        }
    }

    /// The newest exchanges of a session: at most `limit`, 1 to 100, oldest first.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn transcript(&mut self, identity: &Identity, session: &str, limit: u32) -> Result<Value, Error> {
        let session = encode_segment(session);
        let query = identity.query();
        self.get(&format!(
            "/api/chat/sessions/{session}/transcript?limit={limit}&{query}"
        ))
    }

    /// Cancels a session's running turn; whether there was one.
    ///
    /// # Errors
    /// As [`Gateway::call`].
    pub fn cancel_turn(&mut self, identity: &Identity, session: &str) -> Result<bool, Error> {
        let target = format!("/api/chat/sessions/{}/cancel", encode_segment(session));
        let key = Mint::fresh()?.ulid();
        let answer = self.post(&target, &key, &Value::Object(identity.fields()))?;
        Ok(answer.get("cancelled") == Some(&json!(true)))
    }
}
