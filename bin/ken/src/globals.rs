//! The options that every command has: which system, which gateway, and how to print.

use std::path::PathBuf;

use clap::Args;
use ken_types::Error;
use ken_types::places::Places;

// This has no doc comment, because clap would print it as the description of `ken`.
#[derive(Debug, Args)]
pub(crate) struct Globals {
    /// Folder of the system [default: KEN_HOME, else the user's own folders]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Use the gateway at this address, for instance on another machine
    #[arg(long, alias = "base-url", global = true, value_name = "URL", help_heading = "Gateway")]
    pub(crate) url: Option<String>,
    /// File that holds the gateway's API_SECRET [default: KEN_API_SECRET, else that of the system]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Gateway")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Print control characters as they are on a terminal too
    #[arg(long, global = true)]
    pub(crate) raw: bool,
}

impl Globals {
    /// Returns the absolute path of the system's folder if `--home` or `KEN_HOME` names one.
    pub(crate) fn home(&self) -> Result<Option<PathBuf>, Error> {
        let set = std::env::var_os("KEN_HOME").filter(|home| !home.is_empty());
        let home = self.home.clone().or_else(|| set.map(PathBuf::from));
        let absolute = home.map(|home| {
            std::path::absolute(&home).map_err(|error| Error::invalid("--home", format!("{}: {error}", home.display())))
        });
        absolute.transpose()
    }

    /// Returns the command `ken` as a person types it for the system that these options select. `KEN_HOME` needs no
    /// option, because it is set in that person's shell.
    pub(crate) fn command(&self) -> String {
        let home = self.home.as_ref().map(|home| format!(" --home {}", home.display()));
        let url = self.url.as_ref().map(|url| format!(" --url {url}"));
        ["ken".to_owned(), home.unwrap_or_default(), url.unwrap_or_default()].concat()
    }

    pub(crate) fn places(&self) -> Result<Places, Error> {
        Places::here(self.home()?.as_deref())
    }
}
