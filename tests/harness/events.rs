//! Functions for events of streams.

use serde_json::Value;

/// The type of each event.
pub fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}
