//! The control group of kend. Where systemd has handed a group over (`Delegate=`), kend moves into a group of its own below that
//! one: a group with processes cannot hand out limits, and ken-sandbox limits commands in groups beside kend's. systemd 254 could
//! do the same (`DelegateSubgroup=`), but Debian 12 has 252.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ken_types::control_group;
use nix::unistd::geteuid;

/// Set by the systemd of the machine on a group that is handed over; readable for whom it is handed to.
const DELEGATED: &str = "user.delegate";
/// The process that systemd has started, as opposed to one that has only inherited its environment.
const STARTED: &str = "SYSTEMD_EXEC_PID";

/// Moves this process, and with it all later parts, into the group of the service. Does nothing in a group that has not been handed
/// over, or that other processes are in: those would keep it from handing out limits. The error is for the log, since everything
/// works without groups.
pub(crate) fn enter() -> Result<(), String> {
    let read = |file: &str| fs::read_to_string(Path::new("/proc/self").join(file)).unwrap_or_default();
    match control_group::folder(&read("mountinfo"), &read("cgroup")) {
        Some(group) if is_delegated(&group) && is_alone(&group) => enter_below(&group)
            .map_err(|error| format!("sandboxes have no control groups: {}: {error}", group.display())),
        _ => Ok(()),
    }
}

fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(group, DELEGATED, &mut value).unwrap_or_default();
    value.get(..length) == Some(b"1") || is_of_user_unit(group)
}

/// Whether this is the service of a user. That user's systemd marks no groups, but they all belong to the user; the user's other
/// groups, such as those of terminals, are none that systemd has started kend in.
fn is_of_user_unit(group: &Path) -> bool {
    let user = geteuid();
    let started = std::env::var(STARTED).is_ok_and(|pid| pid == std::process::id().to_string());
    let owned = fs::metadata(group).is_ok_and(|meta| meta.uid() == user.as_raw());
    is_user_unit(started, owned, user.is_root(), group)
}

fn is_user_unit(started: bool, owned: bool, is_root: bool, group: &Path) -> bool {
    started && owned && !is_root && group.extension().is_some_and(|kind| kind == "service")
}

fn is_alone(group: &Path) -> bool {
    let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    processes.trim() == std::process::id().to_string()
}

fn enter_below(group: &Path) -> io::Result<()> {
    let own = group.join(control_group::SERVICE);
    // After a restart of kend the group may still be there.
    fs::create_dir(&own).or_else(|error| if own.is_dir() { Ok(()) } else { Err(error) })?;
    fs::write(own.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_service_that_systemd_has_started_for_its_user_takes_the_group() {
        for bits in 0..8u8 {
            let [started, owned, is_root] = [1, 2, 4].map(|bit| bits & bit != 0);
            for name in ["ken.service", "session-1.scope", "service"] {
                let expected = started && owned && !is_root && name == "ken.service";
                let is = is_user_unit(started, owned, is_root, &Path::new("/sys/fs/cgroup/app.slice").join(name));
                assert_eq!(is, expected, "{started} {owned} {is_root} {name}");
            }
        }
    }

    #[test]
    fn a_group_with_others_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::process::id();
        for (text, is) in [(format!("{own}\n"), true), (format!("{own}\n1\n"), false), (String::new(), false)] {
            fs::write(folder.path().join("cgroup.procs"), &text).unwrap();
            assert_eq!(is_alone(folder.path()), is, "{text}");
        }
    }
}
