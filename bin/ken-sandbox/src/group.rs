//! A control group for the sandbox, where one may be made (cgroups(7), version 2). It is a bonus: with it memory and
//! processes are limited together, and one write kills all that the command has started, whatever it did to hide.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ken_types::control_group;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// A group is named after its supervisor.
const PREFIX: &str = "ken-sandbox-";
/// How often the group is tried to be removed, one time each millisecond: killed processes take a moment to leave it.
const KILL_ATTEMPTS: usize = 1_000;

/// Removed with all its processes when it is dropped.
pub(crate) struct Group {
    path: PathBuf,
    folder: File,
    /// Whether the kernel limits the memory of all its processes together.
    pub(crate) limits_memory: bool,
}

impl Group {
    /// `memory` in bytes. `None` where no group may be made.
    pub(crate) fn make(memory: Option<u64>, processes: u64) -> Option<Group> {
        let parent = parent()?;
        remove_abandoned(&parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        // Refused while the parent group holds processes. The group then has no limits, but can still be killed as a whole.
        let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory +pids");
        fs::create_dir(&path).ok()?;
        let folder = File::open(&path).ok()?;
        let mut group = Group { path, folder, limits_memory: false };
        let mut limits = vec![("pids.max", processes)];
        limits.extend(memory.map(|memory| ("memory.max", memory)));
        limits.extend(memory.map(|_| ("memory.swap.max", 0)));
        for (name, max) in limits {
            // There is no such file without the controller.
            let written = fs::OpenOptions::new()
                .write(true)
                .open(group.path.join(name))
                .and_then(|mut file| std::io::Write::write_all(&mut file, max.to_string().as_bytes()));
            group.limits_memory |= name == "memory.max" && written.is_ok();
        }
        Some(group)
    }

    /// For clone3(2), which starts a process inside.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.folder.as_raw_fd()
    }

    /// Moves a process into it that could not be started inside. Returns whether it is inside.
    pub(crate) fn take(&self, process: Pid) -> bool {
        let processes = self.path.join("cgroup.procs");
        let is_inside = fs::read_to_string(&processes)
            .is_ok_and(|inside| inside.lines().any(|one| one.parse() == Ok(process.as_raw())));
        // To move it where it is would take milliseconds, too.
        is_inside || fs::write(processes, process.to_string()).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..KILL_ATTEMPTS {
            // The usual case: nothing is left in it.
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            let _ = fs::write(self.path.join("cgroup.kill"), "1");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Removes the groups of supervisors that were killed. One that holds a process cannot be removed, whosever it is.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let supervisor = number.and_then(|number| number.parse().ok()).map(Pid::from_raw);
        if supervisor.is_some_and(|supervisor| kill(supervisor, None) == Err(Errno::ESRCH)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The folder of the group that new ones may be made in: beside kend and its parts, else in the group of this process.
fn parent() -> Option<PathBuf> {
    let read = |file: &str| fs::read_to_string(Path::new("/proc/self").join(file)).ok();
    let own = control_group::folder(&read("mountinfo")?, &read("cgroup")?)?;
    if own.ends_with(control_group::SERVICE) { own.parent().map(Into::into) } else { Some(own) }
}
