//! The configured providers in order of preference, from `KEN_MODEL` or else `[model] use` of ken.toml.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ken_types::ops::model::{Health, ModelState, Unusable};
use ken_types::providers::Providers;
use ken_types::{Code, Engine, Error, VectorModel};

use crate::breaker::Breakers;
use crate::embedder::Embedder;
use crate::local::{Local, Vectors};
use crate::prices::Table;
use crate::provider::{Provider, full_name};
use crate::remote::{Endpoint, Remote};
use crate::rules::Rules;
use crate::script::Script;

/// What models are made of: the providers of ken.toml, settings and secrets, windows and prices, and what is known of failures.
#[derive(Clone)]
pub(crate) struct Setup<'a> {
    pub(crate) providers: &'a Providers,
    /// Returns a setting or a secret.
    pub(crate) setting: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) table: &'a Table,
    pub(crate) breakers: Arc<Breakers>,
}

/// The configured providers in order of preference; at least one.
#[derive(Debug)]
pub(crate) struct Choice {
    providers: Vec<Box<dyn Provider>>,
    /// Models of the tables of ken.toml that are not in the list.
    others: Vec<Box<dyn Provider>>,
    embedder: Option<Embedder>,
    breakers: Arc<Breakers>,
}

impl Choice {
    /// Reads the list in `KEN_MODEL`, or `otherwise` if that is not set.
    pub(crate) fn configured(otherwise: &str, setup: &Setup<'_>) -> Result<Choice, Error> {
        let list = (setup.setting)("KEN_MODEL");
        let mut choice = Choice::read(list.as_deref().unwrap_or(otherwise), "KEN_MODEL", setup)?;
        choice.others = others(&choice, setup)?;
        Ok(choice)
    }

    /// Reads the list of an option `--model`. Without one, does the same as [`Choice::configured`].
    pub(crate) fn of_command(model: Option<&str>, otherwise: &str, setup: &Setup<'_>) -> Result<Choice, Error> {
        match model {
            Some(list) => Choice::read(list, "--model", setup),
            None => Choice::configured(otherwise, setup),
        }
    }

    /// Adds the model that computes vectors: that of `KEN_EMBED`, or `otherwise` if that is not set. If the text is
    /// empty, there is none.
    pub(crate) fn with_embedder(mut self, otherwise: &str, setup: &Setup<'_>) -> Result<Choice, Error> {
        let name = (setup.setting)("KEN_EMBED").unwrap_or_else(|| otherwise.to_owned());
        self.embedder = embedder(name.trim(), setup)?;
        Ok(self)
    }

    /// Returns the model that computes vectors for these texts. Fails with `not_found` if none is configured, and with
    /// `invalid` if there are too many texts.
    pub(crate) fn embedder(&self, texts: &[String]) -> Result<&Embedder, Error> {
        let none = || Error::not_found("no model is chosen that makes vectors").hint("see embed in ken.toml(5)");
        let embedder = self.embedder.as_ref().ok_or_else(none)?;
        if !(1..=MAX_EMBEDDED_TEXTS).contains(&texts.len()) {
            let message = format!("{} texts; 1 to {MAX_EMBEDDED_TEXTS} are allowed", texts.len());
            return Err(Error::invalid("/args/texts", message));
        }
        match embedder.unusable() {
            Some(why) => Err(Error::new(Code::Unauthenticated, why).hint("see KEYS in ken-model(8)")),
            None => Ok(embedder),
        }
    }

    /// Reads a list like `rules` or `openai/gpt-4o,rules`. Errors name `at` as their place, unless they have one in ken.toml.
    pub(crate) fn read(list: &str, at: &str, setup: &Setup<'_>) -> Result<Choice, Error> {
        let placed =
            |error: Error| if error.at.as_ref().is_some_and(|at| !at.is_empty()) { error } else { error.at(at) };
        let engines = Engine::list(list, setup.providers).map_err(placed)?;
        let alone = engines.iter().all(|engine| *engine == Engine::Rules);
        let providers = engines.iter().map(|engine| provider(engine, setup, alone));
        Ok(Choice {
            providers: providers.collect::<Result<_, _>>()?,
            others: Vec::new(),
            embedder: None,
            breakers: setup.breakers.clone(),
        })
    }

    pub(crate) fn providers(&self) -> impl Iterator<Item = &dyn Provider> {
        self.providers.iter().map(AsRef::as_ref)
    }

    /// Returns what is known of failures, and the models of the list that are called.
    pub(crate) fn health(&self) -> Health {
        let providers = self.breakers.health(Instant::now());
        let is_down = |name: &str| providers.iter().any(|one| one.name == name && one.down_since.is_some());
        let is_called = |provider: &&dyn Provider| {
            provider.unusable().is_none() && !is_down(&provider.name().provider) && !is_down(&full_name(*provider))
        };
        let called = self.providers().filter(is_called).map(full_name).collect();
        Health { called, providers, over_budget: self.breakers.over_budget() }
    }

