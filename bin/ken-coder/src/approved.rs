//! `ken-coder plan`: a list of edits that a person approves as a whole, before they are made one by one. Each of them is free
//! then, once, and nothing else is: another content, another file or another state of the file asks as ever.

use std::fmt;
use std::path::PathBuf;

use ken_tool::{Answer, Error};
use serde::{Deserialize, Serialize};

use crate::call::Operation;
use crate::confine::{Access, within};
use crate::edits::OneEdit;
use crate::edits::plan_of;
use crate::journal::{Entry, Journal};
use crate::place::Place;
use crate::policy::{Approval, Verdict};
use crate::preview::Preview;
use crate::settings::Settings;
use crate::tree::Tree;

/// What is shown of the intention, in characters.
const SUMMARY: usize = 200;

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

fn write(settings: &Settings, journal: &Journal, approved: &Approved) -> Result<(), Error> {
    let bytes = serde_json::to_vec(approved).map_err(|error| Error::internal(error.to_string()))?;
    journal.replace(&file(settings), &bytes)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Propose {
    summary: String,
    edits: Vec<OneEdit>,
}

/// The files that the plan frees.
#[derive(Debug, Serialize)]
pub(crate) struct Proposed {
    run: String,
    approved: Vec<Place>,
}

impl Answer for Proposed {
    fn summary(&self, _: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for path in &self.approved {
            writeln!(to, "approved {path}")?;
        }
        Ok(())
    }
}

impl Propose {
    fn check(&self, settings: &Settings) -> Result<(), Error> {
        if self.summary.trim().is_empty() {
            return Err(Error::invalid("/summary", "a plan says what it is for"));
        }
        match settings.has_run {
            true => Ok(()),
            false => Err(Error::invalid(
                "KEN_RUN",
                "a plan belongs to a run, and there is none",
            )),
        }
    }
}

impl Operation for Propose {
    const NAME: &'static str = "ken-coder plan";
    const COMMAND: &'static str = "plan";
    const ABOUT: &'static str = "Have a list of edits approved before they are made";
    const FIELDS: &'static str = "Fields: summary (what the plan is for), edits (as of `apply`). The edits are not made. Once a person has \
        approved the plan, each file may be given the content that it has after all edits without another approval, once, as long \
        as it is as it was.";
    type Answer = Proposed;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        self.check(settings)?;
        within(settings, Access::Read, || {
            let tree = Tree::open(&settings.root)?;
            let preview = Preview::of_plan(settings, &plan_of(&tree, &self.edits)?);
            let first = self.summary.trim().lines().next().unwrap_or_default();
            let first: String = first
                .chars()
                .filter(|letter| !letter.is_control())
                .take(SUMMARY)
                .collect();
            Ok(preview.as_proposal(&first))
        })
    }

    fn run(&self, settings: &Settings) -> Result<Proposed, Error> {
        self.check(settings)?;
        within(settings, Access::Write, || {
            let tree = Tree::open(&settings.root)?;
            let journal = Journal::lock(&settings.state)?;
            let edits = plan_of(&tree, &self.edits)?.entries();
            let denied = crate::policy::of_files(&settings.workspace, edits.iter().map(|edit| &edit.path));
            if denied.approval == Approval::Deny {
                return Err(Error::forbidden(denied.reason));
            }
            let approved: Vec<Place> = edits.iter().map(|edit| edit.path.clone()).collect();
            // A later plan replaces what was left of the one before.
            write(settings, &journal, &Approved { edits })?;
            Ok(Proposed {
                run: settings.run.clone(),
                approved,
            })
        })
    }
}

/// Of changes that the plan holds.
pub(crate) fn verdict() -> Verdict {
    Verdict {
        approval: Approval::None,
        reason: "a person approved exactly this with the plan".to_owned(),
    }
}
