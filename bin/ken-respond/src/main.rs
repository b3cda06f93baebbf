//! ken-respond: a governed response. Drafts, has ken-laws judge the draft, and revises it until it passes. See ken-respond(1).

mod attempt;
mod cli;
mod draft;
mod laws;
mod model;
mod question;
mod response;

use std::process::ExitCode;

fn main() -> ExitCode {
    ken_tool::main::<cli::Respond>()
}
