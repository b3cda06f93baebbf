//! Listening sockets. They belong to kend and stay open when the processes that accept from them end. The sockets of a
//! stopped part are closed, so that callers are refused at once and do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use ken_types::config::{Config, Socket};
use ken_types::ops::kend::Listener;
use ken_types::places::Places;
use nix::errno::Errno;
use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};

use crate::check::{Address, address};
use crate::descriptor::adopt;
use crate::handover::HeldSocket;

/// The names of a part and of its socket.
type Key = (String, String);

/// The maximum number of connections that wait while a part restarts. The system's limit (somaxconn) applies too.
const BACKLOG: i32 = 4096;

/// A socket that has been bound, possibly closed since.
struct Held {
    address: Address,
    /// The actual address of a TCP socket. A closed socket is bound to it again, even if the configured port is 0.
    local: Option<SocketAddr>,
    /// `None` while its part is stopped.
    fd: Option<OwnedFd>,
}

/// All sockets, by part and name.
#[derive(Default)]
pub(crate) struct Sockets {
    held: BTreeMap<Key, Held>,
}

impl Sockets {
    /// Binds the sockets of enabled parts that are not bound yet. They may have the ports of those that they replace. Returns the parts
    /// that got a new socket. After an error, nothing has changed.
    pub(crate) fn open(&mut self, config: &Config, places: &Places) -> Result<BTreeSet<String>, String> {
        let mut missing = Vec::new();
        for (key, socket) in named(config) {
            let enabled = config.part.get(&key.0).is_some_and(|part| part.enabled);
            if !enabled && !self.held.contains_key(&key) {
                continue;
            }
            let address = address(config, socket, places)?;
            if self.held.get(&key).is_none_or(|held| held.address != address) {
                missing.push((address, key));
            }
        }
        let named: BTreeSet<Key> = named(config).map(|(key, _)| key).collect();
        let is_leaving = |key: &&Key| !named.contains(*key) || missing.iter().any(|(_, moved)| moved == *key);
        let leaving: BTreeSet<Key> = self.held.keys().filter(is_leaving).cloned().collect();
        let (leaving, staying): (Vec<_>, Vec<_>) = self.held.iter().partition(|(key, _)| leaving.contains(*key));
        // TCP comes first, because it can fail if a port is taken. Binding a Unix socket replaces its file, which
        // cannot be undone. Ports that none of the old sockets has come before the others, so that these seldom stop in vain.
        let is_in_the_way = |address: &Address| leaving.iter().any(|(_, held)| held.has_port_of(address));
        missing.sort_by_key(|(address, _)| (matches!(address, Address::Unix(_)), is_in_the_way(address)));
        let mut fresh: BTreeMap<Key, Held> = BTreeMap::new();
        for (address, key) in missing {
            leaving.iter().filter(|(_, held)| held.has_port_of(&address)).for_each(|(_, held)| held.stop_listening());
            let own = staying.iter().copied().chain(&fresh).find(|(_, held)| held.has_port_of(&address));
            match bind(address, own) {
                Ok(held) => fresh.insert(key, held),
                Err(message) => {
                    fresh.values().for_each(Held::unlink);
                    // An old socket can listen only when the new one with its port is closed.
                    drop(fresh);
                    leaving.iter().for_each(|(_, held)| held.listen_again());
                    return Err(format!("{}: {message}", key.0));
                }
            };
        }
        let owners = fresh.keys().map(|(part, _)| part.clone()).collect();
        let old: Vec<Held> = fresh.into_iter().filter_map(|(key, held)| self.held.insert(key, held)).collect();
        self.unlink(&old);
        Ok(owners)
    }

    /// Removes the files of old Unix sockets, unless a new socket has the path now.
    fn unlink(&self, old: &[Held]) {
        let is_gone = |old: &&Held| self.held.values().all(|held| held.address != old.address);
        old.iter().filter(is_gone).for_each(Held::unlink);
    }

    /// What the next program of this process needs to know of the sockets.
    pub(crate) fn pack(&self) -> Vec<HeldSocket> {
        let rows = self.held.iter().map(|((part, name), held)| {
            let (path, address) = match &held.address {
                Address::Unix(path) => (Some(path.clone()), None),
                Address::Tcp(address) => (None, Some(*address)),
            };
            let fd = held.fd.as_ref().map(AsRawFd::as_raw_fd);
            HeldSocket { part: part.clone(), name: name.clone(), path, address, local: held.local, fd }
        });
        rows.collect()
    }

