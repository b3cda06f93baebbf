//! `ken accept`: lets agents use a text or a server that others have written. It leads to `ken skills accept` for skills and
//! project rules, and to `ken-tools accept` for MCP servers.

use std::process::ExitCode;

use crate::external::{become_program, installed};
use crate::globals::Globals;
use crate::output::Outcome;
use crate::skills::{self, Accept};

pub(crate) fn run(globals: &Globals, args: &Accept) -> Outcome {
    if let Some(ended) = skills::accept_named(&globals.places()?, args)? {
        return Ok(ended);
    }
    let mut tools = installed("ken-tools")?;
    tools.args(["accept", "--format", "summary"]).args(args.yes.then_some("--yes"));
    // The name is never taken for an option.
    become_program(globals, tools.args(["--", &args.name]).args(&args.digest)).map(|()| ExitCode::SUCCESS)
}
