//! Reports tools that agents cannot use, and why: invalid tool files, MCP servers that are down or not accepted, tools whose
//! settings are missing, and invalid workflows.

use ken_types::Error;
use ken_types::ops::tools::{ListTools, Tools, ToolsList};
use ken_types::places::Places;
use serde::Deserialize;

use super::{Findings, call, json_of};

pub(super) fn check(places: &Places, is_up: bool, findings: &mut Findings) {
    check_workflows(places, findings);
    let listed = if is_up {
        call::<ToolsList>(places, "tools", &ListTools::default())
    } else {
        json_of::<Tools>(places, "ken-tools", &["list", "--format", "compact"]).ok()
    };
    let Some(listed) = listed else { return };
    for problem in listed.problems {
        let error = problem.error;
        let why = match error.at.filter(|at| !at.is_empty()) {
            Some(at) => format!("{at}: {}", error.message),
            None => error.message,
        };
        let fix = "edit the file; it is read again at once".to_owned();
        findings.warning("tool-left-out", problem.file, why, error.hint.unwrap_or(fix));
    }
    // Only the part has the settings of the part.
    for tool in listed.tools.into_iter().filter(|tool| is_up && !tool.missing.is_empty()) {
        let why = format!("the tool {} cannot be used: none of {} is set", tool.name, tool.missing.join(", "));
        let fix = "to use it, set one of them in the environment of `ken up` or in secrets.env";
        findings.note("tool-not-set-up", tool.file, why, fix);
    }
}

/// Workflows are read by the part that runs one, which then names the same error.
fn check_workflows(places: &Places, findings: &mut Findings) {
    #[derive(Deserialize)]
    struct Listing {
        errors: Vec<Fault>,
    }
    #[derive(Deserialize)]
    struct Fault {
        name: String,
        error: Error,
    }
    let listing = json_of::<Listing>(places, "ken-workflow", &["list", "--format", "compact"]);
    for Fault { name, error } in listing.into_iter().flat_map(|listing| listing.errors) {
        let fix = error.hint.unwrap_or_else(|| "edit the file; `ken workflow list` reads it again".to_owned());
        findings.warning("workflow-left-out", format!("the workflow {name}"), error.message, fix);
    }
}
