//! Reports models of the configuration that cannot be called.

use std::collections::BTreeSet;

use ken_types::Error;
use ken_types::config::Config;
use ken_types::ops::Nothing;
use ken_types::ops::model::{Health, ModelHealth, ModelInfo, ModelState, NO_MODEL_HINT};
use ken_types::places::Places;
use ken_types::providers::{Resolved, resolve};
use serde_json::Value;

use super::{Finding, Findings, Severity, call, json_of};
use crate::config;

/// While ken-model runs, it says itself which models cannot be called: its environment can differ from that of this command.
pub(super) fn check(places: &Places, config: &Config, is_up: bool, findings: &mut Findings) {
    let state = is_up.then(|| call::<ModelInfo>(places, "model", &Nothing {})).flatten();
    check_keys(places, config, state.as_ref(), findings);
    check_prices(places, findings);
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
    if let Some(health) = call::<ModelHealth>(places, "model", &Nothing {}) {
        check_health(&health, findings);
    }
}

/// Reports a `models.toml` with which ken-model does not start, now or the next time. What is wrong in the other files has been reported already.
fn check_prices(places: &Places, findings: &mut Findings) {
    let file = places.config.with_file_name("models.toml").display().to_string();
    if let Err(Error { at: Some(at), message, .. }) = json_of::<Value>(places, "ken-model", &["check", "--json"])
        && at.starts_with(&file)
    {
        findings.error("models-file", at, message, "edit the file; `ken model check` checks it again");
    }
}

/// Reports a budget that is used up, and providers that are down with what answers meanwhile.
fn check_health(health: &Health, findings: &mut Findings) {
    if let Some(why) = &health.over_budget {
        findings.warning("over-budget", "[model.budget]", why, "wait, or raise it: `ken usage`, ken.toml(5)");
    }
    let answers = health.called.first();
    for one in health.providers.iter().filter(|one| one.down_since.is_some()) {
        let since = one.down_since.map(|since| since.to_string()).unwrap_or_default();
        let cause = one.cause.as_deref().unwrap_or("it failed");
        let next = answers.map_or("no model answers".to_owned(), |next| format!("{next} answers"));
        let why = format!("down since {since}: {cause}; {next}");
        let model = if one.name.contains('/') { &one.name } else { "PROVIDER/MODEL" };
        let severity = if answers.is_some() { Severity::Warning } else { Severity::Error };
        let fix = format!("`ken model try {model}` tries it now");
        findings.0.push(Finding::new("model-down", severity, &one.name, why, fix));
    }
}

/// Reports missing keys of providers about whose models ken-model has said nothing: those of a system that is down, and the judge,
/// which ken-model meets only when it judges.
fn check_keys(places: &Places, config: &Config, state: Option<&ModelState>, findings: &mut Findings) {
    let provider = |name: &str| Some(name.trim().split_once('/')?.0.to_owned());
    let used =
        config.model.choice.split(',').filter(|_| state.is_none()).filter_map(provider).map(|name| ("use", name));
    let judge = provider(&config.model.judge).map(|name| ("judge", name));
    let is_said = |name: &str| {
        state.is_some_and(|state| {
            let unusable = state.unusable.iter().map(|one| one.model.as_str());
            state.choices().chain(unusable).any(|model| provider(model).as_deref() == Some(name))
        })
    };
    let mut checked = BTreeSet::new();
    for (setting, name) in used.chain(judge).filter(|(_, name)| !is_said(name)) {
        if checked.insert(name.clone()) {
            check_key(places, config, setting, &name, findings);
        }
    }
}

fn check_key(places: &Places, config: &Config, setting: &str, name: &str, findings: &mut Findings) {
    let secrets = config::secrets(&places.secrets());
    let part = config.part.get("model").into_iter().flat_map(|part| &part.env);
    let given: Vec<(&str, &str)> = part
        .filter_map(|entry| entry.split_once('='))
        .chain(secrets.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .collect();
    let value = |name: &str| {
        let given = given.iter().filter(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        let mut values = std::env::var(name).ok().into_iter().chain(given).map(|value| value.trim().to_owned());
        values.find(|value| !value.is_empty())
    };
    // kend names what is wrong with a provider that cannot be resolved.
    let Ok(Resolved { key: Some(key), needs_key: true, .. }) = resolve(name, &config.model.provider, value) else {
        return;
    };
    if value(&key).is_none() {
        let why = format!("[model] {setting} names {name} and {key} is not set");
        let fix = format!("set {key} in {}", places.secrets().display());
        findings.warning("model-key-missing", places.config.display(), why, fix);
    }
}
