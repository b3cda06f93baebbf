//! Starts the server: reads settings, and opens state and sockets.

use std::sync::Arc;
use std::time::Instant;

use ken_flow::{Catalog, Engine, Protocols};
use ken_http::{Access, Limiter, Rate, Server, Trust, listening};
use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_wire::Table;

use crate::app::Cognitive;
use crate::audit::Audit;
use crate::failure::envelope;
use crate::keys::Keys;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::research::Research;
use crate::routes;
use crate::runs;
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::wire;

/// The rate of wrong keys from one address, above which the address is refused.
const WRONG_KEYS: Rate = Rate::per_minute(20);

/// Opens the state and starts listening.
pub(crate) fn start(
    program: Program,
    start: &mut Start<NoOptions>,
) -> Result<(Table<Cognitive>, Arc<Cognitive>), Error> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::read(ken_service::secret)?;
    let protocols = Protocols::shipped();
    let dir = start.places.state.join("cognitive");
    let models = Models::new(&start.places.state.join("models"));
    models.take_over(&dir)?;
    models.check_settings(variable)?;
    let app = Arc::new(Cognitive {
        keys: Keys::open(&dir, settings.key.as_deref())?,
        limits: Limits::new(&settings),
        engine: Engine::new(protocols.clone(), workflow_settings(variable, &protocols)?),
        catalog: Catalog::usual(protocols),
        models,
        wrong_keys: Limiter::new(WRONG_KEYS),
        audit: Audit::start(dir)?,
        metrics: Metrics::new(),
        sessions: Sessions::default(),
        research: Research::new(&start.places),
        started: Instant::now(),
        held: Arc::default(),
        settings,
    });
    let listen = (start.config.cognitive.listen, start.config.cognitive.port);
    let socket = listening(start.sockets.take("http"), listen.into(), "cognitive")?;
    // Everybody needs a key, so no request has to be local.
    let access = Access { trust: Trust::Nobody, ..Access::new(None) };
    let server =
        Server { envelope: Some(envelope), access, ..Server::new(routes::table(app.settings.body_bytes), app.clone()) };
    let mut stop = start.stop.clone();
    start.tasks.spawn(async move {
        if let Err(error) = server.run(socket, async move { stop.stopped().await }).await {
            tracing::error!("HTTP has ended: {error}");
        }
    });
    let claims = runs::claim(app.clone(), start.places.clone(), app.held.clone(), start.stop.clone());
    start.tasks.spawn(claims);
    Ok((wire::table(program.part(), program.version), app))
}

/// Reads the settings of the engine, and refuses a timeout for an unknown protocol.
fn workflow_settings(
    variable: impl Fn(&str) -> Option<String>,
    protocols: &Protocols,
) -> Result<ken_flow::Settings, Error> {
    let settings = ken_flow::Settings::read(variable)?;
    let unknown = settings.timeouts.keys().find(|name| protocols.find(name).is_none());
    match unknown {
        None => Ok(settings),
        Some(name) => {
            let known: Vec<&str> = protocols.names().collect();
            let message = format!("PROTOCOL_TIMEOUTS_MS: there is no protocol `{name}`");
            Err(Error::invalid("PROTOCOL_TIMEOUTS_MS", message).hint(format!("known: {}", known.join(", "))))
        }
    }
}
