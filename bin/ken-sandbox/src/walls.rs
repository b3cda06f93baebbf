//! Which walls this system has, and which of them a sandbox cannot do without.

use nix::errno::Errno;
use nix::libc;

use crate::cli::Refusal;

/// The first version of Landlock that knows truncation, and the first that knows signals and abstract sockets.
const TRUNCATION: i32 = 3;
const SCOPES: i32 = 6;

/// What has been set up around a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Walls {
    /// The version of Landlock.
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

    /// As one line of JSON, for `--walls`.
    pub(crate) fn json(&self) -> String {
        let Walls { landlock, processes, mounts, loopback, own_proc } = self;
        format!(
            r#"{{"landlock":{landlock},"processes":{processes},"mounts":{mounts},"loopback":{loopback},"ownProc":{own_proc}}}"#
        )
    }

    pub(crate) fn to_bytes(self) -> [u8; 5] {
        let landlock = u8::try_from(self.landlock).unwrap_or(u8::MAX);
        [landlock, self.processes.into(), self.mounts.into(), self.loopback.into(), self.own_proc.into()]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Walls {
        let is = |at: usize| bytes.get(at).is_some_and(|byte| *byte != 0);
        Walls {
            landlock: bytes.first().copied().unwrap_or_default().into(),
            processes: is(1),
            mounts: is(2),
            loopback: is(3),
            own_proc: is(4),
        }
    }
}

/// Whether truncation has to be prevented by making everything else read-only.
pub(crate) fn needs_read_only(landlock: i32) -> bool {
    landlock < TRUNCATION
}

/// The version of Landlock that the kernel has. `KEN_LANDLOCK_VERSION` can only lower it: a test then sees what an older
/// kernel would do, and whoever sets it gains nothing, because what Landlock lacks must be there by other means.
pub(crate) fn landlock_version() -> Result<i32, Refusal> {
    // LANDLOCK_CREATE_RULESET_VERSION of <linux/landlock.h>
    const VERSION: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call only returns a number.
    #[allow(unsafe_code)]
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    let version = Errno::result(version).and_then(|version| i32::try_from(version).map_err(|_| Errno::EOVERFLOW));
    let version = version.map_err(|errno| unsupported(errno.desc()))?;
    let lowered = std::env::var("KEN_LANDLOCK_VERSION").ok().and_then(|text| text.parse().ok());
    match lowered.unwrap_or(version).min(version) {
        version @ 1.. => Ok(version),
        _ => Err(unsupported("version 0")),
    }
}

fn unsupported(why: &str) -> Refusal {
    Refusal::step("this kernel cannot confine a command to files (Landlock)", why).hint(
        "use Linux 5.13 or newer with `landlock` among the security modules (/sys/kernel/security/lsm); from 6.12 on no \
         namespaces are needed",
    )
}
