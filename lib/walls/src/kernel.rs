//! Which walls the running kernel has.

use std::io;

/// The first version of Landlock that knows truncation, the first that knows TCP ports, and the first that knows signals and
/// abstract sockets.
pub const TRUNCATION: i32 = 3;
pub const PORTS: i32 = 4;
pub const SCOPES: i32 = 6;

/// Returns the version of Landlock. Fails with the reason of the kernel if it has none. `KEN_LANDLOCK_VERSION` can only lower
/// it: a test then sees what an older kernel would do.
pub fn landlock() -> io::Result<i32> {
    // LANDLOCK_CREATE_RULESET_VERSION of <linux/landlock.h>
    const VERSION: libc::c_uint = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call only returns a number.
    #[allow(unsafe_code)]
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    let version = match i32::try_from(version) {
        Ok(version @ 0..) => version,
        _ => return Err(io::Error::last_os_error()),
    };
    Ok(lowered(version, std::env::var("KEN_LANDLOCK_VERSION").ok().as_deref()))
}

fn lowered(version: i32, to: Option<&str>) -> i32 {
    to.and_then(|text| text.parse().ok()).map_or(version, |to: i32| to.min(version))
}

/// Whether the kernel has filters of system calls.
pub fn has_filters() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call only reads the number that the pointer leads to.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    answer == 0
}

/// Gives up all capabilities of the calling thread but those in `kept`, a set of bits of `<linux/capability.h>`. Root is then like an
/// ordinary user that owns the files of the system.
pub fn keep_capabilities(kept: u32) -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    // _LINUX_CAPABILITY_VERSION_3: the effective, the permitted and the inheritable ones, 32 bits each, then 32 more of each. What is
    // not permitted now cannot be kept.
    let header = Header { version: 0x2008_0522, pid: 0 };
    let mut sets = [0u32; 6];
    // SAFETY: plain system calls on this thread; the pointers live during the calls, and lead to what this version needs.
    #[allow(unsafe_code)]
    let done = unsafe {
        if libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let [_, permitted, ..] = sets;
        let kept = [permitted & kept, permitted & kept, 0, 0, 0, 0];
        libc::syscall(libc::SYS_capset, &raw const header, kept.as_ptr())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns what this kernel lacks for the walls of the parts, each as the end of the sentence "a part is not kept from …".
pub fn missing() -> Vec<&'static str> {
    lacking(landlock().unwrap_or(0), has_filters())
}

fn lacking(landlock: i32, has_filters: bool) -> Vec<&'static str> {
    let walls = [
        (landlock >= 1, "files that are not its own (Landlock, Linux 5.13)"),
        (landlock >= TRUNCATION, "truncating files that it may not write (Landlock 3, Linux 6.2)"),
        (landlock >= PORTS, "TCP ports (Landlock 4, Linux 6.7)"),
        (landlock >= SCOPES, "sending signals to other processes of the user (Landlock 6, Linux 6.12)"),
        (has_filters, "system calls that it does not need (seccomp)"),
    ];
    walls.into_iter().filter(|(is_there, _)| !is_there).map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_can_only_be_lowered() {
        for (to, version) in [(None, 6), (Some("2"), 2), (Some("0"), 0), (Some("6"), 6), (Some("7"), 6), (Some("x"), 6)]
        {
            assert_eq!(lowered(6, to), version, "{to:?}");
        }
    }

    #[test]
    fn what_each_version_lacks() {
        let counts = [(0, 4), (1, 3), (2, 3), (3, 2), (4, 1), (5, 1), (6, 0), (7, 0)];
        for (version, count) in counts {
            assert_eq!(lacking(version, true).len(), count, "version {version}");
            assert_eq!(lacking(version, false).len(), count + 1, "version {version}");
        }
    }
}
