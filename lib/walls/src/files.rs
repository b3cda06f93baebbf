//! Pieces of a Landlock ruleset. What no rule names is denied by the kernel, whatever path or link leads to it.

use std::fs::File;
use std::os::fd::AsFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};

/// The last version of Landlock whose rights are used: it keeps signals and abstract sockets inside (Linux 6.12).
pub const NEWEST: ABI = ABI::V6;

/// Where programs find their libraries and what describes this system. From `/etc` only files without secrets, because root
/// could read all. Not every system has all of them.
pub const LIBRARIES: [&str; 14] = [
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/nix/store", "/gnu/store",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/sys/devices/system/cpu",
];

/// The names of users and hosts, also those that services of the system know, and the time zone.
pub const NAMES: [&str; 7] = [
    "/etc/group", "/etc/hosts", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd", "/run/systemd/userdb",
    "/var/lib/sss/mc",
];

/// Files that are needed to look up the address of a name.
pub const NETWORK: [&str; 3] = ["/etc/resolv.conf", "/etc/services", "/etc/protocols"];

/// To read files and folders.
pub fn look() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | ReadDir})
}

/// To change everything below a folder, but not to execute it, and without devices: a device file would be a way to the
/// hardware.
pub fn change(abi: ABI) -> BitFlags<AccessFs> {
    let special = make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock | MakeFifo | MakeSock | IoctlDev});
    AccessFs::from_all(abi) & !special
}

/// A ruleset without rules. `ports` are the uses of TCP ports that are denied. With [`CompatLevel::BestEffort`] the rights that
/// the kernel does not know are left out.
pub fn empty(abi: ABI, ports: BitFlags<AccessNet>, level: CompatLevel) -> Result<RulesetCreated, RulesetError> {
    let (ports, scopes) = (ports & AccessNet::from_all(abi), Scope::from_all(abi));
    let mut ruleset = Ruleset::default().set_compatibility(level).handle_access(AccessFs::from_all(abi))?;
    if !ports.is_empty() {
        ruleset = ruleset.handle_access(ports)?;
    }
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes)?;
    }
    ruleset.create()
}

/// Allows the access to an open file, or to everything below an open folder.
pub fn allow(ruleset: RulesetCreated, opened: impl AsFd, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    let about = opened.as_fd().try_clone_to_owned().and_then(|opened| File::from(opened).metadata());
    let is_dir = about.map_err(|error| error.to_string())?.is_dir();
    let access = if is_dir { access } else { access & AccessFs::from_file(NEWEST) };
    ruleset.add_rule(PathBeneath::new(opened, access)).map_err(|error| error.to_string())
}
