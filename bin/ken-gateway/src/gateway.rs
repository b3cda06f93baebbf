//! What all routes share, and how it comes to be.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use ken_chat::Ingress;
use ken_http::{Access, Failure, Limiter, Limits, Rate, Request, Server, names_loopback};
use ken_service::{NoOptions, Program, Start};
use ken_types::config::{Config, Gateway as GatewayConfig};
use ken_types::ops::Op;
use ken_types::ops::model::ModelInfo;
use ken_types::{Code, Error};
use ken_wire::{Daemon, Lasting, Pool, Table};
use serde_json::{Map, Value};

use crate::routes;
use crate::slots::Slots;
use crate::tail::Tails;

/// How long one call to another part may take. It is less than a client's timeout and more than a part's restart.
pub(crate) const CALL: Duration = Duration::from_secs(10);
/// How long to find out what became of a change before its caller is told that this is unknown.
pub(crate) const CHANGE: Duration = Duration::from_secs(30);

/// The ways to the other parts, and what was configured.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) store: Store,
    pub(crate) model: Pool,
    /// What ken-model has configured.
    pub(crate) models: Lasting<ModelInfo>,
    pub(crate) agent: Pool,
    pub(crate) cognitive: Pool,
    pub(crate) kend: Pool,
    pub(crate) ingress: Ingress,
    pub(crate) tails: Tails,
    pub(crate) slots: Slots,
    /// How long a chat event waits for its answer before 202.
    pub(crate) wait: Duration,
    /// Without a slash at its end; empty when none is configured.
    public_url: String,
    /// Where it listens, for answers to requests that name no host of this machine.
    own_url: String,
    has_secret: bool,
    /// Requests of this machine need no secret.
    trusts_loopback: bool,
}

/// The store, as routes call it.
#[derive(Debug)]
pub(crate) struct Store(Pool);

impl Store {
    /// Reads, or changes what may well be changed twice; as [`Pool::call`].
    pub(crate) async fn call<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0
            .call::<O>(args, time)
            .await
            .map_err(deadline_as_unavailable)
    }

    /// Changes, under ids that `args` holds; as [`Pool::change`]. `unavailable` says that nothing was done.
    pub(crate) async fn change<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.change::<O>(args, CALL, time).await.map_err(change_failed)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0
    }
}

/// A part that does not answer in time is down for the caller: 503. A deadline (504) is that of the caller's own work, or
/// of a change whose outcome is unknown.
pub(crate) fn deadline_as_unavailable(error: Error) -> Error {
    Error {
        code: match error.code {
            Code::Deadline => Code::Unavailable,
            code => code,
        },
        outcome: None,
        ..error
    }
}

/// 504 for a change that may have been made; 503 only for one that certainly was not.
pub(crate) fn change_failed(error: Error) -> Error {
    match error.is_outcome_unknown() {
        true => Error {
            code: Code::Deadline,
            hint: Some(
                "a request with an Idempotency-Key can be repeated until its outcome is known".to_owned(),
            ),
            ..error
        },
        false => deadline_as_unavailable(error),
    }
}

/// A failed change, with the id that its caller can look for where the outcome is unknown.
pub(crate) fn failed_change(error: Error, field: &str, id: &str) -> Failure {
    match error.is_outcome_unknown() {
        true => Failure::from(error).with(field, id),
        false => error.into(),
    }
}

impl Daemon for Gateway {
    fn stats(&self) -> Map<String, Value> {
        let stats: [(&str, Value); 3] = [
            ("followed_streams", self.tails.count().into()),
            ("has_secret", self.has_secret.into()),
            ("trusts_loopback", self.trusts_loopback.into()),
        ];
        stats
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }
}

