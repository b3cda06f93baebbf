//! Which walls this system has, and which of them a sandbox cannot do without.

use ken_walls::kernel::{self, SCOPES, TRUNCATION};
use nix::errno::Errno;

use crate::cli::Refusal;

/// What has been set up around a command.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Walls {
    pub(crate) landlock: i32,
    /// A PID namespace: no process outside has a number, and the end of its first process ends all of them.
    pub(crate) processes: bool,
    /// A mount namespace, in which folders can be made read-only.
    pub(crate) mounts: bool,
    /// A network namespace with a loopback interface and nothing else.
    pub(crate) loopback: bool,
    /// A `/proc` that shows the processes of the sandbox only.
    pub(crate) own_proc: bool,
}

impl Walls {
    /// Fails if something is missing for which there is no other wall.
    pub(crate) fn check(&self, protects: bool) -> Result<(), String> {
        let version = self.landlock;
        let missing = if version < SCOPES && !self.processes {
            format!("version {version} of Landlock does not keep signals inside, and no PID namespace can be made")
        } else if version < TRUNCATION && !self.mounts {
            format!("version {version} of Landlock does not know truncation, and no mount namespace can be made")
        } else if protects && !self.mounts {
            "no mount namespace can be made, so no repository can be protected".to_owned()
        } else {
            return Ok(());
        };
        Err(missing)
    }

    /// As JSON, for `--walls`.
    pub(crate) fn json(&self) -> String {
        let Walls { landlock, processes, mounts, loopback, own_proc } = self;
        format!(
            r#"{{"landlock":{landlock},"processes":{processes},"mounts":{mounts},"loopback":{loopback},"ownProc":{own_proc}}}"#
        )
    }
}

/// Whether truncation has to be prevented by making everything else read-only.
pub(crate) fn needs_read_only(landlock: i32) -> bool {
    landlock < TRUNCATION
}

pub(crate) fn landlock_version() -> Result<i32, Refusal> {
    match kernel::landlock() {
        Ok(version @ 1..) => Ok(version),
        Ok(_) => Err(unsupported("version 0")),
        Err(error) => Err(unsupported(Errno::from_raw(error.raw_os_error().unwrap_or_default()).desc())),
    }
}

fn unsupported(why: &str) -> Refusal {
    Refusal::step("this kernel cannot confine a command to files (Landlock)", why).hint(
        "use Linux 5.13 or newer with `landlock` among the security modules (/sys/kernel/security/lsm); from 6.12 on no \
         namespaces are needed",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Each wall has another one in its place, or nothing runs: all kernels, with and without each namespace.
    #[test]
    fn what_is_missing_has_another_wall_or_nothing_runs() {
        for landlock in 1..=7 {
            for bits in 0..8 {
                let [processes, mounts, protects] = [1, 2, 4].map(|bit| bits & bit != 0);
                let walls = Walls { landlock, processes, mounts, ..Walls::default() };
                // Signals need version 6 or a PID namespace, truncation version 3 or a mount namespace.
                let missing = match landlock {
                    1..6 if !processes => Some("no PID namespace"),
                    1..3 if !mounts => Some("does not know truncation"),
                    _ if protects && !mounts => Some("no repository can be protected"),
                    _ => None,
                };
                let found = walls.check(protects).err();
                assert_eq!(found.is_some(), missing.is_some(), "{walls:?} {protects}: {found:?}");
                assert!(found.unwrap_or_default().contains(missing.unwrap_or_default()), "{walls:?} {protects}");
            }
            assert_eq!(needs_read_only(landlock), landlock < 3);
        }
    }
}
