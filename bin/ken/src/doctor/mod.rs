//! `ken doctor`: reports what is wrong, or soon will be, and how to fix it. Only with `--fix` it changes anything: modes of files, and
//! sockets that were left behind, never what a file contains.

mod data;
mod host;
mod model;
mod rules;
pub(crate) mod sandbox;
mod setup;
mod system;
mod texts;
mod tools;
mod units;
mod work;

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ken_text::visible_line;
use ken_types::config::Config;
use ken_types::ops::Op;
use ken_types::places::Places;
use ken_types::{Code, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::external::{installed, output, printed};
use crate::globals::Globals;
use crate::output::{Outcome, print_json, print_line};
use crate::progress::Progress;
use crate::{client, config};
use system::Running;

const CALL_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    /// First mend what needs no decision, and print each change: modes of files and folders, and sockets that were left behind
    #[arg(long)]
    pub(crate) fix: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// A short, stable name for use by programs.
    id: &'static str,
    severity: Severity,
    /// The file, address or part that has the problem.
    #[serde(rename = "where")]
    place: String,
    pub(crate) why: String,
    /// A command to run, or what to change.
    fix: String,
    #[serde(skip)]
    repair: Option<Repair>,
}

impl Finding {
    fn new(
        id: &'static str,
        severity: Severity,
        place: impl ToString,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding { id, severity, place: place.to_string(), why: why.into(), fix: fix.into(), repair: None }
    }
}

/// What `--fix` does about a problem. Done again, it finds nothing left to do.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Repair {
    /// Set the mode of a file or folder.
    Mode(PathBuf, u32),
    Remove(PathBuf),
}

