//! `ken accept`: lets agents use a text or a server that others have written. It leads to `ken skills accept` for skills and
//! project rules, and to `ken-tools accept` for MCP servers.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::external;
use crate::globals::Globals;
use crate::output::Outcome;
use crate::skills::{self, Accept};

pub(crate) fn run<Cli: CommandFactory>(globals: &Globals, args: &Accept) -> Outcome {
    match skills::accept_named(&globals.places()?, args)? {
        Some(ended) => Ok(ended),
        None => external::run(globals, &server_words(args), &Cli::command()).map(|()| ExitCode::SUCCESS),
    }
}

/// Returns the command that accepts the tools of a server.
fn server_words(args: &Accept) -> Vec<OsString> {
    let mut words = vec!["tools", "accept", "--format", "summary"];
    if args.yes {
        words.push("--yes");
    }
    // The name is never taken for an option.
    words.extend(["--", &args.name]);
    words.extend(args.digest.as_deref());
    words.into_iter().map(OsString::from).collect()
}
