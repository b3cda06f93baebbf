//! Events as streams show them.

use serde_json::Value;

/// The type of each.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}
