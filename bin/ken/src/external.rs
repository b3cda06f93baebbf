//! `ken X …` runs `ken-X …`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ken_text::nearest;
use ken_tool::find_program;
use ken_types::error::{JSON_ERRORS, reported};
use ken_types::{Code, Error};

use crate::globals::Globals;
use crate::output::{print_bytes, print_note};

/// Replaces this process by the program of the command. `ken` is the command line of this program, as clap describes
/// it.
pub(crate) fn run(globals: &Globals, words: &[OsString], ken: &clap::Command) -> Result<(), Error> {
    let Some((name, args)) = words.split_first() else {
        return Err(Error::invalid("", "no command"));
    };
    let name = name.to_string_lossy();
    let path = program(&name).ok_or_else(|| unknown(&name, ken))?;
    become_program(globals, Command::new(path).args(args))
}

/// Replaces this process by a program, which then works for the same system.
pub(crate) fn become_program(globals: &Globals, command: &mut Command) -> Result<(), Error> {
    if let Some(home) = globals.home()? {
        command.env("KEN_HOME", home);
    }
    Err(exec(command))
}

/// Replaces this process by a program. Returns why that cannot be done. A standard output that was closed is /dev/null by now, and the
/// program could not see it.
pub(crate) fn exec(command: &mut Command) -> Error {
    if let Err(closed) = print_bytes(b"") {
        return closed;
    }
    let error = command.exec();
    cannot_run(command, &error)
}

/// Returns the path of `ken-NAME`, beside `ken` or on PATH. A name with a slash is never a program, so that it cannot
/// name another folder.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let file = Some(format!("ken-{name}")).filter(|_| !name.contains('/'));
    file.and_then(find_program)
}

/// Returns a program of ken, such as `ken-agent`, as a command.
pub(crate) fn installed(program: &str) -> Result<Command, Error> {
    find_program(program).map(Command::new).ok_or_else(|| {
        Error::unavailable(format!("there is no {program} beside ken or on PATH"))
            .hint("install ken again: make install")
    })
}

/// Runs a program of ken to its end, without input.
pub(crate) fn output(command: &mut Command) -> Result<Output, Error> {
    let output = command.env(JSON_ERRORS.0, JSON_ERRORS.1).stdin(Stdio::null()).output();
    output.map_err(|error| cannot_run(command, &error))
}

/// Runs a program of ken as [`output`] does. What it says on standard error before its error is printed at once.
pub(crate) fn output_with_notes(command: &mut Command) -> Result<Output, Error> {
    command.env(JSON_ERRORS.0, JSON_ERRORS.1).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot_run(command, &error))?;
    let stderr = child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut errors = Vec::new();
        for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()).map_while(Result::ok) {
            match line.strip_prefix("ken-coder: ") {
                Some(note) => print_note(note),
                None => errors.extend([line.as_bytes(), b"\n"].concat()),
            }
        }
        errors
    });
    let output = child.wait_with_output().map_err(|error| cannot_run(command, &error))?;
    Ok(Output { stderr: errors.join().unwrap_or_default(), ..output })
}

pub(crate) fn cannot_run(command: &Command, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", command.get_program().display()))
}

/// Runs a program of ken as [`output`] does, and returns what it prints. If it fails, its error is returned.
pub(crate) fn printed(command: &mut Command, otherwise: Code) -> Result<Vec<u8>, Error> {
    let output = output(command)?;
    if output.status.success() { Ok(output.stdout) } else { Err(error_of(command, &output.stderr, otherwise)) }
}

/// Returns the error that a program has written to standard error as one line of JSON. If it is no such line, returns its text
/// as an error with the code `otherwise`.
pub(crate) fn error_of(program: &Command, stderr: &[u8], otherwise: Code) -> Error {
    reported(stderr).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(stderr);
        let program = Path::new(program.get_program()).file_name().unwrap_or_default().display();
        Error::new(otherwise, format!("{program}: {}", text.trim()))
    })
}

/// What other programs call a command.
const HABITS: [(&str, &str); 28] = [
    ("ask", "ken chat TEXT"),
    ("auth", "ken setup"),
    ("commit", "ken chat TEXT"),
    ("continue", "ken chat -c TEXT"),
    ("delete", "ken sessions rm SESSION"),
    ("exec", "ken chat TEXT"),
    ("export", "ken sessions export SESSION"),
    ("forget", "ken sessions rm SESSION"),
    ("history", "ken sessions"),
    ("init", "ken setup"),
    ("keys", "ken setup"),
    ("list", "ken sessions"),
    ("login", "ken setup"),
    ("ls", "ken sessions"),
    ("man", "ken help TOPIC"),
    ("memory", "ken sessions memory SESSION off"),
    ("models", "ken model list"),
    ("prompt", "ken chat TEXT"),
    ("ps", "ken status"),
    ("remind", "ken chat TEXT"),
    ("resume", "ken chat -s SESSION TEXT"),
    ("rm", "ken sessions rm SESSION"),
    ("run", "ken chat TEXT"),
    ("search", "ken knowledge search WORDS"),
    ("serve", "ken up"),
    ("stats", "ken usage"),
    ("templates", "ken chat -t NAME TEXT"),
    ("version", "ken --version"),
];

/// Returns the error for a command that is neither built in nor a program.
pub(crate) fn unknown(name: &str, ken: &clap::Command) -> Error {
    let names = names(ken);
    let error = Error::not_found(format!("there is no command `{name}`: no ken-{name} beside ken or on PATH"));
    if name.contains(char::is_whitespace) {
        return error.hint("`ken chat TEXT` asks the agent");
    }
    if let Some((_, meant)) = HABITS.iter().find(|(habit, _)| *habit == name) {
        return error.hint(format!("did you mean `{meant}`?"));
    }
    match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `ken {near}`?")),
        None => error.hint("`ken --help` lists the commands"),
    }
}

/// Returns the names of all commands: those of `ken`, and the programs `ken-X` beside it and on PATH.
fn names(ken: &clap::Command) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ken.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned()));
    for folder in beside.into_iter().chain(std::env::split_paths(&path)) {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let programs = files.filter_map(|file| Some(file.file_name().to_str()?.strip_prefix("ken-")?.to_owned()));
        names.extend(programs.filter(|name| !name.contains('.')));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_program_keeps_its_code_and_plain_text_gets_one() {
        let ken_x = Command::new("/usr/bin/ken-x");
        let error = error_of(&ken_x, br#"{"error":{"code":"not_found","message":"no such run"}}"#, Code::Internal);
        assert_eq!(error, Error::not_found("no such run"));
        let crashed = error_of(&ken_x, b"thread 'main' panicked\n", Code::Internal);
        assert_eq!(crashed, Error::internal("ken-x: thread 'main' panicked"));
    }
}