impl Repair {
    /// Does it, and returns what has changed.
    fn make(&self) -> io::Result<String> {
        match self {
            Repair::Mode(path, mode) => {
                let before = std::fs::metadata(path)?.mode() & 0o7777;
                std::fs::set_permissions(path, Permissions::from_mode(*mode))?;
                Ok(format!("mode {before:04o} -> {mode:04o}"))
            }
            Repair::Remove(path) => std::fs::remove_file(path).map(|()| "removed".to_owned()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    /// Nothing is wrong, but something that ken can do is not set up.
    Note,
    Warning,
    Error,
}

impl Severity {
    fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// The problems found so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, id: &'static str, place: impl ToString, why: impl Into<String>, fix: impl Into<String>) {
        self.0.push(Finding::new(id, Severity::Error, place, why, fix));
    }

    fn warning(&mut self, id: &'static str, place: impl ToString, why: impl Into<String>, fix: impl Into<String>) {
        self.0.push(Finding::new(id, Severity::Warning, place, why, fix));
    }

    fn note(&mut self, id: &'static str, place: impl ToString, why: impl Into<String>, fix: impl Into<String>) {
        self.0.push(Finding::new(id, Severity::Note, place, why, fix));
    }

    /// The problem that was found last can be mended without a decision.
    fn repair(&mut self, repair: Repair) {
        if let Some(last) = self.0.last_mut() {
            last.repair = Some(repair);
        }
    }
}

/// Exit status 0 when nothing is wrong, whatever notes there are, 1 for warnings only, 2 for errors. `words` are the command line for this,
/// with which root runs it again as the owner of the system.
pub(crate) fn run(globals: &Globals, args: &Doctor, words: impl IntoIterator<Item = OsString>) -> Outcome {
    let places = globals.places()?;
    ken_trusted::work_as_owner(&places, words)?;
    let mut findings = examine(&places);
    if args.fix && mend(&findings, args.json)? {
        findings = examine(&places);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in &findings {
        if args.json {
            print_json(finding)?;
            continue;
        }
        let Finding { id, place, why, fix, .. } = finding;
        // A finding can quote what others have written, such as an MCP server that nobody has accepted.
        print_line(&visible_line(&format!("{:7} {id}: {place}: {why}; {fix}", finding.severity.name())))?;
    }
    let worst = findings.first().map(|finding| finding.severity);
    if worst.is_none_or(|worst| worst == Severity::Note) && !args.json {
        print_line("nothing is wrong")?;
    }
    Ok(match worst {
        None | Some(Severity::Note) => ExitCode::SUCCESS,
        Some(Severity::Warning) => ExitCode::from(1),
        Some(Severity::Error) => ExitCode::from(2),
    })
}

/// Mends what can be mended. Returns whether anything has changed.
fn mend(findings: &[Finding], json: bool) -> Result<bool, Error> {
    let mut has_changed = false;
    for Finding { id, place, repair, .. } in findings {
        let Some(repair) = repair else { continue };
        let done = repair.make().map_err(|error| Error::unavailable(format!("{place}: {error}")))?;
        has_changed = true;
        if json {
            print_json(&json!({"fixed": id, "where": place, "change": done}))?;
        } else {
            print_line(&visible_line(&format!("fixed   {id}: {place}: {done}")))?;
        }
    }
    Ok(has_changed)
}

fn examine(places: &Places) -> Vec<Finding> {
    let progress = Progress::start("checking the configuration");
    let mut findings = Findings::default();
    setup::check(places, &mut findings);
    // An unreadable file has been reported already. The other checks then use the defaults.
    let config = config::effective_config(&places.config).unwrap_or_default();
    setup::check_exposure(places, &config, &mut findings);
    progress.set("checking this machine");
    host::check(places, &mut findings);
    findings.0.extend(sandbox::find());
    // What stands in the place of the state directory has been reported already.
    if places.state.is_dir() || !places.state.exists() {
        texts::check(places, &mut findings);
        rules::check(places, &config.workspace, &mut findings);
    }
    units::check(places, &mut findings);
    progress.set("checking the parts");
    let running = system::check(places, &config, &mut findings);
    // While the system runs, only ken-model knows which keys it has.
    if running != Running::Hanging {
        model::check(places, &config, running == Running::Answering, &mut findings);
    }
    if running != Running::Hanging {
        tools::check(places, running == Running::Answering, &mut findings);
    }
    if running == Running::Answering {
        setup::check_running(places, &mut findings);
        work::check(places, &mut findings);
    }
    progress.set("checking the data");
    data::check(places, running, &mut findings);
    data::check_retention(places, config.retention, &mut findings);
    data::check_backups(places, &mut findings);
    findings.0
}

/// Calls a part. One that does not answer is reported by another check.
fn call<O: Op>(places: &Places, part: &str, args: &O::Args) -> Option<O::Reply> {
    call_within::<O>(places, part, args, CALL_TIMEOUT)
}

fn call_within<O: Op>(places: &Places, part: &str, args: &O::Args, limit: Duration) -> Option<O::Reply> {
    client::call::<O>(places, part, args, Some(limit)).ok()
}

/// Runs a program of ken for this system, and returns the JSON that it prints.
fn json_of<T: DeserializeOwned>(places: &Places, program: &str, args: &[&str]) -> Result<T, Error> {
    let printed = output_of(places, program, args)?;
    serde_json::from_slice(&printed).map_err(|error| Error::internal(format!("{program}: {error}")))
}

/// Runs a program of ken for this system, and returns what it prints.
fn output_of(places: &Places, program: &str, args: &[&str]) -> Result<Vec<u8>, Error> {
    let mut command = installed(program)?;
    command.args(args);
    match (&places.home, places.config.parent()) {
        (Some(home), _) => _ = command.env("KEN_HOME", home),
        // Root works as the owner of the system without the variable by which the unit of the service names this folder.
        (None, Some(folder)) if folder.ends_with("ken") => {
            command.envs(folder.parent().map(|parent| ("XDG_CONFIG_HOME", parent)));
        }
        _ => {}
    }
    printed(&mut command, Code::Invalid)
}

/// Runs a program of ken. Returns whether it succeeded, and all of its output. Returns `None` if it cannot be run.
fn ask(program: &str, args: &[&std::ffi::OsStr]) -> Option<(bool, String)> {
    let output = output(installed(program).ok()?.args(args)).ok()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text += &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
}

/// Returns the size of a file, or of everything in a folder, in bytes.
fn bytes_of(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(about) if about.is_dir() => {
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| bytes_of(&entry.path())).sum()
        }
        about => about.map_or(0, |about| about.len()),
    }
}

fn is_enabled(config: &Config, part: &str) -> bool {
    config.part.get(part).is_some_and(|part| part.enabled)
}
