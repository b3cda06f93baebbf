//! Who is at the other end of a connection from this machine: the user that owns the socket there.
//!
//! The kernel is asked for exactly that socket (sock_diag(7)), once a connection, right after it was accepted. Where the
//! kernel does not answer, `/proc/net/tcp` and `tcp6` are read instead.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use parking_lot::Mutex;

/// Whether this process can see which users of this machine the connections to a listening socket belong to.
pub fn can_see_owners(listening: &TcpListener) -> bool {
    Owners::of_connections_to(listening).is_some()
}

/// Finds the owners of the sockets at the other end.
#[derive(Debug)]
pub(crate) enum Owners {
    Kernel(Mutex<Netlink>),
    Tables,
}

/// A TCP socket of this machine, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    state: u8,
    uid: u32,
    /// 0 if no process holds the socket any more.
    inode: u32,
}

impl Found {
    /// The user that holds the socket, if it is connected and anybody does.
    fn owner(self) -> Option<u32> {
        (self.inode != 0 && CONNECTED.contains(&self.state)).then_some(self.uid)
    }
}

/// The states of a connected socket (`tcp_states.h`): ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT.
const CONNECTED: [u8; 4] = [1, 4, 5, 8];

impl Owners {
    /// `None` if this process cannot see the sockets of this machine, for instance because the listening socket comes from
    /// another network namespace. To find out, it looks for the listening socket itself.
    pub(crate) fn of_connections_to(listening: &TcpListener) -> Option<Owners> {
        let listening = canonical(listening.local_addr().ok()?);
        let nobody = SocketAddr::new(any(listening.ip()), 0);
        let sees = |owners: &Owners| owners.find(listening, nobody).is_some();
        let kernel = Netlink::open().map(|netlink| Owners::Kernel(Mutex::new(netlink)));
        kernel.ok().filter(sees).or_else(|| Some(Owners::Tables).filter(sees))
    }

    /// The user that owns the other end of an accepted connection. `None` if nobody does any more: a socket that its process
    /// has closed is shown with user 0, so without this check, to write and to close at once would be to write as root.
    pub(crate) fn of_peer(&self, stream: &tokio::net::TcpStream) -> Option<u32> {
        let peer = canonical(stream.peer_addr().ok()?);
        let own = canonical(stream.local_addr().ok()?);
        let found = self.find(peer, own)?;
        // If our end was reset meanwhile, another process may have connected from the same port since then. As long as our
        // end is connected, what was found is its other end.
        stream.peer_addr().ok()?;
        found.owner()
    }

    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<Found> {
        match self {
            Owners::Kernel(netlink) => netlink.lock().find(local, remote),
            Owners::Tables => find_in_tables(local, remote),
        }
    }
}

/// A socket to the kernel's `sock_diag`. It does not wait: the kernel has answered when a question has been written.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: File,
    sequence: u32,
}

