//! What all routes share, and how it comes to be.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use ken_audit::Record;
use ken_claims::Held;
use ken_flow::{Engine, Protocols, Shelf};
use ken_http::{Limiter, Rate, Server};
use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_wire::{Daemon, Table};
use serde_json::{Map, Value};

use crate::audit::Audit;
use crate::failure::envelope;
use crate::keys::Keys;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::routes;
use crate::runs;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::wire;

/// Wrong keys of one address.
const WRONG_KEYS: Rate = Rate::per_minute(20);

/// Everything that a request may need.
pub(crate) struct Cognitive {
    pub(crate) settings: Settings,
    pub(crate) keys: Keys,
    pub(crate) limits: Limits,
    pub(crate) wrong_keys: Limiter,
    pub(crate) audit: Audit,
    pub(crate) metrics: Metrics,
    pub(crate) sessions: Sessions,
    pub(crate) engine: Engine,
    pub(crate) shelf: Shelf,
    pub(crate) models: Models,
    pub(crate) started: Instant,
    /// Runs that were claimed.
    pub(crate) held: Arc<Held>,
}

impl Daemon for Cognitive {
    fn stats(&self) -> Map<String, Value> {
        [
            ("sessions".to_owned(), self.sessions.count().into()),
            ("audit_waiting".to_owned(), self.audit.waiting().into()),
            ("runs".to_owned(), self.held.running().into()),
        ]
        .into_iter()
        .collect()
    }
}

impl Cognitive {
    /// Records what is about to happen, or has happened and not been told yet. After an error it must not.
    pub(crate) async fn record(&self, records: Vec<Record>) -> Result<(), Error> {
        let count = records.len();
        let written = self.audit.write(records).await;
        self.metrics.audited(count, &written);
        written
    }

    /// An act was recorded before it was done. When it could not be done, that is recorded too.
    pub(crate) async fn settle(&self, record: Record, done: Result<(), Error>) -> Result<(), Error> {
        if done.is_err() {
            _ = self.record(vec![record.with("outcome", "failed")]).await;
        }
        done
    }

    pub(crate) fn metrics_text(&self) -> Result<String, Error> {
        self.metrics
            .set_state(self.audit.waiting(), self.sessions.count(), &self.engine.state());
        self.metrics.text()
    }
}

/// Opens what the server needs and starts to listen.
pub(crate) fn start(
    program: Program,
    start: &mut Start<NoOptions>,
) -> Result<(Table<Cognitive>, Arc<Cognitive>), Error> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::read(ken_service::secret)?;
    let protocols = Protocols::shipped();
    let dir = start.places.state.join("cognitive");
    let app = Arc::new(Cognitive {
        keys: Keys::open(&dir, settings.key.as_deref())?,
        limits: Limits::new(&settings),
        engine: Engine::new(protocols.clone(), workflow_settings(variable, &protocols)?),
        shelf: Shelf::usual(protocols),
        models: Models::new(&dir),
        wrong_keys: Limiter::new(WRONG_KEYS),
        audit: Audit::start(dir)?,
        metrics: Metrics::new(),
        sessions: Sessions::default(),
        started: Instant::now(),
        held: Arc::default(),
        settings,
    });
    let socket = http_socket(start)?;
    let server = Server::new(routes::table(app.settings.body_bytes), app.clone()).envelope(envelope);
    let mut stop = start.stop.clone();
    start.tasks.spawn(async move {
        if let Err(error) = server.run(socket, async move { stop.stopped().await }).await {
            tracing::error!("HTTP has ended: {error}");
        }
    });
    let claims = runs::claim(
        app.clone(),
        start.places.clone(),
        app.held.clone(),
        start.stop.clone(),
    );
    start.tasks.spawn(claims);
    Ok((wire::table(program.part(), program.version), app))
}

/// A time for a protocol that there is not is a mistake like any other.
fn workflow_settings(
    variable: impl Fn(&str) -> Option<String>,
    protocols: &Protocols,
) -> Result<ken_flow::Settings, Error> {
    let settings = ken_flow::Settings::read(variable)?;
    let unknown = settings
        .timeouts
        .keys()
        .find(|name| protocols.find(name).is_none());
    match unknown {
        None => Ok(settings),
        Some(name) => {
            let known: Vec<&str> = protocols.names().collect();
            let message = format!("PROTOCOL_TIMEOUTS_MS: there is no protocol `{name}`");
            Err(Error::invalid("PROTOCOL_TIMEOUTS_MS", message).hint(format!("known: {}", known.join(", "))))
        }
    }
}

/// The socket that kend holds, else one of our own.
fn http_socket(start: &mut Start<NoOptions>) -> Result<TcpListener, Error> {
    if let Some(socket) = start.sockets.take("http") {
        return Ok(TcpListener::from(socket));
    }
    let address = SocketAddr::new(start.config.cognitive.listen, start.config.cognitive.port);
    TcpListener::bind(address).map_err(|error| {
        Error::unavailable(format!("cannot listen on {address}: {error}"))
            .hint("another port: [cognitive] port in ken.toml")
    })
}
