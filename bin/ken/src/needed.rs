//! The parts that a turn needs, and which of them are not ready.

use ken_client::{Gateway, Method};
use ken_types::Error;
use ken_types::ops::kend::{PartState, PartStatus, system_stopping};
use ken_types::places::Places;
use serde_json::Value;

use crate::gateway::{self, status, stays_down_error};
use crate::globals::Globals;

/// The parts that a turn needs, in the order in which they are reported.
const PARTS: [&str; 4] = ["gateway", "store", "model", "agent"];
/// The parts without which no message can be accepted.
const FIRST: [&str; 2] = ["gateway", "store"];

/// Where the states of the parts come from: kend of this system, or a gateway on another machine.
pub(crate) enum NeededParts {
    Here(Places),
    There(Box<Gateway>),
}

impl NeededParts {
    pub(crate) fn of(globals: &Globals) -> Result<NeededParts, Error> {
        Ok(match globals.url {
            Some(_) => NeededParts::There(Box::new(gateway::find(globals)?)),
            None => NeededParts::Here(globals.places()?),
        })
    }

    /// Returns an error if the system is stopping, or one of `FIRST` is stopped or has failed, because waiting would be useless. With
    /// `at_once`, nothing is waited for.
    pub(crate) fn check(&self, at_once: bool) -> Result<(), Error> {
        let missing = self.missing()?;
        let mut first = missing.iter().filter(|part| FIRST.contains(&part.name.as_str()));
        if at_once && let Some(part) = first.clone().next() {
            let starting = || Error::unavailable(format!("{} is not ready ({})", part.name, part.state.name()));
            return Err(stays_down_error(part).unwrap_or_else(starting));
        }
        first.find_map(stays_down_error).map_or(Ok(()), Err)
    }

    /// Returns a text like "waiting for model (stopped), agent (waiting)", or `None` if all parts are ready.
    pub(crate) fn waiting(&self) -> Option<String> {
        let named: Vec<String> = match self {
            NeededParts::Here(_) => {
                let missing = self.missing().ok()?;
                missing.iter().map(|part| format!("{} ({})", part.name, state(part))).collect()
            }
            NeededParts::There(gateway) => not_ready(gateway)?,
        };
        (!named.is_empty()).then(|| format!("waiting for {}", named.join(", ")))
    }

    fn missing(&self) -> Result<Vec<PartStatus>, Error> {
        let NeededParts::Here(places) = self else {
            return Ok(Vec::new());
        };
        let status = status(places)?;
        if status.stopping {
            return Err(system_stopping());
        }
        let of = |name: &&str| status.parts.iter().find(|part| part.name == **name && part.state != PartState::Ready);
        Ok(PARTS.iter().filter_map(|name| of(name).cloned()).collect())
    }
}

fn state(part: &PartStatus) -> String {
    match stays_down_error(part).and_then(|error| error.hint) {
        Some(hint) => format!("{}: {hint}", part.state.name()),
        None => part.state.name().to_owned(),
    }
}

/// Returns the parts that `/ready` of the gateway reports as not ready.
fn not_ready(gateway: &Gateway) -> Option<Vec<String>> {
    let answer = gateway.send(&Method::GET, "/ready", &[], &[]).ok()?;
    let body = answer.json().ok()?;
    let names = body.get("waiting")?.as_array()?.iter();
    Some(names.filter_map(Value::as_str).map(str::to_owned).collect())
}
