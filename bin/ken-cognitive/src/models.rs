//! Local models, and the active one. `ken-textgen` reads the same choice, so it applies wherever text is generated.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use ken_types::error::{JSON_ERRORS, reported_last};
use ken_types::{Code, Error};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::file;

/// The timeout of ken-textgen for checking a model. It reads only tables, not weights.
const CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// Access to the stored choice and to ken-textgen.
pub(crate) struct Models {
    /// The file with the active alias (ken-textgen(1)).
    choice: PathBuf,
    textgen: PathBuf,
}

/// A line of `ken-textgen --list-models`.
#[derive(Deserialize)]
pub(crate) struct Alias {
    pub(crate) alias: String,
    path: String,
    active: bool,
}

impl Models {
    /// `dir` is the folder of the choice. It holds nothing else, because ken-model can read it.
    pub(crate) fn new(dir: &std::path::Path) -> Models {
        let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("ken-textgen")));
        Models {
            choice: dir.join("active_model"),
            textgen: beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from("ken-textgen")),
        }
    }

    pub(crate) async fn list(&self) -> Result<Value, Error> {
        let aliases = self.aliases().await?;
        let active = aliases.iter().find(|alias| alias.active);
        let active = active.map(|alias| alias.alias.as_str());
        let entry = |alias: &Alias| json!({"alias": alias.alias, "path": alias.path});
        let all: Vec<Value> = aliases.iter().map(entry).collect();
        Ok(json!({"active_alias": active, "aliases": all}))
    }

    pub(crate) async fn aliases(&self) -> Result<Vec<Alias>, Error> {
        if std::env::var_os("MVLM_MODEL_DIRS").is_none_or(|dirs| dirs.is_empty()) {
            return Ok(Vec::new()); // no call of ken-textgen is needed
        }
        aliases_of(&self.ask(&["--list-models"]).await?)
    }

    /// Checks `MVLM_MODEL_DIRS` and `ACTIVE_MVLM_MODEL` before the server starts. A missing ken-textgen is no error here: only
    /// requests for a local model need it.
    pub(crate) fn check_settings(&self, variable: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
        const ACTIVE: &str = "ACTIVE_MVLM_MODEL";
        let set = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let active = set(ACTIVE);
        if active.is_none() && set("MVLM_MODEL_DIRS").is_none() {
            return Ok(());
        }
        let mut command = std::process::Command::new(&self.textgen);
        command.arg("--list-models").env(JSON_ERRORS.0, JSON_ERRORS.1).stdin(Stdio::null());
        let Ok(output) = command.output() else {
            return Ok(());
        };
        if !output.status.success() {
            return Err(error_of(&output));
        }
        let aliases = aliases_of(&String::from_utf8_lossy(&output.stdout))?;
        match active.filter(|active| !aliases.iter().any(|known| known.alias == *active)) {
            None => Ok(()),
            Some(unknown) => {
                let names: Vec<&str> = aliases.iter().map(|known| known.alias.as_str()).collect();
                let error = Error::invalid(ACTIVE, format!("{ACTIVE}: MVLM_MODEL_DIRS has no alias {unknown:?}"));
                Err(error.hint(format!("it has: {}", names.join(", "))))
            }
        }
    }

    /// Checks whether a model can be loaded. The error is that of ken-textgen.
    pub(crate) async fn check(&self, alias: &str) -> Result<(), Error> {
        self.ask(&["--check", "--model", alias]).await.map(drop)
    }

    /// Stores the choice. When this returns, it is on disk.
    pub(crate) fn choose(&self, alias: &str) -> Result<(), Error> {
        self.choice.parent().map_or(Ok(()), file::folder)?;
        file::write(&self.choice, &format!("{alias}\n"))
    }

    /// Takes over the choice that an earlier release has left in `dir`.
    pub(crate) fn take_over(&self, dir: &std::path::Path) -> Result<(), Error> {
        let old = dir.join("active_model");
        let Ok(alias) = std::fs::read_to_string(&old) else {
            return Ok(());
        };
        if !self.choice.exists() {
            self.choose(alias.trim())?;
        }
        // If this fails, the next start finds the choice made, and only tries to remove the file again.
        _ = std::fs::remove_file(old);
        Ok(())
    }

    async fn ask(&self, arguments: &[&str]) -> Result<String, Error> {
        let absent = |error: std::io::Error| {
            Error::unavailable(format!("{}: {error}", self.textgen.display()))
                .hint("local models need ken-textgen beside ken-cognitive or on PATH")
        };
        let mut command = Command::new(&self.textgen);
        command.args(arguments).env(JSON_ERRORS.0, JSON_ERRORS.1).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(CHECK_TIMEOUT, command.output()).await;
        let output = output.map_err(|_| Error::deadline("ken-textgen did not answer in time"))?.map_err(absent)?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(error_of(&output))
        }
    }
}

/// Reads the output of `ken-textgen --list-models`.
fn aliases_of(text: &str) -> Result<Vec<Alias>, Error> {
    let lines = text.lines().map(|line| {
        serde_json::from_str(line).map_err(|error| Error::internal(format!("ken-textgen --list-models: {error}")))
    });
    lines.collect()
}

/// Returns the error that a tool printed on standard error.
fn error_of(output: &Output) -> Error {
    match reported_last(&output.stderr) {
        Some(error) if error.code == Code::NotFound => Error { code: Code::Invalid, ..error },
        Some(error) => error,
        None => Error::internal(format!("ken-textgen failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
