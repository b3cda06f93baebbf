//! The hosts that share a database on a server.

use ken_types::id::SubmissionId;
use ken_types::ops::hosts::{Hosts, ServerHealth};
use ken_types::ops::store::Lease;
use ken_types::ops::telemetry::RunHost;
use ken_types::{Error, Timestamp};

/// How long a host works without showing the others that it does, in milliseconds.
pub const HOST_LEASE_MS: i64 = 10_000;

/// Another host that works, as its row is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherHost {
    pub host: String,
    /// The number of its last transaction.
    pub batch: i64,
    /// The time of the server when the row was renewed.
    pub renewed_at: i64,
}

/// A host that does not work at the moment.
#[derive(Debug)]
pub struct AbsentHost {
    pub name: String,
    pub seen_at: Timestamp,
}

/// The hosts that use the database. The defaults are for a file, which has no hosts; a server implements every function.
pub trait HostTable {
    fn hosts(&self) -> Result<Hosts, Error> {
        Ok(Hosts::default())
    }

    /// Forgets a host that does not work any more. Its sessions are then those of any host.
    fn remove_host(&self, _id: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the submissions that have not ended of the sessions that are bound to a folder of a host, in their order.
    fn bound_to(&self, _host: &str) -> Result<Vec<SubmissionId>, Error> {
        Ok(Vec::new())
    }

    /// Returns the host with the folder of a session, if that host does not work at the moment.
    fn absent_home(&self, _stream: i64) -> Result<Option<AbsentHost>, Error> {
        Ok(None)
    }

    /// Returns the host that has worked on a submission last.
    fn host_of(&self, _submission: i64) -> Result<Option<RunHost>, Error> {
        Ok(None)
    }

    /// Makes the host of a session that of another one, whose folder it has.
    fn copy_home(&self, _from: i64, _to: i64) -> Result<(), Error> {
        Ok(())
    }

    /// Returns whether this host has the duties of which each has one holder: those that only one program may do at a time.
    fn has_duties(&self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Ends the activity of hosts that were silent for too long, so that they can write no more. Those that have shown since that they
    /// work are left out. If none has the duties then, this host takes them.
    fn expire_hosts(&self, _silent: &[OtherHost]) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the leases whose holders belong to no host that works.
    fn orphaned_leases(&self) -> Result<Vec<Lease>, Error> {
        Ok(Vec::new())
    }

    /// Returns the state of the database server; `None` for a file.
    fn server_health(&self) -> Result<Option<ServerHealth>, Error> {
        Ok(None)
    }
}
