//! Which providers there are, in which order: `KEN_MODEL`, else `[model] use` of ken.toml.

use std::path::PathBuf;

use ken_types::ops::model::ModelState;
use ken_types::{Engine, Error};

use crate::local::Local;
use crate::provider::Provider;
use crate::rules::Rules;
use crate::script::Script;

/// The configured providers, first choice first; at least one.
#[derive(Debug)]
pub(crate) struct Choice {
    providers: Vec<Box<dyn Provider>>,
}

impl Choice {
    /// The list of `KEN_MODEL`, else `otherwise`.
    pub(crate) fn from_environment(otherwise: &str) -> Result<Choice, Error> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let list = variable("KEN_MODEL");
        Choice::read(
            list.as_deref().unwrap_or(otherwise),
            variable("KEN_SCRIPT").as_deref(),
        )
    }

    /// Reads a list like `rules` or `script,rules`. `script` names the file of that engine.
    pub(crate) fn read(list: &str, script: Option<&str>) -> Result<Choice, Error> {
        let engines = Engine::list(list).map_err(|error| error.at("KEN_MODEL"))?;
        let alone = engines.iter().all(|engine| *engine == Engine::Rules);
        let providers = engines.iter().map(|engine| provider(engine, script, alone));
        Ok(Choice {
            providers: providers.collect::<Result<_, _>>()?,
        })
    }

    /// The named provider (`provider/model`), or the first.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<&dyn Provider, Error> {
        let mut all = self.providers.iter();
        let found = match name {
            None => all.next(),
            Some(name) => all.find(|provider| full_name(provider.as_ref()) == name),
        };
        let missing = || {
            let message = format!("no model `{}` is configured", name.unwrap_or_default());
            Error::not_found(message)
                .at("/args/model")
                .hint("model.info lists them")
        };
        found.map(AsRef::as_ref).ok_or_else(missing)
    }

    /// Those that a request may be answered by, in the order in which they are asked: the named one, or all.
    pub(crate) fn fitting(&self, name: Option<&str>) -> Result<Vec<&dyn Provider>, Error> {
        match name {
            Some(_) => Ok(vec![self.find(name)?]),
            None => Ok(self.providers.iter().map(AsRef::as_ref).collect()),
        }
    }

    pub(crate) fn state(&self) -> ModelState {
        let window = self.providers.first().map(|first| first.window());
        ModelState {
            models: self
                .providers
                .iter()
                .map(|provider| full_name(provider.as_ref()))
                .collect(),
            context_window: window.map_or(0, |window| window.tokens),
            output_reserve: window.map_or(0, |window| window.reserve),
            exchanges: self.providers.first().map_or(0, |first| first.exchanges()),
        }
    }
}

pub(crate) fn full_name(provider: &dyn Provider) -> String {
    let name = provider.name();
    format!("{}/{}", name.provider, name.id)
}

/// One entry of the list. `alone`: no entry is a language model.
fn provider(engine: &Engine, script: Option<&str>, alone: bool) -> Result<Box<dyn Provider>, Error> {
    match engine {
        Engine::Rules => Ok(Box::new(Rules::new(alone))),
        Engine::Local(alias) => Ok(Box::new(Local::new(alias.as_deref()))),
        Engine::Script(model) => {
            let file = script.map(PathBuf::from).ok_or_else(|| {
                let message = "the engine `script` needs KEN_SCRIPT, the file that it replays";
                Error::invalid("KEN_MODEL", message)
            })?;
            Ok(Box::new(Script::open(
                model.as_deref().unwrap_or("script-1"),
                file,
            )?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_order() {
        let choice = Choice::read("rules", None).unwrap();
        assert_eq!(choice.state().models, ["rules/rules-1"]);
        assert!(choice.find(None).is_ok() && choice.find(Some("rules/rules-1")).is_ok());
        assert!(choice.find(Some("openai/x")).is_err());
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
        ] {
            let error = Choice::read(list, None).err().unwrap();
            assert!(error.message.contains(part), "{list}: {error}");
        }
        assert!(Choice::read("script", Some("/nonexistent")).is_err());
    }
}
