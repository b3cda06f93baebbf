//! The gateway of a system on this machine.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ken_types::ops::kend::{StatusArgs, SystemStatus};
use ken_types::places::Places;
use ken_types::{Error, json};
use ken_wire::blocking::Client;

/// The timeout of the call to kend for the address of the gateway.
const STATUS: Duration = Duration::from_secs(5);

/// The secret of the service of the machine, as its unit makes it for root and the members of the group `ken`.
const SERVICE_SECRET: &str = "/etc/ken/client.secret";

/// Returns what a person can do if the system does not run: start it, or use the service of the machine if its secret may be read.
pub fn start_hint(places: &Places) -> String {
    hint_with(places, Path::new(SERVICE_SECRET))
}

fn hint_with(places: &Places, secret: &Path) -> String {
    let start = "start it with `ken up`; a system under a folder is named by --home or KEN_HOME";
    if places.client_secret() == secret || File::open(secret).is_err() {
        return start.to_owned();
    }
    let port = ken_types::config::Gateway::default().port;
    format!(
        "{start}; the service of this machine is used with `ken --url http://127.0.0.1:{port} --secret-file {}`",
        secret.display()
    )
}

/// Returns the address of the gateway of this system, which may be another one after a restart.
///
/// # Errors
/// `unavailable` if the system does not run, or has no gateway.
pub fn gateway_url(places: &Places) -> Result<String, Error> {
    let mut kend = Client::connect(&places.socket("kend"), "kend")
        .map_err(|_| Error::unavailable("ken is not running").hint(start_hint(places)))?;
    let args = serde_json::to_value(StatusArgs::default()).unwrap_or_default();
    let status = kend.call("parts.status", &args, Some(STATUS), |_| Ok(()))?;
    let status: SystemStatus = json::from_value(status)?;
    let gateway = status.listeners.into_iter().find(|listener| listener.name == "gateway");
    let missing = || Error::unavailable("no gateway runs in this system").hint("`ken status` lists its parts");
    gateway.map(|listener| listener.url).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_of_the_machine_is_named_to_those_who_may_use_it() {
        let folder = std::env::temp_dir().join(format!("ken-service-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let secret = folder.join("client.secret");
        let places = |home: &Path| Places::resolve(Some(home), 1000, |_| None).unwrap();
        let (own, service) = (places(&folder.join("own")), places(&folder));
        assert!(!hint_with(&own, &secret).contains("--url"));
        std::fs::write(&secret, "s").unwrap();
        assert!(hint_with(&own, &secret).contains(&format!("--secret-file {}`", secret.display())));
        assert!(!hint_with(&service, &secret).contains("--url"), "it is the service itself that does not run");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
