//! The state that all routes share: connections to the other parts, and the configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ken_chat::Ingress;
use ken_http::{Request, names_loopback};
use ken_types::ops::model::ModelInfo;
use ken_wire::{CachedReply, Daemon};
use nix::unistd::User;
use serde_json::{Map, Value};

use crate::dedup::DedupSlots;
use crate::link::LinkKey;
use crate::mcp::state::{Answered, Running};
use crate::part::Part;
use crate::probe::WriteProbe;
use crate::stream::follow::FollowedStreams;

/// Connections to the other parts, and the configuration.
pub(crate) struct Gateway {
    pub(crate) store: Part,
    pub(crate) write_probe: WriteProbe,
    pub(crate) model: Part,
    /// The models that ken-model has configured.
    pub(crate) models: CachedReply<ModelInfo>,
    pub(crate) agent: Part,
    pub(crate) approver: Part,
    pub(crate) cognitive: Part,
    pub(crate) scheduler: Part,
    pub(crate) messenger: Part,
    pub(crate) kend: Part,
    pub(crate) tools: Part,
    /// The calls over MCP that are being answered.
    pub(crate) mcp_running: Arc<Running>,
    pub(crate) mcp_answered: Answered,
    pub(crate) ingress: Ingress,
    pub(crate) followed: FollowedStreams,
    pub(crate) dedup_slots: DedupSlots,
    /// The state directory, with the list of trusted folders.
    pub(crate) state: PathBuf,
    /// How long a chat event waits for its turn before the reply is 202.
    pub(crate) wait: Duration,
    /// How long a caller of the interface of OpenAI waits for a turn that waits for a decision.
    pub(crate) door_wait: Duration,
    /// Whether that interface also has the models themselves.
    pub(crate) raw_models: bool,
    /// Whether callers over MCP can read what was said to ken.
    pub(crate) mcp_transcripts: bool,
    /// The configured public URL without a trailing slash, or empty if there is none.
    pub(crate) public_url: String,
    /// The listening address as a URL. It is used in replies to requests whose `Host` is not a loopback name.
    pub(crate) own_url: String,
    pub(crate) has_secret: bool,
    /// The key of the codes and tokens with which browsers come in.
    pub(crate) link_key: Arc<LinkKey>,
    /// The user that this process runs as; `None` if it has no name.
    pub(crate) own_user: Option<User>,
    /// Whether requests from this machine need no secret.
    pub(crate) trusts_loopback: bool,
    /// Whether it can be seen which user sends a request, if that matters.
    pub(crate) sees_owners: bool,
}

impl Daemon for Gateway {
    fn stats(&self) -> Map<String, Value> {
        Map::from_iter([
            ("followed_streams".to_owned(), self.followed.count().into()),
            ("has_secret".to_owned(), self.has_secret.into()),
            ("trusts_loopback".to_owned(), self.trusts_loopback.into()),
            ("sees_owners".to_owned(), self.sees_owners.into()),
        ])
    }
}

impl Gateway {
    /// Returns the name of a user. That of its own user is looked up once, because a look-up may ask a server; others are
    /// local only where every user is.
    pub(crate) fn user_name(&self, uid: u32) -> Option<String> {
        let own = self.own_user.as_ref().filter(|user| user.uid.as_raw() == uid);
        own.map(|user| user.name.clone())
    }

    /// Returns the base of the URLs in the reply to a request, without a trailing slash.
    pub(crate) fn base_url(&self, request: &Request) -> String {
        if !self.public_url.is_empty() {
            return self.public_url.clone();
        }
        match request.header("host") {
            Some(host) if names_loopback(host) => format!("http://{host}"),
            _ => self.own_url.clone(),
        }
    }
}
