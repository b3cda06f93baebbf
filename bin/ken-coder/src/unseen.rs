//! The files that an agent has changed and nobody has seen: a rule of the operator let them be edited. What a person
//! approves about a command covers their contents, because the command may run them.
//!
//! The list is a file of the state directory, where no command can write. Losing entries is harmless: the fingerprints
//! of commands then change, and a person is asked once more.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ken_tool::Error;
use serde::{Deserialize, Serialize};

use crate::journal::Journal;
use crate::policy::Permit;
use crate::rel_path::RelPath;
use crate::settings::Settings;

/// The maximum number of files in the list, because each of them is read for each preview of a command.
const MAX_FILES: usize = 1_000;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Unseen {
    /// The workspace to which the places belong.
    root: PathBuf,
    places: BTreeSet<RelPath>,
}

fn file(settings: &Settings) -> PathBuf {
    settings.file_of_root("unseen")
}

fn list(settings: &Settings) -> Unseen {
    let bytes = std::fs::read(file(settings)).unwrap_or_default();
    let list: Unseen = serde_json::from_slice(&bytes).unwrap_or_default();
    if list.root == settings.root { list } else { Unseen { root: settings.root.clone(), places: BTreeSet::new() } }
}

pub(crate) fn read(settings: &Settings) -> BTreeSet<RelPath> {
    list(settings).places
}

/// Records who let these files be changed. Must be called before they change: a change that is on disk while its entry
/// is not would count as seen.
pub(crate) fn record<'a>(
    settings: &Settings,
    journal: &Journal,
    permit: Permit,
    places: impl Iterator<Item = &'a RelPath>,
) -> Result<(), Error> {
    let old = list(settings);
    let mut new = old.places.clone();
    for place in places {
        match permit {
            Permit::Rule => _ = new.insert(place.clone()),
            Permit::Person => _ = new.remove(place),
        }
    }
    while new.len() > MAX_FILES {
        new.pop_first();
    }
    if new == old.places {
        return Ok(());
    }
    let list = Unseen { places: new, root: old.root };
    let bytes = serde_json::to_vec(&list).map_err(|error| Error::internal(error.to_string()))?;
    journal.replace_durably(&file(settings), &bytes)
}
