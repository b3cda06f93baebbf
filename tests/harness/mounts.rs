//! Tests with files of the system of their own.

use std::process::Command;

use crate::skip::skip;

const VARIABLE: &str = "KEN_TEST_MOUNTS";

/// Runs the test of this name (`module::name`) again, in a process that has mounts of its own and for which a shell has prepared them.
/// Returns whether this is that process.
pub fn in_own_mounts(test: &str, prepare: &str) -> bool {
    if std::env::var_os(VARIABLE).is_some() {
        return true;
    }
    let unshared = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg("--mount").args(words);
        command
    };
    if !nix::unistd::geteuid().is_root() {
        skip("needs root");
    } else if !unshared(&["mount", "-t", "tmpfs", "none", "/run"]).status().is_ok_and(|status| status.success()) {
        skip("namespaces are not allowed here");
    } else {
        let own = std::env::current_exe().expect("the test's own path");
        let script = format!("set -e; {prepare}; exec \"$@\"");
        let mut command = unshared(&["sh", "-c", &script, "sh"]);
        let output =
            command.arg(own).args(["--exact", test, "--nocapture"]).env(VARIABLE, "1").output().expect("unshare");
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    false
}
