//! `ken help`: prints the options of a command of `ken`, or shows the manual page of a program.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use ken_types::Error;

use crate::external::{exec, program, unknown};
use crate::output::print_line;

#[derive(Debug, Args)]
pub(crate) struct Help {
    /// A command of ken, or the name of a program or page without `ken-`
    pub(crate) topic: Vec<String>,
}

/// Shows the help for a topic. `ken` is the command line of this program, as clap describes it.
pub(crate) fn run(help: &Help, mut ken: clap::Command) -> Result<(), Error> {
    ken.build();
    if let Some(text) = flags(&mut ken, &help.topic) {
        return print_line(text.trim_end());
    }
    let topic = help.topic.join("-");
    let own = topic == "kend" || topic.starts_with("ken.");
    let page = if own { topic.clone() } else { format!("ken-{topic}") };
    if let Some(mut man) = manual(&page) {
        return Err(exec(&mut man));
    }
    let program = program(&topic).ok_or_else(|| unknown(&topic, &ken))?;
    Err(exec(Command::new(program).arg("--help")))
}

/// Returns the help text of `ken` or of one of its commands.
fn flags(ken: &mut clap::Command, topic: &[String]) -> Option<String> {
    let mut command = ken;
    for word in topic {
        command = command.find_subcommand_mut(word)?;
    }
    Some(command.render_help().to_string())
}

/// Returns the command `man PAGE`, or `None` if there is no such page. Pages of this installation or source tree come
/// before those of the system.
fn manual(page: &str) -> Option<Command> {
    let mut path = OsString::new();
    for folder in folders().iter().filter(|folder| folder.is_dir()) {
        path.push(folder);
        path.push(":");
    }
    // The empty entry at the end stands for the system's own folders (man(1), MANPATH).
    path.push(std::env::var_os("MANPATH").unwrap_or_default());
    let man = |args: &[&str]| {
        let mut man = Command::new("man");
        man.args(args).arg(page).env("MANPATH", &path);
        man
    };
    let found = man(&["-w"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success()).then(|| man(&[]))
}

fn folders() -> Vec<PathBuf> {
    let Some(programs) = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())) else {
        return Vec::new();
    };
    vec![programs.join("../share/man"), programs.join("../../man")]
}
