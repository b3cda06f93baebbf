//! The operations of every daemon.

use serde::{Deserialize, Serialize};

use super::Nothing;

crate::operations! {
    /// Name, version and operations of a part.
    ServiceInfo, "service.info": Nothing => Info;
    /// Replies with nothing, to show that the daemon is alive.
    ServicePing, "service.ping": Nothing => Nothing;
    /// Counters and queue lengths: a flat object of names and numbers.
    ServiceStats, "service.stats": Nothing => serde_json::Map<String, serde_json::Value>;
}

/// The identity of a daemon, and its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub name: String,
    pub version: String,
    /// The version of the wire: 1.
    pub wire: u32,
    /// Sorted names of all its operations.
    pub ops: Vec<String>,
}
