//! Tries to get out of the sandbox, one way for each name. Exit status 0: it got out; 1: it was refused, with the reason on
//! standard output. Not a part of ken: the tests run it inside `ken-sandbox`.
#![allow(unsafe_code, clippy::print_stdout, clippy::panic)]

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::ptr::null;

use libc::*;

/// Where to break out to, as the test made it.
struct Outside {
    /// A folder that the sandbox was not given, with a file `secret`, sockets `stream` and `datagram`.
    folder: PathBuf,
    /// A process that must live on unchanged.
    victim: i32,
    /// A TCP port on loopback with a listener.
    port: u16,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let word = |at: usize| words.get(at).cloned().unwrap_or_default();
    let outside = Outside {
        folder: PathBuf::from(word(2)),
        victim: word(3).parse().unwrap_or_default(),
        port: word(4).parse().unwrap_or_default(),
    };
    match attempt(&word(1), &outside) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::from(1)
        }
    }
}

fn attempt(name: &str, outside: &Outside) -> io::Result<()> {
    let secret = outside.folder.join("secret");
    let here = std::env::current_dir()?;
    match name {
        "read" => read(&secret),
        "read-dots" => read(&here.join("..").join("..").join(relative(&secret))),
        "list" => std::fs::read_dir(&outside.folder).map(drop),
        "write" => std::fs::write(outside.folder.join("new"), "x"),
        "append" => std::fs::OpenOptions::new().append(true).open(&secret).map(drop),
        "mkdir" => std::fs::create_dir(outside.folder.join("folder")),
        "remove" => std::fs::remove_file(&secret),
        "truncate" => call(unsafe { truncate(c(&secret).as_ptr(), 0) }.into()),
        "symlink" => {
            std::os::unix::fs::symlink(&secret, "link")?;
            read(Path::new("link"))
        }
        "symlink-race" => symlink_race(&secret),
        "hard-link" => {
            std::fs::hard_link(&secret, "hard")?;
            read(Path::new("hard"))
        }
        "proc-root" => read(&Path::new("/proc/self/root").join(relative(&secret))),
        "proc-cwd" => read(&Path::new("/proc/self/cwd/../../../../../..").join(relative(&secret))),
        "proc-victim-cwd" => std::fs::read_dir(format!("/proc/{}/cwd", outside.victim)).map(drop),
        "proc-victim-environ" => read(Path::new(&format!("/proc/{}/environ", outside.victim))),
        "proc-victim-mem" => {
            std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/mem", outside.victim)).map(drop)
        }
        "dev-mem" => read(Path::new("/dev/mem")),
        "shadow" => read(Path::new("/etc/shadow")),
        "rename-out" => {
            std::fs::write("mine", "x")?;
            std::fs::rename("mine", &secret)
        }
        "rename-in" => std::fs::rename(&secret, "theirs"),
        "exchange" => {
            std::fs::write("mine", "x")?;
            call(
                unsafe { renameat2(AT_FDCWD, c("mine").as_ptr(), AT_FDCWD, c(&secret).as_ptr(), RENAME_EXCHANGE) }
                    .into(),
            )
        }
        "tmpfile-link" => {
            let file = descriptor(unsafe { open(c(".").as_ptr(), O_TMPFILE | O_WRONLY, 0o600) })?;
            let from = format!("/proc/self/fd/{file}");
            let to = c(outside.folder.join("linked"));
            call(unsafe { linkat(AT_FDCWD, c(&from).as_ptr(), AT_FDCWD, to.as_ptr(), AT_SYMLINK_FOLLOW) }.into())
        }
        // The test leaves a folder outside open as descriptor 9.
        "inherited" => descriptor(unsafe { openat(9, c("secret").as_ptr(), O_RDONLY) }).map(drop),
        "inherited-chdir" => {
            call(unsafe { fchdir(9) }.into())?;
            read(Path::new("secret"))
        }
        "device" => call(unsafe { mknod(c("disk").as_ptr(), S_IFBLK | 0o600, makedev(8, 0)) }.into()),
        "memory-file" => {
            // A program in memory is still in the sandbox.
            let file = descriptor(unsafe { memfd_create(c("cat").as_ptr(), 0) })?;
            std::fs::copy("/bin/cat", format!("/proc/self/fd/{file}"))?;
            succeeds(Command::new(format!("/proc/self/fd/{file}")).arg(&secret))
        }
        "shell" => succeeds(Command::new("/bin/sh").arg("-c").arg(format!("cat '{}'", secret.display()))),
        "git-hook" => std::fs::write(outside.folder.join(".git/hooks/pre-commit"), "x"),
        "shell-rc" => std::fs::write(outside.folder.join(".bashrc"), "x"),
        "cron" => std::fs::write("/etc/cron.d/ken-probe", "x"),
        "user-unit" => std::fs::write(outside.folder.join(".config/systemd/user/probe.service"), "x"),
        "runtime-folder" => std::fs::write(format!("/run/user/{}/probe", unsafe { getuid() }), "x"),
        // Modes, times, owners, attributes.
        "chmod" => call(unsafe { chmod(c(&secret).as_ptr(), 0o777) }.into()),
        "chmod-link" => {
            std::os::unix::fs::symlink(&secret, "mode-link")?;
            call(unsafe { chmod(c("mode-link").as_ptr(), 0o777) }.into())
        }
        "chmod-dots" => call(unsafe { chmod(c(here.join("..").join("outside/secret")).as_ptr(), 0o777) }.into()),
        "chmod-program" => {
            let file = std::fs::File::open("/bin/cat")?;
            call(unsafe { fchmod(file.as_raw_fd(), 0o777) }.into())
        }
        "chmod-program-proc" => {
            let file = std::fs::File::open("/bin/cat")?;
            call(unsafe { chmod(c(format!("/proc/self/fd/{}", file.as_raw_fd())).as_ptr(), 0o777) }.into())
        }
        "chmod-inherited" => call(unsafe { fchmodat(9, c("secret").as_ptr(), 0o777, 0) }.into()),
        "chmod-descriptor" => call(unsafe { fchmod(9, 0o777) }.into()),
        "setuid-bit" => {
            std::fs::write("tool", "x")?;
            call(unsafe { chmod(c("tool").as_ptr(), 0o4755) }.into())?;
            let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata("tool")?);
            refuse_unless(mode & 0o6000 != 0)
        }
        "setuid-open" => makes_set_id(|| unsafe { open(c("bits").as_ptr(), O_CREAT | O_WRONLY, 0o6755) }.into()),
        "setuid-creat" => makes_set_id(|| unsafe { creat(c("bits").as_ptr(), 0o6755) }.into()),
        "setuid-node" => makes_set_id(|| unsafe { mknod(c("bits").as_ptr(), S_IFREG | 0o6755, 0) }.into()),
        "setuid-node-at" => {
            makes_set_id(|| unsafe { mknodat(AT_FDCWD, c("bits").as_ptr(), S_IFREG | 0o6755, 0) }.into())
        }
        "setuid-openat2" => makes_set_id(|| {
            // struct open_how of <linux/openat2.h>
            let how = [(O_CREAT | O_WRONLY) as u64, 0o6755, 0];
            unsafe { syscall(SYS_openat2, AT_FDCWD, c("bits").as_ptr(), &raw const how, size_of_val(&how)) }
        }),
        "setuid-unnamed" => makes_set_id(|| unsafe {
            let file = open(c(".").as_ptr(), O_TMPFILE | O_WRONLY, 0o6755);
            let from = c(format!("/proc/self/fd/{file}"));
            linkat(AT_FDCWD, from.as_ptr(), AT_FDCWD, c("bits").as_ptr(), AT_SYMLINK_FOLLOW).into()
        }),
        "times" => call(unsafe { utimensat(AT_FDCWD, c(&secret).as_ptr(), null(), 0) }.into()),
        "times-program" => {
            let file = std::fs::File::open("/bin/cat")?;
            call(unsafe { futimens(file.as_raw_fd(), null()) }.into())
        }
        "owner" => call(unsafe { chown(c(&secret).as_ptr(), getuid(), getgid()) }.into()),
        "attribute" => {
            call(unsafe { setxattr(c(&secret).as_ptr(), c("user.x").as_ptr(), c("x").as_ptr().cast(), 1, 0) }.into())
        }
        // Sockets.
        "tcp" => socket_of(AF_INET, SOCK_STREAM, 0).map(drop),
        "tcp-connect" => std::net::TcpStream::connect(("127.0.0.1", outside.port)).map(drop),
        "tcp-mapped" => std::net::TcpStream::connect(format!("[::ffff:127.0.0.1]:{}", outside.port)).map(drop),
        "metadata-service" => std::net::TcpStream::connect("169.254.169.254:80").map(drop),
        "udp" => std::net::UdpSocket::bind("127.0.0.1:0").map(drop),
        // With sockets: ways round the look at an address.
        "udp-send" => {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
            socket.send_to(b"x", ("127.0.0.1", outside.port)).map(drop)
        }
        "udp-message" => send_message(outside.port, SOCK_DGRAM, 0),
        "udp-messages" => send_messages(outside.port),
        "tcp-fast-open" => send_message(outside.port, SOCK_STREAM, MSG_FASTOPEN),
        "tcp-fast-open-send" => {
            let (socket, address) = (internet(SOCK_STREAM, 0)?, loopback(outside.port));
            call(unsafe {
                sendto(
                    socket.as_raw_fd(),
                    c"x".as_ptr().cast(),
                    1,
                    MSG_FASTOPEN,
                    (&raw const address).cast(),
                    size_of_val(&address) as u32,
                )
            } as i64)
        }
        // Nothing is connected, so nothing can be sent.
        "tcp-fast-open-unaddressed" => {
            let socket = internet(SOCK_STREAM, 0)?;
            let sent = unsafe {
                sendto(
                    socket.as_raw_fd(),
                    c"x".as_ptr().cast(),
                    1,
                    MSG_FASTOPEN,
                    null(),
                    size_of::<sockaddr_in>() as u32,
                )
            };
            call(sent as i64)
        }
        "tcp-listen" => std::net::TcpListener::bind("127.0.0.1:0").map(drop),
        "tcp-listen-anywhere" => {
            let socket = internet(SOCK_STREAM, 0)?;
            call(unsafe { listen(socket.as_raw_fd(), 1) }.into())
        }
        "tcp-race" => connect_race(outside.port),
        "tcp-route" => {
            let socket = internet(SOCK_STREAM, 0)?;
            let route = [0x83u8, 7, 4, 127, 0, 0, 1, 0];
            call(unsafe { setsockopt(socket.as_raw_fd(), IPPROTO_IP, IP_OPTIONS, route.as_ptr().cast(), 8) }.into())
        }
        "mptcp" => internet(SOCK_STREAM, 262).map(drop),
        "sctp" => internet(SOCK_STREAM, IPPROTO_SCTP).map(drop),
        "ping" => internet(SOCK_DGRAM, IPPROTO_ICMP).map(drop),
        "raw" => socket_of(AF_INET, SOCK_RAW, IPPROTO_ICMP).map(drop),
        "packet" => socket_of(AF_PACKET, SOCK_RAW, 0).map(drop),
        "netlink" => socket_of(AF_NETLINK, SOCK_RAW, 0).map(drop),
        "vsock" => socket_of(AF_VSOCK, SOCK_STREAM, 0).map(drop),
        "unix" => std::os::unix::net::UnixStream::connect(outside.folder.join("stream")).map(drop),
        "unix-abstract" => socket_of(AF_UNIX, SOCK_STREAM, 0).map(drop),
        "unix-pair-datagram" => {
            let mut pair = [0; 2];
            call(unsafe { socketpair(AF_UNIX, SOCK_DGRAM, 0, pair.as_mut_ptr()) }.into())
        }
        "unix-pair-connect" => {
            let mut pair = [0; 2];
            call(unsafe { socketpair(AF_UNIX, SOCK_STREAM, 0, pair.as_mut_ptr()) }.into())?;
            unsafe { close(pair[1]) };
            let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
            address.sun_family = AF_UNIX as u16;
            for (place, byte) in address.sun_path.iter_mut().zip(outside.folder.join("stream").as_os_str().as_bytes()) {
                *place = *byte as c_char;
            }
            call(unsafe { connect(pair[0], (&raw const address).cast(), size_of_val(&address) as u32) }.into())
        }
        "docker" => std::os::unix::net::UnixStream::connect("/var/run/docker.sock").map(drop),
        "agent" => std::env::var("SSH_AUTH_SOCK").map(drop).map_err(io::Error::other),
        "session-bus" => std::env::var("DBUS_SESSION_BUS_ADDRESS").map(drop).map_err(io::Error::other),
        // Processes.
        "kill" => call(unsafe { kill(outside.victim, SIGKILL) }.into()),
        "kill-supervisor" => kill_supervisor(),
        "pidfd" => {
            let process = descriptor(unsafe { syscall(SYS_pidfd_open, outside.victim, 0) } as i32)?;
            call(unsafe { syscall(SYS_pidfd_send_signal, process, SIGKILL, 0, 0) })
        }
        "pidfd-getfd" => call(unsafe { syscall(SYS_pidfd_getfd, 9, 0, 0) }),
        "limit" => {
            let none = rlimit { rlim_cur: 0, rlim_max: 0 };
            call(unsafe { prlimit(outside.victim, RLIMIT_CPU, &none, std::ptr::null_mut()) }.into())
        }
        "priority" => call(unsafe { setpriority(PRIO_PROCESS, outside.victim as u32, 19) }.into()),
        "priority-user" => call(unsafe { setpriority(PRIO_USER, getuid(), 19) }.into()),
        "trace" => call(unsafe { ptrace(PTRACE_ATTACH, outside.victim, 0, 0) }),
        "memory-write" => {
            let (mut byte, here) = (0u8, 0u8);
            let (from, to) = (part(&raw const here), part(&raw mut byte));
            call(unsafe { process_vm_writev(outside.victim, &from, 1, &to, 1, 0) } as i64)
        }
        "keyring" => call(unsafe { syscall(SYS_keyctl, 0, -3, 0) }),
        "bpf" => call(unsafe { syscall(SYS_bpf, 0, 0, 0) }),
        "perf" => call(unsafe { syscall(SYS_perf_event_open, 0, 0, -1, -1, 0) }),
        "userfault" => call(unsafe { syscall(SYS_userfaultfd, 0) }),
        "uring" => call(unsafe { syscall(SYS_io_uring_setup, 1, 0) }),
        "mount" => call(unsafe { mount(c("none").as_ptr(), c(&here).as_ptr(), c("tmpfs").as_ptr(), 0, null()) }.into()),
        "unshare" => call(unsafe { unshare(CLONE_NEWUSER) }.into()),
        "unshare-files" => call(unsafe { unshare(CLONE_NEWNS) }.into()),
        "clone" => clone_namespace(),
        "clone3" => call(unsafe { syscall(SYS_clone3, 0, 0) }),
        "setns" => call(unsafe { setns(9, 0) }.into()),
        "pivot" => call(unsafe { syscall(SYS_pivot_root, c(&here).as_ptr(), c(&here).as_ptr()) }),
        "chroot" => call(unsafe { chroot(c(&here).as_ptr()) }.into()),
        "kexec" => call(unsafe { syscall(SYS_kexec_load, 0, 0, 0, 0) }),
        "module" => call(unsafe { syscall(SYS_finit_module, 9, c("").as_ptr(), 0) }),
        "personality" => call(unsafe { personality(0x0040_0000) }.into()),
        "handle" => call(unsafe { syscall(SYS_open_by_handle_at, 9, 0, 0) }),
        "terminal" => call(unsafe { ioctl(0, TIOCSTI, c("x").as_ptr()) }.into()),
        "listener" => {
            call(unsafe { syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0) })
        }
        "shared-memory" => call(unsafe { syscall(SYS_shmget, IPC_PRIVATE, 4096, 0o600) }),
        "gain-root" => {
            let status = std::fs::read_to_string("/proc/self/status")?;
            let has =
                |line: &str| status.lines().any(|found| found.split_whitespace().collect::<Vec<_>>().join(" ") == line);
            // An ordinary user who has no namespace cannot drop what bounds capabilities, and needs not: no exec gives any.
            let is_bounded = has("CapBnd: 0000000000000000") || unsafe { getuid() } != 0;
            let nothing = has("NoNewPrivs: 1") && has("CapEff: 0000000000000000") && is_bounded;
            refuse_unless(!nothing || (unsafe { getuid() } != 0 && unsafe { setuid(0) } == 0))
        }
        _ => panic!("there is no attempt {name}"),
    }
}