impl Gateway {
    /// What the URLs in an answer begin with.
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

/// Opens what the gateway needs and starts to listen.
pub(crate) fn start(
    program: Program,
    start: &mut Start<NoOptions>,
) -> Result<(Table<Gateway>, Arc<Gateway>), Error> {
    let socket = http_socket(start)?;
    let own = socket
        .local_addr()
        .map_err(|error| Error::internal(format!("the HTTP socket: {error}")))?;
    let secret = ken_service::secret("API_SECRET").filter(|secret| !secret.trim().is_empty());
    check_access(&start.config.gateway, secret.is_some())?;
    let pool = |part: &str| Pool::new(start.places.socket(part));
    let (store, model) = (pool("store"), pool("model"));
    let gateway = Arc::new(Gateway {
        ingress: Ingress::new(store.clone()),
        tails: Tails::new(store.clone()),
        slots: Slots::new()?,
        store: Store(store),
        models: Lasting::new(model.clone()),
        model,
        agent: pool("agent"),
        cognitive: pool("cognitive"),
        kend: pool("kend"),
        wait: Duration::from_millis(start.config.chat.wait_ms.into()),
        public_url: start.config.gateway.public_url.trim_end_matches('/').to_owned(),
        own_url: format!("http://{own}"),
        has_secret: secret.is_some(),
        trusts_loopback: start.config.gateway.trusts_loopback(),
    });
    let server = server(&start.config, secret.as_deref(), gateway.clone())?;
    let mut stop = start.stop.clone();
    start.tasks.spawn(async move {
        if let Err(error) = server.run(socket, async move { stop.stopped().await }).await {
            tracing::error!("HTTP has ended: {error}");
        }
    });
    Ok((Table::new(program.part(), program.version), gateway))
}

/// The socket that kend holds, else one of our own.
fn http_socket(start: &mut Start<NoOptions>) -> Result<TcpListener, Error> {
    if let Some(socket) = start.sockets.take("http") {
        return Ok(TcpListener::from(socket));
    }
    let address = SocketAddr::new(start.config.gateway.listen, start.config.gateway.port);
    TcpListener::bind(address).map_err(|error| {
        Error::unavailable(format!("cannot listen on {address}: {error}"))
            .hint("another port: [gateway] port in ken.toml")
    })
}

/// Refuses what would leave the gateway useless or open, and logs what may be a mistake.
fn check_access(config: &GatewayConfig, has_secret: bool) -> Result<(), Error> {
    if !has_secret && !config.listen.is_loopback() {
        let message = format!(
            "gateway.listen is {}, which other machines can reach, and API_SECRET is not set",
            config.listen
        );
        return Err(Error::invalid("gateway.listen", message).hint(
            "put API_SECRET=... into secrets.env, or set [gateway] listen = \"127.0.0.1\" in ken.toml",
        ));
    }
    if has_secret && config.trusts_loopback() {
        tracing::warn!(
            "API_SECRET is set, but requests of this machine need none, and those that a local proxy forwards look the \
             same: behind a proxy set gateway.public_url or gateway.trust_loopback = \"no\""
        );
    }
    Ok(())
}

fn server(config: &Config, secret: Option<&str>, gateway: Arc<Gateway>) -> Result<Server<Gateway>, Error> {
    let limits = Limits {
        connections: config.limits.connections as usize,
        long_responses: config.limits.held_connections as usize,
        body_memory: config.limits.body_memory,
        ..Limits::default()
    };
    let chat = limiter("RATE_LIMIT_CHAT", &config.limits.rate_chat)?;
    let api = limiter("RATE_LIMIT_API", &config.limits.rate_api)?;
    let limit_loopback = match variable("RATE_LIMIT_LOOPBACK") {
        Some(text) => text == "true",
        None => config.limits.rate_loopback,
    };
    Ok(Server::new(routes::table(&chat, &api), gateway)
        .access(Access::new(secret).trust_loopback(config.gateway.trusts_loopback()))
        .limits(limits)
        .limit_loopback(limit_loopback))
}

fn limiter(name: &str, configured: &str) -> Result<Arc<Limiter>, Error> {
    let text = variable(name).unwrap_or_else(|| configured.to_owned());
    let rate = text.parse::<Rate>().map_err(|error| Error {
        at: Some(name.to_owned()),
        ..error
    })?;
    Ok(Arc::new(Limiter::new(rate)))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
