//! Assembles the gateway from its configuration and starts the HTTP server.

use std::sync::Arc;
use std::time::Duration;

use ken_chat::Ingress;
use ken_http::{Access, Limiter, Limits, Rate, Server, Trust, can_see_owners, listening};
use ken_service::{NoOptions, Program, Start};
use ken_types::Error;
use ken_types::config::{Config, Gateway as GatewayConfig, TrustLoopback};
use ken_types::ops::gateway::ConsoleCode;
use ken_wire::{CachedReply, Context, Pool, Table};
use nix::unistd::{User, geteuid};

use crate::app::Gateway;
use crate::console;
use crate::dedup::DedupSlots;
use crate::link::LinkKey;
use crate::mcp::state::Answered;
use crate::part::Part;
use crate::probe::WriteProbe;
use crate::routes;
use crate::stream::follow::FollowedStreams;

/// Connects the gateway to the other parts and starts the HTTP server.
pub(crate) fn start(program: Program, start: &mut Start<NoOptions>) -> Result<(Table<Gateway>, Arc<Gateway>), Error> {
    let listen = (start.config.gateway.listen, start.config.gateway.port);
    let socket = listening(start.sockets.take("http"), listen.into(), "gateway")?;
    let own = socket.local_addr().map_err(|error| Error::internal(format!("the HTTP socket: {error}")))?;
    let secret = ken_service::secret("API_SECRET").filter(|secret| !secret.trim().is_empty());
    if let Some(mistake) = check_access(&start.config.gateway, secret.is_some())? {
        tracing::warn!("{mistake}");
    }
    let trust = trust(&start.config.gateway);
    let sees_owners = trust != Trust::OwnUser || can_see_owners(&socket);
    if !sees_owners {
        tracing::warn!("{BLIND}");
    }
    let part = |name: &str| Part(Pool::new(start.places.socket(name)));
    let (store, model) = (part("store"), part("model"));
    let gateway = Arc::new(Gateway {
        ingress: Ingress::new(store.0.clone()),
        followed: FollowedStreams::new(store.0.clone()),
        dedup_slots: DedupSlots::new()?,
        store,
        write_probe: WriteProbe::default(),
        models: CachedReply::new(model.0.clone()),
        model,
        agent: part("agent"),
        approver: part("approver"),
        cognitive: part("cognitive"),
        scheduler: part("scheduler"),
        messenger: part("messenger"),
        kend: part("kend"),
        tools: part("tools"),
        mcp_running: Arc::default(),
        mcp_answered: Answered::default(),
        state: start.places.state.clone(),
        wait: Duration::from_millis(start.config.chat.wait_ms.into()),
        door_wait: Duration::from_millis(start.config.doors.wait_ms.into()),
        raw_models: start.config.doors.raw_models,
        mcp_transcripts: start.config.doors.mcp_transcripts,
        public_url: start.config.gateway.public_url.trim_end_matches('/').to_owned(),
        own_url: format!("http://{own}"),
        has_secret: secret.is_some(),
        link_key: Arc::new(LinkKey::new(secret.as_deref(), &start.places.state)?),
        own_user: User::from_uid(geteuid()).ok().flatten(),
        trusts_loopback: trust != Trust::Nobody,
        sees_owners,
    });
    let server = server(&start.config, secret.as_deref(), gateway.clone())?;
    let mut stop = start.stop.clone();
    start.tasks.spawn(async move {
        if let Err(error) = server.run(socket, async move { stop.stopped().await }).await {
            tracing::error!("HTTP has ended: {error}");
        }
    });
    Ok((table(program), gateway))
}

fn table(program: Program) -> Table<Gateway> {
    let table = Table::new(program.part(), program.version);
    table.op::<ConsoleCode, _, _>(|gateway: Arc<Gateway>, _: Context<_>, _| async move { console::code(&gateway) })
}

/// Fails for a configuration that makes the gateway unusable or open to everybody. Returns a warning for one that is
/// probably a mistake.
fn check_access(config: &GatewayConfig, has_secret: bool) -> Result<Option<&'static str>, Error> {
    if let Some(problem) = config.listen_problem(has_secret) {
        return Err(Error::invalid("gateway.listen", problem));
    }
    Ok((has_secret && config.trusts_loopback()).then_some(TRUSTING))
}

