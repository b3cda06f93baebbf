//! Reports models of the configuration that cannot be called.

use std::time::Duration;

use ken_types::config::Config;
use ken_types::ops::Nothing;
use ken_types::ops::model::{ModelInfo, ModelState, NO_MODEL_HINT};
use ken_types::places::Places;

use super::Findings;
use crate::client::call;
use crate::config;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// A provider with a public service, which needs a key.
struct Public {
    /// What the names of its models begin with.
    prefix: &'static str,
    host: &'static str,
    /// The settings with its key and with the address of another server, which may need no key.
    key: &'static str,
    base_url: &'static str,
}

const PUBLIC: [Public; 2] = [
    Public { prefix: "openai/", host: "api.openai.com", key: "OPENAI_API_KEY", base_url: "OPENAI_BASE_URL" },
    Public {
        prefix: "anthropic/",
        host: "api.anthropic.com",
        key: "ANTHROPIC_API_KEY",
        base_url: "ANTHROPIC_BASE_URL",
    },
];

/// While ken-model runs, it says itself which models cannot be called: its environment can differ from that of this command.
pub(super) fn check(places: &Places, config: &Config, is_up: bool, findings: &mut Findings) {
    let state = is_up.then(|| call::<ModelInfo>(places, "model", &Nothing {}, Some(CALL_TIMEOUT)));
    // Another check reports a part that is down.
    let state = state.and_then(Result::ok);
    for provider in &PUBLIC {
        check_key(places, config, provider, state.as_ref(), findings);
    }
    let Some(ModelState { models, unusable, .. }) = state else { return };
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

/// Reports a missing key of a provider whose models ken-model has said nothing about: those of a system that is down, and
/// the judge, which ken-model meets only when it judges.
fn check_key(places: &Places, config: &Config, provider: &Public, state: Option<&ModelState>, findings: &mut Findings) {
    let is_used = config.model.choice.split(',').any(|model| model.trim().starts_with(provider.prefix));
    let judges = config.model.judge.starts_with(provider.prefix);
    let is_known = state.is_some_and(|state| {
        let unusable = state.unusable.iter().map(|one| &one.model);
        state.models.iter().chain(unusable).any(|model| model.starts_with(provider.prefix))
    });
    let setting = match (is_used, judges) {
        (true, _) if state.is_none() => "use",
        (_, true) if !is_known => "judge",
        _ => return,
    };
    let secrets = config::secrets(&places.secrets());
    let part = config.part.get("model").into_iter().flat_map(|part| &part.env);
    let given: Vec<(&str, &str)> = part
        .filter_map(|entry| entry.split_once('='))
        .chain(secrets.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .collect();
    let is_set = |name: &str, is_right: &dyn Fn(&str) -> bool| {
        let own = std::env::var(name).ok();
        let own = own.iter().map(|value| (name, value.as_str()));
        given.iter().copied().chain(own).any(|(other, value)| other == name && is_right(value.trim()))
    };
    let has_key = is_set(provider.key, &|key| !key.is_empty());
    let is_elsewhere = is_set(provider.base_url, &|url| !url.is_empty() && !url.contains(provider.host));
    if !has_key && !is_elsewhere {
        let why = format!(
            "[model] {setting} names {} and {} is not set",
            provider.prefix.trim_end_matches('/'),
            provider.key
        );
        let fix = format!("set {} in {}", provider.key, places.secrets().display());
        findings.warning("model-key-missing", places.config.display(), why, fix);
    }
}
