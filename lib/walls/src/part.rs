//! The walls of a part of ken: what its entry in `ken.toml` says, for the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ken_types::config::Calls;
use landlock::{ABI, AccessFs, AccessNet, BitFlags, CompatLevel, RulesetCreated, make_bitflags};
use libc::*;
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCmpOp, SeccompRule, apply_filter_all_threads};

use crate::{calls, files, kernel};

/// The variable in which kend tells a part its class of system calls.
pub const CALLS_VARIABLE: &str = "KEN_WALLS";

/// The files of a part, besides its program, the libraries and its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    pub calls: Calls,
    pub program: PathBuf,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    /// The programs that it can execute besides its own.
    pub run: Vec<PathBuf>,
    /// Those of the files that are folders of ken's own. They must be there before the ruleset is made, because there is no rule for a
    /// folder that does not exist.
    pub own: Vec<PathBuf>,
}

impl Files {
    /// Makes the ruleset of the part, for landlock_restrict_self(2). `None` if it gets none: its children would inherit the rules, and
    /// what they need is not known, or the kernel has no Landlock. Files that do not exist are left out.
    pub fn ruleset(&self) -> Result<Option<OwnedFd>, String> {
        Ok(self.created()?.and_then(Into::into))
    }

    /// Returns the device and the inode of each file of [`REPLACED`] that has a rule of its own in a ruleset that is made now.
    pub fn replaceable(&self) -> BTreeMap<&'static str, (u64, u64)> {
        let is_ruled = abi(self.calls, kernel::landlock().unwrap_or(0)).is_some();
        let paths = REPLACED.into_iter().filter(|path| is_ruled && (self.calls.reaches_out() || *path == LOCALTIME));
        paths.filter_map(|path| Some((path, inode(path)?))).collect()
    }

    fn created(&self) -> Result<Option<RulesetCreated>, String> {
        let Some(abi) = abi(self.calls, kernel::landlock().unwrap_or(0)) else {
            return Ok(None);
        };
        let ruleset = files::empty(abi, self.ports(), CompatLevel::BestEffort).map_err(|error| error.to_string())?;
        self.rules(ruleset, abi).map(Some)
    }

    /// The uses of TCP ports that are denied.
    fn ports(&self) -> BitFlags<AccessNet> {
        let bind = make_bitflags!(AccessNet::{BindTcp});
        if self.calls.reaches_out() { bind } else { bind | AccessNet::ConnectTcp }
    }

    fn rules(&self, mut ruleset: RulesetCreated, abi: ABI) -> Result<RulesetCreated, String> {
        let (look, change) = (files::look(), files::change(abi));
        let execute = AccessFs::Execute | AccessFs::ReadFile;
        let resolver = if self.calls.reaches_out() { resolver() } else { Vec::new() };
        let system = files::LIBRARIES.iter().chain(&files::NAMES).chain(&OF_ALL).map(|path| (Path::new(path), look));
        let devices = [("/dev/null", look | (AccessFs::WriteFile | AccessFs::Truncate) & change)];
        let programs = || [&self.program].into_iter().chain(&self.run);
        let rules = system
            .chain(devices.iter().map(|(path, access)| (Path::new(path), *access)))
            .chain(resolver.iter().chain(&self.read).map(|path| (path.as_path(), look)))
            .chain(self.write.iter().map(|path| (path.as_path(), change)))
            .chain(programs().map(|path| (path.as_path(), execute)));
        for (path, access) in rules {
            ruleset = add(ruleset, path, access)?;
        }
        let loaders: BTreeSet<PathBuf> =
            programs().filter_map(|program| loader(program).ok()??.canonicalize().ok()).collect();
        for loader in loaders {
            // Where a system has its libraries elsewhere, they are beside the loader.
            let libraries = loader.parent().unwrap_or(&loader);
            ruleset = add(add(ruleset, libraries, look)?, &loader, execute)?;
        }
        Ok(ruleset)
    }
}

/// The version of the rules that a part gets; `None` if it gets none.
fn abi(calls: Calls, version: i32) -> Option<ABI> {
    (version >= 1 && calls.has_file_rules()).then(|| ABI::from(version).min(files::NEWEST))
}

/// What every part may read. Landlock keeps a part from what `/proc` shows of the memory, the environment and the descriptors of
/// other processes.
const OF_ALL: [&str; 3] = ["/proc", "/dev/urandom", "/usr/share/zoneinfo"];

fn add(ruleset: RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> Result<RulesetCreated, String> {
    match OpenOptions::new().read(true).custom_flags(O_PATH | O_CLOEXEC).open(path) {
        Ok(opened) => files::allow(ruleset, opened, access).map_err(|error| format!("{}: {error}", path.display())),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => Ok(ruleset),
            _ => Err(format!("{}: {error}", path.display())),
        },
    }
}

