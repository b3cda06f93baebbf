//! Tools that agents are not offered, and why: files that describe none, and MCP servers that are down or not accepted.

use std::time::Duration;

use ken_types::places::Places;
use serde_json::{Value, json};

use super::Findings;
use crate::client::connect;

const CALL: Duration = Duration::from_secs(5);

pub(super) fn check(places: &Places, findings: &mut Findings) {
    let listed = connect(&places.socket("tools"), "tools")
        .and_then(|mut tools| tools.call("tools.list", &json!({}), Some(CALL), |_| Ok(())));
    // That the part is down is another finding.
    let Ok(listed) = listed else { return };
    let problems = listed.get("problems").and_then(Value::as_array);
    for problem in problems.into_iter().flatten() {
        let text = |place: &str| problem.pointer(place).and_then(Value::as_str);
        let why = match text("/error/at").filter(|at| !at.is_empty()) {
            Some(at) => format!("{at}: {}", text("/error/message").unwrap_or_default()),
            None => text("/error/message").unwrap_or_default().to_owned(),
        };
        let fix = text("/error/hint").unwrap_or("edit the file; it is read again at once");
        findings.warning("tool-left-out", text("/file").unwrap_or_default(), why, fix);
    }
}
