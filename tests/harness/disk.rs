//! A small file system that a test fills. Only root can mount one.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unmounted when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts a file system at a folder, with options of tmpfs such as `size=32m`. Returns `None` if that is not allowed here.
    pub fn mount(at: &Path, options: &str) -> Option<SmallDisk> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| SmallDisk(at.to_owned()))
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Takes all the space that is left.
    pub fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        while file.write_all(&[0; 4_096]).is_ok() {}
    }

    /// Gives it back.
    pub fn empty(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because somebody may still have files there.
        _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
