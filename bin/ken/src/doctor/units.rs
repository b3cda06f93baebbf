//! Checks of the service that systemd runs, where ken is installed as one.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use ken_tool::find_program;
use ken_types::places::Places;
use nix::unistd::geteuid;

use super::Findings;

/// Nothing is checked for a system in a folder of its own, because no unit starts it, or where systemd knows no unit of ken.
pub(super) fn check(places: &Places, findings: &mut Findings) {
    if places.home.is_some() {
        return;
    }
    // The service of the machine has its settings in /etc. Root looks at it as its user.
    let is_of_machine = geteuid().is_root() || places.config.starts_with("/etc");
    let (systemctl, user): (&str, &[&str]) =
        if is_of_machine { ("systemctl", &[]) } else { ("systemctl --user", &["--user"]) };
    let asked = ["show", "ken.service", "--property=LoadState,UnitFileState,FragmentPath,ExecStart"];
    let unit = properties("systemctl", &[user, &asked].concat());
    let property = |name: &str| unit.get(name).map_or("", String::as_str);
    if property("LoadState") != "loaded" {
        return;
    }
    check_program(property("FragmentPath"), property("ExecStart"), findings);
    match property("UnitFileState") {
        "disabled" => {
            let why = "is installed, and does not start with this machine";
            findings.note("unit-disabled", "ken.service", why, format!("{systemctl} enable ken"));
        }
        "enabled" if !user.is_empty() => check_linger(findings),
        _ => {}
    }
}

/// Reports a unit that starts another kend than the one beside this program.
fn check_program(file: &str, start: &str, findings: &mut Findings) {
    let Some(program) = start.split_whitespace().find_map(|word| word.strip_prefix("path=")) else { return };
    let id = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let own = find_program("kend");
    let fix = "install ken again (make install, or the package), then systemctl daemon-reload";
    match (id(Path::new(program)), own.as_deref().and_then(id)) {
        (None, _) => findings.error("unit-program", file, format!("starts {program}, which is not there"), fix),
        (started, Some(_)) if started == own.as_deref().and_then(id) => {}
        (_, Some(_)) => {
            let own = own.unwrap_or_default();
            let why = format!("starts {program}, and this ken belongs to {}", own.display());
            findings.warning("unit-program", file, why, fix);
        }
        _ => {}
    }
}

/// Reports a user whose services end when that user logs out.
fn check_linger(findings: &mut Findings) {
    let user = geteuid().to_string();
    if properties("loginctl", &["show-user", &user, "--property=Linger"]).get("Linger").is_some_and(|is| is == "no") {
        let why = "the service ends when you log out, and starts only when you log in";
        findings.warning("linger", "ken.service", why, "loginctl enable-linger");
    }
}

/// The `NAME=value` lines that a program prints; none if it cannot be run.
fn properties(program: &str, args: &[&str]) -> HashMap<String, String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
