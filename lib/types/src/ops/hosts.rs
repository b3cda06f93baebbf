//! The hosts that share a database on a server. One of them is active, the others wait for its place.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::Timestamp;

crate::operations! {
    /// Returns the hosts, the active one first. A host that waits for its place answers this too. A file of SQLite has no hosts.
    HostsList, "hosts.list": Nothing => Hosts;
    /// Forgets a host that is gone, by its id, a unique part of it, or its name; `conflict` if it was seen in the last seconds.
    HostsRemove, "hosts.remove": RemoveHost => HostRecord;
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
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Hosts {
    pub hosts: Vec<HostRecord>,
    /// The time of the server, by which hosts are seen; `None` for a file.
    pub server_time: Option<Timestamp>,
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
    pub seen_at: Timestamp,
    /// Whether it is the one that answers.
    pub here: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostState {
    /// It works.
    Active,
    /// It waits for the place of the active one.
    Standby,
    /// It was not seen for longer than an active host keeps its place.
    Away,
}

impl HostState {
    pub fn name(self) -> &'static str {
        match self {
            HostState::Active => "active",
            HostState::Standby => "standby",
            HostState::Away => "away",
        }
    }
}