fn c(text: impl AsRef<std::ffi::OsStr>) -> CString {
    CString::new(text.as_ref().as_bytes()).unwrap_or_default()
}

fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn read(path: &Path) -> io::Result<()> {
    std::fs::File::open(path)?.read(&mut [0]).map(drop)
}

fn call(result: i64) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn descriptor(result: i32) -> io::Result<i32> {
    call(result.into()).map(|()| result)
}

fn refuse_unless(escaped: bool) -> io::Result<()> {
    escaped.then_some(()).ok_or_else(|| io::Error::other("refused"))
}

fn succeeds(command: &mut Command) -> io::Result<()> {
    refuse_unless(command.status()?.success())
}

/// Whether a call makes a file with one of the bits.
fn makes_set_id(make: impl Fn() -> i64) -> io::Result<()> {
    let _ = std::fs::remove_file("bits");
    call(make())?;
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata("bits")?);
    refuse_unless(mode & 0o6000 != 0)
}

fn socket_of(family: i32, kind: i32, protocol: i32) -> io::Result<i32> {
    descriptor(unsafe { socket(family, kind, protocol) })
}

fn part<T>(at: *const T) -> iovec {
    iovec { iov_base: at.cast_mut().cast(), iov_len: 1 }
}

/// While one thread changes what the name leads to, the other one opens it.
fn symlink_race(secret: &Path) -> io::Result<()> {
    std::fs::write("harmless", "x")?;
    let secret = secret.to_owned();
    let swapper = std::thread::spawn(move || {
        for _ in 0..2_000 {
            for target in [Path::new("harmless"), &secret] {
                let _ = std::os::unix::fs::symlink(target, "next");
                let _ = std::fs::rename("next", "racing");
            }
        }
    });
    let mut last = Err(io::Error::other("the name never led anywhere"));
    while !swapper.is_finished() {
        last = match std::fs::read_to_string("racing") {
            Ok(text) if text != "x" => return Ok(()),
            Ok(_) => last,
            Err(error) => Err(error),
        };
        // The supervisor must not be led astray either.
        unsafe { chmod(c("racing").as_ptr(), 0o777) };
    }
    last
}

