//! A disk of its own, in a file, which can be filled, stopped, and made to fail for writing.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

const MIB: &str = "96";

/// The disk is a file system ext4 on a loop device: one that has no disk below cannot be stopped or fail.
pub(crate) struct Disk {
    /// The folder with the file of the disk, and the one where the disk is mounted.
    own: TempDir,
}

impl Disk {
    /// Returns why there can be none here.
    pub(crate) fn new() -> Result<Disk, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let disk = Disk { own: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir(disk.folder()).expect("a folder");
        let image = disk.image().display().to_string();
        let is_made = run(&["truncate", "-s", &format!("{MIB}M"), &image])
            && run(&["mkfs.ext4", "-q", "-F", &image])
            && disk.mount()
            && run(&["fsfreeze", "-f", &disk.path()])
            && run(&["fsfreeze", "-u", &disk.path()]);
        if is_made { Ok(disk) } else { Err("no file system can be mounted here".to_owned()) }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.own.path().join("disk")
    }

    fn path(&self) -> String {
        self.folder().display().to_string()
    }

    fn image(&self) -> PathBuf {
        self.own.path().join("image")
    }

    fn filler(&self) -> PathBuf {
        self.folder().join("filler")
    }

    pub(crate) fn mount(&self) -> bool {
        run(&["mount", "-o", "loop", &self.image().display().to_string(), &self.path()])
    }

    /// Takes all space that is left.
    pub(crate) fn fill(&self) {
        let source = Path::new("/dev/zero").display().to_string();
        // It ends with an error, because there is no more space.
        run(&["dd", &format!("if={source}"), &format!("of={}", self.filler().display()), "bs=4096"]);
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("the filler");
    }

    /// Lets everything wait that writes. The process that ends this runs before it begins, as it could not be started from a disk that
    /// stands still.
    pub(crate) fn stall(&self, seconds: u64) -> Child {
        let script = "sleep \"$2\"; exec fsfreeze -u \"$1\"";
        let ends = Command::new("sh").args(["-c", script, "sh", &self.path(), &seconds.to_string()]).spawn();
        assert!(run(&["fsfreeze", "-f", &self.path()]));
        ends.expect("sh")
    }

    /// What the kernel does with a file system in which it finds an error: nothing can be written until it is mounted anew.
    pub(crate) fn fail(&self) {
        assert!(run(&["mount", "-o", "remount,abort", &self.path()]));
    }

    /// Mounts it anew. Nobody may use it.
    pub(crate) fn repair(&self) {
        assert!(run(&["umount", &self.path()]), "the disk is in use");
        // The failed file system goes on where a namespace of another program has a copy of the mount, and to mount the same file again
        // would mount that one.
        let (image, copy) = (self.image(), self.own.path().join("copy"));
        assert!(run(&["cp", "--sparse=always", &image.display().to_string(), &copy.display().to_string()]));
        std::fs::rename(copy, image).expect("the image");
        run(&["e2fsck", "-p", "-f", &self.image().display().to_string()]);
        assert!(self.mount());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run(&["fsfreeze", "-u", &self.path()]);
        run(&["umount", "-l", &self.path()]);
    }
}

fn run(words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
