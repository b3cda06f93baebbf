//! Edits that a person has approved with a plan. Each of them is free then, once, and nothing else is: another content, another
//! file or another state of the file asks as ever.

use std::path::PathBuf;

use ken_tool::Error;
use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Journal};
use crate::policy::{Approval, Verdict};
use crate::settings::Settings;

/// The approved edits of a run that were not made yet; a file below `plans` of the state directory, where no command can
/// write.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Approved {
    edits: Vec<Entry>,
}

fn file(settings: &Settings) -> PathBuf {
    settings
        .state
        .join("plans")
        .join(format!("{}.json", settings.run))
}

fn read(settings: &Settings) -> Approved {
    let bytes = std::fs::read(file(settings)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Whether a person has approved exactly these changes with the plan of this run.
pub(crate) fn frees(settings: &Settings, changes: &[Entry]) -> bool {
    let approved = read(settings).edits;
    !changes.is_empty() && changes.iter().all(|change| approved.contains(change))
}

/// Strikes changes that were made off the plan.
pub(crate) fn strike(settings: &Settings, journal: &Journal, changes: &[Entry]) -> Result<(), Error> {
    let mut approved = read(settings);
    let before = approved.edits.len();
    approved.edits.retain(|edit| !changes.contains(edit));
    match approved.edits.len() {
        count if count == before => Ok(()),
        0 => {
            // One that stays frees what has happened already, and only if it could happen again.
            let _ = std::fs::remove_file(file(settings));
            Ok(())
        }
        _ => write(settings, journal, &approved),
    }
}

/// Puts the edits of a plan that was approved on record; what was left of the one before is free no longer.
pub(crate) fn keep(settings: &Settings, journal: &Journal, edits: Vec<Entry>) -> Result<(), Error> {
    write(settings, journal, &Approved { edits })
}

fn write(settings: &Settings, journal: &Journal, approved: &Approved) -> Result<(), Error> {
    let bytes = serde_json::to_vec(approved).map_err(|error| Error::internal(error.to_string()))?;
    journal.replace(&file(settings), &bytes)
}

/// Of changes that the plan holds.
pub(crate) fn verdict() -> Verdict {
    Verdict {
        approval: Approval::None,
        reason: "a person approved exactly this with the plan".to_owned(),
    }
}
