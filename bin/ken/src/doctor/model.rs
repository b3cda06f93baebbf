//! Reports models of the configuration that cannot be called.

use std::time::Duration;

use ken_types::ops::Nothing;
use ken_types::ops::model::{ModelInfo, ModelState, NO_MODEL_HINT};
use ken_types::places::Places;

use super::Findings;
use crate::client::call;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn check(places: &Places, findings: &mut Findings) {
    let state = call::<ModelInfo>(places, "model", &Nothing {}, Some(CALL_TIMEOUT));
    // Another check reports a part that is down.
    let Ok(ModelState { models, unusable, .. }) = state else { return };
    for one in unusable {
        match models.first() {
            None => findings.error("model-missing", one.model, one.why, NO_MODEL_HINT),
            Some(next) => {
                let why = format!("{}, so {next} is used", one.why);
                findings.warning("model-missing", one.model, why, NO_MODEL_HINT);
            }
        }
    }
}
