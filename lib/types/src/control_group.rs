//! Control groups of the kernel, version 2 (cgroups(7)). The caller reads the files of /proc; this module does no I/O.

use std::path::PathBuf;

/// The group of kend and its parts, in the one that systemd has handed over (`Delegate=`). A group with processes cannot hand
/// out limits, so those of sandboxes are made beside this one.
pub const SERVICE: &str = "main";

/// Returns the folder of the group of a process, from its `/proc/PID/mountinfo` and `/proc/PID/cgroup`. `None` where there are
/// no control groups of version 2.
pub fn folder(mounts: &str, groups: &str) -> Option<PathBuf> {
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        kind.starts_with("cgroup2 ").then(|| place.split(' ').nth(4))?
    })?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from(mount).join(own))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_folder_is_below_the_mount_of_version_2() {
        let mounts = "25 20 0:22 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      26 20 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        let groups = "9:name=systemd:/old\n0::/system.slice/ken.service\n";
        let found = folder(mounts, groups);
        assert_eq!(found.as_deref(), Some(Path::new("/sys/fs/cgroup/unified/system.slice/ken.service")));
        assert_eq!(folder(mounts, "9:name=systemd:/old\n"), None);
        assert_eq!(folder(mounts.lines().next().unwrap(), groups), None);
    }
}
