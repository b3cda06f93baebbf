//! ken-tui: the terminal client. It stores no conversation: everything that it shows comes from the gateway over HTTP.
//! See ken-tui(1).

mod cli;
mod clipboard;
mod files;
mod find;
mod growing;
mod highlight;
mod input;
mod markdown;
mod message;
mod model;
mod net;
mod plain;
mod print;
mod run;
mod screen;
mod view;
mod wrap;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use ken_client::workspace::of_new_session;
use ken_types::error::wants_json_errors;
use ken_types::{Code, Error};

use cli::Cli;
use find::Finder;
use message::Selector;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) if wrong.use_stderr() && wants_json_errors() => return fail(&ken_tool::usage_error(&wrong), false),
        Err(shown) => {
            _ = shown.print();
            return ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(Code::Invalid.exit_status()));
        }
    };
    run(&cli).unwrap_or_else(|error| fail(&error, cli.json))
}

fn run(cli: &Cli) -> Result<ExitCode, Error> {
    if cli.colour_code {
        // An error means that the client has ended or sent invalid JSON. Nobody would read a message.
        return Ok(highlight::filter().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS));
    }
    let finder = Finder::of(cli)?;
    let selector = match &cli.session {
        Some(name) if name == "last" => Selector::Last,
        Some(name) => Selector::Named(name.clone()),
        None if cli.resume => Selector::Last,
        None => {
            let (places, ken) = (finder.local_places(), finder.command());
            let say = |text: &str| print::print_note(text);
            Selector::Fresh(of_new_session(places, cli.workspace.as_deref(), &ken, say)?)
        }
    };
    let (has_keys, has_screen) = (io::stdin().is_terminal(), io::stdout().is_terminal());
    let piped = || (!has_keys && !cli.plain).then(String::new);
    if let Some(text) = cli.print.clone().or_else(piped) {
        return print::run(&finder, &text, &selector, cli.json);
    }
    if cli.plain || !has_screen || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        plain::run(&finder, &selector)
    } else {
        run::run(finder, selector)
    }
}

/// Prints an error on standard error: a sentence, or one line of JSON.
fn fail(error: &Error, as_json: bool) -> ExitCode {
    if error.message.is_empty() {
        return ExitCode::SUCCESS;
    }
    _ = io::stderr().write_all(ken_tool::error_text("ken-tui", error, as_json).as_bytes());
    ExitCode::from(error.code.exit_status())
}
