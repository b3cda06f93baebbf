//! `ken skills`: lists the skills and project rules that can be given to agents, and records which of them a person has
//! accepted. See ken-skills(5).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ken_skills::{PROJECT_FILE, Project, Skill, Sources};
use ken_text::visible;
use ken_types::Error;
use ken_types::places::Places;
use serde_json::{Value, json};

use crate::output::{
    ListArgs, Outcome, fail_each, is_guarded, print_json, print_line, print_note, print_table, print_text,
};
use crate::{config, typed};

const EXAMPLES: &str = "Examples:
  ken skills list
  ken skills show research";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Skills {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the skills and the project rules, and whether each is in force
    List(ListArgs),
    /// Print a skill, or the project rules (AGENTS.md), as agents get it
    Show(Show),
    /// Put a skill or the project rules in force in their current form
    Accept(Accept),
    /// Withdraw the acceptance of a skill or the project rules
    Reject(Named),
    /// Check whether SKILL.md files can be read; exit status 2 if one cannot
    Check(Files),
}

#[derive(Debug, Args)]
struct Named {
    /// Name of the skill, or AGENTS.md, or the path of an AGENTS.md below
    name: String,
}

#[derive(Debug, Args)]
struct Show {
    /// Name of the skill, or AGENTS.md, or the path of an AGENTS.md below
    name: String,
    /// One of the skill's other files
    file: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Accept {
    /// A skill, AGENTS.md, the path of an AGENTS.md below, or with `ken accept` an MCP server
    pub(crate) name: String,
    /// Accept without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Accept without asking, but only what has this SHA-256
    #[arg(long, value_name = "SHA256", conflicts_with = "yes")]
    pub(crate) digest: Option<String>,
}

#[derive(Debug, Args)]
struct Files {
    /// SKILL.md files, or their folders [default: all skills]
    files: Vec<PathBuf>,
}

pub(crate) fn run(places: impl Fn() -> Result<Places, Error>, skills: &Skills) -> Outcome {
    match &skills.command {
        Command::List(args) => list(&sources_here(&places()?), args)?,
        Command::Show(args) => show(&sources_here(&places()?), args)?,
        Command::Accept(args) => return accept(&sources_here(&places()?), args),
        Command::Reject(named) => reject(&sources_here(&places()?), &named.name)?,
        Command::Check(files) if files.files.is_empty() => return check_all(&sources(&places()?)),
        Command::Check(files) => return check(&files.files),
    }
    Ok(ExitCode::SUCCESS)
}

/// Accepts the skill or the project rules with this name. Returns `None` if there is no skill with this name.
pub(crate) fn accept_named(places: &Places, args: &Accept) -> Result<Option<ExitCode>, Error> {
    let sources = sources_here(places);
    if folder_of_rules(&args.name)?.is_none() && !is_skill(&sources, &args.name)? {
        return Ok(None);
    }
    accept(&sources, args).map(Some)
}

/// Returns where the skills are, and the project rules of the trusted folder around the current one, or else of the workspace.
fn sources_here(places: &Places) -> Sources {
    Sources::of(&places.config, crate::workspace::around(places).unwrap_or_else(|| workspace(places)))
}

/// Returns where the skills and project rules of this system are.
pub(crate) fn sources(places: &Places) -> Sources {
    Sources::of(&places.config, workspace(places))
}

/// Returns the folder of the workspace. If the configuration cannot be read, the default applies; kend reports the
/// error.
pub(crate) fn workspace(places: &Places) -> PathBuf {
    let workspace = config::effective_config(&places.config).unwrap_or_default().workspace;
    let variable = std::env::var_os("KEN_WORKSPACE").map(PathBuf::from);
    workspace.folder(&places.state, variable)
}

/// A skill or the project rules, found by name.
enum Found {
    Skill(Skill),
    Project(Project),
}

impl Found {
    fn text(&self) -> String {
        let (text, files) = match self {
            Found::Skill(skill) => (&skill.text, skill.files.as_slice()),
            Found::Project(project) => (&project.text, [].as_slice()),
        };
        let mut text = format!("{}\n", text.trim_end());
        for (number, file) in files.iter().enumerate() {
            let head = if number == 0 { "\nThe skill has these files, which agents can read too:\n" } else { "" };
            text.push_str(&format!("{head}  {} ({} bytes, sha256 {})\n", file.path, file.bytes, file.sha256));
        }
        text
    }
}

fn show(sources: &Sources, args: &Show) -> Result<(), Error> {
    let found = find_text(sources, &args.name)?;
    // On a terminal a person looks at it, perhaps in order to accept it; in a pipe it is what agents get.
    let print = |text: &str| if is_guarded() { print_text(&visible(text)) } else { print_text(text) };
    let Some(path) = &args.file else {
        return print(&found.text());
    };
    let content = match &found {
        Found::Skill(skill) => skill.open(path)?,
        Found::Project(_) => return Err(Error::not_found(format!("{PROJECT_FILE} is a single file"))),
    };
    let text = String::from_utf8(content);
    print(&text.map_err(|_| Error::invalid(path.clone(), "the file is not text"))?)
}

/// Returns the first text with this name: the one that is in use or waits for acceptance.
fn find_text(sources: &Sources, name: &str) -> Result<Found, Error> {
    let accepted = sources.accepted()?;
    if let Some(folder) = folder_of_rules(name)? {
        let project = sources.project(folder.as_deref(), &accepted)?;
        return project
            .map(Found::Project)
            .ok_or_else(|| Error::not_found(format!("there is no {name}, or it is empty")));
    }
    let listing = sources.skills(&accepted);
    if let Some(skill) = listing.skills.into_iter().find(|skill| skill.name == name) {
        return Ok(Found::Skill(skill));
    }
    match listing.broken.into_iter().find(|broken| is_in_folder(&broken.file, name)) {
        Some(broken) => Err(at_file(&broken.file, broken.error)),
        None => {
            Err(Error::not_found(format!("there is no skill `{name}`")).hint("`ken skills list` shows which there are"))
        }
    }
}

/// Whether there is a skill with this name, even one that cannot be read.
fn is_skill(sources: &Sources, name: &str) -> Result<bool, Error> {
    let listing = sources.skills(&sources.accepted()?);
    let is_listed = listing.skills.iter().any(|skill| skill.name == name);
    Ok(is_listed || listing.broken.iter().any(|broken| is_in_folder(&broken.file, name)))
}

fn is_in_folder(file: &Path, name: &str) -> bool {
    file.parent().and_then(Path::file_name).is_some_and(|own| own == name)
}

/// Returns the folder in the name of a file with project rules: `None` inside for that of the project, and `None` for the name of
/// a skill.
fn folder_of_rules(name: &str) -> Result<Option<Option<PathBuf>>, Error> {
    let path = Path::new(name);
    match path.parent() {
        _ if path.file_name().is_none_or(|file| file != PROJECT_FILE) => Ok(None),
        Some(folder) if !folder.as_os_str().is_empty() => {
            // It may be gone, and what was accepted in it is rejected.
            let folder = std::path::absolute(folder).map_err(|error| Error::invalid(name, error.to_string()))?;
            Ok(Some(Some(ken_trusted::resolved(&folder))))
        }
        _ => Ok(Some(None)),
    }
}

/// Adds the path of the file to the error's `at`.
fn at_file(file: &std::path::Path, error: Error) -> Error {
    let place = match &error.at {
        Some(at) if !at.is_empty() => format!("{}: {at}", file.display()),
        _ => file.display().to_string(),
    };
    error.at(place)
}

fn list(sources: &Sources, args: &ListArgs) -> Result<(), Error> {
    let accepted = sources.accepted()?;
    let listing = sources.skills(&accepted);
    let project = sources.project(None, &accepted);
    if args.json {
        listing.skills.iter().try_for_each(print_json)?;
        listing.broken.iter().try_for_each(print_json)?;
        return match project {
            Ok(Some(project)) => print_json(&with_name(&project)),
            Ok(None) => Ok(()),
            Err(error) => print_json(&json!({"name": PROJECT_FILE, "error": error})),
        };
    }
    let of_project = project.as_ref().ok().and_then(Option::as_ref).map(|project| {
        let about = format!("project rules for the coding worker: {}", project.file.display());
        [PROJECT_FILE.to_owned(), project.state.name().to_owned(), about]
    });
    let rows = listing.skills.iter().map(row).chain(of_project);
    print_table(["NAME", "STATE", "DESCRIPTION"], rows)?;
    for broken in &listing.broken {
        print_note(&format!("left out: {}: {}", broken.file.display(), broken.error));
    }
    if let Err(error) = &project {
        print_note(&format!("left out: {error}"));
    }
    let waits = matches!(&project, Ok(Some(project)) if !project.state.is_in_force());
    if waits || listing.waiting().next().is_some() {
        print_note("new and changed texts are not used: `ken skills show NAME`, then `ken accept NAME`");
    }
    Ok(())
}

fn with_name(project: &Project) -> Value {
    let mut value = json!(project);
    value["name"] = PROJECT_FILE.into();
    value
}

fn row(skill: &Skill) -> [String; 3] {
    [skill.name.clone(), skill.state.name().to_owned(), shortened(&skill.description)]
}

/// Shortens a text so that it fits on a line.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Shows the text and accepts exactly what was shown. If the text has changed since then, it is not accepted.
fn accept(sources: &Sources, args: &Accept) -> Outcome {
    let found = find_text(sources, &args.name)?;
    let name = &args.name;
    let (state, sha256) = match &found {
        Found::Skill(skill) => (skill.state, &skill.sha256),
        Found::Project(project) => (project.state, &project.sha256),
    };
    if state.is_in_force() {
        print_line(&format!("{name} is in force already ({})", state.name()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(digest) = &args.digest {
        if digest != sha256 {
            let error = Error::conflict(format!("{name} is another one now: sha256 {sha256}"));
            return Err(error.hint(format!("look at it: ken accept {name}")));
        }
    } else if !args.yes {
        print_text(&visible(&found.text()))?;
        if let Found::Skill(skill) = &found {
            show_files(skill)?;
        }
        if !confirmed(name, sha256)? {
            return Ok(ExitCode::from(1));
        }
    }
    sources.accept(|accepted| {
        match &found {
            Found::Skill(skill) => accepted.skills.insert(skill.name.clone(), sha256.clone()),
            Found::Project(project) => accepted.projects.insert(project.file.display().to_string(), sha256.clone()),
        };
        Ok(())
    })?;
    print_line(&format!("{name} is in force: sha256 {sha256}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints all other files of a skill, because agents can read them as they read its text.
fn show_files(skill: &Skill) -> Result<(), Error> {
    for file in &skill.files {
        print_text(&visible(&format!("\n==> {} <==\n", file.path)))?;
        match String::from_utf8(skill.open(&file.path)?) {
            Ok(text) => print_text(&visible(&format!("{}\n", text.trim_end())))?,
            Err(_) => print_text("(not text; agents cannot read it)\n")?,
        }
    }
    Ok(())
}

/// Asks the person at the terminal. Returns false if nobody is there who sees the question and can answer it.
fn confirmed(name: &str, digest: &str) -> Result<bool, Error> {
    if !typed::is_person() {
        print_note(&format!("nobody is there to ask: `ken accept {name} --digest {digest}` puts it in force"));
        return Ok(false);
    }
    typed::is_agreed("ken: may agents use this? [y/N] ")
}

fn reject(sources: &Sources, name: &str) -> Result<(), Error> {
    // The file may be gone, and would be in force again when git brings it back.
    let folder = folder_of_rules(name)?.map(|folder| folder.unwrap_or_else(|| sources.workspace.clone()));
    sources.accept(|accepted| {
        let removed = match &folder {
            Some(folder) => accepted.projects.remove(&folder.join(PROJECT_FILE).display().to_string()),
            None => accepted.skills.remove(name),
        };
        removed.map(drop).ok_or_else(|| Error::not_found(format!("{name} was not accepted")))
    })
}

fn check_all(sources: &Sources) -> Outcome {
    let listing = sources.skills(&sources.accepted()?);
    for skill in &listing.skills {
        let file = skill.file.as_ref();
        let place = file.map_or("built in".into(), |file| file.to_string_lossy());
        print_line(&format!("{place}: {}", skill.name))?;
    }
    let broken = listing.broken.into_iter();
    Ok(fail_each(broken.map(|broken| at_file(&broken.file, broken.error))))
}

fn check(files: &[PathBuf]) -> Outcome {
    let mut errors = Vec::new();
    for file in files {
        let file = if file.is_dir() { &file.join("SKILL.md") } else { file };
        match Skill::read(file) {
            Ok(skill) => print_line(&format!("{}: {}", file.display(), skill.name))?,
            Err(error) => errors.push(at_file(file, error)),
        }
    }
    Ok(fail_each(errors))
}
