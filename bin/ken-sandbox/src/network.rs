//! Which addresses the command can reach.
//!
//! Landlock knows ports but no addresses, and a filter of system calls cannot see the address that a pointer leads to. So the
//! calls that take an address stop in the kernel, and the supervisor makes them in the command's place ([`crate::notify`]): on
//! the command's own socket, with the address that it has read and checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use ken_types::address::{Allowed, is_public};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{SockType, getsockopt, sockopt};

use crate::caller::Caller;

/// The calls that can name an address. `sendmmsg` is refused instead (syscalls.rs).
pub(crate) const CALLS: &[i64] = &[libc::SYS_connect, libc::SYS_sendto, libc::SYS_sendmsg];

/// The most bytes that one call of `sendto` or `sendmsg` sends. On a stream the caller sends the rest with its next call.
const MAX_SENT: usize = 256 * 1024;
/// The most pieces of a message (UIO_MAXIOV of <linux/uio.h>).
const MAX_PIECES: u64 = 1024;
/// The most calls that may be under way at the same time.
const MAX_WAITING: usize = 64;
const DNS: u16 = 53;

static WAITING: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Default)]
pub(crate) struct Reach {
    public: bool,
    named: Allowed,
    /// The name servers of this machine, which may have any address. Without public addresses there are none.
    resolvers: Vec<IpAddr>,
}

impl Reach {
    /// `named` is a list in the form of [`Allowed::parse`].
    pub(crate) fn new(public: bool, named: &str) -> Result<Reach, ken_tool::Error> {
        let resolvers = if public {
            name_servers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
        } else {
            Vec::new()
        };
        Ok(Reach { public, named: Allowed::parse("--reach", named)?, resolvers })
    }

    fn allows(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        let address = SocketAddr::new(ip, address.port());
        (self.public && is_public(ip))
            || self.named.names(&ip.to_string(), address)
            || (address.port() == DNS && self.resolvers.contains(&ip))
    }
}

fn name_servers(text: &str) -> Vec<IpAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        address.split('%').next()?.parse().ok()
    });
    let servers: Vec<IpAddr> = servers.collect();
    // Without a name server, resolv.conf(5) means the local machine.
    if servers.is_empty() { vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] } else { servers }
}

/// A call that is allowed, with everything that is needed to make it.
pub(crate) struct Call {
    socket: OwnedFd,
    action: Action,
    /// In the form of the kernel (struct sockaddr); empty if the call names none.
    address: Vec<u8>,
}

enum Action {
    Connect,
    Send { bytes: Vec<u8>, flags: libc::c_int },
}

impl Call {
    pub(crate) fn read(call: &libc::seccomp_notif, reach: &Reach) -> Result<Call, Errno> {
        let caller = Caller(call.pid);
        let argument = |at: usize| call.data.args.get(at).copied().unwrap_or_default();
        let socket = caller.socket(argument(0))?;
        let (action, address) = match i64::from(call.data.nr) {
            libc::SYS_connect => (Action::Connect, (argument(1), argument(2))),
            libc::SYS_sendto => {
                let count = usize::try_from(argument(2)).unwrap_or(MAX_SENT).min(MAX_SENT);
                let bytes = caller.bytes(argument(1), count)?;
                let flags = argument(3) as libc::c_int;
                (Action::Send { bytes, flags }, (argument(4), argument(5)))
            }
            libc::SYS_sendmsg => {
                // struct msghdr: the address and its length, the pieces and their number, control data and their length.
                let [address, length, pieces, count, _, control, _] = caller.words::<7>(argument(1))?;
                if control != 0 {
                    return Err(Errno::EPERM); // descriptors, and options such as another route
                }
                let bytes = gathered(&caller, pieces.cast_unsigned(), count.cast_unsigned())?;
                let flags = argument(2) as libc::c_int;
                (Action::Send { bytes, flags }, (address.cast_unsigned(), length.cast_unsigned()))
            }
            _ => return Err(Errno::ENOSYS),
        };
        let address = match address {
            (0, _) | (_, 0) => Vec::new(),
            (place, length) => checked(&caller, place, length as u32, reach)?,
        };
        if matches!(action, Action::Send { .. }) && !address.is_empty() && kind(&socket)? != SockType::Datagram {
            // A stream has its peer already; with MSG_FASTOPEN a message could connect to another one.
            return Err(Errno::EISCONN);
        }
        Ok(Call { socket, action, address })
    }

