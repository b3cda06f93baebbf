//! Which files the command may touch: a Landlock ruleset. What is not named here is denied by the kernel, whatever path,
//! link or descriptor leads to it.

use std::path::{Path, PathBuf};

use ken_walls::files::{self, NETWORK};
use landlock::{ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, RulesetCreated, make_bitflags};

use crate::cli::Sockets;
use crate::grant::{Grant, Grants};

/// Programs, libraries and what they need to start. From `/etc` only files without secrets, because root could read all.
const SYSTEM: [&str; 38] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/proc",
    "/sys/devices/system/cpu", "/dev/random", "/dev/urandom", "/etc/alternatives", "/etc/ca-certificates",
    "/etc/debian_version", "/etc/gitconfig", "/etc/group", "/etc/hosts", "/etc/inputrc",
    // The settings of the Java of Debian, which /usr/lib/jvm only links to; without them no Java program starts.
    "/etc/java", "/etc/java-11-openjdk", "/etc/java-17-openjdk", "/etc/java-21-openjdk", "/etc/java-25-openjdk",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/localtime", "/etc/magic",
    "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/perl", "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf", "/etc/terminfo",
];

/// Devices that hold no state of anybody else.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];

/// The ruleset, ready to be applied to the calling thread. `program` is the command itself. The files of the system are
/// opened here, which must be after all mounts.
pub(crate) fn ruleset(
    grants: &Grants,
    program: Option<&Grant>,
    sockets: Sockets,
    version: i32,
) -> Result<RulesetCreated, String> {
    // What an older version lacks is held by namespaces (walls.rs).
    let abi = ABI::from(version).min(files::NEWEST);
    let all = AccessFs::from_all(abi);
    let execute = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
    let mut look = execute;
    // Everything but devices: a device file made below a writable folder would be a way to the hardware.
    let mut change = all & !make_bitflags!(AccessFs::{MakeChar | MakeBlock | IoctlDev});
    if !grants.execute.is_empty() {
        look &= !make_bitflags!(AccessFs::{Execute});
        change &= !make_bitflags!(AccessFs::{Execute});
    }
    let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev}) & all;
    let ports = if sockets == Sockets::None { AccessNet::from_all(abi) } else { BitFlags::EMPTY };
    let ruleset = files::empty(abi, ports, CompatLevel::HardRequirement);
    let mut ruleset = ruleset.map_err(|error| error.to_string())?;
    let names: &[&str] = if sockets == Sockets::Public { &NETWORK } else { &[] };
    let system = SYSTEM.iter().chain(names).map(|path| (path, look));
    for (path, access) in system.chain(DEVICES.iter().map(|path| (path, device))) {
        // Not every system has all of them.
        if let Ok(Some(found)) = Grant::find(Path::new(path)) {
            ruleset = allow(ruleset, &found, access)?;
        }
    }
    for grant in grants.read.iter().chain(program) {
        ruleset = allow(ruleset, grant, look)?;
    }
    for grant in &grants.execute {
        ruleset = allow(ruleset, grant, execute)?;
    }
    for grant in &grants.write {
        ruleset = allow(ruleset, grant, change)?;
    }
    Ok(ruleset)
}

fn allow(ruleset: RulesetCreated, grant: &Grant, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    files::allow(ruleset, grant, access).map_err(|error| {
        let path: PathBuf = grant.path().unwrap_or_default();
        format!("{}: {error}", path.display())
    })
}
