//! `ken mcp`: adds and lists MCP servers. It leads to the commands of ken-tools, with output for people.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use ken_types::Error;

use crate::external::{become_program, installed};
use crate::globals::Globals;

const EXAMPLES: &str = "Examples:
  ken mcp add < server.json
  ken mcp list
  ken accept SERVER";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add servers from the JSON in their README: says what they would touch, asks, installs them, shows their tools
    #[command(disable_help_flag = true)]
    Add(Words),
    /// Start the servers, and say what each offers or why it does not run
    #[command(disable_help_flag = true)]
    List(Words),
    /// Print a prompt of a server
    #[command(disable_help_flag = true)]
    Prompt(Words),
}

#[derive(Debug, Args)]
struct Words {
    /// As for `ken-tools add`, `ken-tools servers` and `ken-tools prompt`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

pub(crate) fn run(globals: &Globals, args: &Mcp) -> Result<(), Error> {
    let (name, Words { words }) = match &args.command {
        Command::Add(words) => ("add", words),
        Command::List(words) => ("servers", words),
        Command::Prompt(words) => ("prompt", words),
    };
    become_program(globals, installed("ken-tools")?.args([name, "--format", "summary"]).args(words))
}