/// The parent of init, or whoever is next outside.
fn kill_supervisor() -> io::Result<()> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", unsafe { getppid() }))?;
    let parent = stat.split_whitespace().nth(3).and_then(|pid| pid.parse::<i32>().ok());
    call(
        unsafe { kill(parent.filter(|pid| *pid > 0).ok_or_else(|| io::Error::other("no parent is seen"))?, SIGKILL) }
            .into(),
    )
}

fn clone_namespace() -> io::Result<()> {
    match unsafe { syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0) } {
        0 => unsafe { _exit(0) },
        result => call(result),
    }
}

fn internet(kind: i32, protocol: i32) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    let socket = unsafe { socket(AF_INET, kind, protocol) };
    call(socket.into())?;
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(socket) })
}

fn loopback(port: u16) -> sockaddr_in {
    let mut address: sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = AF_INET as u16;
    address.sin_port = port.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
    address
}

/// A message that names its address itself.
fn message_to(address: &sockaddr_in, piece: &iovec) -> msghdr {
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw const *address).cast_mut().cast();
    message.msg_namelen = size_of_val(address) as u32;
    message.msg_iov = (&raw const *piece).cast_mut();
    message.msg_iovlen = 1;
    message
}

fn one_byte() -> iovec {
    iovec { iov_base: c"x".as_ptr().cast_mut().cast(), iov_len: 1 }
}

