//! Reports what the sandbox for tools and commands cannot do on this machine. See ken-sandbox(1).

use serde::Deserialize;

use super::{Finding, Severity, ask};

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

/// Asks ken-sandbox. Nothing is lacking if it is not installed: another check reports missing programs.
pub(crate) fn find() -> Option<Finding> {
    let (is_usable, text) = ask("ken-sandbox", &["--walls".as_ref()])?;
    if !is_usable {
        let (why, fix) = refusal(&text);
        let why = format!("no tool and no command of an agent can be run: {why}");
        return Some(Finding::new("sandbox", Severity::Error, "this machine", why, fix));
    }
    let walls: Walls = serde_json::from_str(&text).ok()?;
    let consequences = [
        (walls.processes, "background processes of a killed command are left behind"),
        (walls.mounts, "commands are not kept from changing what makes git run programs, so each one is asked for"),
        (walls.loopback, "programs that listen on loopback, as test suites do, fail"),
        (walls.own_proc, "commands see the command lines of all processes"),
    ];
    let lacking: Vec<&str> = consequences.iter().filter(|(has, _)| !has).map(|(_, consequence)| *consequence).collect();
    let why = format!("not all namespaces can be made: {}", lacking.join("; "));
    let found = Finding::new("sandbox-namespaces", Severity::Warning, "this machine", why, FIX);
    (!lacking.is_empty()).then_some(found)
}

/// The message and the hint of an error of ken-sandbox, which is one line of JSON.
fn refusal(text: &str) -> (String, String) {
    let error: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let part = |name: &str| error.get("error")?.get(name)?.as_str().map(str::to_owned);
    (part("message").unwrap_or_else(|| text.trim().to_owned()), part("hint").unwrap_or_else(|| FIX.to_owned()))
}
