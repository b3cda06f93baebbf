//! The engines of ken-model, as named in `[model] use` and in `KEN_MODEL`.

use std::str::FromStr;

use crate::Error;

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
    /// `openai/MODEL`: the chat completions API, of OpenAI or of any compatible server.
    OpenAi(String),
    /// `anthropic/MODEL`.
    Anthropic(String),
}

const KNOWN: &str = "a list like `openai/gpt-4o,rules`; known providers: anthropic, local, openai, rules, script";

impl Engine {
    /// Parses a list like `rules` or `script,rules`, in order of preference. Fails if the list is
    /// empty or names an unknown engine.
    pub fn list(text: &str) -> Result<Vec<Engine>, Error> {
        text.split(',').map(|entry| entry.trim().parse()).collect()
    }

    /// Parses the name of a model that judges texts. Fails for a list, and for the engine `rules`, which is no model.
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
        let wrong = |message: String| Err(Error::invalid("", message));
        let (provider, model) =
            entry.split_once('/').map_or((entry, None), |(provider, model)| (provider, Some(model)));
        match (provider, model) {
            ("rules", None | Some("rules-1")) => Ok(Engine::Rules),
            ("rules", Some(model)) => wrong(format!("`rules` has no model `{model}`, only rules-1")),
            ("local", Some("")) => wrong("`local/` names no model; `local` alone takes the active one".into()),
            ("local", alias) => Ok(Engine::Local(alias.map(str::to_owned))),
            ("script", name) => Ok(Engine::Script(name.map(str::to_owned))),
            ("openai" | "anthropic", None | Some("")) => {
                wrong(format!("`{provider}` needs a model, as `{provider}/MODEL`"))
            }
            ("openai", Some(model)) => Ok(Engine::OpenAi(model.to_owned())),
            ("anthropic", Some(model)) => Ok(Engine::Anthropic(model.to_owned())),
            ("", _) => wrong("an entry of the list of models is empty".into()),
            (unknown, _) => wrong(format!("there is no model provider `{unknown}`")),
        }
        .map_err(|error| error.hint(KNOWN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_order() {
        let own = |text: &str| Some(text.to_owned());
        let list = Engine::list("script/a, local/small,local ,rules/rules-1,rules").unwrap();
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
        ] {
            let error = Engine::list(list).unwrap_err();
            assert!(error.message.contains(part), "{list}: {error}");
        }
    }
}
