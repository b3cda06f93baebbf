//! The hosts that share a database on a server.

use ken_types::Error;
use ken_types::ops::hosts::{Hosts, ServerHealth};

/// The hosts that use the database. A file has none.
pub trait HostTable {
    fn hosts(&self) -> Result<Hosts, Error>;
    /// Forgets a host that is not the active one.
    fn remove_host(&self, id: &str) -> Result<(), Error>;
    /// Returns how the server is. A file has none.
    fn server_health(&self) -> Result<Option<ServerHealth>, Error>;
}