/// The warning of a gateway with a secret that local requests need not have.
const TRUSTING: &str = "API_SECRET is set, but requests of this user on this machine need none, and those that a proxy of this \
                        user forwards look the same: behind a proxy set gateway.public_url or gateway.trust_loopback = \"no\"";

/// The warning of a gateway to which nobody is local.
const BLIND: &str = "it cannot be seen which user of this machine sends a request, so every request needs API_SECRET: \
                     sock_diag(7) and /proc/net/tcp do not show the HTTP socket, for instance in another network namespace";

fn trust(config: &GatewayConfig) -> Trust {
    match config.trust_loopback {
        _ if !config.trusts_loopback() => Trust::Nobody,
        TrustLoopback::AnyUser => Trust::AnyUser,
        _ => Trust::OwnUser,
    }
}

fn server(config: &Config, secret: Option<&str>, gateway: Arc<Gateway>) -> Result<Server<Gateway>, Error> {
    let limits = Limits {
        connections: config.limits.connections as usize,
        long_responses: config.limits.held_connections as usize,
        body_memory: config.limits.body_memory,
        ..Limits::default()
    };
    let chat = limiter("RATE_LIMIT_CHAT", ("limits.rate_chat", &config.limits.rate_chat))?;
    let api = limiter("RATE_LIMIT_API", ("limits.rate_api", &config.limits.rate_api))?;
    let limit_loopback = match variable("RATE_LIMIT_LOOPBACK") {
        Some(text) => text == "true",
        None => config.limits.rate_loopback,
    };
    let (files, link_key, public_url) = (console::files(), gateway.link_key.clone(), gateway.public_url.clone());
    let routes = routes::table(&chat, &api).otherwise(move |_, request| console::file(files.clone(), request));
    let (trust, origins) = (trust(&config.gateway), config.gateway.origins.clone());
    let has_token = move |headers: &_| console::has_token(&link_key, &public_url, headers);
    let access = Access { trust, origins, pass: Some(Arc::new(has_token)), ..Access::new(secret) };
    Ok(Server { access, limits, limit_loopback, ..Server::new(routes, gateway) })
}

/// The variable of this name takes precedence over the setting. An error names the one that is wrong.
fn limiter(name: &str, (key, configured): (&str, &str)) -> Result<Arc<Limiter>, Error> {
    let given = variable(name);
    let (at, text) = given.as_deref().map_or((key, configured), |given| (name, given));
    let rate = text.parse::<Rate>().map_err(|error| error.at(at))?;
    Ok(Arc::new(Limiter::new(rate)))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_rate_is_named_by_the_setting_that_has_it() {
        // PATH is a variable that is set and no rate.
        for (variable, at) in [("KEN_NO_SUCH_VARIABLE", "limits.rate_chat"), ("PATH", "PATH")] {
            let error = limiter(variable, ("limits.rate_chat", "often")).err();
            assert_eq!(error.and_then(|error| error.at).as_deref(), Some(at));
        }
    }

    #[test]
    fn what_is_reached_from_elsewhere_needs_a_secret_and_trusts_nobody() {
        use TrustLoopback::{AnyUser, Auto, No, Yes};
        for (listen, public_url, trust_loopback, trusted) in [
            ("127.0.0.1", "", Auto, Trust::OwnUser),
            ("::1", "", Auto, Trust::OwnUser),
            ("127.0.0.1", "https://ken.test", Auto, Trust::Nobody),
            ("0.0.0.0", "", Auto, Trust::Nobody),
            ("127.0.0.1", "https://ken.test", Yes, Trust::OwnUser),
            ("0.0.0.0", "", Yes, Trust::OwnUser),
            ("0.0.0.0", "", AnyUser, Trust::AnyUser),
            ("127.0.0.1", "", AnyUser, Trust::AnyUser),
            ("127.0.0.1", "", No, Trust::Nobody),
        ] {
            let listen: std::net::IpAddr = listen.parse().unwrap();
            let config =
                GatewayConfig { listen, public_url: public_url.to_owned(), trust_loopback, ..GatewayConfig::default() };
            let about = format!("{listen} {public_url} {trust_loopback:?}");
            assert_eq!(trust(&config), trusted, "{about}");
            let with = check_access(&config, true).unwrap();
            assert_eq!(with.is_some(), trusted != Trust::Nobody, "{about}");
            let without = check_access(&config, false);
            assert_eq!(without.ok(), listen.is_loopback().then_some(None), "{about}");
        }
    }
}
