//! Reads ken.toml and `secrets.env` beside it, for commands that a person runs. The daemon gets its keys from kend.

use std::collections::BTreeMap;
use std::sync::Arc;

use ken_service::{load_config, secret};
use ken_types::config::Model;
use ken_types::places::Places;
use ken_types::{Error, secrets};

use crate::choice::Setup;
use crate::prices::Table;

#[derive(Debug, Default)]
pub(crate) struct Installed {
    pub(crate) model: Model,
    table: Table,
    secrets: BTreeMap<String, String>,
}

impl Installed {
    /// Reads the files for a command of a person. Root runs it as the user to whom the system belongs, and its keys.
    pub(crate) fn for_person() -> Result<Installed, Error> {
        if let Ok(places) = Places::here(None) {
            ken_trusted::work_as_owner(&places, std::env::args_os().skip(1))?;
        }
        Installed::load()
    }

    /// Reads the files. Without them, everything has its default.
    pub(crate) fn load() -> Result<Installed, Error> {
        let Ok(places) = Places::here(None) else {
            return Ok(Installed { table: Table::installed(None)?, ..Installed::default() });
        };
        let text = ken_trusted::secrets(&places.secrets())?;
        let settings = secrets::parse(&text).flatten();
        let secrets = settings.map(|setting| (setting.name.to_owned(), setting.value.to_owned())).collect();
        let table = Table::installed(Some(&places.config))?;
        Ok(Installed { model: load_config(&places.config)?.model, table, secrets })
    }

    /// Calls a function with what models are made of. Settings come from the environment, or else from secrets.env.
    pub(crate) fn with_setup<T>(&self, work: impl FnOnce(&Setup<'_>) -> T) -> T {
        let setting = |name: &str| secret(name).or_else(|| self.secrets.get(name).cloned());
        let (providers, table) = (&self.model.provider, &self.table);
        work(&Setup { providers, setting: &setting, table, breakers: Arc::default() })
    }
}