/// `struct nlmsghdr`.
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`.
const QUESTION: usize = 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;

impl Netlink {
    fn open() -> nix::Result<Netlink> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?;
        Ok(Netlink { socket: File::from(socket), sequence: 0 })
    }

    fn find(&mut self, local: SocketAddr, remote: SocketAddr) -> Option<Found> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.write_all(&question(self.sequence, local, remote)).ok()?;
        let mut message = [0; 512];
        loop {
            let length = self.socket.read(&mut message).ok()?;
            let message = message.get(..length)?;
            // An earlier question whose answer came late, for lack of memory.
            if number(message, 8)? == self.sequence {
                return answer(message);
            }
        }
    }
}

fn question(sequence: u32, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + QUESTION);
    let length = (HEADER + QUESTION) as u32;
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    message.extend_from_slice(&sequence.to_ne_bytes());
    message.extend_from_slice(&[0; 4]); // our port id
    let family = if local.is_ipv4() { nix::libc::AF_INET } else { nix::libc::AF_INET6 };
    message.extend_from_slice(&[family as u8, nix::libc::IPPROTO_TCP as u8, 0, 0]);
    message.extend_from_slice(&u32::MAX.to_ne_bytes()); // any state
    message.extend_from_slice(&local.port().to_be_bytes());
    message.extend_from_slice(&remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        match address {
            IpAddr::V4(address) => message.extend_from_slice(&[&address.octets()[..], &[0; 12]].concat()),
            IpAddr::V6(address) => message.extend_from_slice(&address.octets()),
        }
    }
    message.extend_from_slice(&[0; 4]); // any interface
    message.extend_from_slice(&[0xff; 8]); // INET_DIAG_NOCOOKIE
    message
}

/// Reads a `struct inet_diag_msg`. Any other answer is an error: there is no such socket.
fn answer(message: &[u8]) -> Option<Found> {
    let kind = message.get(4..6)?;
    let found = || {
        let state = *message.get(HEADER + 1)?;
        Some(Found { state, uid: number(message, HEADER + 64)?, inode: number(message, HEADER + 68)? })
    };
    (kind == SOCK_DIAG_BY_FAMILY.to_ne_bytes()).then(found).flatten()
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn find_in_tables(local: SocketAddr, remote: SocketAddr) -> Option<Found> {
    // A program may use IPv4 through a socket of IPv6.
    let mapped = [mapped(local), mapped(remote)];
    let v4 = || find_in_table("/proc/net/tcp", &in_hex(local), &in_hex(remote));
    let v6 = || find_in_table("/proc/net/tcp6", &in_hex(mapped[0]), &in_hex(mapped[1]));
    v4().or_else(v6)
}

fn find_in_table(path: &str, local: &str, remote: &str) -> Option<Found> {
    let lines = BufReader::new(File::open(path).ok()?).lines().map_while(Result::ok);
    lines.skip(1).find_map(|line| {
        // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next()? != local || fields.next()? != remote {
            return None;
        }
        let state = u8::from_str_radix(fields.next()?, 16).ok()?;
        Some(Found { state, uid: fields.nth(3)?.parse().ok()?, inode: fields.nth(1)?.parse().ok()? })
    })
}

/// An address as these tables show it: words in the order of this machine, and the port.
fn in_hex(address: SocketAddr) -> String {
    let octets = match address.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = octets.chunks_exact(4).filter_map(|word| number(word, 0));
    let words: String = words.map(|word| format!("{word:08X}")).collect();
    format!("{words}:{:04X}", address.port())
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn mapped(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// The unspecified address of the same family.
fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn both(listening: &TcpListener) -> [Owners; 2] {
        let kernel = Owners::of_connections_to(listening).unwrap();
        assert!(matches!(kernel, Owners::Kernel(_)));
        [kernel, Owners::Tables]
    }

    /// The other end of a connection to a listener on `address`, from `client`, by both ways.
    fn found(address: &str, before: impl Fn(&TcpStream, &TcpStream)) -> [Option<Found>; 2] {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let target = match listener.local_addr().unwrap() {
            any if any.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], any.port())),
            address => address,
        };
        let client = TcpStream::connect(target).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        before(&client, &accepted);
        let (peer, own) = (canonical(peer), canonical(accepted.local_addr().unwrap()));
        both(&listener).map(|owners| owners.find(peer, own))
    }

    #[test]
    fn both_ways_find_the_same_owner() {
        let own = nix::unistd::geteuid().as_raw();
        for address in ["127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::"] {
            let [kernel, tables] = found(address, |_, _| ());
            assert_eq!(kernel, tables, "{address}");
            let kernel = kernel.unwrap();
            assert_eq!((kernel.state, kernel.uid), (1, own), "{address}");
            assert_ne!(kernel.inode, 0);
        }
    }

    #[test]
    fn an_end_that_was_shut_has_an_owner_and_one_that_was_closed_has_none() {
        let shut = |stream: &TcpStream| stream.shutdown(std::net::Shutdown::Write).unwrap();
        let [by_peer, by_peer_too] = found("127.0.0.1", |client, _| shut(client));
        let [by_us, by_us_too] = found("127.0.0.1", |_, accepted| shut(accepted));
        for found in [by_peer, by_peer_too, by_us, by_us_too] {
            let found = found.unwrap();
            assert!(CONNECTED.contains(&found.state) && found.state != 1 && found.inode != 0, "{found:?}");
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let (accepted, peer) = listener.accept().unwrap();
        for owners in both(&listener) {
            let found = owners.find(peer, accepted.local_addr().unwrap());
            assert_eq!(found.unwrap().inode, 0);
        }
    }

    #[test]
    fn only_who_holds_a_connected_socket_owns_it() {
        for state in 0..=12 {
            let owner = |inode| Found { state, uid: 7, inode }.owner();
            assert_eq!((owner(9).is_some(), owner(0)), ([1, 4, 5, 8].contains(&state), None), "{state}");
        }
    }

    /// A stranger resets its connection, and then a program of the own user connects from the same port.
    #[tokio::test]
    async fn a_connection_that_was_reset_has_no_owner() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let target = listener.local_addr().unwrap();
        let owners = Owners::of_connections_to(&listener).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let connect = async |from: SocketAddr| {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_reuseaddr(true).unwrap();
            socket.bind(from).unwrap();
            socket.connect(target).await.unwrap()
        };
        let first = connect(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let from = first.local_addr().unwrap();
        nix::sys::socket::setsockopt(
            &first,
            nix::sys::socket::sockopt::Linger,
            &nix::libc::linger { l_onoff: 1, l_linger: 0 },
        )
        .unwrap();
        drop(first);
        let _second = connect(from).await;
        let (dead, _) = listener.accept().await.unwrap();
        let (live, _) = listener.accept().await.unwrap();
        assert_eq!(owners.of_peer(&dead), None);
        assert_eq!(owners.of_peer(&live), Some(nix::unistd::geteuid().as_raw()));
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let own = listener.local_addr().unwrap();
        for owners in both(&listener) {
            // The kernel shows the listening socket where there is no connection, in a state that does not count.
            let found = owners.find(own, SocketAddr::from(([127, 0, 0, 1], 1)));
            assert!(found.is_none_or(|found| !CONNECTED.contains(&found.state)), "{found:?}");
            assert_eq!(owners.find(SocketAddr::from(([127, 0, 0, 1], 1)), own), None);
        }
    }
}
