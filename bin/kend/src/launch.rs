//! What the process of a part is given: program, arguments, environment, limits. Built when the configuration is read,
//! so that a restart has nothing left to prepare.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ken_types::config::{Config, Part};
use ken_types::places::Places;

use crate::check::{SECTIONS, program};
use crate::config::Loaded;

/// First descriptor of a passed socket (sd_listen_fds(3)).
pub(crate) const FIRST_FD: i32 = 3;

/// Names that every part gets from kend's own environment, besides `LC_*`.
const ALLOWED: [&str; 6] = ["PATH", "HOME", "LANG", "TZ", "RUST_LOG", "KEN_LOG"];

/// Two equal ones start equal processes: a reload that leaves it equal leaves the process alone.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) program: CString,
    pub(crate) args: Vec<CString>,
    /// Without `LISTEN_PID`, which only the child knows.
    pub(crate) env: Vec<CString>,
    pub(crate) nofile: u64,
    pub(crate) new_privileges: bool,
    /// The sections that it reads, as they are now.
    sections: String,
}

impl Launch {
    /// Fails, in words, when the program is not there or a value cannot be passed.
    pub(crate) fn new(name: &str, part: &Part, loaded: &Loaded, places: &Places) -> Result<Launch, String> {
        let path = program(name, part, places)?;
        let mut args = vec![text(path.as_os_str())?];
        for argument in part.command.iter().skip(1) {
            args.push(text(OsStr::new(argument))?);
        }
        let env = environment(part, loaded, places);
        Ok(Launch {
            program: text(path.as_os_str())?,
            args,
            env: env
                .into_iter()
                .map(|pair| text(&pair))
                .collect::<Result<_, _>>()?,
            nofile: part.nofile,
            new_privileges: part.new_privileges,
            sections: sections(part, &loaded.config),
        })
    }
}

fn text(value: &OsStr) -> Result<CString, String> {
    CString::new(value.as_bytes()).map_err(|_| String::from("a value holds a NUL character"))
}

fn sections(part: &Part, config: &Config) -> String {
    let read = SECTIONS
        .iter()
        .filter(|name| part.reads.iter().any(|read| read == **name));
    let shown = read.map(|name| match *name {
        "gateway" => format!("{:?}", config.gateway),
        "cognitive" => format!("{:?}", config.cognitive),
        "chat" => format!("{:?}", config.chat),
        "model" => format!("{:?}", config.model),
        _ => format!("{:?}", config.limits),
    });
    shown.collect()
}

fn environment(part: &Part, loaded: &Loaded, places: &Places) -> Vec<OsString> {
    let mut pairs: Vec<(OsString, OsString)> =
        std::env::vars_os().filter(|(name, _)| allowed(name)).collect();
    let mut set = |name: &str, value: &OsStr| {
        pairs.retain(|(other, _)| other != name);
        pairs.push((name.into(), value.into()));
    };
    let own = |name: &str| std::env::var_os(name);
    let secret = |name: &str| loaded.secrets.get(name).map(OsString::from);
    for entry in &part.env {
        match entry.split_once('=') {
            Some((name, value)) => set(name, OsStr::new(value)),
            None => {
                if let Some(value) = own(entry).or_else(|| secret(entry)) {
                    set(entry, &value);
                }
            }
        }
    }
    for name in &part.secrets {
        if let Some(value) = secret(name).or_else(|| own(name)) {
            set(name, &value);
        }
    }
    for (name, value) in given(part, places) {
        set(name, &value);
    }
    pairs
        .into_iter()
        .map(|(name, value)| pair(name, &value))
        .collect()
}

fn pair(mut name: OsString, value: &OsStr) -> OsString {
    name.push("=");
    name.push(value);
    name
}

fn allowed(name: &OsStr) -> bool {
    ALLOWED.iter().any(|allowed| name == *allowed) || name.as_bytes().starts_with(b"LC_")
}

/// What kend itself tells each part.
fn given(part: &Part, places: &Places) -> Vec<(&'static str, OsString)> {
    let path = |path: &Path| path.as_os_str().to_owned();
    let names: Vec<&str> = part.sockets.keys().map(String::as_str).collect();
    let mut given = vec![
        // Also while it is not there: that a file comes or goes changes nothing by itself.
        ("KEN_CONFIG", path(&places.config)),
        ("KEN_RUN_DIR", path(&places.run)),
        ("KEN_STATE_DIR", path(&places.state)),
        ("NOTIFY_SOCKET", path(&places.socket("notify"))),
        ("LISTEN_FDS", names.len().to_string().into()),
        ("LISTEN_FDNAMES", names.join(":").into()),
        ("KEN_GUARD_FD", guard_fd(part).to_string().into()),
    ];
    given.extend(places.home.as_deref().map(|home| ("KEN_HOME", path(home))));
    if part.watchdog_ms > 0 {
        let us = part.watchdog_ms.saturating_mul(1000);
        given.push(("WATCHDOG_USEC", us.to_string().into()));
    }
    given
}

/// The guard comes right after the sockets.
fn guard_fd(part: &Part) -> i32 {
    FIRST_FD + i32::try_from(part.sockets.len()).unwrap_or_default()
}