const LOCALTIME: &str = "/etc/localtime";
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Files of the system that programs replace by another of the same name, or make later. A rule stays with the old file, so a process
/// that was restricted before has to be started anew.
pub const REPLACED: [&str; 6] =
    [LOCALTIME, RESOLV_CONF, "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf"];

/// The device and the inode for which the rule of a file is; `None` if there is no such file, or it is a link into a folder that has
/// a rule whatever the link leads to.
fn inode(path: &str) -> Option<(u64, u64)> {
    let target = Path::new(path).canonicalize().ok()?;
    if files::LIBRARIES.iter().chain(&OF_ALL).any(|folder| target.starts_with(folder)) {
        return None;
    }
    let folder = managed(&target).filter(|_| path == RESOLV_CONF);
    let meta = std::fs::metadata(folder.unwrap_or(target)).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The files by which the address of a name is found. A program that manages the network replaces `resolv.conf` when the network
/// changes, and a rule stays with the old file. So if it is a link out of `/etc`, the rule is for the folder that it leads to.
fn resolver() -> Vec<PathBuf> {
    let mut found = files::NETWORK.map(PathBuf::from).to_vec();
    found.extend(["/etc/gai.conf", "/etc/host.conf"].map(PathBuf::from));
    let target = Path::new(RESOLV_CONF).canonicalize().ok();
    found.extend(target.as_deref().and_then(managed));
    found
}

/// The folder of a file that a program replaces.
fn managed(target: &Path) -> Option<PathBuf> {
    target.parent().filter(|folder| folder.starts_with("/run")).map(Path::to_owned)
}

/// Returns the loader that the kernel runs for a dynamic program (PT_INTERP of elf(5)), or `None` for a static one. Fails for what
/// is not an ELF file of 64 bits.
pub fn loader(program: &Path) -> io::Result<Option<PathBuf>> {
    const INTERPRETER: u64 = 3;
    let file = File::open(program)?;
    let header = read_at(&file, 0, 64)?;
    if !header.starts_with(b"\x7fELF\x02") {
        return Err(io::Error::other("this is not a 64-bit ELF program, so its loader is unknown"));
    }
    let (table, size, count) = (number(&header, 32, 8), number(&header, 54, 2), number(&header, 56, 2));
    for at in 0..count {
        let entry = read_at(&file, table.saturating_add(at * size), 56)?;
        if number(&entry, 0, 4) == INTERPRETER {
            let mut path = read_at(&file, number(&entry, 8, 8), number(&entry, 32, 8).min(PATH_MAX as u64))?;
            path.truncate(path.iter().position(|byte| *byte == 0).ok_or(io::ErrorKind::InvalidData)?);
            return Ok(Some(std::ffi::OsString::from_vec(path).into()));
        }
    }
    Ok(None)
}

fn read_at(file: &File, offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Returns a number of the machine's own byte order.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let part = bytes.get(at..at + size).unwrap_or_default();
    let digit = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    if cfg!(target_endian = "little") { part.iter().rev().fold(0, digit) } else { part.iter().fold(0, digit) }
}

/// Restricts this process, which must have one thread, to the files that every part may read and to these, and to the system calls of
/// a class. There is no way back. For a program that kend does not start.
pub fn enter(calls: Calls, read: Vec<PathBuf>) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("the own program: {error}"))?;
    let files = Files { calls, program, read, write: Vec::new(), run: Vec::new(), own: Vec::new() };
    if let Some(ruleset) = files.created()? {
        ruleset.restrict_self().map_err(|error| format!("files (Landlock): {error}"))?;
    }
    restrict_calls(calls)
}

/// Restricts all threads of this process to the system calls of a class. There is no way back. The process must have one thread.
pub fn restrict_calls(calls: Calls) -> Result<(), String> {
    if calls.has_file_rules() {
        // Some capabilities of root lead past Landlock, such as CAP_PERFMON to the environment of other processes. Files are left to
        // Landlock: the administrator may have put a folder of another user into the workspace.
        const DAC_OVERRIDE_AND_READ_SEARCH: u32 = 1 << 1 | 1 << 2;
        kernel::keep_capabilities(DAC_OVERRIDE_AND_READ_SEARCH).map_err(|error| format!("capabilities: {error}"))?;
    }
    let program = filter(calls).map_err(|error| error.to_string())?;
    program.map_or(Ok(()), |program| apply_filter_all_threads(&program).map_err(|error| error.to_string()))
}

