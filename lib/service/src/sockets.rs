//! Listening sockets inherited from `kend` or systemd, according to the protocol of sd_listen_fds(3).

use std::collections::HashMap;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use ken_types::Error;
use ken_types::places::check_socket_path;

use crate::descriptor::own;

/// Inherited listening sockets by name. Each can be taken once.
#[derive(Debug, Default)]
pub struct Sockets {
    by_name: HashMap<String, OwnedFd>,
}

impl Sockets {
    /// Takes the sockets that the environment names. Call it once, before anything else opens descriptors.
    pub(crate) fn inherited() -> Result<Sockets, Error> {
        let named = sd_notify::listen_fds_with_names()
            .map_err(|error| Error::invalid("LISTEN_FDS", format!("inherited sockets are misnamed: {error}")))?;
        let owned = named.map(|(fd, name)| Ok((name, own(fd)?)));
        Ok(Sockets { by_name: owned.collect::<Result<_, Error>>()? })
    }

    /// Takes the socket of this name; `None` if there is none or it was taken before.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        self.by_name.remove(name)
    }

    /// Returns the wire socket: the inherited one, or else a new one at `path`.
    pub(crate) fn wire(&mut self, path: &Path) -> Result<UnixListener, Error> {
        let listener = match self.take("wire") {
            Some(fd) => UnixListener::from(fd),
            None => bind(path)?,
        };
        let failed = |error: io::Error| Error::internal(format!("the wire socket: {error}"));
        // An inherited socket has the flags that its creator has set, and may block.
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(listener)
    }
}

/// Creates a socket for a daemon that is started manually. Replaces the socket file of a daemon that no longer runs.
fn bind(path: &Path) -> Result<UnixListener, Error> {
    check_socket_path(path)?;
    let place = path.display().to_string();
    let failed = |error: io::Error| Error::unavailable(format!("cannot listen at {place}: {error}"));
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    }
    if UnixStream::connect(path).is_ok() {
        let message = format!("another process listens at {place}");
        return Err(Error::conflict(message).hint("stop it first: `ken down`, or give another --home"));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}