    /// Returns the provider with this name (`provider/model`), or the first one.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<&dyn Provider, Error> {
        let mut all = self.providers.iter().chain(&self.others);
        let found = match name {
            None => all.next(),
            Some(name) => all.find(|provider| full_name(provider.as_ref()) == name),
        };
        let missing = || {
            let message = format!("no model `{}` is configured", name.unwrap_or_default());
            Error::not_found(message).at("/args/model").hint("model.info lists them")
        };
        found.map(AsRef::as_ref).ok_or_else(missing)
    }

    /// Returns the providers that may answer a request, in the order in which they are called: the named one, or all.
    pub(crate) fn candidates(&self, name: Option<&str>) -> Result<Vec<&dyn Provider>, Error> {
        match name {
            Some(_) => Ok(vec![self.find(name)?]),
            None => Ok(self.providers.iter().map(AsRef::as_ref).collect()),
        }
    }

    /// Returns the models that can be called, and those that cannot.
    pub(crate) fn state(&self) -> ModelState {
        let (mut usable, mut unusable) = (Vec::new(), Vec::new());
        for provider in self.providers() {
            match provider.unusable() {
                None => usable.push(provider),
                Some(why) => unusable.push(Unusable { model: full_name(provider), why }),
            }
        }
        let others: Vec<_> = self.others.iter().filter(|other| other.unusable().is_none()).map(AsRef::as_ref).collect();
        let first = usable.iter().chain(&others).next();
        let window = first.map(|first| first.window());
        ModelState {
            models: usable.iter().map(|provider| full_name(*provider)).collect(),
            context_window: window.map_or(0, |window| window.tokens),
            output_reserve: window.map_or(0, |window| window.reserve),
            exchanges: first.map_or(0, |first| first.exchanges()),
            unusable,
            embeds: self.embedder.as_ref().map(Embedder::name),
            others: others.into_iter().map(full_name).collect(),
        }
    }
}

/// The maximum number of texts in one call.
const MAX_EMBEDDED_TEXTS: usize = 64;

fn embedder(name: &str, setup: &Setup<'_>) -> Result<Option<Embedder>, Error> {
    if name.is_empty() {
        return Ok(None);
    }
    Ok(Some(match VectorModel::parse(name, setup.providers).map_err(|error| error.at("KEN_EMBED"))? {
        VectorModel::Remote { provider, model } => Embedder::Remote(Box::new(remote(&provider, &model, setup)?)),
        VectorModel::Local(alias) => Embedder::Local(Vectors::new(&alias)),
    }))
}

/// Returns the models of the tables of ken.toml that are not in a list.
fn others(choice: &Choice, setup: &Setup<'_>) -> Result<Vec<Box<dyn Provider>>, Error> {
    let named = setup.providers.iter().flat_map(|(name, table)| table.models.iter().map(move |model| (name, model)));
    let mut others: Vec<Box<dyn Provider>> = Vec::new();
    for (provider, model) in named {
        let is_listed = choice.providers().any(|known| full_name(known) == format!("{provider}/{model}"));
        if !is_listed {
            others.push(Box::new(remote(provider, model, setup)?));
        }
    }
    Ok(others)
}

fn remote(provider: &str, model: &str, setup: &Setup<'_>) -> Result<Remote, Error> {
    let known = setup.table.model(&format!("{provider}/{model}"));
    let endpoint = Endpoint::new(provider, setup.providers, setup.setting)?;
    Ok(Remote::new(model, endpoint, known, setup.breakers.clone()))
}

/// Returns the provider of one entry of the list. `alone` means that no entry is a language model.
fn provider(engine: &Engine, setup: &Setup<'_>, alone: bool) -> Result<Box<dyn Provider>, Error> {
    match engine {
        Engine::Remote { provider, model } => Ok(Box::new(remote(provider, model, setup)?)),
        Engine::Rules => Ok(Box::new(Rules::new(alone, setup.breakers.clone()))),
        Engine::Local(alias) => Ok(Box::new(Local::new(alias.as_deref(), setup.breakers.clone()))),
        Engine::Script(model) => {
            let file = (setup.setting)("KEN_SCRIPT").map(PathBuf::from).ok_or_else(|| {
                let message = "the engine `script` needs KEN_SCRIPT, the file that it replays";
                Error::invalid("KEN_SCRIPT", message)
            })?;
            let name = model.as_deref().unwrap_or("script-1");
            Ok(Box::new(Script::open(name, file)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(list: &str, setting: impl Fn(&str) -> Option<String>) -> Result<Choice, Error> {
        let setup = Setup {
            providers: &Providers::new(),
            setting: &setting,
            table: &Table::default(),
            breakers: Arc::default(),
        };
        Choice::read(list, "KEN_MODEL", &setup)
    }

    #[test]
    fn a_model_without_its_key_is_not_offered() {
        let choice = read("openai/m,anthropic/n,rules", |name| {
            (name == "ANTHROPIC_BASE_URL").then(|| "http://127.0.0.1:9/v1/".into())
        });
        let state = choice.unwrap().state();
        assert_eq!(state.models, ["anthropic/n", "rules/rules-1"]);
        assert_eq!(state.unusable[0].model, "openai/m");
        assert_eq!(state.unusable[0].why, "OPENAI_API_KEY is not set");
        let key = read("openai/m", |name| (name == "OPENAI_API_KEY").then(|| " k ".into())).unwrap();
        assert_eq!(key.state().models, ["openai/m"]);
        assert!(!format!("{key:?}").contains(" k") && !format!("{key:?}").contains("\"k\""), "{key:?}");
        assert!(read("openai/m", |_| Some("ftp://x".into())).is_err());
        assert!(read("script", |_| Some("/nonexistent".into())).is_err());
    }
}
