//! `ken workspace`: the folders of one's own in which the agent may work.

use std::path::{Path, PathBuf, absolute};

use clap::{Args, Subcommand};
use ken_client::workspace::{self, homes, top_level};
use ken_skills::{Accepted, Project};
use ken_trusted::Folders;
use ken_types::Error;
use ken_types::places::Places;
use serde_json::json;

use crate::globals::Globals;
use crate::output::{ListArgs, print_json, print_line, print_note, print_table};

const EXAMPLES: &str = "Examples:
  cd ~/src/site && ken workspace trust
  ken workspace list";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Workspace {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Let sessions work in a folder: the agent reads it, and changes it after approval
    Trust(Folder),
    /// List the trusted folders
    List(ListArgs),
    /// Let no session work in a folder any more; its files stay as they are
    Forget(Folder),
}

#[derive(Debug, Args)]
struct Folder {
    /// Folder [default: the git repository around the current folder, else the current folder]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(globals: &Globals, args: &Workspace) -> Result<(), Error> {
    if let Some(url) = &globals.url {
        return Err(Error::invalid("--url", format!("the trusted folders are those of this machine, not of {url}")));
    }
    let places = globals.places()?;
    ken_trusted::work_as_owner(&places, std::env::args_os().skip(1))?;
    match &args.command {
        Command::Trust(folder) => trust(&places, folder),
        Command::List(args) => list(&Folders::read(&places.state)?, args),
        Command::Forget(folder) => forget(&places, folder),
    }
}

pub(crate) fn of_new_session(globals: &Globals, named: Option<&Path>) -> Result<Option<PathBuf>, Error> {
    let places = globals.url.is_none().then(|| globals.places()).transpose()?;
    workspace::of_new_session(places.as_ref(), named, &globals.command(), print_note)
}

/// Returns the trusted folder around the current one.
pub(crate) fn around(places: &Places) -> Option<PathBuf> {
    let current = std::env::current_dir().and_then(|folder| folder.canonicalize()).ok()?;
    Folders::read(&places.state).ok()?.around(&current).map(Path::to_owned)
}

fn trust(places: &Places, args: &Folder) -> Result<(), Error> {
    let named = named(args)?;
    let folder = Folders::change(&places.state, |folders| folders.trust(&named, &homes(), &places.own()))?;
    print_line(&format!("trusted: {}", folder.display()))?;
    let accepted = Accepted::read(&places.config.with_file_name("accepted.json")).unwrap_or_default();
    if let Ok(Some(rules)) = Project::of(&folder, &accepted)
        && !rules.state.is_in_force()
    {
        print_note("its AGENTS.md is not used yet: `ken skills accept AGENTS.md` in that folder shows it and asks");
    }
    Ok(())
}

fn list(folders: &Folders, args: &ListArgs) -> Result<(), Error> {
    let state = |folder: &Path| folders.open(folder).map_or_else(|error| error.message, |_| "trusted".to_owned());
    if args.json {
        let of =
            |folder: &PathBuf| json!({"path": folder, "usable": folders.open(folder).is_ok(), "state": state(folder)});
        return folders.trusted.keys().try_for_each(|folder| print_json(&of(folder)));
    }
    if folders.trusted.is_empty() {
        print_note("no folder is trusted: `ken workspace trust DIR`");
        return Ok(());
    }
    let rows = folders.trusted.keys().map(|folder| [folder.display().to_string(), state(folder)]);
    print_table(["FOLDER", "STATE"], rows)
}

/// The folder may be gone, so its path is also taken as it is written.
fn forget(places: &Places, args: &Folder) -> Result<(), Error> {
    let named = named(args)?;
    let written = absolute(&named).unwrap_or_else(|_| named.clone());
    let path = Folders::change(&places.state, |folders| {
        let path = named.canonicalize().ok().filter(|path| folders.trusted.contains_key(path)).unwrap_or(written);
        if folders.trusted.remove(&path).is_none() {
            let error = Error::not_found(format!("{} is not a trusted folder", path.display()));
            return Err(error.hint("`ken workspace list` shows them"));
        }
        Ok(path)
    })?;
    print_line(&format!("forgotten: {}", path.display()))
}

fn named(args: &Folder) -> Result<PathBuf, Error> {
    if let Some(folder) = &args.folder {
        return Ok(folder.clone());
    }
    let current = std::env::current_dir().and_then(|folder| folder.canonicalize());
    let current = current.map_err(|error| Error::invalid("DIR", format!("the current folder: {error}")))?;
    Ok(top_level(&current).unwrap_or(&current).to_owned())
}