fn filter(class: Calls) -> Result<Option<BpfProgram>, BackendError> {
    match class {
        Calls::Any => Ok(None),
        Calls::Sandbox => without(&[calls::INTERFACES], Vec::new()).map(Some),
        Calls::Programs => without(&[calls::INTERFACES, calls::NAMESPACES], Vec::new()).map(Some),
        Calls::Run | Calls::RunNetwork => {
            without(&[calls::INTERFACES, calls::NAMESPACES], other_families(class)?).map(Some)
        }
        Calls::Local | Calls::Serve | Calls::Network => listed(class).map(Some),
    }
}

/// Everything but these. What runs below a part that starts programs is not known here, and is restricted further by whoever
/// starts it.
fn without(refused: &[&[c_long]], rules: calls::Rules) -> Result<BpfProgram, BackendError> {
    // The numbers of x32 would lead past the list.
    const X32: u32 = 0x4000_0000;
    let other_numbers = vec![calls::jump(BPF_JGE, X32, 0, 1), calls::end(SECCOMP_RET_ERRNO | ENOSYS.cast_unsigned())];
    let lists: Vec<_> = refused.iter().map(|list| (*list, calls::REFUSE)).collect();
    calls::compile(other_numbers, calls::by_number(&lists), rules, SeccompAction::Allow)
}

/// The families of sockets that a part which runs named programs does not have, as Landlock knows TCP alone.
fn other_families(class: Calls) -> Result<calls::Rules, BackendError> {
    let families: &[c_int] = if class.reaches_out() { &[AF_UNIX, AF_INET, AF_INET6, AF_NETLINK] } else { &[AF_UNIX] };
    let is_other = |family: &c_int| calls::condition(0, SeccompCmpOp::Ne, *family as u64);
    let conditions = families.iter().map(is_other).collect::<Result<Vec<_>, _>>()?;
    let is_netlink = calls::condition(0, SeccompCmpOp::Eq, AF_NETLINK as u64)?;
    let not_for_names = calls::condition(2, SeccompCmpOp::Ne, NETLINK_ROUTE as u64)?;
    Ok(vec![(SYS_socket, vec![SeccompRule::new(conditions)?, calls::rule([is_netlink, not_for_names])?])])
}

