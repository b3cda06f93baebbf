//! Which files the command may touch: a Landlock ruleset. What is not named here is denied by the kernel, whatever path,
//! link or descriptor leads to it.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};

use crate::cli::Sockets;
use crate::grant::{Grant, Grants};

/// The last version of Landlock whose rights are used: it keeps signals and abstract sockets inside (Linux 6.12). What an
/// older one lacks is held by namespaces (walls.rs).
const NEWEST: ABI = ABI::V6;

/// Programs, libraries and what they need to start. From `/etc` only files without secrets, because root could read all.
const SYSTEM: [&str; 38] = [
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
    // The settings of the Java of Debian, which /usr/lib/jvm only links to; without them no Java program starts.
    "/etc/java",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/java-25-openjdk",
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

/// The ruleset, ready to be applied to the calling thread. `program` is the command itself. The files of the system are
/// opened here, which must be after all mounts.
pub(crate) fn ruleset(
    grants: &Grants,
    program: Option<&Grant>,
    sockets: Sockets,
    version: i32,
) -> Result<RulesetCreated, String> {
    let abi = ABI::from(version).min(NEWEST);
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
    let mut ruleset = empty(abi, sockets).map_err(|error| error.to_string())?;
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

fn empty(abi: ABI, sockets: Sockets) -> Result<RulesetCreated, RulesetError> {
    let (ports, scopes) = (AccessNet::from_all(abi), Scope::from_all(abi));
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(abi))?;
    if sockets == Sockets::None && !ports.is_empty() {
        ruleset = ruleset.handle_access(ports)?;
    }
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    ruleset.create()
}

fn allow(ruleset: RulesetCreated, grant: &Grant, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    let failed = |error: &dyn std::fmt::Display| {
        let path: PathBuf = grant.path().unwrap_or_default();
        format!("{}: {error}", path.display())
    };
    let about = grant.about().map_err(|error| failed(&error))?;
    let access = if about.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    ruleset.add_rule(PathBeneath::new(grant, access)).map_err(|error| failed(&error))
}
