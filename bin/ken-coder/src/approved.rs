//! Edits that a person has approved as parts of a plan. Each of them can be made once without further approval.
//! Anything else needs approval as usual: different content, another file, or a file that has changed since the plan
//! was made.

use std::path::PathBuf;

use ken_tool::Error;
use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Journal};
use crate::settings::Settings;

/// The approved edits of a run that have not been made yet. They are stored in a file in the folder `plans` of the
/// state directory, where no command can write.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Approved {
    edits: Vec<Entry>,
}

fn file(settings: &Settings) -> PathBuf {
    settings.state.join(format!("plans/{}.json", settings.run))
}

/// Reads the approved edits of this run. If the file cannot be read, nothing is approved.
fn read(settings: &Settings) -> Approved {
    let bytes = std::fs::read(file(settings)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

/// Whether a person has approved exactly these changes with the plan of this run.
pub(crate) fn covers(settings: &Settings, changes: &[Entry]) -> bool {
    let approved = read(settings).edits;
    !changes.is_empty() && changes.iter().all(|change| approved.contains(change))
}

/// Uses up the approval of these changes before they are made. This is written to disk before the first file changes,
/// so an interrupted change must be approved again, but none is made twice with one approval. Returns whether all of them
/// were approved.
pub(crate) fn use_up(settings: &Settings, journal: &Journal, changes: &[Entry]) -> Result<bool, Error> {
    let mut approved = read(settings);
    let before = approved.edits.len();
    let covers = changes.iter().all(|change| approved.edits.contains(change));
    approved.edits.retain(|edit| !changes.contains(edit));
    if approved.edits.len() != before {
        write(settings, journal, &approved)?;
    }
    Ok(covers)
}

/// Records the edits of an approved plan. They replace the remaining edits of an earlier plan of the run.
pub(crate) fn keep(settings: &Settings, journal: &Journal, edits: Vec<Entry>) -> Result<(), Error> {
    write(settings, journal, &Approved { edits })
}

fn write(settings: &Settings, journal: &Journal, approved: &Approved) -> Result<(), Error> {
    let bytes = serde_json::to_vec(approved).map_err(|error| Error::internal(error.to_string()))?;
    journal.replace_durably(&file(settings), &bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::slice;

    use super::*;
    use crate::journal::tests::{entry, journal};

    #[test]
    fn each_approved_edit_is_made_once_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let (state, journal) = journal();
        let settings = Settings { run: "run".to_owned(), ..Settings::of_folders(root.path(), state.path()).unwrap() };
        let (a, b) = (entry("a", Some("1"), Some("2")), entry("b", None, Some("2")));
        let other = entry("a", Some("1"), Some("3"));
        let both = [a.clone(), b.clone()];
        assert!(!covers(&settings, &both), "nothing is approved yet");
        keep(&settings, &journal, both.to_vec()).unwrap();
        for (changes, is_covered) in [
            (vec![], false),
            (vec![a.clone()], true),
            (both.to_vec(), true),
            (vec![other.clone()], false),
            (vec![a.clone(), other.clone()], false),
            (vec![other.clone(), a.clone()], false),
        ] {
            assert_eq!(covers(&settings, &changes), is_covered, "{changes:?}");
        }
        // An approval that is used for one file of several is used up, though the change was not covered.
        assert!(!use_up(&settings, &journal, &[a.clone(), other.clone()]).unwrap());
        assert!(!covers(&settings, slice::from_ref(&a)) && covers(&settings, slice::from_ref(&b)));
        assert!(!use_up(&settings, &journal, &[a]).unwrap());
        assert!(use_up(&settings, &journal, slice::from_ref(&b)).unwrap());
        assert!(!use_up(&settings, &journal, &[b]).unwrap());
        // What is not touched is not written: the file may have been removed meanwhile.
        std::fs::remove_file(file(&settings)).unwrap();
        assert!(!use_up(&settings, &journal, &[other]).unwrap() && !file(&settings).exists());
    }
}
