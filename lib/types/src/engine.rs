//! The engines of ken-model, as named in `[model] use` and in `KEN_MODEL`.

use std::str::FromStr;

use crate::Error;
use crate::providers::{Kind, Providers, RESERVED_NAMES, kind_of, known_provider, resolve, unknown_provider};

/// One entry of the list. Parsing does not check whether the model or the file of an engine exists;
/// ken-model does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// `rules`, or `rules/rules-1`.
    Rules,
    /// `local` for the active model, or `local/ALIAS`.
    Local(Option<String>),
    /// `script`, or `script/NAME`.
    Script(Option<String>),
    /// `PROVIDER/MODEL`: a model of a named provider.
    Remote { provider: String, model: String },
}

impl Engine {
    /// Parses a list like `rules` or `script,rules`, in order of preference. Fails if the list is
    /// empty or names an unknown engine, a provider that is neither known nor in `providers`, or one that has to be there
    /// because it has no usual address.
    pub fn list(text: &str, providers: &Providers) -> Result<Vec<Engine>, Error> {
        text.split(',').map(|entry| Engine::one(entry.trim(), providers)).collect()
    }

    fn one(entry: &str, providers: &Providers) -> Result<Engine, Error> {
        let provider = entry.split('/').next().unwrap_or_default();
        let is_provider = known_provider(provider).is_some() || providers.contains_key(provider);
        match entry.parse() {
            // Errors of the tables themselves are found where these are read.
            Ok(Engine::Remote { provider, model }) if !providers.contains_key(&provider) => {
                resolve(&provider, providers, |_| None)?;
                Ok(Engine::Remote { provider, model })
            }
            Err(_) if !is_provider && !entry.is_empty() && !RESERVED_NAMES.contains(&provider) => {
                Err(unknown_provider(provider, providers))
            }
            parsed => parsed,
        }
    }

    /// Parses the name of a model that judges texts. Fails for a list, and for the engine `rules`, which is no model. Whether
    /// there is such a provider is only known to whoever has read ken.toml.
    pub fn judge(text: &str) -> Result<Engine, Error> {
        let wrong = |message: &str| Err(Error::invalid("", message).hint("one model, such as openai/gpt-4o"));
        match text.parse() {
            _ if text.contains(',') => wrong("a judge is one model and not a list"),
            Ok(Engine::Rules) => wrong("`rules` is no language model and cannot judge"),
            parsed => parsed,
        }
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(entry: &str) -> Result<Engine, Error> {
        let wrong = |message: String| Err(Error::invalid("", message).hint("a list like `openai/gpt-4o,rules`"));
        // The name of a model may contain further slashes.
        let (provider, model) =
            entry.split_once('/').map_or((entry, None), |(provider, model)| (provider, Some(model)));
        match (provider, model) {
            ("rules", None | Some("rules-1")) => Ok(Engine::Rules),
            ("rules", Some(model)) => wrong(format!("`rules` has no model `{model}`, only rules-1")),
            ("local", Some("")) => wrong("`local/` names no model; `local` alone takes the active one".into()),
            ("local", alias) => Ok(Engine::Local(alias.map(str::to_owned))),
            ("script", name) => Ok(Engine::Script(name.map(str::to_owned))),
            ("", _) => wrong("an entry of the list of models is empty".into()),
            (_, None | Some("")) => wrong(format!("`{provider}` needs a model, as `{provider}/MODEL`")),
            (provider, Some(model)) => Ok(Engine::Remote { provider: provider.to_owned(), model: model.to_owned() }),
        }
    }
}

/// The model that computes vectors, as named in `[model] embed` and in `KEN_EMBED`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VectorModel {
    /// `PROVIDER/MODEL`: a model of a named provider.
    Remote { provider: String, model: String },
    /// `local/ALIAS`
    Local(String),
}

impl VectorModel {
    /// Parses its name. Fails for an engine that computes none, and for a provider that [`Engine::list`] would refuse.
    pub fn parse(text: &str, providers: &Providers) -> Result<VectorModel, Error> {
        let wrong = |message: String| {
            Err(Error::invalid("", message).hint(
                "a server with /embeddings is named like a model, PROVIDER/MODEL, a model directory by an alias of MVLM_MODEL_DIRS",
            ))
        };
        match text.parse() {
            Ok(Engine::Local(Some(alias))) => Ok(VectorModel::Local(alias)),
            Ok(Engine::Remote { provider, model }) => {
                Engine::one(text, providers)?;
                if kind_of(&provider, providers) != Kind::OpenAi {
                    return wrong(format!("`{provider}` has no vectors: only the format of OpenAI does"));
                }
                Ok(VectorModel::Remote { provider, model })
            }
            _ => wrong(format!("`{text}` is neither PROVIDER/MODEL, such as openai/MODEL, nor local/ALIAS")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::ProviderTable;

    #[test]
    fn a_list_is_read_in_order() {
        let own = |text: &str| Some(text.to_owned());
        let list = Engine::list("script/a, local/small,local ,rules/rules-1,rules", &Providers::new()).unwrap();
        assert_eq!(
            list,
            [Engine::Script(own("a")), Engine::Local(own("small")), Engine::Local(None), Engine::Rules, Engine::Rules]
        );
    }

    #[test]
    fn errors_name_the_wrong_entry() {
        for (list, part) in [
            ("opnai/x", "opnai"),
            ("rules/rules-9", "rules-9"),
            ("", "empty"),
            ("rules,,rules", "empty"),
            ("local/", "names no model"),
            ("openai", "needs a model"),
            ("anthropic/", "needs a model"),
            ("opnai", "opnai"),
            ("vllm/m", "no address"),
        ] {
            let error = Engine::list(list, &Providers::new()).unwrap_err();
            assert!(error.message.contains(part), "{list}: {error}");
        }
    }

    #[test]
    fn a_model_for_vectors_is_local_or_of_a_provider_with_their_format() {
        let table =
            |kind| ProviderTable { kind, base_url: Some("http://127.0.0.1:1".to_owned()), ..Default::default() };
        let providers = Providers::from([
            ("vllm".to_owned(), table(None)),
            ("claude".to_owned(), table(Some(Kind::Anthropic))),
            ("anthropic".to_owned(), table(Some(Kind::OpenAi))),
        ]);
        let parse = |text: &str| VectorModel::parse(text, &providers);
        assert_eq!(parse("local/a").unwrap(), VectorModel::Local("a".to_owned()));
        for name in ["openai", "vllm", "anthropic"] {
            let remote = VectorModel::Remote { provider: name.to_owned(), model: "m/1".to_owned() };
            assert_eq!(parse(&format!("{name}/m/1")).unwrap(), remote);
        }
        for (text, part) in [
            ("nope/x", "no model provider `nope`"),
            ("claude/m", "has no vectors"),
            ("rules", "neither"),
            ("local", "neither"),
            ("script/a", "neither"),
            ("openai", "neither"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
        }
        let none = Providers::new();
        assert!(VectorModel::parse("anthropic/m", &none).is_err() && VectorModel::parse("vllm/m", &none).is_err());
    }
}
