//! Finds the gateway that the commands use: that of this system, or the one at `--url`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_client::{Endpoint, Gateway, Secret};
use ken_types::Error;
use ken_types::ops::kend::{PartState, PartStatus, PartsStatus, StatusArgs, SystemStatus, system_stopping};
use ken_types::places::Places;

use crate::client::{KEND, call};
use crate::globals::Globals;
use crate::output::print_note;

/// The timeout of a request to kend for its status.
const STATUS: Duration = Duration::from_secs(5);
/// A part that restarts is back within this time.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// Returns the gateway that the command line names. Its secret is never on the command line: it comes from `--secret-file`,
/// `KEN_API_SECRET`, or, for the gateway of this system, from the files beside its configuration.
pub(crate) fn find(globals: &Globals) -> Result<Gateway, Error> {
    let given = Secret::given(globals.secret_file.as_deref())?;
    let gateway = if let Some(url) = &globals.url {
        Gateway::at(Endpoint::given(url)?.with_secret(given))?
    } else {
        let places = globals.places()?;
        let secret = match given {
            Some(secret) => Some(secret),
            None => Secret::configured(&places)?,
        };
        Gateway::located(move || Ok(Endpoint::new(&url(&places)?).with_secret(secret.clone())))?
    };
    Ok(gateway.on_retry(tell_once()))
}

/// Returns a function that is called before a request is repeated. It says once what is waited for, unless that is over in a moment.
fn tell_once() -> impl Fn(&Error, Duration) + Send + Sync {
    let is_told = AtomicBool::new(false);
    move |error, failing_for| {
        if failing_for >= TELL_AFTER && !is_told.swap(true, Ordering::Relaxed) {
            print_note(&format!("waiting: {}", error.message));
        }
    }
}

/// Returns the address of the gateway of this system.
pub(crate) fn url(places: &Places) -> Result<String, Error> {
    let SystemStatus { listeners, parts, stopping, .. } = status(places)?;
    if let Some(listener) = listeners.into_iter().find(|listener| listener.name == "gateway") {
        return Ok(listener.url);
    }
    let of_part = || parts.iter().find(|part| part.name == "gateway").and_then(stays_down_error);
    Err(stopping.then(system_stopping).or_else(of_part).unwrap_or_else(|| {
        Error::unavailable("no gateway is configured in this system").hint("`ken status` lists its parts")
    }))
}

/// Returns the status of all parts, from kend.
pub(crate) fn status(places: &Places) -> Result<SystemStatus, Error> {
    call::<PartsStatus>(places, KEND, &StatusArgs::default(), Some(STATUS))
}

/// Returns the error for a part that stays down until somebody starts it, or `None` if it may become ready.
pub(crate) fn stays_down_error(part: &PartStatus) -> Option<Error> {
    let what = match part.state {
        PartState::Stopped => "is stopped",
        PartState::Failed => "has failed and is not started again",
        _ => return None,
    };
    let name = &part.name;
    Some(Error::unavailable(format!("{name} {what}")).hint(format!("start it with `ken start {name}`")))
}
