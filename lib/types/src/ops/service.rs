//! The operations that every daemon serves.

use serde::{Deserialize, Serialize};

use super::Nothing;

crate::operations! {
    /// Returns name, version and operations of a part.
    ServiceInfo, "service.info": Nothing => Info;
    /// Replies with an empty object, which shows that the daemon is alive.
    ServicePing, "service.ping": Nothing => Nothing;
    /// Returns counters and queue lengths: a flat object of names and numbers.
    ServiceStats, "service.stats": Nothing => serde_json::Map<String, serde_json::Value>;
}

/// The identity of a daemon and its operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub name: String,
    pub version: String,
    /// The version of the wire protocol: 1.
    pub wire: u32,
    /// Sorted names of all its operations.
    pub ops: Vec<String>,
}
