//! Checks of the programs, the addresses and the running parts.

use std::ffi::OsStr;
use std::net::{IpAddr, TcpListener};

use ken_tool::find_program;
use ken_types::config::{Config, Socket};
use ken_types::ops::Nothing;
use ken_types::ops::kend::PartState;
use ken_types::ops::service::ServiceStats;
use ken_types::places::Places;

use super::{Findings, Repair, ask, call, is_enabled};
use crate::client::{lost_kend, silent_parts};
use crate::gateway::status;

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    Down,
    /// It runs, but a part or kend does not answer. Others wait for the answers of that part, so no part is asked for more.
    Hanging,
    Answering,
}

pub(super) fn check(places: &Places, config: &Config, findings: &mut Findings) -> Running {
    check_programs(config, findings);
    let running = check_parts(places, config, findings);
    if running == Running::Answering {
        check_owners(places, findings);
    } else if running == Running::Down {
        check_socket(places, findings);
        check_socket_paths(places, config, findings);
        for (section, listen, port) in [
            ("gateway", config.gateway.listen, config.gateway.port),
            ("cognitive", config.cognitive.listen, config.cognitive.port),
        ] {
            if is_enabled(config, section) {
                check_port(section, listen, port, findings);
            }
        }
    }
    running
}

/// Reports programs of parts that are missing, cannot be run, or are of another version than `ken`.
fn check_programs(config: &Config, findings: &mut Findings) {
    let builtin = config.part.iter().filter(|(_, part)| part.enabled && part.command.is_empty());
    for name in builtin.map(|(name, _)| format!("ken-{name}")).chain(["kend".to_owned()]) {
        let reinstall = "install ken again: make install";
        if find_program(&name).is_none() {
            let why = format!("there is no {name} beside ken or on PATH");
            findings.error("program-missing", &name, why, reinstall);
            continue;
        }
        match ask(&name, &[OsStr::new("--version")]) {
            Some((true, version)) if version.split_whitespace().any(|word| word == VERSION) => {}
            Some((true, version)) => {
                let why = format!("is {}, and ken is {VERSION}", version.trim());
                findings.error("program-version", &name, why, reinstall);
            }
            _ => findings.error("program-broken", &name, "cannot be run", reinstall),
        }
    }
}

fn check_parts(places: &Places, config: &Config, findings: &mut Findings) -> Running {
    let system = match status(places) {
        Ok(system) => system,
        Err(_) => {
            let Some((pid, why)) = lost_kend(places) else { return Running::Down };
            findings.error("kend-unreachable", format!("kend, pid {pid}"), why, format!("kill {pid}; ken up -d"));
            return Running::Hanging;
        }
    };
    if system.version != VERSION {
        let why = format!("runs as {}, and ken is {VERSION}", system.version);
        findings.warning("kend-version", "kend", why, "ken down; ken up -d");
    }
    for error in &system.config.errors {
        let why = format!("the last good configuration is in force: {error}");
        findings.error("configuration-refused", places.config.display(), why, "edit the file, then `ken reload`");
    }
    for part in system.parts.iter().filter(|part| part.wanted && part.state != PartState::Ready) {
        let ended = part.cause.as_ref().or(part.last_exit.as_ref());
        let ended = ended.map_or_else(String::new, |ended| format!(" ({ended})"));
        let why = format!("is {}{ended}", part.state.name());
        findings.error("part-not-ready", &part.name, why, format!("ken logs {}", part.name));
    }
    let silent = silent_parts(places, config, &system.parts);
    for part in &silent {
        let why = "is ready and does not answer; what needs it waits, and is not checked here";
        findings.error("part-not-answering", part, why, format!("ken logs {part}; ken restart {part}"));
    }
    if silent.is_empty() { Running::Answering } else { Running::Hanging }
}

/// Reports a gateway that cannot see which user of this machine calls it.
fn check_owners(places: &Places, findings: &mut Findings) {
    let stats = call::<ServiceStats>(places, "gateway", &Nothing {});
    if stats.is_some_and(|stats| stats.get("sees_owners").is_some_and(|sees| sees == false)) {
        let why = "cannot see which user of this machine calls it (it may run in another network namespace than its \
                   socket), so every call needs API_SECRET";
        let fix = "set API_SECRET in secrets.env, or trust_loopback = \"any-user\" in [gateway] where no other user is";
        findings.warning("owners-unseen", "gateway", why, fix);
    }
}

/// Reports a socket file that nobody listens on. A kend that ended abnormally left it, and the next kend replaces it.
fn check_socket(places: &Places, findings: &mut Findings) {
    let socket = places.socket("kend");
    if socket.exists() && !socket.is_dir() {
        let why = "nobody listens on it: kend did not end as it should";
        findings.warning("stale-socket", socket.display(), why, "ken up -d");
        findings.repair(Repair::Remove(socket));
    }
}

/// Reports what is not a socket where a socket belongs: nothing can listen there.
fn check_socket_paths(places: &Places, config: &Config, findings: &mut Findings) {
    let of_parts = config.part.values().flat_map(|part| part.sockets.values()).filter_map(|socket| match socket {
        Socket::Unix(path) => Some(places.run.join(path)),
        Socket::Tcp(_) => None,
    });
    for path in of_parts.chain(["kend", "notify"].map(|name| places.socket(name))).filter(|path| path.is_dir()) {
        let place = path.display();
        let fix = format!("mv {place} {place}.old");
        findings.error("not-a-socket", place, "is a folder, and a socket belongs there", fix);
    }
}

fn check_port(section: &str, listen: IpAddr, port: u16, findings: &mut Findings) {
    if port == 0 {
        return;
    }
    let Err(error) = TcpListener::bind((listen, port)) else {
        return;
    };
    let place = format!("{listen}:{port}");
    let flag = if section == "gateway" { "--port" } else { "--cognitive-port" };
    let (id, why) = match error.kind() {
        std::io::ErrorKind::AddrInUse => ("port-taken", "another program listens there".to_owned()),
        std::io::ErrorKind::PermissionDenied => ("port-forbidden", "only root may listen below 1024".to_owned()),
        std::io::ErrorKind::AddrNotAvailable => ("address", "this machine does not have the address".to_owned()),
        _ => ("address", error.to_string()),
    };
    findings.error(id, place, why, format!("set another port in [{section}], or `ken up {flag} 0`"));
}
