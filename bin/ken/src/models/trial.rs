//! Tries a model by ken-model, with a ken.toml that is not written yet.

use std::path::{Path, PathBuf};
use std::process::Command;

use ken_types::places::Places;
use ken_types::{Code, Error};
use serde_json::Value;
use tempfile::TempDir;

use crate::external::{installed, output, printed};
use crate::progress::during;

/// It alone holds keys. It gets them in its environment, because an argument could be seen by everybody.
const MODEL: &str = "ken-model";
const OTHER_KEY: &str = "nothing was changed; --key-env or --key-stdin gives another key";

/// A folder with the configuration. It never holds a key.
pub(crate) struct Trial {
    folder: TempDir,
    config: PathBuf,
    /// The file that the configuration is meant for.
    meant: PathBuf,
}

pub(crate) struct Tried {
    pub(crate) text: String,
    pub(crate) ms: u64,
}

impl Trial {
    /// Fails if kend would not start with this configuration.
    pub(crate) fn of(config: &str, places: &Places) -> Result<Trial, Error> {
        let failed = |error: std::io::Error| Error::internal(format!("a temporary folder: {error}"));
        let folder = tempfile::Builder::new().prefix("ken-trial-").tempdir().map_err(failed)?;
        let trial = Trial { config: folder.path().join("ken.toml"), meant: places.config.clone(), folder };
        std::fs::write(&trial.config, config).map_err(failed)?;
        trial.check()?;
        Ok(trial)
    }

    fn check(&self) -> Result<(), Error> {
        let output = output(installed("kend")?.arg("--check").arg("--home").arg(self.folder.path()))?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let first = text.lines().next().unwrap_or_default();
        let first = first.strip_prefix("kend: ").unwrap_or(first);
        Err(self.renamed(Error::invalid("", first)).hint("nothing was changed"))
    }

    /// Sends one word to a model. An unknown one is answered with the nearest name that the provider has.
    pub(crate) fn ask(&self, model: &str, secrets: &[(String, String)]) -> Result<Tried, Error> {
        let mut command = installed(MODEL)?;
        command.args(["try", model, "--json"]).env("KEN_HOME", self.folder.path()).env("KEN_MODEL", model);
        let command = command.envs(secrets.iter().cloned());
        let printed = during(&format!("trying {model}"), || printed(command, Code::Unavailable)).map_err(|error| {
            let error = self.renamed(error);
            // The remedy of ken-model is for a key that is in the file already.
            if error.code == Code::Unauthenticated { error.hint(OTHER_KEY) } else { error }
        })?;
        let said: Value = serde_json::from_slice(&printed).unwrap_or_default();
        let text = said.get("text").and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        Ok(Tried { text, ms: said.get("totalMs").and_then(Value::as_u64).unwrap_or_default() })
    }

    /// Returns the models of a provider, without its name. Empty if it does not tell.
    pub(crate) fn list(&self, provider: &str, secrets: &[(String, String)]) -> Vec<String> {
        let listed = during("asking for the models", || {
            list(installed(MODEL)?.env("KEN_HOME", self.folder.path()), provider, secrets)
        });
        listed.unwrap_or_default()
    }

    /// Names the file of the person in place of the copy.
    fn renamed(&self, error: Error) -> Error {
        let named = |text: &str| replace(text, &self.config, &self.meant);
        Error {
            message: named(&error.message),
            at: error.at.as_deref().map(named),
            hint: error.hint.as_deref().map(named),
            ..error
        }
    }
}

/// Returns the models of a server that runs on this machine at its usual address, or where ken.toml says. `None` if none answers.
pub(crate) fn models_here(provider: &str) -> Option<Vec<String>> {
    list(&mut installed(MODEL).ok()?, provider, &[]).ok()
}

fn list(command: &mut Command, provider: &str, secrets: &[(String, String)]) -> Result<Vec<String>, Error> {
    let command = command.args(["list", provider, "--json"]).env("KEN_MODEL", "rules");
    let printed = printed(command.envs(secrets.iter().cloned()), Code::Unavailable)?;
    let lines = String::from_utf8_lossy(&printed);
    let model = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        let (_, model) = line.get("model")?.as_str()?.split_once('/')?;
        Some(model.to_owned())
    };
    Ok(lines.lines().filter_map(model).collect())
}

fn replace(text: &str, old: &Path, new: &Path) -> String {
    text.replace(&old.display().to_string(), &new.display().to_string())
}
