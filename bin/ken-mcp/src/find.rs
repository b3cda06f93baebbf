//! Finds the gateway: that of this system, or the one that the caller names.

use std::path::PathBuf;
use std::time::Duration;

use ken_client::{Endpoint, Gateway, Secret};
use ken_types::Error;
use ken_types::ops::kend::{StatusArgs, SystemStatus};
use ken_types::places::Places;
use ken_wire::blocking::Client;

use crate::cli::Cli;

/// The timeout of the call to kend for the address of the gateway.
const STATUS: Duration = Duration::from_secs(5);

pub(crate) fn gateway(cli: &Cli) -> Result<Gateway, Error> {
    let given = Secret::given(cli.secret_file.as_deref())?;
    let named = || std::env::var("KEN_BASE_URL").ok().filter(|url| !url.is_empty());
    if let Some(url) = cli.url.clone().or_else(named) {
        return Gateway::at(Endpoint::new(check_url(&url)?).with_secret(given));
    }
    let uid = nix::unistd::getuid().as_raw();
    let places = Places::resolve(cli.home.as_deref(), uid, |name| std::env::var_os(name).map(PathBuf::from))?;
    let secret = match given {
        Some(secret) => Some(secret),
        None => Secret::configured(&places)?,
    };
    Gateway::located(move || Ok(Endpoint::new(&url(&places)?).with_secret(secret.clone())))
}

/// Returns the address of the gateway of this system, which may be another one after a restart.
fn url(places: &Places) -> Result<String, Error> {
    let mut kend = Client::connect(&places.socket("kend"), "kend").map_err(|_| {
        Error::unavailable("ken is not running")
            .hint("start it with `ken up`; a system below a folder is named by --home or KEN_HOME")
    })?;
    let args = serde_json::to_value(StatusArgs::default()).unwrap_or_default();
    let status = kend.call("parts.status", &args, Some(STATUS), |_| Ok(()))?;
    let status: SystemStatus = ken_types::json::from_value(status)?;
    let gateway = status.listeners.into_iter().find(|listener| listener.name == "gateway");
    let missing = || Error::unavailable("no gateway runs in this system").hint("`ken status` lists its parts");
    gateway.map(|listener| listener.url).ok_or_else(missing)
}

fn check_url(url: &str) -> Result<&str, Error> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest.map(|rest| rest.trim_end_matches('/')) {
        Some(host) if !host.is_empty() && !host.contains(['/', '?', '#', '@']) => Ok(url),
        _ => Err(Error::invalid("--url", "an address without a path is expected, as http://HOST:PORT")),
    }
}
