//! The memory of all processes of a sandbox together, where no control group limits it. It is looked at from time to time, as
//! ken-coder looks at the disk: the kernel limits only the data of each process, and that not for memory that is shared, such
//! as a file in memory (memfd_create(2)), which need not even be mapped.

use std::fs;
use std::time::Duration;

use nix::unistd::Pid;

/// How often it is looked at. A command can use more for this long.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// The most processes that are looked at; a sandbox has a limit for them too.
const MAX_PROCESSES: usize = 8_192;

/// A limit for what a process and its descendants use.
#[derive(Debug)]
pub(crate) struct Memory {
    max: u64,
    /// What all shared memory of the system took when the command started. Nobody tells whose a file in memory is that is on its
    /// way through a socket, so the growth of all of it counts, and the limit should be generous.
    shared_before: u64,
}

impl Memory {
    /// `max` in bytes.
    pub(crate) fn limited_to(max: u64) -> Memory {
        Memory { max, shared_before: shared() }
    }

    pub(crate) fn is_exceeded_by(&self, init: Pid) -> bool {
        let shared = shared().saturating_sub(self.shared_before);
        let processes = with_descendants(init.as_raw());
        let own = |file: &str, name: &str| -> u64 {
            let files = processes.iter().map(|process| format!("/proc/{process}/{file}"));
            files.map(|path| field(&path, name)).sum()
        };
        // The first sum counts pages twice that are shared after a fork, but costs little.
        let all = [("status", "RssAnon:"), ("smaps_rollup", "Pss_Anon:")];
        all.into_iter().all(|(file, name)| exceeds(shared, own(file, name), self.max))
    }
}

fn exceeds(shared: u64, own: u64, max: u64) -> bool {
    shared.saturating_add(own) > max
}

fn shared() -> u64 {
    field("/proc/meminfo", "Shmem:")
}

/// A field in kB of a file of `/proc`, in bytes. A process that is gone has none.
fn field(path: &str, name: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let amount = line.and_then(|rest| rest.split_whitespace().next()).and_then(|amount| amount.parse::<u64>().ok());
    amount.unwrap_or_default().saturating_mul(1024)
}

fn with_descendants(process: i32) -> Vec<i32> {
    let mut found = vec![process];
    let mut next = 0;
    while let Some(process) = found.get(next).copied() {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
        found.truncate(MAX_PROCESSES);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_be_reached() {
        for (shared, own, is) in [(0, 10, false), (0, 11, true), (5, 5, false), (6, 5, true), (u64::MAX, 1, true)] {
            assert_eq!(exceeds(shared, own, 10), is, "{shared} {own}");
        }
    }

    /// What a process and its children have for themselves counts, and nothing else does.
    #[test]
    fn the_memory_of_a_process_and_its_children_counts() {
        let held = vec![1u8; 32 << 20];
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let (own, below) = (std::process::id() as i32, child.id() as i32);
        assert!(with_descendants(own).starts_with(&[own]) && with_descendants(own).contains(&below));
        assert_eq!(with_descendants(below), [below]);
        assert!(field(&format!("/proc/{own}/status"), "RssAnon:") >= held.len() as u64);
        let memory = Memory { max: 16 << 20, shared_before: u64::MAX };
        let exceeded = [own, below].map(|process| memory.is_exceeded_by(Pid::from_raw(process)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(exceeded, [true, false]);
        assert_eq!(field("/proc/self/status", "Nothing:"), 0);
    }
}
