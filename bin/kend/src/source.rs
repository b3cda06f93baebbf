//! Where the configuration comes from, to read it again at each reload.

use std::path::PathBuf;

use ken_types::places::Places;

use crate::check;
use crate::config::{self, Loaded};
use crate::problem::Problem;

/// The file and what the command line sets over it.
#[derive(Debug, Clone)]
pub(crate) struct ConfigSource {
    pub(crate) config: PathBuf,
    /// Named on the command line, so the file has to exist.
    pub(crate) named: bool,
    pub(crate) port: Option<u16>,
    pub(crate) cognitive_port: Option<u16>,
}

impl ConfigSource {
    /// Reads and checks everything; every error as a line.
    pub(crate) fn load(&self, places: &Places) -> Result<Loaded, Vec<String>> {
        let (mut loaded, mut problems) = config::load(&self.config, self.named);
        if let Some(port) = self.port {
            loaded.config.gateway.port = port;
        }
        if let Some(port) = self.cognitive_port {
            loaded.config.cognitive.port = port;
        }
        // With a file that cannot be read at all, the check would be about other parts than the user's.
        let secrets = self.config.with_file_name("secrets.env");
        let is_of_a_key = |problem: &Problem| !problem.key.is_empty() || problem.file == secrets;
        if problems.iter().all(is_of_a_key) {
            let wrong: Vec<String> = problems.iter().map(|problem| table_of(&problem.key)).collect();
            let found = check::check(&loaded, places).into_iter();
            // A table with a wrong value has been checked without that value.
            problems.extend(found.filter(|problem| !wrong.contains(&table_of(&problem.key))));
        }
        match problems.is_empty() {
            true => Ok(loaded),
            false => Err(problems.iter().map(Problem::to_string).collect()),
        }
    }
}

/// `part.store` for `part.store.nofile`, `gateway` for `gateway.port`.
fn table_of(key: &str) -> String {
    let words = if key.starts_with("part.") { 2 } else { 1 };
    key.split('.').take(words).collect::<Vec<_>>().join(".")
}