    pub(crate) fn unpack(rows: Vec<HeldSocket>) -> Result<Sockets, Errno> {
        let mut held = BTreeMap::new();
        for row in rows {
            let address = match (row.path, row.address) {
                (Some(path), _) => Address::Unix(path),
                (None, Some(address)) => Address::Tcp(address),
                (None, None) => continue,
            };
            let fd = row.fd.map(adopt).transpose()?;
            held.insert((row.part, row.name), Held { address, local: row.local, fd });
        }
        Ok(Sockets { held })
    }

    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.held.values().filter_map(|held| held.fd.as_ref()).map(AsFd::as_fd)
    }

    /// Binds the closed sockets of a part before it starts.
    pub(crate) fn open_part(&mut self, part: &str, config: &Config, places: &Places) -> Result<(), String> {
        for (key, socket) in named(config).filter(|(key, _)| key.0 == part) {
            let held = self.held.get(&key);
            if held.is_some_and(|held| held.fd.is_some()) {
                continue;
            }
            let address = address(config, socket, places)?;
            let local = held.and_then(|held| held.local).map(Address::Tcp);
            let bound = local.unwrap_or_else(|| address.clone());
            let own = self.held.iter().find(|(_, held)| held.has_port_of(&bound));
            let fresh = bind(bound, own)?;
            self.held.insert(key, Held { address, ..fresh });
        }
        Ok(())
    }

    /// Closes the sockets of a part that is stopped.
    pub(crate) fn close_part(&mut self, part: &str) {
        let own = self.held.iter_mut().filter(|((owner, _), _)| owner == part);
        for (_, held) in own {
            held.fd = None;
        }
    }

    /// Closes the sockets that are no longer in the configuration.
    pub(crate) fn close_others(&mut self, config: &Config) {
        let named: BTreeSet<Key> = named(config).map(|(key, _)| key).collect();
        let (kept, old) = std::mem::take(&mut self.held).into_iter().partition(|(key, _)| named.contains(key));
        self.held = kept;
        self.unlink(&Vec::from_iter(BTreeMap::into_values(old)));
    }

    /// Returns the socket descriptors of a part, in the order of the sockets' names.
    pub(crate) fn of(&self, part: &str) -> Vec<RawFd> {
        let rows = self.held.iter().filter(|((owner, _), _)| owner == part);
        rows.filter_map(|(_, held)| Some(held.fd.as_ref()?.as_raw_fd())).collect()
    }

    /// Returns the TCP addresses of the system. A socket that belongs to a section has the name of the section, any
    /// other one that of its part and socket. The gateway comes first, because most people look for it.
    pub(crate) fn listeners(&self, config: &Config) -> Vec<Listener> {
        let rows = named(config).filter_map(|(key, socket)| {
            let local = self.held.get(&key)?.local?;
            let name = match socket {
                Socket::Tcp(section) if config.listener(section).is_some() => section.clone(),
                _ => format!("{}.{}", key.0, key.1),
            };
            Some(Listener { name, url: format!("http://{local}") })
        });
        let mut listeners: Vec<Listener> = rows.collect();
        listeners.sort_by_key(|listener| listener.name != "gateway");
        listeners
    }

    /// Removes the files of the Unix sockets when kend ends.
    pub(crate) fn unlink_all(&self) {
        self.held.values().for_each(Held::unlink);
    }
}

fn named(config: &Config) -> impl Iterator<Item = (Key, &Socket)> {
    config.part.iter().flat_map(|(name, part)| {
        let sockets = part.sockets.iter();
        sockets.map(move |(label, socket)| ((name.clone(), label.clone()), socket))
    })
}

impl Held {
    /// Whether it listens on the TCP port of an address.
    fn has_port_of(&self, address: &Address) -> bool {
        let own = self.local.filter(|_| self.fd.is_some());
        matches!((own, address), (Some(own), Address::Tcp(other)) if own.port() == other.port())
    }

    /// Makes its port free for another socket. Closing it would not do that, because the processes of its part have it, too. shutdown(2)
    /// ends the listening for all of them, and then `SO_REUSEADDR`, which the standard library sets, lets another socket bind the port.
    fn stop_listening(&self) {
        let _ = self.fd.as_ref().map(|fd| shutdown(fd.as_raw_fd(), Shutdown::Both));
    }

    /// Fails only if another program has bound the port in this moment.
    fn listen_again(&self) {
        let _ = self.fd.as_ref().map(listen_on);
    }

    fn unlink(&self) {
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// `own` is a socket of kend with the same port, for an error.
fn bind(address: Address, own: Option<(&Key, &Held)>) -> Result<Held, String> {
    let (fd, local) = match &address {
        Address::Unix(path) => (bind_unix(path, |path| UnixListener::bind(path))?.into(), None),
        Address::Tcp(addr) => {
            let socket = TcpListener::bind(addr).map_err(|error| refused(*addr, &error, own))?;
            let local = socket.local_addr().ok();
            (OwnedFd::from(socket), local)
        }
    };
    // The standard library requests a shorter queue. A second call of listen(2) lengthens it.
    listen_on(&fd).map_err(|errno| format!("cannot listen: {}", errno.desc()))?;
    Ok(Held { address, local, fd: Some(fd) })
}

fn listen_on(fd: &OwnedFd) -> Result<(), Errno> {
    listen(fd, Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN))
}

fn refused(addr: SocketAddr, error: &std::io::Error, own: Option<(&Key, &Held)>) -> String {
    match (error.kind(), own) {
        (std::io::ErrorKind::AddrInUse, Some(((part, _), held))) => {
            let local = held.local.unwrap_or(addr);
            format!(
                "cannot listen on {addr}, because the part `{part}` listens on {local}; one of them needs another port"
            )
        }
        (std::io::ErrorKind::AddrInUse, None) => format!("another program listens on {addr}"),
        (std::io::ErrorKind::PermissionDenied, _) => {
            format!("may not listen on {addr}: ports below 1024 are for root")
        }
        _ => format!("cannot listen on {addr}: {error}"),
    }
}

/// Binds a Unix socket with mode 0600. An existing file is left over from an earlier kend, because this kend holds the
/// lock of the run directory.
pub(crate) fn bind_unix<S>(path: &Path, bind: impl FnOnce(&Path) -> std::io::Result<S>) -> Result<S, String> {
    let bound = || {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    };
    bound().map_err(|error| format!("cannot bind {}: {error}", path.display()))
}
