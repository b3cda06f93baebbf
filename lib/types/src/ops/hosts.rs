//! The hosts that share a database on a server. All of them work; one of them has the duties that only one may have.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::Timestamp;

crate::operations! {
    /// Returns the hosts, the one with the duties first. A host that does not work answers this too. A file of SQLite has no hosts.
    HostsList, "hosts.list": Nothing => Hosts;
    /// Forgets a host that is gone, by its id, a unique part of it, or its name; `conflict` if it was seen in the last seconds.
    HostsRemove, "hosts.remove": RemoveHost => HostRecord;
    /// Returns whether this host has the duties of which each has one holder, such as asking a messaging platform for updates.
    HostsDuties, "hosts.duties": Nothing => Duties;
    /// Returns how the database server is; `None` for a file of SQLite.
    HostsServer, "hosts.server": Nothing => Option<ServerHealth>;
}

/// What an administrator of a database server should know. What the role of the store may not see is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerHealth {
    /// How many standbys are connected.
    pub standbys: u64,
    /// Whether a commit waits for one of them.
    pub synchronous: bool,
    /// By how many bytes the last of them is behind.
    pub behind_bytes: Option<u64>,
    /// The table with the most rows that were deleted or replaced and not yet removed.
    pub table: String,
    pub dead_rows: u64,
    pub live_rows: u64,
    /// The age of the oldest transaction in the database, which keeps such rows from being removed, and whose it is.
    pub oldest_ms: Option<u64>,
    pub oldest: Option<String>,
    /// Whose transaction holds a lock for which a store waits.
    #[serde(default)]
    pub blocking: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Hosts {
    pub hosts: Vec<HostRecord>,
    /// The time of the server, by which hosts are seen; `None` for a file.
    pub server_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Duties {
    pub here: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveHost {
    pub host: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    pub id: String,
    /// The name of the machine, which several hosts may have.
    pub name: String,
    /// The release of its store.
    pub version: String,
    pub state: HostState,
    /// Whether it has the duties that only one host may have.
    pub has_duties: bool,
    pub seen_at: Timestamp,
    /// How many turns wait for it while it is away, because their sessions work in folders of it.
    #[serde(default)]
    pub waiting: u64,
    /// Whether it is the one that answers.
    pub here: bool,
}

crate::named! {
    pub enum HostState {
        Active = "active",
        /// It was not seen for longer than a host works without a sign.
        Away = "away",
    }
}
