//! Which files the command may touch: a Landlock ruleset. What is not named here is denied by the kernel, whatever path,
//! link or descriptor leads to it.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope, make_bitflags,
};

use crate::cli::{Job, Refusal, Sockets};

/// The first version of Landlock that also keeps signals and abstract sockets inside (Linux 6.12). With an older one a
/// command could signal every process of the user, so nothing is run there.
const REQUIRED: ABI = ABI::V6;

/// Programs, libraries and what they need to start. From `/etc` only files without secrets, because root could read all.
const SYSTEM: [&str; 33] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/proc",
    "/sys/devices/system/cpu",
    "/dev/random",
    "/dev/urandom",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/debian_version",
    "/etc/gitconfig",
    "/etc/group",
    "/etc/hosts",
    "/etc/inputrc",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/passwd",
    "/etc/perl",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
];

/// Files that are needed to look up the address of a name.
const NETWORK: [&str; 3] = ["/etc/resolv.conf", "/etc/services", "/etc/protocols"];

/// Devices that hold no state of anybody else.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

/// The ruleset, ready to be applied to the calling thread. `read` and `write` must exist; they are resolved here, once.
pub(crate) fn ruleset(read: &[PathBuf], write: &[PathBuf], job: &Job) -> Result<RulesetCreated, Refusal> {
    let all = AccessFs::from_all(REQUIRED);
    let mut look = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
    // Everything but devices: a device file made below a writable folder would be a way to the hardware.
    let mut change = all & !make_bitflags!(AccessFs::{MakeChar | MakeBlock | IoctlDev});
    let execute = look;
    if !job.execute.is_empty() {
        look &= !make_bitflags!(AccessFs::{Execute});
        change &= !make_bitflags!(AccessFs::{Execute});
    }
    let mut ruleset = empty(all, job.sockets())?;
    let names: &[&str] = if job.network { &NETWORK } else { &[] };
    let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
    let system = SYSTEM.iter().chain(names).map(|path| (Path::new(path), look));
    let devices = DEVICES.iter().map(|path| (Path::new(path), device));
    for (path, access) in system.chain(devices) {
        // Not every system has all of them.
        if let Some(file) = open(path)? {
            ruleset = allow(ruleset, path, file, access)?;
        }
    }
    let read = read.iter().map(|path| (path, look));
    let execute = job.execute.iter().map(|path| (path, execute));
    for (path, access) in read.chain(execute).chain(write.iter().map(|path| (path, change))) {
        let file = open(path)?.ok_or_else(|| refused(path, &"there is no such file or folder"))?;
        ruleset = allow(ruleset, path, file, access)?;
    }
    Ok(ruleset)
}

fn empty(all: BitFlags<AccessFs>, sockets: Sockets) -> Result<RulesetCreated, Refusal> {
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)
        .and_then(|ruleset| match sockets {
            Sockets::None => ruleset.handle_access(AccessNet::from_all(REQUIRED)),
            Sockets::Named | Sockets::Public => Ok(ruleset),
        })
        .and_then(|ruleset| ruleset.scope(Scope::from_all(REQUIRED)))
        .and_then(Ruleset::create);
    created.map_err(|error| {
        Refusal::step("this kernel cannot confine a command to files (Landlock, version 6)", error)
            .hint("use Linux 6.12 or newer with `landlock` among the security modules (/sys/kernel/security/lsm)")
    })
}

fn refused(path: &Path, why: &dyn std::fmt::Display) -> Refusal {
    Refusal::step(&path.display().to_string(), why)
}

/// Opens a path without reading it; `None` if it does not exist or this user cannot reach it.
fn open(path: &Path) -> Result<Option<File>, Refusal> {
    let mut options = OpenOptions::new();
    // The descriptor stands for the path alone.
    options.read(true).custom_flags(nix::libc::O_PATH);
    match options.open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => Ok(None),
            _ => Err(refused(path, &error)),
        },
    }
}

fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    file: File,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Refusal> {
    let about = file.metadata().map_err(|error| refused(path, &error))?;
    let access = match about.is_dir() {
        true => access,
        false => access & AccessFs::from_file(REQUIRED),
    };
    ruleset.add_rule(PathBeneath::new(file, access)).map_err(|error| refused(path, &error))
}
