//! How the configuration was asked for. It is kept so that a reload can read the configuration again.

use ken_types::places::Places;
use serde::{Deserialize, Serialize};

use crate::check;
use crate::config::{self, Loaded};
use crate::problem::Problem;

/// The values that options of the command line override.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ConfigSource {
    /// True if the path was given on the command line. The file must then exist.
    pub(crate) named: bool,
    pub(crate) port: Option<u16>,
    pub(crate) cognitive_port: Option<u16>,
}

impl ConfigSource {
    /// Whether the files differ from what was loaded. A file that is gone counts as unchanged, because that is more likely a
    /// mistake than a request for the defaults.
    pub(crate) fn has_changed(&self, loaded: &Loaded, places: &Places) -> bool {
        let (found, _) = config::load(&places.config, self.named);
        let is_gone = found.source.path().is_none() && loaded.source.path().is_some();
        !is_gone && (found.source != loaded.source || found.secrets != loaded.secrets)
    }

    /// Reads and checks the whole configuration. Returns all errors, each as a line.
    pub(crate) fn load(&self, places: &Places) -> Result<Loaded, Vec<String>> {
        let (mut loaded, mut problems) = config::load(&places.config, self.named);
        if let Some(port) = self.port {
            loaded.config.gateway.port = port;
        }
        if let Some(port) = self.cognitive_port {
            loaded.config.cognitive.port = port;
        }
        // If the file cannot be read at all, the check would report problems of the defaults instead.
        let secrets = places.secrets();
        let is_of_a_key = |problem: &Problem| !problem.key.is_empty() || problem.file == secrets;
        if problems.iter().all(is_of_a_key) {
            let wrong: Vec<String> = problems.iter().map(|problem| table_of(&problem.key)).collect();
            let found = check::check(&loaded, places).into_iter();
            // A table with an invalid value was checked without that value, so further problems of this table may be
            // wrong.
            problems.extend(found.filter(|problem| !wrong.contains(&table_of(&problem.key))));
        }
        if problems.is_empty() { Ok(loaded) } else { Err(problems.iter().map(Problem::to_string).collect()) }
    }
}

/// Returns `part.store` for `part.store.nofile`, and `gateway` for `gateway.port`.
fn table_of(key: &str) -> String {
    let words = if key.starts_with("part.") { 2 } else { 1 };
    key.split('.').take(words).collect::<Vec<_>>().join(".")
}
