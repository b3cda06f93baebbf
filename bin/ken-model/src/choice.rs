//! The configured providers in order of preference, from `KEN_MODEL` or else `[model] use` of ken.toml.

use std::path::PathBuf;

use ken_types::ops::model::{ModelState, Unusable};
use ken_types::{Code, Engine, Error};

use crate::embedder::Embedder;
use crate::local::{Local, Vectors};
use crate::prices::Table;
use crate::provider::{Provider, full_name};
use crate::remote::{Endpoint, Format, Remote};
use crate::rules::Rules;
use crate::script::Script;

/// The configured providers in order of preference; at least one.
#[derive(Debug)]
pub(crate) struct Choice {
    providers: Vec<Box<dyn Provider>>,
    /// The model that computes vectors.
    embedder: Option<Embedder>,
}

impl Choice {
    /// Reads the list in `KEN_MODEL`, or `otherwise` if that is not set. `setting` returns settings and secrets.
    pub(crate) fn configured(otherwise: &str, setting: impl Fn(&str) -> Option<String>) -> Result<Choice, Error> {
        let list = setting("KEN_MODEL");
        Choice::read(list.as_deref().unwrap_or(otherwise), "KEN_MODEL", setting)
    }

    /// Reads the list of an option `--model`. Without one, does the same as [`Choice::configured`].
    pub(crate) fn of_command(
        model: Option<&str>,
        otherwise: &str,
        setting: impl Fn(&str) -> Option<String>,
    ) -> Result<Choice, Error> {
        match model {
            Some(list) => Choice::read(list, "--model", setting),
            None => Choice::configured(otherwise, setting),
        }
    }

    /// Adds the model that computes vectors: that of `KEN_EMBED`, or `otherwise` if that is not set. If the text is
    /// empty, there is none.
    pub(crate) fn with_embedder(mut self, otherwise: &str) -> Result<Choice, Error> {
        let name = setting("KEN_EMBED").unwrap_or_else(|| otherwise.to_owned());
        self.embedder = embedder(name.trim(), &setting)?;
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

    /// Reads a list like `rules` or `openai/gpt-4o,rules`. Errors name `at` as its place. `setting` returns the file of
    /// `script`, and addresses and keys.
    pub(crate) fn read(list: &str, at: &str, setting: impl Fn(&str) -> Option<String>) -> Result<Choice, Error> {
        let engines = Engine::list(list).map_err(|error| error.at(at))?;
        let alone = engines.iter().all(|engine| *engine == Engine::Rules);
        let table = Table::installed()?;
        let providers = engines.iter().map(|engine| provider(engine, &setting, alone, &table));
        Ok(Choice { providers: providers.collect::<Result<_, _>>()?, embedder: None })
    }

    pub(crate) fn providers(&self) -> impl Iterator<Item = &dyn Provider> {
        self.providers.iter().map(AsRef::as_ref)
    }

    /// Returns the provider with this name (`provider/model`), or the first one.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<&dyn Provider, Error> {
        let mut all = self.providers.iter();
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
        let (unusable, usable): (Vec<_>, Vec<_>) = self.providers().partition(|provider| provider.unusable().is_some());
        let first = usable.first();
        let window = first.map(|first| first.window());
        ModelState {
            models: usable.iter().map(|provider| full_name(*provider)).collect(),
            context_window: window.map_or(0, |window| window.tokens),
            output_reserve: window.map_or(0, |window| window.reserve),
            exchanges: first.map_or(0, |first| first.exchanges()),
            unusable: unusable.into_iter().map(reason).collect(),
            embeds: self.embedder.as_ref().map(Embedder::name),
        }
    }
}

fn reason(provider: &dyn Provider) -> Unusable {
    Unusable { model: full_name(provider), why: provider.unusable().unwrap_or_default() }
}

/// Returns a setting or a secret of this process. An empty one counts as absent.
pub(crate) fn setting(name: &str) -> Option<String> {
    ken_service::secret(name)
}

