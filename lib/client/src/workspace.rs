//! The folder of the person's own in which a new session works.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};

use ken_text::visible_line;
use ken_trusted::{Folders, Owner};
use ken_types::Error;
use ken_types::places::Places;
use nix::unistd::{User, geteuid};

/// Returns the folder for a new session: the one that the person names, or else the trusted folder around the current one. At a
/// terminal, the person is asked once about the git repository around the current folder. `None` stands for the workspace of
/// the system. `places` is that of the gateway; without it, the gateway is elsewhere and decides alone.
///
/// # Errors
/// `invalid` if the named folder is not trusted, or if the list of trusted folders cannot be read or written for it.
pub fn of_new_session(
    places: Option<&Places>,
    named: Option<&Path>,
    ken: &str,
    say: impl Fn(&str),
) -> Result<Option<PathBuf>, Error> {
    let places = decided_here(places);
    if let Some(named) = named {
        return of_name(places, named, ken).map(Some);
    }
    let Some((places, folders, current)) = places.and_then(here) else { return Ok(None) };
    if let Some(folder) = folders.around(&current) {
        let usable = usable(&folders, folder);
        // A person who only asks something is not stopped by it. The agent cannot enter the folder.
        return Ok(usable.inspect_err(|why| say(why)).ok());
    }
    let Some(top) = top_level(&current).filter(|top| !folders.declined.contains(*top)) else {
        return Ok(None);
    };
    let is_allowed = folders.clone().trust(top, &homes(), &places.own()).is_ok();
    if !is_allowed || !stdin().is_terminal() || !stderr().is_terminal() {
        return Ok(None);
    }
    match ask(top, ken)? {
        Some(true) => Folders::change(&places.state, |folders| folders.trust(top, &homes(), &places.own()).map(Some)),
        Some(false) => Folders::change(&places.state, |folders| {
            folders.declined.insert(top.to_owned());
            Ok(None)
        }),
        None => Ok(None),
    }
}

/// Returns the trusted folder around the current one, without asking about another: for a session that is new only because the one that
/// was named does not exist. The error says why the agent cannot enter the folder.
pub fn trusted_around(places: Option<&Places>) -> Result<Option<PathBuf>, String> {
    let Some((_, folders, current)) = decided_here(places).and_then(here) else { return Ok(None) };
    folders.around(&current).map(|folder| usable(&folders, folder)).transpose()
}

/// What root writes there, the user of the system could not read, and what root may enter, that user may not. The gateway decides.
fn decided_here(places: Option<&Places>) -> Option<&Places> {
    places.filter(|places| Owner::other(&places.state).is_none())
}

/// Returns the trusted folders and the current one. Whoever may only talk to the gateway cannot read its state, and `ken doctor` names a
/// damaged list.
fn here(places: &Places) -> Option<(&Places, Folders, PathBuf)> {
    let current = std::env::current_dir().and_then(|folder| folder.canonicalize()).ok()?;
    Some((places, Folders::read(&places.state).ok()?, current))
}

fn usable(folders: &Folders, folder: &Path) -> Result<PathBuf, String> {
    let opened = folders.open(folder);
    opened
        .map(|_| folder.to_owned())
        .map_err(|error| format!("the agent does not work in this folder: {}", error.message))
}

fn of_name(places: Option<&Places>, named: &Path, ken: &str) -> Result<PathBuf, Error> {
    let path = named.canonicalize();
    let path =
        path.map_err(|error| Error::invalid("--workspace", format!("{} cannot be used: {error}", named.display())))?;
    if let Some(places) = places {
        let opened = Folders::read(&places.state)?.open(&path);
        opened.map_err(|error| {
            let trust = format!("`{ken} workspace trust {}`", path.display());
            Error::invalid("--workspace", error.message).hint(trust)
        })?;
    }
    Ok(path)
}

/// Asks the person at the terminal. `None` if the question was not answered.
fn ask(folder: &Path, ken: &str) -> Result<Option<bool>, Error> {
    let name = visible_line(&folder.display().to_string());
    let question = format!(
        "ken: may the agent work in {name}?\n\
         It can then read every file there. It changes files and runs commands there\n\
         only after you have approved each, or as the rules in ken.toml allow.\n\
         If not, it works in a folder of its own.\n\
         [y]es, [n]o (`{ken} workspace trust` changes that later): "
    );
    let mut to = stderr();
    let failed = |error: std::io::Error| Error::unavailable(format!("the terminal: {error}"));
    to.write_all(question.as_bytes()).and_then(|()| to.flush()).map_err(failed)?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "n" | "no" => Some(false),
        _ => None,
    })
}

/// Returns the top folder of the git repository that contains a folder. Git is not asked, because the folder is not trusted yet.
pub fn top_level(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok())
}

/// Returns the home folders of the user, by the environment and by the list of users.
pub fn homes() -> Vec<PathBuf> {
    let user = User::from_uid(geteuid()).ok().flatten().map(|user| user.dir);
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    home.into_iter().chain(user).collect()
}
