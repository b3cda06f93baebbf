//! ken-coder: the tool with which the coding worker reads and changes files, and runs commands and git. Each command
//! reads one JSON object, writes one, and works below a single folder: the workspace. See ken-coder(1).
//!
//! Three mechanisms keep it in the workspace. The kernel resolves paths below the workspace ([`tree`]). All work on
//! files is done in a thread that Landlock confines to the workspace and the journal ([`confine`]). Programs run in
//! ken-sandbox(1) ([`sandbox`]). What a change replaces is stored in the journal ([`journal`]), so that the change can
//! be undone.

mod approved;
mod call;
mod change;
mod clone;
mod command;
mod commit;
mod confine;
mod diff;
mod documents;
mod edits;
mod files;
mod gate;
mod git;
mod git_guard;
mod git_names;
mod git_state;
mod inputs;
mod journal;
mod network;
mod patch;
mod policy;
mod preview;
mod programs;
mod propose;
mod push;
mod read_only;
mod rel_path;
mod repository;
mod risk;
mod rules;
mod sandbox;
mod search;
mod settings;
mod snapshot;
mod tree;
mod undo;
mod unseen;
mod walk;

use std::process::ExitCode;

use call::{Call, Operation};
use ken_tool::Report;

const ABOUT: &str = "Work on the files of the workspace, and run commands there";

type Run = fn() -> ExitCode;

/// The name of each command, its line in `--help`, and the function that runs it.
const COMMANDS: [(&str, &str, Run); 21] = [
    entry::<files::List>(),
    entry::<files::Read>(),
    entry::<search::Search>(),
    entry::<documents::Documents>(),
    entry::<edits::Write>(),
    entry::<edits::Edit>(),
    entry::<edits::Patch>(),
    entry::<edits::Apply>(),
    entry::<propose::Propose>(),
    entry::<command::Run>(),
    entry::<command::Test>(),
    entry::<git::Status>(),
    entry::<git::Changes>(),
    entry::<git::Log>(),
    entry::<commit::Commit>(),
    entry::<push::Push>(),
    entry::<clone::Clone>(),
    ("undo", undo::Undo::ABOUT, ken_tool::report::<undo::Undo>),
    ("diff", undo::DiffArgs::ABOUT, ken_tool::report::<undo::DiffArgs>),
    ("journal", undo::JournalArgs::ABOUT, ken_tool::report::<undo::JournalArgs>),
    ("prune", undo::Prune::ABOUT, ken_tool::report::<undo::Prune>),
];

const fn entry<O: Operation>() -> (&'static str, &'static str, Run) {
    (O::COMMAND, O::ABOUT, ken_tool::subcommand::<Call<O>>)
}

fn main() -> ExitCode {
    let word = std::env::args_os().nth(1).unwrap_or_default();
    match COMMANDS.iter().find(|(name, ..)| word == *name) {
        Some((_, _, run)) => run(),
        None => ken_tool::front("ken-coder", ABOUT, &COMMANDS.map(|(name, about, _)| (name, about))),
    }
}
