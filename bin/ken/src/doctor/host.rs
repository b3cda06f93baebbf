//! This machine: clock, disk, limits.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ken_types::places::Places;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;

use super::Findings;

/// 2026-01-01: no clock that is right says an earlier time.
const BUILT_AFTER: Duration = Duration::from_secs(1_767_225_600);
/// Parts ask for this many open files (ken.toml(5), nofile).
const FILES: u64 = 4_096;
/// Logs of this size say that something fails again and again.
const LOG_BYTES: u64 = 1024 * 1024 * 1024;

pub(super) fn check(places: &Places, findings: &mut Findings) {
    if SystemTime::now() < UNIX_EPOCH + BUILT_AFTER {
        let fix = "set the clock: timedatectl set-ntp true";
        findings.error("clock", "this machine", "the clock is years behind", fix);
    }
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && hard < FILES
    {
        let why = format!("at most {hard} open files are allowed, parts ask for {FILES}");
        findings.warning(
            "open-files",
            "this shell",
            why,
            format!("ulimit -Hn {FILES}, in limits.conf(5) or the unit"),
        );
    }
    let state = existing(&places.state);
    if let Ok(disk) = statvfs(state) {
        let share = |free: u64, all: u64| free.saturating_mul(100).checked_div(all);
        if share(disk.blocks_available(), disk.blocks()).is_some_and(|percent| percent < 5) {
            let free = disk.blocks_available().saturating_mul(disk.fragment_size()) / (1024 * 1024);
            let why = format!("less than 5 % of the disk is free ({free} MiB)");
            findings.error("disk-space", state.display(), why, "make room on it");
        }
        if share(disk.files_available(), disk.files()).is_some_and(|percent| percent < 5) {
            findings.error(
                "inodes",
                state.display(),
                "less than 5 % of the inodes are free",
                "remove small files",
            );
        }
    }
    let logs = places.state.join("log");
    let bytes = size_of(&logs);
    if bytes > LOG_BYTES {
        let why = format!("logs take {} MiB", bytes / (1024 * 1024));
        findings.warning(
            "logs-size",
            logs.display(),
            why,
            "lower log_max_bytes or log_keep in [kend]; see `ken logs`",
        );
    }
}

/// The folder, or the nearest one above it that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors()
        .find(|path| path.is_dir())
        .unwrap_or(Path::new("/"))
}

fn size_of(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| file.metadata().ok())
        .map(|meta| meta.len())
        .sum()
}
