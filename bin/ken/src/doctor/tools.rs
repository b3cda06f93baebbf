//! Reports tools that agents cannot use, and why: invalid tool files, MCP servers that are down or not accepted, and tools whose
//! settings are missing.

use ken_types::ops::tools::{ListTools, ToolsList};
use ken_types::places::Places;

use super::{Findings, call};

pub(super) fn check(places: &Places, findings: &mut Findings) {
    let Some(listed) = call::<ToolsList>(places, "tools", &ListTools::default()) else { return };
    for problem in listed.problems {
        let error = problem.error;
        let why = match error.at.filter(|at| !at.is_empty()) {
            Some(at) => format!("{at}: {}", error.message),
            None => error.message,
        };
        let fix = "edit the file; it is read again at once".to_owned();
        findings.warning("tool-left-out", problem.file, why, error.hint.unwrap_or(fix));
    }
    for tool in listed.tools.into_iter().filter(|tool| !tool.missing.is_empty()) {
        let why = format!("the tool {} cannot be used: none of {} is set", tool.spec.name, tool.missing.join(", "));
        let fix = "to use it, set one of them in the environment of `ken up` or in secrets.env";
        findings.note("tool-not-set-up", tool.file, why, fix);
    }
}
