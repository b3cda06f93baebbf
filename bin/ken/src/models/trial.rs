//! Tries a model by ken-model, with a ken.toml that is not written yet.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ken_client::nearest;
use ken_tool::find_program;
use ken_types::error::JSON_ERRORS;
use ken_types::places::Places;
use ken_types::{Code, Error};
use serde_json::Value;

use crate::external::error_of;
use crate::progress::during;

/// A folder with the configuration, which is removed when this is dropped. It never holds a key.
pub(crate) struct Trial {
    folder: PathBuf,
    config: PathBuf,
    /// The file that the configuration is meant for.
    meant: PathBuf,
}

/// What a model has answered.
pub(crate) struct Tried {
    pub(crate) text: String,
    pub(crate) ms: u64,
}

impl Trial {
    /// Fails if kend would not start with this configuration.
    pub(crate) fn of(config: &str, places: &Places) -> Result<Trial, Error> {
        let folder = std::env::temp_dir().join(format!("ken-trial-{}", std::process::id()));
        let failed = |error: std::io::Error| Error::internal(format!("{}: {error}", folder.display()));
        // Fails if somebody else has made it.
        DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
        let trial = Trial { config: folder.join("ken.toml"), meant: places.config.clone(), folder: folder.clone() };
        std::fs::write(&trial.config, config).map_err(failed)?;
        trial.check()?;
        Ok(trial)
    }

    fn check(&self) -> Result<(), Error> {
        let Some(kend) = find_program("kend") else {
            return Err(
                Error::unavailable("there is no kend beside ken or on PATH").hint("install ken again: make install")
            );
        };
        let mut command = Command::new(kend);
        command.arg("--check").arg("--home").arg(&self.folder);
        let output = self.output(&mut command)?;
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
        let output = during(&format!("trying {model}"), || self.ken_model(&["try", model, "--json"], model, secrets))?;
        if !output.status.success() {
            let error = self.renamed(error_of("ken-model", output.stderr.trim_ascii(), Code::Unavailable));
            return Err(match error.code {
                Code::NotFound | Code::Invalid => self.with_nearest(error, model, secrets),
                // Its own remedy is for a key that is in the file already.
                Code::Unauthenticated => error.hint("nothing was changed; --key-env or --key-stdin gives another key"),
                _ => error,
            });
        }
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let text = said.get("text").and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        Ok(Tried { text, ms: said.get("totalMs").and_then(Value::as_u64).unwrap_or_default() })
    }

    fn with_nearest(&self, error: Error, model: &str, secrets: &[(String, String)]) -> Error {
        let provider = model.split_once('/').map_or(model, |(provider, _)| provider);
        let known = self.list(provider, secrets);
        match nearest(model, known.iter().map(String::as_str)) {
            Some(near) if near != model => error.hint(format!("did you mean `{near}`?")),
            _ if known.is_empty() => error,
            _ => error.hint(format!("`ken model list` prints the {} models that it has", known.len())),
        }
    }

    /// Returns the models of a provider, as `provider/model`. Empty if it does not tell.
    pub(crate) fn list(&self, provider: &str, secrets: &[(String, String)]) -> Vec<String> {
        // A server on this machine is asked only if one of its models is chosen, whichever it is.
        let provider_model = format!("{provider}/model");
        let listed = during("asking for the models", || self.ken_model(&["list", "--json"], &provider_model, secrets));
        let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let models = text.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            line.get("model")?.as_str().map(str::to_owned)
        });
        models.filter(|model| model.split_once('/').is_some_and(|(owner, _)| owner == provider)).collect()
    }

    /// Runs ken-model, which alone holds keys, with them in its environment: an argument could be seen by everybody.
    fn ken_model(&self, args: &[&str], model: &str, secrets: &[(String, String)]) -> Result<Output, Error> {
        let missing = || Error::unavailable("there is no ken-model beside ken or on PATH").hint("install ken again");
        let mut command = Command::new(find_program("ken-model").ok_or_else(missing)?);
        command.args(args).env("KEN_HOME", &self.folder).env("KEN_MODEL", model);
        command.envs(secrets.iter().map(|(name, value)| (name, value)));
        self.output(&mut command)
    }

    fn output(&self, command: &mut Command) -> Result<Output, Error> {
        let command = command.env(JSON_ERRORS.0, JSON_ERRORS.1).stdin(Stdio::null());
        command.output().map_err(|error| Error::unavailable(format!("a program of ken cannot be run: {error}")))
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

impl Drop for Trial {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn replace(text: &str, old: &Path, new: &Path) -> String {
    text.replace(&old.display().to_string(), &new.display().to_string())
}
