//! `ken-workflow check`: validates workflow files.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use ken_flow::{Protocols, load_named};
use ken_tool::{Answer, Error, Replied, Reply, Report, Verdict};
use serde::Serialize;

#[derive(Args)]
pub(crate) struct Check {
    /// Workflow files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Report for Check {
    const NAME: &'static str = "ken-workflow check";
    const ABOUT: &'static str = "Check workflow files and report what is wrong, and where";
    const AFTER_HELP: &'static str = "Exit status: 0 all files are valid, 1 some are not, 2 an error.";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let protocols = Protocols::shipped();
        let files = self.files.iter().map(|file| Checked::of(file, &protocols));
        Ok(reply.send(&Found { files: files.collect() }))
    }
}

#[derive(Serialize)]
struct Found {
    files: Vec<Checked>,
}

#[derive(Serialize)]
struct Checked {
    file: String,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl Checked {
    fn of(file: &Path, protocols: &Protocols) -> Checked {
        let read = load_named(file, protocols);
        Checked {
            file: file.display().to_string(),
            ok: read.is_ok(),
            workflow: read.as_ref().ok().map(|workflow| workflow.name().to_owned()),
            error: read.err(),
        }
    }
}

impl Answer for Found {
    fn verdict(&self) -> Verdict {
        if self.files.iter().all(|file| file.ok) { Verdict::Positive } else { Verdict::Negative }
    }

    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for file in &self.files {
            match (&file.workflow, &file.error) {
                (Some(name), _) => writeln!(to, "{}: ok: {name}", file.file)?,
                (None, Some(error)) => writeln!(to, "invalid: {error}")?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}
