//! `ken-workflow list`: lists the workflows.

use std::fmt;

use clap::Args;
use ken_flow::{Catalog, Definition, Protocols};
use ken_tool::{Answer, Error, Replied, Reply, Report};
use serde::Serialize;

#[derive(Args)]
pub(crate) struct List {
    /// List only workflows that clients may start
    #[arg(long)]
    public: bool,
}

impl Report for List {
    const NAME: &'static str = "ken-workflow list";
    const ABOUT: &'static str = "List the user's workflows and those that come with ken";

    fn run(&self, reply: Reply<'_>) -> Result<Replied, Error> {
        let mut listing = Listing::default();
        for (name, found) in Catalog::usual(Protocols::shipped()).list() {
            match found {
                Ok(workflow) if self.public && !workflow.is_public() => {}
                Ok(workflow) => listing.workflows.push(Entry::of(&workflow)),
                Err(error) => listing.errors.push(Fault { name, error }),
            }
        }
        Ok(reply.send(&listing))
    }
}

#[derive(Serialize, Default)]
struct Listing {
    workflows: Vec<Entry>,
    /// The files that are not valid workflows, with their errors.
    errors: Vec<Fault>,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    description: String,
    public: bool,
    steps: Vec<String>,
    file: String,
}

#[derive(Serialize)]
struct Fault {
    name: String,
    error: Error,
}

impl Entry {
    fn of(workflow: &Definition) -> Entry {
        Entry {
            name: workflow.name().to_owned(),
            description: workflow.description().to_owned(),
            public: workflow.is_public(),
            steps: workflow.steps().iter().map(|step| step.id.clone()).collect(),
            file: workflow.origin().display().to_string(),
        }
    }
}

impl Answer for Listing {
    fn summary(&self, verbose: bool, to: &mut dyn fmt::Write) -> fmt::Result {
        for entry in &self.workflows {
            writeln!(to, "{}: {}", entry.name, entry.description)?;
            if verbose {
                writeln!(to, "  {} ({})", entry.steps.join(", "), entry.file)?;
            }
        }
        for Fault { name, error } in &self.errors {
            writeln!(to, "{name}: invalid: {error}")?;
        }
        Ok(())
    }
}