/// Calls of ordinary programs that a part which starts none does not have: to execute, to become another user, to signal other
/// processes, and to change the modes and times of files by their path, which Landlock does not know.
#[rustfmt::skip]
const NOT_ALONE: &[c_long] = &[
    SYS_execve, SYS_execveat, SYS_kill, SYS_tkill, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, SYS_pidfd_open,
    SYS_pidfd_send_signal, SYS_setsid, SYS_setpgid, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid,
    SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_fchmodat, SYS_fchmodat2, SYS_utimensat, SYS_mknodat,
];
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const NOT_ALONE_HERE: &[c_long] = &[SYS_fork, SYS_vfork, SYS_chmod, SYS_mknod, SYS_utime, SYS_utimes, SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const NOT_ALONE_HERE: &[c_long] = &[];

fn listed(class: Calls) -> Result<BpfProgram, BackendError> {
    let only = |allowed: Calls| if class == allowed { SECCOMP_RET_ALLOW } else { calls::REFUSE };
    let actions = calls::by_number(&[
        (calls::ALLOWED, SECCOMP_RET_ALLOW),
        (calls::ALLOWED_HERE, SECCOMP_RET_ALLOW),
        // SQLite gives the files that it makes to the owner of the database. What openat2 opens is up to Landlock.
        (&[SYS_connect, SYS_accept, SYS_accept4, SYS_fchown, SYS_openat2], SECCOMP_RET_ALLOW),
        // The look-up of a name binds a socket to the kernel. Landlock keeps the part from binding TCP ports.
        (&[SYS_bind], only(Calls::Network)),
        // kend has bound the socket; its server sets how many connections may wait.
        (&[SYS_listen], only(Calls::Serve)),
        (calls::INTERFACES, calls::REFUSE),
        (calls::NAMESPACES, calls::REFUSE),
        (NOT_ALONE, calls::REFUSE),
        (NOT_ALONE_HERE, calls::REFUSE),
    ]);
    let mut rules = calls::of_itself()?;
    let is = |argument, value: c_int| calls::condition(argument, SeccompCmpOp::Eq, value as u64);
    let thread = calls::condition(0, SeccompCmpOp::MaskedEq(CLONE_THREAD as u64), CLONE_THREAD as u64)?;
    // clone3 hides its flags behind a pointer, so it stays unknown, and the library falls back to clone.
    rules.push((SYS_clone, vec![calls::rule([thread])?]));
    rules.push((SYS_socketpair, vec![calls::rule([is(0, AF_UNIX)?])?]));
    let mut sockets = vec![calls::rule([is(0, AF_UNIX)?])?];
    match class {
        // To ask whose a connection is.
        Calls::Serve => sockets.push(calls::rule([is(0, AF_NETLINK)?, is(2, NETLINK_INET_DIAG)?])?),
        Calls::Network => {
            for family in [AF_INET, AF_INET6] {
                sockets.push(calls::rule([is(0, family)?])?);
            }
            // To ask for the addresses of this machine, by which those of a name are sorted.
            sockets.push(calls::rule([is(0, AF_NETLINK)?, is(2, NETLINK_ROUTE)?])?);
        }
        _ => {}
    }
    rules.push((SYS_socket, sockets));
    calls::compile(BpfProgram::new(), actions, rules, calls::UNKNOWN)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_loader_of_a_program_is_found() {
        let own = std::env::current_exe().unwrap();
        let found = loader(&own).unwrap().unwrap();
        assert!(found.is_absolute() && found.exists(), "{found:?}");
        assert!(loader(Path::new("/etc/passwd")).is_err());
        assert!(loader(Path::new("/no/such/file")).is_err());
    }

    /// A program of 64 bits whose table has one entry of another kind, and then the one that names the loader.
    fn program(magic: &[u8; 5], name: &[u8], length: u64) -> Vec<u8> {
        let (table, size, count) = (64u64, 56u16, 2u16);
        let mut bytes = vec![0; 64 + 2 * 56];
        bytes[..5].copy_from_slice(magic);
        bytes[32..40].copy_from_slice(&table.to_ne_bytes());
        bytes[54..56].copy_from_slice(&size.to_ne_bytes());
        bytes[56..58].copy_from_slice(&count.to_ne_bytes());
        bytes[64..68].copy_from_slice(&1u32.to_ne_bytes());
        bytes[120..124].copy_from_slice(&3u32.to_ne_bytes());
        bytes[128..136].copy_from_slice(&176u64.to_ne_bytes());
        bytes[152..160].copy_from_slice(&length.to_ne_bytes());
        bytes.extend_from_slice(name);
        bytes.resize(bytes.len() + PATH_MAX as usize, b'x');
        bytes
    }

    #[test]
    fn the_name_of_a_loader_ends_with_a_nul_and_has_the_length_of_a_path() {
        let file = std::env::temp_dir().join(format!("ken-walls-{}", std::process::id()));
        let elf = b"\x7fELF\x02";
        for (bytes, expected) in [
            (program(elf, b"/lib/ld.so\0", 11), Some("/lib/ld.so")),
            (program(elf, b"/lib/ld.so\0", 1 << 40), Some("/lib/ld.so")),
            (program(elf, b"/lib/ld.so\0", 10), None),
            (program(elf, b"/lib/ld.so", PATH_MAX as u64), None),
            (program(b"\x7fELF\x01", b"/lib/ld.so\0", 11), None),
            (program(b"#!/x\n", b"/lib/ld.so\0", 11), None),
            (elf.to_vec(), None),
        ] {
            std::fs::write(&file, &bytes).unwrap();
            assert_eq!(loader(&file).ok().flatten().as_deref(), expected.map(Path::new), "{:?}", &bytes[..5]);
        }
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_part_that_starts_no_programs_gets_the_rules_that_the_kernel_has() {
        for calls in Calls::ALL {
            for version in [-1, 0, 1, 2, 6, 99] {
                let expected = match version {
                    ..1 => None,
                    _ if !calls.has_file_rules() => None,
                    99 => Some(files::NEWEST),
                    version => Some(ABI::from(version)),
                };
                assert_eq!(abi(*calls, version), expected, "{calls:?} {version}");
            }
        }
        for (target, folder) in [
            ("/run/systemd/resolve/stub-resolv.conf", Some("/run/systemd/resolve")),
            ("/etc/resolv.conf", None),
            ("/running/resolv.conf", None),
        ] {
            assert_eq!(managed(Path::new(target)).as_deref(), folder.map(Path::new));
        }
    }

    #[test]
    fn every_class_has_a_program_that_the_kernel_takes() {
        for class in Calls::ALL {
            let program = filter(*class).unwrap();
            assert_eq!(program.is_none(), *class == Calls::Any);
            // BPF_MAXINSNS is 4096; the kernel tries out each instruction for each call.
            assert!(program.is_none_or(|program| (4..400).contains(&program.len())));
            let entered =
                std::thread::spawn(|| seccompiler::apply_filter(&filter(*class).unwrap().unwrap_or_default()));
            assert_eq!(entered.join().unwrap().is_ok(), *class != Calls::Any, "{class:?}");
        }
    }
}
