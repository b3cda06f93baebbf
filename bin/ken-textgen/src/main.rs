//! ken-textgen: local text generation. See ken-textgen(1).

mod answer;
mod cli;
mod lines;
mod parameters;
mod single;
mod vector;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use ken_textgen::aliases::Aliases;
use ken_textgen::check::Checked;
use ken_textgen::embed::Embedder;
use ken_textgen::load::{Opened, Plan};
use ken_textgen::memory;
use ken_textgen::simd::Isa;
use ken_tool::{Failure, Output};
use ken_types::Error;

use cli::{Cli, Parsed};

fn main() -> ExitCode {
    memory::configure_allocator();
    let mut output = Output::open();
    let result = Parsed::from_arguments().map_err(Failure::from).and_then(|parsed| match parsed {
        Parsed::Run(cli) => run(&cli, &mut output),
        Parsed::Print(text) => {
            output.text(&text);
            Ok(())
        }
    });
    match result.and_then(|()| output.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("ken-textgen"),
    }
}

fn run(cli: &Cli, output: &mut Output) -> Result<(), Failure> {
    if cli.list_models {
        list(&Aliases::from_environment()?, output);
        return Ok(());
    }
    if cli.check {
        output.text(&answer::line(&Checked::of(&folder(cli)?)?));
        return Ok(());
    }
    if cli.embed {
        return vector::answer(cli, &Embedder::open(&folder(cli)?)?, output);
    }
    if cli.lines {
        return Ok(lines::answer(cli, open(cli)?, output)?);
    }
    let request = single::request(cli)?;
    Ok(single::answer(cli, open(cli)?, request, output)?)
}

fn open(cli: &Cli) -> Result<Opened, Error> {
    let plan = Plan {
        folder: folder(cli)?,
        int8: cli.int8,
        threads: cli.threads.map(usize::from),
        isa: cli.isa.unwrap_or_else(Isa::detect),
    };
    let terminal = std::io::stderr().is_terminal();
    let progress = |doing: &str| {
        if terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[Kken-textgen: {doing} …"); // only for people
        }
    };
    let opened = plan.open(progress);
    if terminal {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    opened
}

fn folder(cli: &Cli) -> Result<PathBuf, Error> {
    match &cli.model_dir {
        Some(folder) => Ok(folder.clone()),
        None => Aliases::from_environment()?.find(cli.model.as_deref()),
    }
}

fn list(aliases: &Aliases, output: &mut Output) {
    for alias in aliases.list() {
        output.text(&answer::line(&alias));
    }
}
