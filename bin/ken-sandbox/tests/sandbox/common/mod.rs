//! A folder for the sandbox, a world outside that must not change, and the two programs.
#![allow(dead_code, clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// An ordinary user that every system has: nobody.
const NOBODY: u32 = 65534;

/// Every way of `examples/escape.rs`.
pub(crate) const ATTEMPTS: &[&str] = &[
    "read", "read-dots", "list", "write", "append", "mkdir", "remove", "truncate", "symlink", "symlink-race",
    "hard-link", "proc-root", "proc-cwd", "proc-victim-cwd", "proc-victim-environ", "proc-victim-mem", "dev-mem",
    "shadow", "rename-out", "rename-in", "exchange", "tmpfile-link", "inherited", "inherited-chdir", "device",
    "memory-file", "shell", "git-hook", "shell-rc", "cron", "user-unit", "runtime-folder", "chmod", "chmod-link",
    "chmod-dots", "chmod-program", "chmod-program-proc", "chmod-inherited", "chmod-descriptor", "setuid-bit",
    "setuid-open", "setuid-creat", "setuid-node", "setuid-node-at", "setuid-openat2", "setuid-unnamed", "times",
    "times-program", "owner", "attribute", "tcp", "tcp-connect", "tcp-mapped", "metadata-service", "udp", "udp-send",
    "udp-message", "udp-messages", "tcp-fast-open", "tcp-fast-open-send", "tcp-fast-open-unaddressed", "tcp-listen",
    "tcp-listen-anywhere", "tcp-race", "tcp-route", "mptcp", "sctp", "ping", "raw", "packet", "netlink", "vsock",
    "unix", "unix-abstract", "unix-pair-datagram", "unix-pair-connect", "docker", "agent", "session-bus", "kill",
    "kill-supervisor", "pidfd", "pidfd-getfd", "limit", "priority", "priority-user", "trace", "memory-write",
    "keyring", "bpf", "perf", "userfault", "uring", "mount", "unshare", "unshare-files", "clone", "clone3", "setns",
    "pivot", "chroot", "kexec", "module", "personality", "handle", "terminal", "listener", "shared-memory",
    "gain-root",
];

/// Not to be tried outside of the sandbox, where they would do what they say.
pub(crate) const HARMFUL: &[&str] = &[
    "kill-supervisor", "cron", "runtime-folder", "dev-mem", "kexec", "module", "mount", "chroot", "pivot", "terminal",
    "chmod-program", "chmod-program-proc", "times-program", "priority-user", "metadata-service", "device", "shadow",
];

/// Sockets that a command may have on a loopback interface of its own, where they reach nobody.
pub(crate) const LOOPBACK: &[&str] =
    &["tcp", "udp", "udp-send", "udp-message", "udp-messages", "tcp-listen", "tcp-listen-anywhere"];

/// A kernel, or a host, with less than this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    This,
    /// No namespace can be made.
    WithoutNamespaces,
    /// Landlock has this version, and other calls lack what Linux 5.13 does not know.
    Landlock(u8),
}

/// Refuses flags with EINVAL, as a kernel does that does not know them.
fn without_flags() -> seccompiler::BpfProgram {
    use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let has = |argument, flag: u64| {
        let operator = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, flag).unwrap();
        vec![SeccompRule::new(vec![condition]).unwrap()]
    };
    // SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV and PIDFD_THREAD
    let rules =
        [(nix::libc::SYS_seccomp, has(1, 1 << 5)), (nix::libc::SYS_pidfd_open, has(1, nix::libc::O_EXCL as u64))];
    let unknown = SeccompAction::Errno(nix::libc::EINVAL as u32);
    SeccompFilter::new(rules.into(), SeccompAction::Allow, unknown, arch).unwrap().try_into().unwrap()
}

pub(crate) fn hiding(call: i64) -> seccompiler::BpfProgram {
    use seccompiler::{SeccompAction, SeccompFilter};
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let hidden = SeccompAction::Errno(nix::libc::ENOSYS as u32);
    let filter = SeccompFilter::new([(call, vec![])].into(), SeccompAction::Allow, hidden, arch).unwrap();
    filter.try_into().unwrap()
}

/// Starts a program with a filter of system calls.
pub(crate) fn restrict(command: &mut Command, filter: seccompiler::BpfProgram) {
    // SAFETY: between fork and exec it makes system calls only.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other));
    }
}

