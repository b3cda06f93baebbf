//! Finds the gateway, and starts the system when it is not running.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ken_client::workspace::trusted_around;
use ken_client::{Endpoint, Gateway, Secret, gateway_url};
use ken_tool::find_program;
use ken_types::Error;
use ken_types::error::{JSON_ERRORS, reported_last};
use ken_types::places::Places;

use crate::cli::Cli;

/// The settings that determine which gateway is used, from the command line and the environment.
#[derive(Debug, Clone)]
pub(crate) struct Finder {
    base: Option<String>,
    secret: Option<Secret>,
    home: Option<PathBuf>,
    places: Option<Places>,
    may_start: bool,
}

impl Finder {
    pub(crate) fn of(cli: &Cli) -> Result<Finder, Error> {
        let named = || std::env::var("KEN_BASE_URL").ok().filter(|url| !url.is_empty());
        let base = cli.url.clone().or_else(named);
        base.as_deref().map(Endpoint::given).transpose()?;
        let places = match (Places::here(cli.home.as_deref()), &base) {
            (Ok(places), _) => Some(places),
            (Err(_), Some(_)) => None,
            (Err(error), None) => return Err(error),
        };
        let given = Secret::given(cli.secret_file.as_deref())?;
        let own = places.as_ref().filter(|_| base.is_none()).map(Secret::configured);
        Ok(Finder {
            secret: given.or(own.transpose()?.flatten()),
            home: places.as_ref().and_then(|places| places.home.clone()),
            may_start: !cli.no_start && base.is_none(),
            places,
            base,
        })
    }

    /// Returns the state directory, if there is one.
    pub(crate) fn state(&self) -> Option<&Path> {
        self.places.as_ref().map(|places| places.state.as_path())
    }

    /// Returns the paths of the system, if its gateway is the one that is used.
    pub(crate) fn local_places(&self) -> Option<&Places> {
        self.places.as_ref().filter(|_| self.base.is_none())
    }

    /// Returns the folder for a session that is new because the one that was meant does not exist. The error says why the agent cannot
    /// enter the folder.
    pub(crate) fn folder(&self) -> Result<Option<PathBuf>, String> {
        trusted_around(self.local_places())
    }

    /// Returns the command `ken` as a person types it for the same system.
    pub(crate) fn command(&self) -> String {
        match (&self.base, &self.home) {
            (Some(base), _) => format!("ken --url {base}"),
            (None, Some(home)) => format!("ken --home {}", home.display()),
            (None, None) => "ken".to_owned(),
        }
    }

    /// Connects to the gateway. Starts the system first if it is not running, and calls `say` with what it is doing.
    pub(crate) fn gateway(&self, say: impl Fn(&str)) -> Result<Gateway, Error> {
        if let Some(base) = &self.base {
            return Gateway::at(Endpoint::new(base).with_secret(self.secret.clone()));
        }
        if self.may_start && !self.runs() {
            say("nothing runs: starting the system");
            self.start()?;
        } else {
            self.url()?;
        }
        let finder = self.clone();
        Gateway::located(move || Ok(Endpoint::new(&finder.url()?).with_secret(finder.secret.clone())))
    }

    fn runs(&self) -> bool {
        self.places.as_ref().is_some_and(|places| UnixStream::connect(places.socket("kend")).is_ok())
    }

    fn url(&self) -> Result<String, Error> {
        gateway_url(self.places.as_ref().ok_or_else(|| Error::internal("no places"))?)
    }

    /// Runs `ken up -d`, which returns when all parts are ready.
    fn start(&self) -> Result<(), Error> {
        let ken = find_program("ken").ok_or_else(|| Error::unavailable("there is no ken beside ken-tui or on PATH"))?;
        let mut up = Command::new(&ken);
        if let Some(home) = &self.home {
            up.arg("--home").arg(home);
        }
        let wrong = |error: std::io::Error| Error::unavailable(format!("{}: {error}", ken.display()));
        let mut up = up
            .args(["up", "-d"])
            .env(JSON_ERRORS.0, JSON_ERRORS.1)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(wrong)?;
        let mut first_line = String::new();
        if let Some(stdout) = up.stdout.take() {
            _ = BufReader::new(stdout).read_line(&mut first_line);
        }
        if first_line.starts_with("ready ") {
            _ = up.wait();
            return Ok(());
        }
        let mut why = Vec::new();
        if let Some(stderr) = up.stderr.take() {
            _ = stderr.take(4_096).read_to_end(&mut why);
        }
        _ = up.wait();
        Err(refusal(&why))
    }
}

/// Returns the error that `ken up` printed on standard error.
fn refusal(stderr: &[u8]) -> Error {
    let error = reported_last(stderr).unwrap_or_else(|| Error::internal(String::from_utf8_lossy(stderr).trim()));
    Error::unavailable(format!("the system does not start: {}", error.message))
        .hint(error.hint.as_deref().unwrap_or("`ken doctor` finds what is wrong"))
}
