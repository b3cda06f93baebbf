//! The gateway of a system on this machine.

use std::time::Duration;

use ken_types::ops::kend::{StatusArgs, SystemStatus};
use ken_types::places::Places;
use ken_types::{Error, json};
use ken_wire::blocking::Client;

/// The timeout of the call to kend for the address of the gateway.
const STATUS: Duration = Duration::from_secs(5);

/// Returns the address of the gateway of this system, which may be another one after a restart.
///
/// # Errors
/// `unavailable` if the system does not run, or has no gateway.
pub fn gateway_url(places: &Places) -> Result<String, Error> {
    let mut kend = Client::connect(&places.socket("kend"), "kend").map_err(|_| {
        Error::unavailable("ken is not running")
            .hint("start it with `ken up`; a system below a folder is named by --home or KEN_HOME")
    })?;
    let args = serde_json::to_value(StatusArgs::default()).unwrap_or_default();
    let status = kend.call("parts.status", &args, Some(STATUS), |_| Ok(()))?;
    let status: SystemStatus = json::from_value(status)?;
    let gateway = status.listeners.into_iter().find(|listener| listener.name == "gateway");
    let missing = || Error::unavailable("no gateway runs in this system").hint("`ken status` lists its parts");
    gateway.map(|listener| listener.url).ok_or_else(missing)
}
