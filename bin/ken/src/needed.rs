//! The parts that a turn needs, and which of them are not ready.

use ken_client::{Gateway, Method};
use ken_types::ops::kend::{PartState, PartStatus};
use ken_types::places::Places;
use ken_types::{Error, json};
use serde_json::Value;

use crate::gateway::{self, not_coming, status};
use crate::globals::Globals;

/// In the order in which their absence is reported.
const PARTS: [&str; 4] = ["gateway", "store", "model", "agent"];
/// Without these nothing can be accepted.
const FIRST: [&str; 2] = ["gateway", "store"];

/// Who is asked about the parts: kend, or a gateway on another machine.
pub(crate) enum Needed {
    Here(Places),
    There(Box<Gateway>),
}

impl Needed {
    pub(crate) fn of(globals: &Globals) -> Result<Needed, Error> {
        Ok(match globals.url {
            Some(_) => Needed::There(Box::new(gateway::find(globals)?)),
            None => Needed::Here(globals.places()?),
        })
    }

    /// Returns an error if one of `FIRST` is stopped, because it would be useless to wait for it.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let missing = self.missing()?;
        let error = missing.iter().filter(|part| FIRST.contains(&part.name.as_str())).find_map(not_coming);
        error.map_or(Ok(()), Err)
    }

    /// "waiting for model (stopped), agent (waiting)", when something is not ready.
    pub(crate) fn waiting(&self) -> Option<String> {
        let named: Vec<String> = match self {
            Needed::Here(_) => {
                let missing = self.missing().ok()?;
                missing.iter().map(|part| format!("{} ({})", part.name, state(part))).collect()
            }
            Needed::There(gateway) => not_ready(gateway)?,
        };
        (!named.is_empty()).then(|| format!("waiting for {}", named.join(", ")))
    }

    fn missing(&self) -> Result<Vec<PartStatus>, Error> {
        let Needed::Here(places) = self else {
            return Ok(Vec::new());
        };
        let parts = status(places)?.parts;
        let of = |name: &&str| parts.iter().find(|part| part.name == **name && part.state != PartState::Ready);
        Ok(PARTS.iter().filter_map(|name| of(name).cloned()).collect())
    }
}

fn state(part: &PartStatus) -> String {
    match not_coming(part).and_then(|error| error.hint) {
        Some(hint) => format!("{}: {hint}", part.state.name()),
        None => part.state.name().to_owned(),
    }
}

/// What `/ready` names.
fn not_ready(gateway: &Gateway) -> Option<Vec<String>> {
    let answer = gateway.send(&Method::GET, "/ready", &[], &[]).ok()?;
    let body = json::parse(&answer.body, json::MAX_DEPTH).ok()?;
    let names = body.get("waiting")?.as_array()?.iter();
    Some(names.filter_map(Value::as_str).map(str::to_owned).collect())
}
