//! `ken-coder plan`: a list of edits that a person approves together before they are made.

use std::fmt;

use ken_tool::{Answer, Error};
use serde::{Deserialize, Serialize};

use crate::approved;
use crate::call::Operation;
use crate::confine::{Access, with_tree};
use crate::edits::{OneEdit, plan_of};
use crate::gate;
use crate::git_guard::GitFolders;
use crate::journal::Journal;
use crate::preview::Preview;
use crate::rel_path::RelPath;
use crate::settings::Settings;

/// The maximum number of characters of the summary's first line that are shown.
const MAX_SUMMARY_CHARACTERS: usize = 200;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Propose {
    summary: String,
    edits: Vec<OneEdit>,
}

/// The reply: the files whose edits need no further approval.
#[derive(Debug, Serialize)]
pub(crate) struct ProposeResult {
    run: String,
    approved: Vec<RelPath>,
}

impl Answer for ProposeResult {
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
            return Err(Error::invalid("/summary", "the summary is empty; it says what the plan is for"));
        }
        if settings.has_run {
            Ok(())
        } else {
            Err(Error::invalid("KEN_RUN", "a plan belongs to a run, and KEN_RUN names none"))
        }
    }

    fn proposal(&self, preview: Preview) -> Preview {
        let first = self.summary.trim().lines().next().unwrap_or_default();
        // It is what a person approves, so that nothing may vanish from it.
        let shown = ken_text::visible(first);
        preview.into_proposal(&shown.chars().take(MAX_SUMMARY_CHARACTERS).collect::<String>())
    }
}

impl Operation for Propose {
    const NAME: &'static str = "ken-coder plan";
    const ABOUT: &'static str = "Have a list of edits approved before they are made";
    const FIELDS: &'static str = "Fields: summary (what the plan is for), edits (as in `apply`). The edits are not made yet. Once a \
        person has approved the plan, each file can be changed to its state after all edits without another approval, once, and \
        only if it has not changed since the plan was made.";
    const ASKS: bool = true;
    type Answer = ProposeResult;

    fn preview(&self, settings: &Settings) -> Result<Preview, Error> {
        self.check(settings)?;
        with_tree(settings, Access::Read, |tree| {
            Ok(self.proposal(Preview::of_plan(settings, &plan_of(tree, &self.edits)?, &GitFolders::default())))
        })
    }

    fn run(&self, settings: &Settings) -> Result<ProposeResult, Error> {
        self.check(settings)?;
        with_tree(settings, Access::Write, |tree| {
            let journal = Journal::lock(settings, Self::COMMAND, &RelPath::default())?;
            let plan = plan_of(tree, &self.edits)?;
            gate::pass(settings, &self.proposal(Preview::without_diff(settings, &plan, &GitFolders::default())))?;
            let edits = plan.entries();
            let paths: Vec<RelPath> = edits.iter().map(|edit| edit.path.clone()).collect();
            approved::keep(settings, &journal, edits)?;
            Ok(ProposeResult { run: settings.run.clone(), approved: paths })
        })
    }
}