/// Reads the first line that a program prints.
pub(crate) fn first_line(program: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// As whom to run: `None` is whoever runs the tests.
pub(crate) fn users() -> Vec<Option<u32>> {
    if nix::unistd::geteuid().is_root() { vec![None, Some(NOBODY)] } else { vec![None] }
}

pub(crate) struct World {
    root: TempDir,
    user: Option<u32>,
    kernel: Kernel,
    victim: Child,
    listener: TcpListener,
    /// On the port of the listener.
    datagrams: UdpSocket,
    _sockets: (UnixListener, UnixDatagram),
    folder: OwnedFd,
}

impl World {
    pub(crate) fn new(user: Option<u32>) -> World {
        World::on(Kernel::This, user)
    }

    pub(crate) fn on(kernel: Kernel, user: Option<u32>) -> World {
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        for folder in ["outside/.git/hooks", "outside/.config/systemd/user", "inside/folder"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(outside.join("secret"), "the secret").unwrap();
        std::fs::set_permissions(outside.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
        let sockets = (
            UnixListener::bind(outside.join("stream")).unwrap(),
            UnixDatagram::bind(outside.join("datagram")).unwrap(),
        );
        if let Some(user) = user {
            give_all(root.path(), user);
        }
        let mut victim = Command::new("sleep");
        victim.arg("600");
        if let Some(user) = user {
            victim.uid(user).gid(user);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = UdpSocket::bind(listener.local_addr().unwrap()).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        World {
            kernel,
            datagrams,
            folder: std::fs::File::open(&outside).unwrap().into(),
            user,
            victim: victim.spawn().unwrap(),
            listener,
            _sockets: sockets,
            root,
        }
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    pub(crate) fn inside(&self) -> PathBuf {
        self.root.path().join("inside/folder")
    }

    /// `ken-sandbox` with a writable folder in which the command starts.
    pub(crate) fn sandbox(&self, options: &[&str], command: &[&str]) -> Command {
        let mut sandbox = Command::new(env!("CARGO_BIN_EXE_ken-sandbox"));
        sandbox.arg("--write").arg(self.inside()).arg("--cwd").arg(self.inside());
        sandbox.args(options).arg("--").args(command);
        self.on_kernel(&mut sandbox);
        self.dress(sandbox)
    }

    /// A program that is not confined, as the user of the world.
    pub(crate) fn as_user(&self, mut command: Command) -> Command {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs a program with a descriptor as this number.
    pub(crate) fn with_descriptor(&self, file: &impl AsRawFd, number: i32, words: &[&str]) -> Output {
        let (program, words) = words.split_first().unwrap();
        let mut command = Command::new(program);
        command.args(words);
        let file = file.as_raw_fd();
        // SAFETY: between fork and exec it makes one system call.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || match nix::libc::dup2(file, number) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        self.as_user(command).output().unwrap()
    }

    /// Takes from a program what the kernel lacks.
    pub(crate) fn on_kernel(&self, command: &mut Command) {
        let filter = match self.kernel {
            Kernel::This => return,
            Kernel::WithoutNamespaces => hiding(nix::libc::SYS_clone3),
            Kernel::Landlock(version) => {
                command.env("KEN_LANDLOCK_VERSION", version.to_string());
                without_flags()
            }
        };
        restrict(command, filter);
    }

    /// Whether something has arrived at the port since the last look.
    pub(crate) fn was_reached(&self) -> bool {
        let mut reached = false;
        while self.datagrams.recv(&mut [0; 64]).is_ok() {
            reached = true;
        }
        reached
    }

    fn dress(&self, mut command: Command) -> Command {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        // Secrets of the caller that must not be seen inside.
        command.env("SSH_AUTH_SOCK", self.outside().join("stream")).env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x");
        command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
        let folder = self.folder.as_raw_fd();
        // SAFETY: between fork and exec it makes one system call.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || match nix::libc::dup2(folder, 9) {
                9 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        command
    }

    fn words(&self, attempt: &str) -> Vec<String> {
        vec![
            attempt.to_owned(),
            self.outside().display().to_string(),
            self.victim.id().to_string(),
            self.port().to_string(),
        ]
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub(crate) fn probe(&self, attempt: &str) -> Output {
        self.probe_with(&[], attempt)
    }

    pub(crate) fn probe_with(&self, options: &[&str], attempt: &str) -> Output {
        let probe = self.readable_probe();
        let mut words = vec![probe.to_str().unwrap().to_owned()];
        words.extend(self.words(attempt));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let folder = probe.parent().unwrap().to_str().unwrap();
        let options = [&["--read", folder, "--timeout", "60"], options].concat();
        self.sandbox(&options, &words).output().unwrap()
    }

    pub(crate) fn probe_unconfined(&self, attempt: &str) -> Output {
        let mut probe = Command::new(built_probe());
        probe.args(self.words(attempt)).current_dir(self.inside());
        self.dress(probe).output().unwrap()
    }

    /// The probe where every user can execute it.
    fn readable_probe(&self) -> PathBuf {
        let folder = self.root.path().join("programs");
        let probe = folder.join("probe");
        if !probe.exists() {
            std::fs::create_dir_all(&folder).unwrap();
            copy_program(built_probe(), &probe);
            if let Some(user) = self.user {
                give_all(&folder, user);
            }
        }
        probe
    }

    /// Nothing outside has changed.
    pub(crate) fn check(&self, attempt: &str) {
        let secret = self.outside().join("secret");
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "the secret", "after {attempt}");
        assert_eq!(std::fs::metadata(&secret).unwrap().mode() & 0o7777, 0o600, "after {attempt}");
        let mut names: Vec<_> =
            std::fs::read_dir(self.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".config", ".git", "datagram", "secret", "stream"], "after {attempt}");
        let state = std::fs::read_to_string(format!("/proc/{}/stat", self.victim.id())).unwrap();
        assert!(state.contains(" S "), "the process outside has changed after {attempt}: {state}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn give_all(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            give_all(&entry.unwrap().path(), user);
        }
    }
}

/// Cargo builds examples with the tests.
fn built_probe() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_ken-sandbox"));
    program.parent().unwrap().join("examples/escape")
}

/// Another process copies the program: a test beside this one that forks while the file is open for writing would keep it from
/// being run.
fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: impl AsRef<std::ffi::OsStr>) {
    assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
