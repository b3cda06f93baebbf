//! Checks of this machine: clock, disk space and limits.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ken_types::places::Places;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::statvfs;

use super::{Finding, Findings, Severity, bytes_of};

/// 2026-01-01 in seconds since 1970. A clock that shows an earlier time is wrong.
const BUILT_AFTER: Duration = Duration::from_secs(1_767_225_600);
/// The number of open files that parts need (ken.toml(5), nofile).
const FILES: u64 = 4_096;
/// The total size of logs, in bytes, above which something probably fails repeatedly.
const LOG_BYTES: u64 = 1024 * 1024 * 1024;

const MIB: u64 = 1024 * 1024;

/// Judges free space, in bytes. Below 256 MiB, writes to the database may soon fail. Less than 5 % is little, unless it
/// is at least 4 GiB.
fn lack_of_room(free: u64, all: u64) -> Option<Severity> {
    match free {
        0..0x1000_0000 => Some(Severity::Error),
        _ if free.saturating_mul(20) < all && free < 4096 * MIB => Some(Severity::Warning),
        _ => None,
    }
}

/// How far the clock may be behind the last change of the database.
const MAX_BEHIND: Duration = Duration::from_secs(300);

pub(super) fn check(places: &Places, findings: &mut Findings) {
    check_clock(places, findings);
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && hard < FILES
    {
        let why = format!("at most {hard} open files are allowed, parts ask for {FILES}");
        findings.warning("open-files", "this shell", why, format!("ulimit -Hn {FILES}, in limits.conf(5) or the unit"));
    }
    check_walls(findings);
    for folder in file_systems(existing(&places.state)) {
        check_mount(&folder, findings);
        check_room(&folder, findings);
    }
    let logs = places.state.join("log");
    let bytes = bytes_of(&logs);
    if bytes > LOG_BYTES {
        let why = format!("logs take {} MiB", bytes / (1024 * 1024));
        findings.warning("logs-size", logs.display(), why, "lower log_max_bytes or log_keep in [kend]; see `ken logs`");
    }
}

fn check_clock(places: &Places, findings: &mut Findings) {
    let fix = "set the clock: timedatectl set-ntp true";
    if SystemTime::now() < UNIX_EPOCH + BUILT_AFTER {
        return findings.error("clock", "this machine", "the clock is years behind", fix);
    }
    let database = places.state.join("store/ken.db");
    let modified = std::fs::metadata(&database).and_then(|about| about.modified());
    let Ok(behind) = modified.and_then(|at| at.duration_since(SystemTime::now()).map_err(std::io::Error::other)) else {
        return;
    };
    if behind > MAX_BEHIND {
        let why = format!(
            "the clock is at least {} minutes behind: {} changed later",
            behind.as_secs() / 60,
            database.display()
        );
        findings.warning("clock", "this machine", why, fix);
    }
}

/// Reports what the kernel lacks for the walls of the parts (kend(8)).
fn check_walls(findings: &mut Findings) {
    let missing = ken_walls::kernel::missing();
    if !missing.is_empty() {
        let why = format!("the kernel cannot keep the parts of ken from {}", missing.join(", and from "));
        findings.note("walls", "this machine", why, "use Linux 6.12 or newer, with Landlock and seccomp");
    }
}

/// Returns the state directory, and those of the folders in it that are on other file systems.
fn file_systems(state: &Path) -> Vec<PathBuf> {
    let device = |path: &Path| std::fs::metadata(path).ok().filter(Metadata::is_dir).map(|folder| folder.dev());
    let within = std::fs::read_dir(state).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found = vec![state.to_owned()];
    for folder in within.filter(|path| device(path).is_some()) {
        if !found.iter().any(|known| device(known) == device(&folder)) {
            found.push(folder);
        }
    }
    found
}

/// Reports a file system that the kernel has made read-only after an error, or that somebody has mounted so.
fn check_mount(folder: &Path, findings: &mut Findings) {
    let Ok(about) = std::fs::metadata(folder) else { return };
    let device = format!("{}:{}", major(about.dev()), minor(about.dev()));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let is_read_only = |options: &str| options.split(',').any(|option| option == "ro" || option == "emergency_ro");
    // 36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/sda rw,errors=remount-ro
    let found = mounts.lines().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let own = words.last().is_some_and(|options| is_read_only(options));
        (words.get(2) == Some(&device.as_str()) && own).then(|| words.get(4).copied().unwrap_or_default().to_owned())
    });
    if let Some(point) = found {
        let why = format!("the file system at {point} is read-only; nothing is accepted until it can be written");
        let fix =
            format!("mount -o remount,rw {point}; if the disk has failed (dmesg): ken down, fsck, and mount it anew");
        findings.error("disk-read-only", folder.display(), why, fix);
    }
}

fn check_room(folder: &Path, findings: &mut Findings) {
    let Ok(disk) = statvfs(folder) else { return };
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    let all = disk.blocks().saturating_mul(disk.fragment_size());
    if let Some(severity) = lack_of_room(free, all) {
        let why = format!("only {} MiB of the disk are free", free / MIB);
        findings.0.push(Finding::new("disk-space", severity, folder.display(), why, "make room on it"));
    }
    if disk.files() > 0 && disk.files_available().saturating_mul(20) < disk.files() {
        findings.error("inodes", folder.display(), "less than 5 % of the inodes are free", "remove small files");
    }
}

/// Returns the folder itself, or its nearest ancestor that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_on_a_disk() {
        let gib = 1024 * MIB;
        assert_eq!(lack_of_room(100 * MIB, gib), Some(Severity::Error));
        assert_eq!(lack_of_room(gib, 100 * gib), Some(Severity::Warning));
        assert_eq!(lack_of_room(gib, 10 * gib), None);
        assert_eq!(lack_of_room(11 * gib, 300 * gib), None);
    }
}
