//! Listening sockets, which belong to kend and outlive the parts that accept from them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

use ken_types::config::{Config, Socket};
use ken_types::ops::kend::Listener;
use ken_types::places::Places;
use nix::sys::socket::{Backlog, listen};

use crate::check::{Address, address};

/// Part and name of a socket.
type Key = (String, String);

/// Connects that wait here while a part restarts; the system's own limit (somaxconn) cuts it.
const BACKLOG: i32 = 4096;

/// A bound socket.
struct Held {
    address: Address,
    /// Where it is reached, when it is TCP.
    local: Option<SocketAddr>,
    fd: OwnedFd,
}

/// All that are held.
#[derive(Default)]
pub(crate) struct Sockets {
    held: BTreeMap<Key, Held>,
}

impl Sockets {
    /// Binds what the configuration names and is not held yet, and says whose sockets are new. On an error nothing has
    /// changed.
    pub(crate) fn open(&mut self, config: &Config, places: &Places) -> Result<BTreeSet<String>, String> {
        let mut missing = Vec::new();
        for (key, socket) in wanted(config) {
            let address = address(config, socket, places)?;
            if self.held.get(&key).is_none_or(|held| held.address != address) {
                missing.push((address, key));
            }
        }
        // A port can be taken by anybody: those first, as the files of Unix sockets are replaced for good.
        missing.sort_by_key(|(address, _)| matches!(address, Address::Unix(_)));
        let mut fresh: BTreeMap<Key, Held> = BTreeMap::new();
        for (address, key) in missing {
            match bind(address) {
                Ok(held) => fresh.insert(key, held),
                Err(message) => {
                    fresh.values().for_each(Held::unlink);
                    return Err(format!("{}: {message}", key.0));
                }
            };
        }
        let owners = fresh.keys().map(|(part, _)| part.clone()).collect();
        for (key, held) in fresh {
            if let Some(old) = self.held.insert(key, held) {
                old.unlink();
            }
        }
        Ok(owners)
    }

    /// Closes what the configuration no longer names.
    pub(crate) fn close_others(&mut self, config: &Config) {
        let wanted: BTreeMap<Key, &Socket> = wanted(config).collect();
        self.held.retain(|key, held| {
            let keep = wanted.contains_key(key);
            if !keep {
                held.unlink();
            }
            keep
        });
    }

    /// The descriptors of a part, in the order of their names.
    pub(crate) fn of(&self, part: &str) -> Vec<RawFd> {
        let rows = self.held.iter().filter(|((owner, _), _)| owner == part);
        rows.map(|(_, held)| held.fd.as_raw_fd()).collect()
    }

    /// Where ken is reached over TCP: sockets that belong to a section under its name, others under part and socket.
    /// The gateway comes first, as what most people want.
    pub(crate) fn listeners(&self, config: &Config) -> Vec<Listener> {
        let rows = wanted(config).filter_map(|(key, socket)| {
            let local = self.held.get(&key)?.local?;
            let name = match socket {
                Socket::Tcp(section) if config.listener(section).is_some() => section.clone(),
                _ => format!("{}.{}", key.0, key.1),
            };
            Some(Listener {
                name,
                url: format!("http://{local}"),
            })
        });
        let mut listeners: Vec<Listener> = rows.collect();
        listeners.sort_by_key(|listener| listener.name != "gateway");
        listeners
    }

    /// Takes the sockets' files away, at the very end.
    pub(crate) fn unlink_all(&self) {
        self.held.values().for_each(Held::unlink);
    }
}

fn wanted(config: &Config) -> impl Iterator<Item = (Key, &Socket)> {
    config.part.iter().flat_map(|(name, part)| {
        let sockets = part.sockets.iter();
        sockets.map(move |(label, socket)| ((name.clone(), label.clone()), socket))
    })
}

impl Held {
    fn unlink(&self) {
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn bind(address: Address) -> Result<Held, String> {
    let (fd, local) = match &address {
        Address::Unix(path) => (bind_unix(path)?.into(), None),
        Address::Tcp(addr) => {
            let socket = TcpListener::bind(addr).map_err(|error| refused(*addr, &error))?;
            let local = socket.local_addr().ok();
            (OwnedFd::from(socket), local)
        }
    };
    // The standard library asks for a shorter queue; listen(2) may be called again to lengthen it.
    let backlog = Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN);
    listen(&fd.as_fd(), backlog).map_err(|errno| format!("cannot listen: {}", errno.desc()))?;
    Ok(Held { address, local, fd })
}

fn refused(addr: SocketAddr, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => format!("another program listens on {addr}"),
        std::io::ErrorKind::PermissionDenied => {
            format!("may not listen on {addr}: ports below 1024 are for root")
        }
        _ => format!("cannot listen on {addr}: {error}"),
    }
}

/// Binds a Unix socket of mode 0600. A file that lies there is a leftover: kend holds the lock of the run directory.
pub(crate) fn bind_unix(path: &Path) -> Result<UnixListener, String> {
    let wrong = |error: std::io::Error| format!("cannot bind {}: {error}", path.display());
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    let socket = UnixListener::bind(path).map_err(wrong)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(wrong)?;
    Ok(socket)
}
