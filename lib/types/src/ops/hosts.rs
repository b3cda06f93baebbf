//! The hosts that share a database on a server. One of them is active, the others wait for its place.

use serde::{Deserialize, Serialize};

use super::Nothing;
use crate::Timestamp;

crate::operations! {
    /// Returns the hosts, the active one first. A host that waits for its place answers this too. A file of SQLite has no hosts.
    HostsList, "hosts.list": Nothing => Hosts;
    /// Forgets a host that is gone, by its id, a unique part of it, or its name; `conflict` if it was seen in the last seconds.
    HostsRemove, "hosts.remove": RemoveHost => HostRecord;
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
