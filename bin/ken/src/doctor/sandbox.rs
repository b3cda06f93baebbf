//! Reports what the sandbox for tools and commands cannot do on this machine. See ken-sandbox(1).

use serde::Deserialize;

use super::{Findings, ask};

const FIX: &str = "allow user namespaces to ordinary users, on Ubuntu by `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; a \
                   container needs a profile that allows namespaces and mounts";

/// What `ken-sandbox --walls` prints.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Walls {
    processes: bool,
    mounts: bool,
    loopback: bool,
    own_proc: bool,
}

pub(crate) enum Lack {
    /// No tool and no command can be run: why, and the remedy.
    Sandbox(String, String),
    /// What follows from namespaces that cannot be made.
    Namespaces(String),
}

pub(super) fn check(findings: &mut Findings) {
    match find() {
        None => {}
        Some(Lack::Sandbox(why, fix)) => findings.error("sandbox", "this machine", why, fix),
        Some(Lack::Namespaces(why)) => findings.warning("sandbox-namespaces", "this machine", why, FIX),
    }
}

/// Asks ken-sandbox. Nothing is lacking if it is not installed: another check reports missing programs.
pub(crate) fn find() -> Option<Lack> {
    let (is_usable, text) = ask("ken-sandbox", &["--walls".as_ref()])?;
    if !is_usable {
        let (why, fix) = refusal(&text);
        return Some(Lack::Sandbox(format!("no tool and no command of an agent can be run: {why}"), fix));
    }
    let walls: Walls = serde_json::from_str(&text).ok()?;
    let consequences = [
        (walls.processes, "background processes of a killed command are left behind"),
        (walls.mounts, "commands are not kept from changing what makes git run programs, so each one is asked for"),
        (walls.loopback, "programs that listen on loopback, as test suites do, fail"),
        (walls.own_proc, "commands see the command lines of all processes"),
    ];
    let lacking: Vec<&str> = consequences.iter().filter(|(has, _)| !has).map(|(_, consequence)| *consequence).collect();
    (!lacking.is_empty()).then(|| Lack::Namespaces(format!("not all namespaces can be made: {}", lacking.join("; "))))
}

/// The message and the hint of an error of ken-sandbox, which is one line of JSON.
fn refusal(text: &str) -> (String, String) {
    let error: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let part = |name: &str| error.get("error")?.get(name)?.as_str().map(str::to_owned);
    (part("message").unwrap_or_else(|| text.trim().to_owned()), part("hint").unwrap_or_else(|| FIX.to_owned()))
}