    /// Makes the call in a thread of its own, because it may wait, and passes the result to `reply`.
    pub(crate) fn execute(self, reply: impl FnOnce(Result<i64, Errno>) + Send + 'static) {
        if WAITING.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            return reply(Err(Errno::EAGAIN));
        }
        let work = move || {
            let result = self.system_call();
            WAITING.fetch_sub(1, Ordering::Relaxed);
            reply(result);
        };
        // If no thread can be started, the command gets no answer and waits until its timeout.
        if std::thread::Builder::new().stack_size(64 * 1024).spawn(work).is_err() {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[allow(unsafe_code)]
    fn system_call(&self) -> Result<i64, Errno> {
        let (socket, length) = (self.socket.as_raw_fd(), self.address.len() as libc::socklen_t);
        let address = match length {
            0 => std::ptr::null(),
            _ => self.address.as_ptr().cast(),
        };
        loop {
            // SAFETY: the address and the bytes live during the calls.
            let done = unsafe {
                match &self.action {
                    Action::Connect => libc::connect(socket, address, length) as libc::ssize_t,
                    Action::Send { bytes, flags } => {
                        let flags = (flags & !libc::MSG_FASTOPEN) | libc::MSG_NOSIGNAL;
                        libc::sendto(socket, bytes.as_ptr().cast(), bytes.len(), flags, address, length)
                    }
                }
            };
            match Errno::result(done) {
                Err(Errno::EINTR) => {}
                result => return result.map(|value| value as i64),
            }
        }
    }
}

fn kind(socket: &OwnedFd) -> Result<SockType, Errno> {
    getsockopt(socket, sockopt::SockType)
}

fn gathered(caller: &Caller, pieces: u64, count: u64) -> Result<Vec<u8>, Errno> {
    if count > MAX_PIECES {
        return Err(Errno::EMSGSIZE);
    }
    let mut bytes = Vec::new();
    for piece in 0..count {
        let [place, length] = caller.words::<2>(pieces.wrapping_add(piece * 16))?;
        let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
        let room = MAX_SENT - bytes.len();
        bytes.extend(caller.bytes(place.cast_unsigned(), length.min(room))?);
    }
    Ok(bytes)
}

/// The address, if it may be reached.
fn checked(caller: &Caller, place: u64, length: u32, reach: &Reach) -> Result<Vec<u8>, Errno> {
    const MAX_ADDRESS_BYTES: u32 = 128; // struct sockaddr_storage
    if length > MAX_ADDRESS_BYTES {
        return Err(Errno::EINVAL);
    }
    let bytes = caller.bytes(place, length as usize)?;
    let address = parse(&bytes)?;
    // After EACCES programs try the next address of the name.
    if reach.allows(address) { Ok(bytes) } else { Err(Errno::EACCES) }
}

/// Reads a struct sockaddr_in or sockaddr_in6.
fn parse(bytes: &[u8]) -> Result<SocketAddr, Errno> {
    let (family, rest) = bytes.split_first_chunk::<2>().ok_or(Errno::EINVAL)?;
    let (port, rest) = rest.split_first_chunk::<2>().ok_or(Errno::EINVAL)?;
    let port = u16::from_be_bytes(*port);
    match i32::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => {
            let address: &[u8; 4] = rest.first_chunk().ok_or(Errno::EINVAL)?;
            Ok(SocketAddr::from((*address, port)))
        }
        libc::AF_INET6 => {
            let address: &[u8; 16] = rest.get(4..).and_then(<[u8]>::first_chunk).ok_or(Errno::EINVAL)?;
            Ok(SocketAddrV6::new((*address).into(), port, 0, 0).into())
        }
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn so_many_calls_wait_and_no_more() {
        let (socket, peer) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let reply = |waiting: usize| {
            WAITING.store(waiting, Ordering::Relaxed);
            let (give, take) = std::sync::mpsc::channel();
            let action = Action::Send { bytes: b"x".to_vec(), flags: 0 };
            let call = Call { socket: socket.try_clone().unwrap().into(), action, address: Vec::new() };
            call.execute(move |result| give.send(result).unwrap());
            let result = take.recv().unwrap();
            (result, WAITING.swap(0, Ordering::Relaxed))
        };
        assert_eq!(reply(MAX_WAITING - 1), (Ok(1), MAX_WAITING - 1));
        assert_eq!(peer.recv(&mut [0; 2]).unwrap(), 1);
        assert_eq!(reply(MAX_WAITING), (Err(Errno::EAGAIN), MAX_WAITING));
    }

    #[test]
    fn public_addresses_and_what_is_named_are_reached() {
        let reach = |public, named, address: &str| {
            let mut reach = Reach::new(public, named).unwrap();
            if public {
                let text = "# x\nsearch 10.0.0.8\nnameserver 10.0.0.3\nsortlist 10.0.0.9\nnameserver fe80::1%eth0";
                reach.resolvers = name_servers(text);
            }
            reach.allows(address.parse().unwrap())
        };
        for public in ["1.1.1.1:443", "[2606:4700::1111]:53", "[::ffff:1.1.1.1]:80", "10.0.0.3:53", "[fe80::1]:53"] {
            assert!(reach(true, "", public), "{public}");
            assert!(!reach(false, "127.0.0.1:8080", public), "{public}");
        }
        for private in [
            "127.0.0.1:3940", "10.0.0.8:53", "10.0.0.9:53", "[::1]:80", "[::ffff:127.0.0.1]:80", "169.254.169.254:80",
            "10.0.0.3:80", "0.0.0.0:80",
        ] {
            assert!(!reach(true, "127.0.0.1:8080", private), "{private}");
        }
        assert!(reach(false, "127.0.0.1:8080", "127.0.0.1:8080"));
        assert!(reach(false, "127.0.0.1:8080", "[::ffff:127.0.0.1]:8080"));
        assert!(!reach(false, "127.0.0.1:8080", "127.0.0.1:8081"));
        assert!(!reach(false, "127.0.0.1:8080", "127.0.0.1:53"));
        assert!(reach(true, "10.1.0.0/16", "10.1.2.3:1"));
        assert!(parse(&[0; 16]).is_err() && parse(&[2, 0, 0]).is_err());
        // Without a line for one, the local machine is the name server.
        assert_eq!(name_servers("search a\n"), [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()]);
    }

    /// A call of this process, with the arguments as the kernel would pass them on.
    fn read(call: i64, args: [u64; 6]) -> Result<Call, Errno> {
        let data = libc::seccomp_data { nr: call as i32, arch: 0, instruction_pointer: 0, args };
        let call = libc::seccomp_notif { id: 0, pid: std::process::id(), flags: 0, data };
        Call::read(&call, &Reach::new(false, "127.0.0.1:8080").unwrap())
    }

    fn place<T: ?Sized>(value: &T) -> u64 {
        std::ptr::from_ref(value).cast::<u8>() as u64
    }

    fn name_of(port: u16) -> Vec<u8> {
        [&2u16.to_ne_bytes()[..], &port.to_be_bytes(), &[127, 0, 0, 1], &[0; 120]].concat()
    }

    #[test]
    fn a_call_names_no_address_or_one_that_may_be_reached() {
        use std::os::fd::AsRawFd;
        let datagram = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let [datagram, stream] = [datagram.as_raw_fd() as u64, stream.as_raw_fd() as u64];
        let (good, bad, text) = (name_of(8080), name_of(8081), b"text");
        for (call, args, wrong) in [
            (libc::SYS_connect, [stream, place(&good[..]), 16, 0, 0, 0], None),
            (libc::SYS_connect, [stream, place(&good[..]), 128, 0, 0, 0], None),
            (libc::SYS_connect, [stream, place(&good[..]), 129, 0, 0, 0], Some(Errno::EINVAL)),
            (libc::SYS_connect, [stream, place(&bad[..]), 16, 0, 0, 0], Some(Errno::EACCES)),
            (libc::SYS_sendto, [datagram, place(text), 4, 0, place(&good[..]), 16], None),
            (libc::SYS_sendto, [datagram, place(text), 4, 0, place(&bad[..]), 16], Some(Errno::EACCES)),
            (libc::SYS_sendto, [datagram, place(text), 4, 0, 0, 16], None),
            (libc::SYS_sendto, [stream, place(text), 4, 0, 0, 0], None),
            // With MSG_FASTOPEN a stream could be connected so, to an address that was not checked as that of a connection.
            (libc::SYS_sendto, [stream, place(text), 4, 0, place(&good[..]), 16], Some(Errno::EISCONN)),
            (libc::SYS_bind, [stream, place(&good[..]), 16, 0, 0, 0], Some(Errno::ENOSYS)),
        ] {
            assert_eq!(read(call, args).err(), wrong, "{call} {args:?}");
        }
        let long = vec![b'x'; MAX_SENT + 1];
        let sent = read(libc::SYS_sendto, [stream, place(&long[..]), long.len() as u64, 0, 0, 0]).unwrap();
        assert!(matches!(sent.action, Action::Send { bytes, .. } if bytes.len() == MAX_SENT));
    }

    #[test]
    fn a_message_of_pieces_is_gathered_up_to_the_limits() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = std::os::fd::AsRawFd::as_raw_fd(&socket) as u64;
        let text = vec![b'x'; MAX_SENT];
        let message = |pieces: &[[u64; 2]], control: u64| {
            let header = [0, 0, place(pieces), pieces.len() as u64, 0, control, 0u64];
            match read(libc::SYS_sendmsg, [socket, place(&header[..]), 0, 0, 0, 0]) {
                Ok(Call { action: Action::Send { bytes, .. }, .. }) => Ok(bytes.len()),
                Ok(_) => panic!("it sends"),
                Err(errno) => Err(errno),
            }
        };
        let piece = |length: usize| [place(&text[..]), length as u64];
        assert_eq!(message(&[piece(3), piece(4)], 0), Ok(7));
        assert_eq!(message(&[piece(MAX_SENT), piece(1)], 0), Ok(MAX_SENT));
        assert_eq!(message(&[piece(MAX_SENT - 1), piece(1), piece(1)], 0), Ok(MAX_SENT));
        assert_eq!(message(&vec![piece(1); MAX_PIECES as usize], 0), Ok(MAX_PIECES as usize));
        assert_eq!(message(&vec![piece(1); MAX_PIECES as usize + 1], 0), Err(Errno::EMSGSIZE));
        assert_eq!(message(&[piece(1)], 8), Err(Errno::EPERM), "descriptors");
        // A piece where the caller has no memory.
        assert_eq!(message(&[[8, 4]], 0), Err(Errno::EFAULT));
    }
}