fn send_message(port: u16, kind: i32, flags: i32) -> io::Result<()> {
    let (socket, address, piece) = (internet(kind, 0)?, loopback(port), one_byte());
    let message = message_to(&address, &piece);
    call(unsafe { sendmsg(socket.as_raw_fd(), &raw const message, flags) } as i64)
}

fn send_messages(port: u16) -> io::Result<()> {
    let (socket, address, piece) = (internet(SOCK_DGRAM, 0)?, loopback(port), one_byte());
    let mut messages = [mmsghdr { msg_hdr: message_to(&address, &piece), msg_len: 0 }];
    call(unsafe { sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), 1, 0) }.into())
}

/// Changes the address while the call is being looked at.
fn connect_race(port: u16) -> io::Result<()> {
    use std::sync::atomic::{AtomicU32, Ordering};
    // A public address that answers nobody here, and loopback.
    let (public, private) = (u32::from_ne_bytes([192, 0, 9, 1]), u32::from_ne_bytes([127, 0, 0, 1]));
    let mut address = loopback(port);
    let place = (&raw mut address.sin_addr.s_addr).cast::<AtomicU32>();
    let place = unsafe { &*place };
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                place.store(public, Ordering::Relaxed);
                place.store(private, Ordering::Relaxed);
            }
        });
        let tried = (0..2_000).find_map(|_| {
            let socket = internet(SOCK_STREAM | SOCK_NONBLOCK, 0).ok()?;
            unsafe { connect(socket.as_raw_fd(), place.as_ptr().cast::<u8>().sub(4).cast(), 16) };
            let mut peer = loopback(0);
            let mut length = 16;
            let known = unsafe { getpeername(socket.as_raw_fd(), (&raw mut peer).cast(), &raw mut length) };
            (known == 0 && peer.sin_addr.s_addr == private).then_some(())
        });
        over.store(true, Ordering::Relaxed);
        tried.ok_or_else(|| io::Error::other("never"))
    })
}
