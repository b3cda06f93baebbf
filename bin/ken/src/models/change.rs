//! A change of ken.toml and secrets.env. It is made only when both files can be read, and the files are read again under a lock, so that two
//! commands at a time lose nothing of each other.

use ken_types::Error;
use ken_types::places::Places;

use super::config_file::{ConfigFile, ProviderTable};
use super::secret_file::SecretFile;

#[derive(Debug, Clone, Default)]
pub(crate) struct Change {
    pub(crate) provider: Option<ProviderTable>,
    /// What is set in secrets.env: names and values.
    pub(crate) secrets: Vec<(String, String)>,
    pub(crate) models: Option<NewModels>,
}

/// What becomes of `[model] use`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NewModels {
    /// This list.
    List(String),
    /// This model, and behind it those that are there.
    First(String),
}

/// The files that a change has written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Written {
    pub(crate) config: bool,
    pub(crate) secrets: bool,
}

impl Change {
    /// Returns ken.toml as it would be.
    pub(crate) fn applied(&self, places: &Places) -> Result<ConfigFile, Error> {
        let mut config = ConfigFile::open(&places.config)?;
        if let Some(provider) = self.provider.as_ref().filter(|provider| !provider.is_empty()) {
            config.set_provider(provider)?;
        }
        match &self.models {
            None => {}
            Some(NewModels::List(list)) => config.use_models(list)?,
            Some(NewModels::First(model)) => {
                let list = with_first(model, config.used());
                config.use_models(&list)?;
            }
        }
        Ok(config)
    }

    /// Writes the key first: a model whose key is missing would be worse than a key that nobody uses.
    pub(crate) fn write(&self, places: &Places) -> Result<Written, Error> {
        ken_trusted::locked(&places.config, || {
            let config = self.applied(places)?;
            let mut secrets = SecretFile::open(places)?;
            for (name, value) in &self.secrets {
                secrets.set(name, value);
            }
            let written = Written { config: config.is_changed(), secrets: secrets.is_changed() };
            secrets.save()?;
            config.save()?;
            Ok(written)
        })
    }
}

/// Returns a list with this model before the others. Without a list, `rules` is in force, which answers while the model cannot.
fn with_first(model: &str, list: &str) -> String {
    let list = if list.trim().is_empty() { "rules" } else { list };
    let others = list.split(',').map(str::trim).filter(|other| *other != model && !other.is_empty());
    std::iter::once(model).chain(others).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_model_comes_first_and_the_others_stay() {
        for (list, wanted) in
            [("", "a/b,rules"), ("rules", "a/b,rules"), ("a/b,rules", "a/b,rules"), ("openai/m, a/b", "a/b,openai/m")]
        {
            assert_eq!(with_first("a/b", list), wanted);
        }
    }
}
