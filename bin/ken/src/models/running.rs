//! Whether the running system has taken a change of its models.

use std::time::{Duration, Instant};

use ken_types::ops::Nothing;
use ken_types::ops::kend::{KendReload, PartState, PartStatus};
use ken_types::ops::model::{ModelInfo, ModelState};
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::client::{KEND, call};
use crate::gateway;
use crate::progress::during;

const MODEL: &str = "model";
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);
const INFO_TIMEOUT: Duration = Duration::from_secs(2);
/// How long ken-model has to start with the new configuration.
const START_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Has the running system read the configuration, and returns its models. `None` if no system is running.
fn taken(places: &Places) -> Result<Option<ModelState>, Error> {
    let before = match model_part(places) {
        Err(error) if error.code == Code::Unavailable => return Ok(None),
        part => part?.and_then(|part| part.pid),
    };
    let reloaded = call::<KendReload>(places, KEND, &Nothing {}, Some(RELOAD_TIMEOUT))?;
    let is_restarted = reloaded.restarted.iter().any(|part| part == MODEL);
    let end = Instant::now() + START_TIMEOUT;
    loop {
        // The process with the old configuration answers until it has ended. kend may also have seen the change by itself before, and is
        // restarting the part already.
        let part = model_part(places)?.filter(|part| part.state == PartState::Ready);
        let is_old = part.as_ref().is_none_or(|part| is_restarted && part.pid == before);
        let is_over = Instant::now() >= end;
        if !is_old || is_over {
            match call::<ModelInfo>(places, MODEL, &Nothing {}, Some(INFO_TIMEOUT)) {
                Err(error) if error.code == Code::Unavailable && !is_over => {}
                state => return state.map(Some),
            }
        }
        std::thread::sleep(PAUSE);
    }
}

fn model_part(places: &Places) -> Result<Option<PartStatus>, Error> {
    Ok(gateway::status(places)?.parts.into_iter().find(|part| part.name == MODEL))
}

/// Returns a sentence on whether the running system uses the models that were chosen, or has at least read the change.
pub(crate) fn sentence(places: &Places, chosen: Option<&str>) -> String {
    let state = match during("the running system reads it", || taken(places)) {
        Ok(None) => return "no system is running: `ken up` starts one with it".to_owned(),
        Ok(Some(state)) => state,
        Err(error) => return format!("the running system has not taken it: {error}"),
    };
    let Some(chosen) = chosen else {
        return "the running system has read it".to_owned();
    };
    let reason = state.unusable.iter().find(|one| one.model == chosen);
    match (state.models.first(), reason) {
        (Some(first), _) if first == chosen => format!("the running system uses {chosen} from now on"),
        (_, Some(reason)) => format!("the running system cannot use {chosen}: {}", reason.why),
        _ if state.models.iter().any(|model| model == chosen) => {
            format!("the running system uses {chosen} as a fall-back")
        }
        _ => format!(
            "the running system uses {} instead: the variable KEN_MODEL, which outranks ken.toml, is set there",
            state.models.join(", ")
        ),
    }
}
