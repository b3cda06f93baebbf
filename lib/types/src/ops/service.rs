//! What every daemon answers.

use serde::{Deserialize, Serialize};

use super::Nothing;

crate::operations! {
    /// Name, version and operations of a part.
    ServiceInfo, "service.info": Nothing => Info;
    /// An empty answer, to see that it lives.
    ServicePing, "service.ping": Nothing => Nothing;
    /// Counters and queue lengths: a flat object of names and numbers.
    ServiceStats, "service.stats": Nothing => serde_json::Map<String, serde_json::Value>;
}

/// Who answers, and what it can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Info {
    pub name: String,
    pub version: String,
    /// The version of the wire: 1.
    pub wire: u32,
    /// Sorted names of all its operations.
    pub ops: Vec<String>,
}
