//! `ken X …` is `ken-X …`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ken_tool::find_program;
use ken_types::Error;

use crate::cli::Cli;
use crate::output::Outcome;

pub(crate) fn run(cli: &Cli, words: &[OsString]) -> Outcome {
    let Some((name, args)) = words.split_first() else {
        return Err(Error::invalid("", "no command"));
    };
    let mut file = OsString::from("ken-");
    file.push(name);
    let shown = name.to_string_lossy();
    // A name, never a way to another folder.
    let path = Some(file).filter(|_| !shown.contains('/')).and_then(find_program);
    let path = path.ok_or_else(|| {
        Error::not_found(format!(
            "there is no command `{shown}`: no ken-{shown} beside ken or on PATH"
        ))
        .hint("`ken --help` lists the commands")
    })?;
    let mut command = Command::new(&path);
    command.args(args);
    if let Some(home) = cli.home()? {
        command.env("KEN_HOME", home);
    }
    let error = command.exec();
    Err(Error::unavailable(format!("{}: {error}", path.display())))
}
