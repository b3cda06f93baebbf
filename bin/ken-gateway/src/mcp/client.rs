//! Who calls: the caller and its scope, the session of a client, and ids that only its caller can use.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ken_http::Request;
use ken_types::id::{RunId, SessionId, SubmissionId, random};
use ken_types::ops::store::Scope;
use ken_types::{Error, hex};
use serde_json::{Value, json};

use super::message::{Call, INVALID_REQUEST, RpcError};
use super::version::client_name;
use crate::app::Gateway;
use crate::idempotency::owner;
use crate::identity::Identity;

/// The maximum number of characters of a client's name that are kept.
const NAME_CHARACTERS: usize = 64;
/// The header with the session of a client that has said `initialize`.
pub(super) const SESSION: &str = "mcp-session-id";
/// The header by which ken-mcp tells the requests of one of its processes from those of others, because they share ids.
const INSTANCE: &str = "x-ken-mcp";

/// The client that has sent a request.
#[derive(Debug, Clone)]
pub(super) struct Client {
    /// The caller and its scope. Everything that is handed out belongs to it.
    owner: String,
    pub(super) scope: Scope,
    /// What the client calls itself.
    pub(super) name: Option<String>,
    /// Its session, or the process of ken-mcp. Request ids are unique within it.
    pub(super) instance: Option<String>,
    pub(super) modern: bool,
}

/// Work for whose end a call waits.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) work: Work,
    /// The session of a turn, if it is known.
    pub(super) session: Option<SessionId>,
    /// The key of the call that has started it, if this one has.
    pub(super) key: Option<String>,
    /// Whether an earlier request with the same `Idempotency-Key` has done it.
    pub(super) is_replayed: bool,
}

/// Work that a call has started, or asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    Turn(SubmissionId),
    Run(RunId),
}

impl Work {
    /// The id under which the store waits for it.
    pub(super) fn submission(&self) -> SubmissionId {
        match self {
            Work::Turn(id) => id.clone(),
            Work::Run(id) => SubmissionId(id.as_str().to_owned()),
        }
    }

    fn text(&self) -> String {
        match self {
            Work::Turn(id) => format!("turn-{id}"),
            Work::Run(id) => format!("run-{id}"),
        }
    }

    fn read(text: &str) -> Option<Work> {
        let turn = text.strip_prefix("turn-").map(|id| Work::Turn(SubmissionId(id.to_owned())));
        turn.or_else(|| text.strip_prefix("run-").map(|id| Work::Run(RunId(id.to_owned()))))
    }
}

impl Client {
    /// Reads who calls. `call` is absent where the request has no message.
    pub(super) fn of(request: &Request, call: Option<&Call>, modern: bool) -> Result<Client, Error> {
        let scope = Identity::web_scope(&request.query()?)?;
        let conversation = (&scope.connector, &scope.actor_id, &scope.conversation_id, &scope.thread_id);
        let header = if modern { INSTANCE } else { SESSION };
        Ok(Client {
            owner: format!("{} {conversation:?}", owner(request.caller(), request.peer())),
            name: call.and_then(client_name).map(|name| name.chars().take(NAME_CHARACTERS).collect()),
            instance: request.header(header).map(str::to_owned),
            scope,
            modern,
        })
    }

    /// Makes a session for a client that has said `initialize`. It holds its own proof, so that it outlives a restart and nothing
    /// has to be kept for clients that never come back.
    pub(super) fn new_session(&self, gateway: &Gateway) -> Result<String, Error> {
        let name = URL_SAFE_NO_PAD.encode(self.name.as_deref().unwrap_or_default());
        let text = format!("{}.{name}", hex::encode(&random::<16>()?));
        Ok(format!("{text}.{}", self.mark(gateway, SESSION_KIND, &text)))
    }

    /// Checks the session of a request, and takes the name of the client from it.
    pub(super) fn check_session(&mut self, gateway: &Gateway) -> Result<(), RpcError> {
        let wrong = |message: &str, status| Err(RpcError::new(INVALID_REQUEST, message).status(status));
        let Some(session) = &self.instance else {
            return wrong("the header Mcp-Session-Id is missing: a client begins with initialize", 400);
        };
        let Some((text, _)) =
            session.rsplit_once('.').filter(|(text, mark)| self.is_own(gateway, SESSION_KIND, text, mark))
        else {
            return wrong("there is no such session for this caller", 404);
        };
        let name = text.split_once('.').and_then(|(_, name)| URL_SAFE_NO_PAD.decode(name).ok());
        self.name = name.and_then(|name| String::from_utf8(name).ok()).filter(|name| !name.is_empty());
        Ok(())
    }

    /// Returns the id by which this caller can ask for the result of work.
    pub(super) fn id_of(&self, gateway: &Gateway, work: &Work) -> String {
        let text = work.text();
        let mark = self.mark(gateway, "mcp result", &text);
        format!("{text}.{}", mark.get(..RESULT_MARK).unwrap_or(&mark))
    }

    /// Returns the work of an id that was handed out to this caller.
    pub(super) fn work_of(&self, gateway: &Gateway, id: &str) -> Option<Work> {
        let (text, _) = id.rsplit_once('.')?;
        let work = Work::read(text)?;
        (self.id_of(gateway, &work) == id).then_some(work)
    }

    /// Returns the id of an event of an answer, from which the answer to this request can be resumed.
    pub(super) fn event_id(&self, gateway: &Gateway, begun: &Begun, request: &Value) -> String {
        let event = json!([begun.work.text(), begun.session, begun.key, request]);
        let text = URL_SAFE_NO_PAD.encode(event.to_string());
        format!("{text}.{}", self.mark(gateway, EVENT_KIND, &text))
    }

    /// Reads the id of an event of an answer to this caller. Returns the work, and the id of the request.
    pub(super) fn event(&self, gateway: &Gateway, id: &str) -> Option<(Begun, Value)> {
        let (text, _) = id.rsplit_once('.').filter(|(text, mark)| self.is_own(gateway, EVENT_KIND, text, mark))?;
        let event = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (work, session, key, request): (String, _, _, _) = serde_json::from_slice(&event).ok()?;
        Some((Begun { work: Work::read(&work)?, session, key, is_replayed: false }, request))
    }

    /// Names a request of a client whose request ids are unique.
    pub(super) fn request_name(&self, id: &Value) -> Option<String> {
        self.instance.as_ref().map(|instance| format!("{} {instance} {id}", self.owner))
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    fn mark(&self, gateway: &Gateway, kind: &str, text: &str) -> String {
        gateway.link_key.mark(kind, &format!("{text} {}", self.owner))
    }

    fn is_own(&self, gateway: &Gateway, kind: &str, text: &str, mark: &str) -> bool {
        gateway.link_key.is_mark(kind, &format!("{text} {}", self.owner), mark)
    }
}

const SESSION_KIND: &str = "mcp session";
const EVENT_KIND: &str = "mcp event";
/// The length of the proof in the id of a result, 64 bits: models copy these ids, and each guess is a request.
const RESULT_MARK: usize = 16;
