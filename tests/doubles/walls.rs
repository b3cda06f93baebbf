//! A part whose one operation, `service.probe`, tries what its walls should refuse. kend starts it in the place of a part of ken,
//! with the walls of that part, and it enters them by way of lib/service like any other. It is an example of the tests, so no
//! installed program has the operation. With `--alone KIND=WHAT ...` it is no part, enters walls as ken-proxy does, and prints the
//! number of the error for each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, unsafe_code, unreachable_pub)]

use std::fs::{self, OpenOptions};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use ken_service::{NoOptions, Program};
use ken_types::Error;
use ken_wire::{Daemon, Table};
use nix::libc;
use serde::{Deserialize, Serialize};

ken_types::operations! {
    /// Tries one thing. Returns the number of the error, or 0.
    Probe, "service.probe": Try => Tried;
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Try {
    /// Reads a file, or lists a folder.
    Path(String),
    /// Opens a file for writing, or makes one in a folder.
    Write(String),
    /// `tcp:ADDRESS`, `udp:`, `listen:`, `unix:PATH`, `abstract:NAME` or `netlink:PROTOCOL`.
    Connect(String),
    /// The name of a system call.
    Syscall(String),
    /// Runs a program that says its version.
    Run(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Tried {
    errno: i32,
}

struct Prober;

impl Daemon for Prober {}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some("--alone") {
        return alone(words);
    }
    let program = Program {
        name: "ken-probe",
        version: "0.0.0",
        about: "Tries what its walls refuse",
        drain: Duration::from_secs(1),
    };
    ken_service::run::<NoOptions, _, _>(program, async |_| {
        let table = Table::new("probe", "0.0.0");
        Ok((table.op::<Probe, _, _>(|_: Arc<Prober>, _, args| async move { probe(&args) }), Arc::new(Prober)))
    })
}

fn alone(words: impl Iterator<Item = String>) -> ExitCode {
    ken_walls::part::enter(ken_types::config::Calls::Network, Vec::new()).expect("walls");
    for word in words {
        let (kind, what) = word.split_once('=').expect("KIND=WHAT");
        let tried = serde_json::from_value(serde_json::json!({kind: what})).expect("a kind");
        println!("{}", probe(&tried).expect("a known call").errno);
    }
    ExitCode::SUCCESS
}

fn probe(tried: &Try) -> Result<Tried, Error> {
    let result = match tried {
        Try::Path(path) => read(Path::new(path)),
        Try::Write(path) => write(Path::new(path)),
        Try::Connect(target) => connect(target),
        Try::Syscall(name) => call(name)?,
        Try::Run(program) => Command::new(program).arg("--version").output().map(drop),
    };
    Ok(Tried { errno: result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |()| 0) })
}

fn read(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() { fs::read_dir(path).map(drop) } else { fs::File::open(path).map(drop) }
}

fn write(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        return OpenOptions::new().append(true).open(path).map(drop);
    }
    let made = path.join(format!("probe-{}", std::process::id()));
    OpenOptions::new().write(true).create_new(true).open(&made)?;
    fs::remove_file(made)
}

fn connect(target: &str) -> io::Result<()> {
    let (kind, place) = target.split_once(':').expect("KIND:PLACE");
    match kind {
        "tcp" => TcpStream::connect(place).map(drop),
        "udp" => UdpSocket::bind("127.0.0.1:0").map(drop),
        "listen" => TcpListener::bind("127.0.0.1:0").map(drop),
        "unix" => UnixStream::connect(place).map(drop),
        "abstract" => UnixStream::connect_addr(&SocketAddr::from_abstract_name(place)?).map(drop),
        // SAFETY: a plain system call; the descriptor is left open.
        "netlink" => {
            done(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, place.parse().expect("a number")) }.into())
        }
        other => panic!("{other}"),
    }
}

fn done(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes a call with arguments that change nothing, and that let it fail, if it is allowed, with an error of its own.
fn call(name: &str) -> Result<io::Result<()>, Error> {
    const NO: i64 = -1;
    let (number, arguments): (libc::c_long, [i64; 4]) = match name {
        "execve" => (libc::SYS_execve, [0; 4]),
        "fork" => return Ok(fork()),
        "kill" => (libc::SYS_kill, [nix::unistd::getppid().as_raw().into(), 0, 0, 0]),
        "listen" => (libc::SYS_listen, [NO, 0, 0, 0]),
        "fchmodat" => (libc::SYS_fchmodat, [NO, c"x".as_ptr() as i64, 0, 0]),
        "setuid" => (libc::SYS_setuid, [nix::unistd::getuid().as_raw().into(), 0, 0, 0]),
        "ptrace" => (libc::SYS_ptrace, [i64::from(libc::PTRACE_PEEKDATA), 0, 0, 0]),
        "process_vm_readv" => (libc::SYS_process_vm_readv, [nix::unistd::getpid().as_raw().into(), 0, 0, 0]),
        "process_vm_writev" => (libc::SYS_process_vm_writev, [nix::unistd::getpid().as_raw().into(), 0, 0, 0]),
        "keyctl" => (libc::SYS_keyctl, [0, i64::from(u32::MAX - 2), 0, 0]),
        "io_uring_setup" => (libc::SYS_io_uring_setup, [0; 4]),
        "userfaultfd" => (libc::SYS_userfaultfd, [1, 0, 0, 0]),
        "bpf" => (libc::SYS_bpf, [0, 0, 0, 0]),
        "perf_event_open" => (libc::SYS_perf_event_open, [0; 4]),
        "mount" => (libc::SYS_mount, [0; 4]),
        "unshare" => (libc::SYS_unshare, [0; 4]),
        "setns" => (libc::SYS_setns, [NO, 0, 0, 0]),
        "seccomp" => (libc::SYS_seccomp, [i64::from(u32::MAX), 0, 0, 0]),
        other => return Err(Error::invalid("/syscall", format!("{other} is not known"))),
    };
    let [first, second, third, fourth] = arguments;
    // SAFETY: null pointers and numbers that name nothing; the kernel refuses them without reading or writing memory.
    Ok(done(unsafe { libc::syscall(number, first, second, third, fourth) }))
}

fn fork() -> io::Result<()> {
    // SAFETY: the child does nothing but end.
    match unsafe { libc::fork() } {
        0 => unsafe { libc::_exit(0) },
        // SAFETY: the child of above.
        child @ 1.. => done(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