/// The maximum number of texts in one call.
const MAX_EMBEDDED_TEXTS: usize = 64;

fn embedder(name: &str, setting: &dyn Fn(&str) -> Option<String>) -> Result<Option<Embedder>, Error> {
    match name.split_once('/') {
        _ if name.is_empty() => Ok(None),
        Some(("openai", model)) if !model.is_empty() => {
            let endpoint = Endpoint::new(Format::OpenAi, setting)?;
            let known = Table::installed()?.model(name);
            Ok(Some(Embedder::Remote(Remote::new(model, endpoint, known))))
        }
        Some(("local", alias)) if !alias.is_empty() => Ok(Some(Embedder::Local(Vectors::new(alias)))),
        _ => {
            let message = format!("{name:?} is neither openai/MODEL nor local/ALIAS");
            Err(Error::invalid("KEN_EMBED", message).hint(
                "any server with /v1/embeddings is reached by OPENAI_BASE_URL, a model directory by an alias of MVLM_MODEL_DIRS",
            ))
        }
    }
}

/// Returns the provider of one entry of the list. `alone` means that no entry is a language model.
fn provider(
    engine: &Engine,
    setting: &dyn Fn(&str) -> Option<String>,
    alone: bool,
    table: &Table,
) -> Result<Box<dyn Provider>, Error> {
    let remote = |format: Format, model: &str| -> Result<Box<dyn Provider>, Error> {
        let known = table.model(&format!("{}/{model}", format.provider()));
        let endpoint = Endpoint::new(format, setting)?;
        Ok(Box::new(Remote::new(model, endpoint, known)))
    };
    match engine {
        Engine::OpenAi(model) => remote(Format::OpenAi, model),
        Engine::Anthropic(model) => remote(Format::Anthropic, model),
        Engine::Rules => Ok(Box::new(Rules::new(alone))),
        Engine::Local(alias) => Ok(Box::new(Local::new(alias.as_deref()))),
        Engine::Script(model) => {
            let file = setting("KEN_SCRIPT").map(PathBuf::from).ok_or_else(|| {
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

    const AT: &str = "KEN_MODEL";

    #[test]
    fn a_list_is_read_in_order() {
        let choice = Choice::read("rules", AT, |_| None).unwrap();
        assert_eq!(choice.state().models, ["rules/rules-1"]);
        assert!(choice.find(None).is_ok() && choice.find(Some("rules/rules-1")).is_ok());
        assert!(choice.find(Some("openai/x")).is_err());
    }

    #[test]
    fn a_model_without_its_key_is_not_offered() {
        let choice = Choice::read("openai/m,anthropic/n,rules", AT, |name| {
            (name == "ANTHROPIC_BASE_URL").then(|| "http://127.0.0.1:9/v1/".into())
        });
        let state = choice.unwrap().state();
        assert_eq!(state.models, ["anthropic/n", "rules/rules-1"]);
        assert_eq!(state.unusable[0].model, "openai/m");
        assert_eq!(state.unusable[0].why, "OPENAI_API_KEY is not set");
        let key = Choice::read("openai/m", AT, |name| (name == "OPENAI_API_KEY").then(|| " k ".into())).unwrap();
        assert_eq!(key.state().models, ["openai/m"]);
        assert!(!format!("{key:?}").contains(" k") && !format!("{key:?}").contains("\"k\""), "{key:?}");
        assert!(Choice::read("openai/m", AT, |_| Some("ftp://x".into())).is_err());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (list, part) in [
            ("opnai/x", "opnai"),
            ("rules/rules-9", "rules-9"),
            ("", "empty"),
            ("rules,,rules", "empty"),
            ("script", "KEN_SCRIPT"),
            ("local/", "names no model"),
            ("openai/", "needs a model"),
        ] {
            let error = Choice::read(list, AT, |_| None).err().unwrap();
            assert!(error.message.contains(part), "{list}: {error}");
        }
        assert!(Choice::read("script", AT, |_| Some("/nonexistent".into())).is_err());
    }
}
