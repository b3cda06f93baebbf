//! `ken backup` and `ken restore`: everything that makes a system in one file, and back.

mod archive;
mod below;
mod manifest;
mod rotation;
mod scope;
mod stage;
mod swap;
mod unpack;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::access::denied;
use crate::config;
use crate::external::{installed, printed};
use crate::output::{format_count, print_line, print_note};
use crate::progress::during;
use archive::Written;
use manifest::Manifest;
use rotation::{COPY, PART, Target};
pub(crate) use scope::replaced;
use scope::{INNER_SECRET, OF_HOST, Root, STORE, Unit, is_secret, present};
use stage::Stage;
use swap::{Plan, check_stopped};

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// New file to write; or a folder, in which the file is named after the time; or - for standard output
    pub(crate) file: PathBuf,
    /// Remove the oldest backups in the folder, so that N remain
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Include the secrets; only with -, so that a program can encrypt what is written: ken backup --secrets - | age -p >FILE
    #[arg(long)]
    secrets: bool,
    /// Check an existing backup instead, and change nothing; - reads standard input
    #[arg(long, conflicts_with_all = ["keep", "secrets"])]
    verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// File that `ken backup` has written, or - for standard input
    #[arg(required_unless_present = "finish")]
    pub(crate) file: Option<PathBuf>,
    /// Put the backup in the place of existing data, which is kept beside it
    #[arg(long)]
    replace: bool,
    /// Finish a restore that was interrupted while it replaced the data
    #[arg(long, conflicts_with_all = ["file", "replace"])]
    finish: bool,
}

pub(crate) fn backup(places: &Places, args: &Backup) -> Result<(), Error> {
    if args.verify {
        let manifest = during("checking the backup", || read(&args.file, None))?;
        return print_line(&format!("{}: ok, {}", args.file.display(), summary(&manifest)));
    }
    let database = database(places)?;
    if args.file == Path::new("-") {
        return to_stdout(places, database.as_deref(), args.secrets);
    }
    if args.secrets {
        let file = args.file.display();
        return Err(Error::invalid("--secrets", format!("would be written to {file} as they are"))
            .hint(format!("encrypt them: ken backup --secrets - | age -p >{file}.age")));
    }
    let target = Target::of(&args.file, args.keep)?;
    let written = during("copying the data", || to_file(places, database.as_deref(), &target))?;
    print_line(&format!("{}: {}", target.file.display(), summary(&written.manifest)))?;
    print_what_is_missing(places, &written);
    target.rotate()
}

/// Returns the file of the database. `None` if the data is on a database server, whose own tools save it.
fn database(places: &Places) -> Result<Option<PathBuf>, Error> {
    let database = places.state.join(STORE).join("ken.db");
    if let Err(error) = database.try_exists() {
        return Err(denied(&database, &error));
    }
    if database.is_file() {
        Ok(Some(database))
    } else if config::is_on_server(places)? {
        Ok(None)
    } else {
        Err(Error::invalid(database.display().to_string(), "there is no database"))
    }
}

fn summary(manifest: &Manifest) -> String {
    let files = format_count(manifest.files.len() as u64, "file", "files");
    let secrets = if manifest.secrets { "with secrets" } else { "without secrets" };
    format!("{files}, {} bytes, {}, ken {}, {secrets}", manifest.bytes(), manifest.created, manifest.ken)
}

/// Says on standard error what the backup lacks, so that nobody finds out when it is needed.
fn print_what_is_missing(places: &Places, written: &Written) {
    if !written.secrets.is_empty() {
        print_note(&format!("not in the backup: {} (--secrets)", written.secrets.join(", ")));
    }
    for name in &written.left_out {
        print_note(&format!("not in the backup: {name}, which is neither a file nor a folder"));
    }
    if !written.manifest.has_database() {
        print_note("not in the backup: the data on the database server: pg_dump saves it, see ken-postgres(7)");
    }
    let workspace = places.state.join("workspace");
    let holds = |name: &str| std::fs::read_dir(workspace.join(name)).is_ok_and(|mut entries| entries.next().is_some());
    if holds("repos") || holds("projects") {
        print_note(&format!("not in the backup: the files of the workspace, {}", workspace.display()));
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", path.display()))
}

/// Writes to a temporary name, and renames the file when all of it is on the disk. A file with its name is always complete.
fn to_file(places: &Places, database: Option<&Path>, target: &Target) -> Result<Written, Error> {
    let part = target.beside(PART);
    let write = || {
        let copy = copy_of(database, &target.beside(COPY))?;
        _ = std::fs::remove_file(&part);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        let file = file.map_err(|error| failed(&part, &error))?;
        let written = archive::write(BufWriter::with_capacity(BUFFER, &file), places, copy, false)?;
        let kept = file.sync_all().and_then(|()| std::fs::rename(&part, &target.file));
        let kept = kept.and_then(|()| File::open(&target.folder)?.sync_all());
        kept.map_err(|error| failed(&target.file, &error))?;
        Ok(written)
    };
    write().inspect_err(|_| _ = std::fs::remove_file(&part))
}

const BUFFER: usize = 256 * 1024;

/// A pipe is taken to lead to a program that encrypts, or to another machine; a file would hold the secrets as they are.
fn to_stdout(places: &Places, database: Option<&Path>, secrets: bool) -> Result<(), Error> {
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(Error::invalid("-", "a backup is not for a terminal").hint("write it to a file, or into a pipe"));
    }
    let about = stdout.as_fd().try_clone_to_owned().map(File::from).and_then(|file| file.metadata());
    if secrets && about.is_ok_and(|about| about.is_file()) {
        return Err(Error::invalid("--secrets", "would be written to a file as they are")
            .hint("encrypt them: ken backup --secrets - | age -p >FILE.age"));
    }
    // Fails if there is no standard output.
    ken_tool::print(b"")?;
    let target = Target::of(&places.state.join(".backup"), None)?;
    let written = during("copying the data", || {
        let copy = copy_of(database, &target.beside(COPY))?;
        archive::write(BufWriter::with_capacity(BUFFER, Output(stdout.lock())), places, copy, secrets)
    })?;
    print_what_is_missing(places, &written);
    Ok(())
}

/// Standard output. Its errors name it, because they would otherwise look like those of the file that is being copied.
struct Output<'a>(io::StdoutLock<'a>);

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(unwritten)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(unwritten)
    }
}

fn unwritten(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

/// Copies the database, checks the copy, and opens it. Its name is removed at once, so that nothing is left if this process is
/// killed.
fn copy_of(database: Option<&Path>, to: &Path) -> Result<Option<File>, Error> {
    let Some(database) = database else { return Ok(None) };
    _ = std::fs::remove_file(to);
    store(&[OsStr::new("--backup"), database.as_os_str(), to.as_os_str()])?;
    let copy = File::open(to).map_err(|error| failed(to, &error));
    _ = std::fs::remove_file(to);
    copy.map(Some)
}

/// Runs ken-store with these arguments, because only ken-store knows the format of the database.
fn store(args: &[&OsStr]) -> Result<(), Error> {
    printed(installed("ken-store")?.args(args), Code::Unavailable).map(drop)
}

/// Reads a backup, or what is in the pipe, to its end.
fn read(file: &Path, stage: Option<&Stage>) -> Result<Manifest, Error> {
    let from: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        // Opening a FIFO would wait, but a FIFO can be one's own, such as that of `<(age -d FILE)`.
        Box::new(File::open(file).map_err(|error| Error::invalid(file.display().to_string(), error.to_string()))?)
    };
    let at =
        |error: Error| Error { at: error.at.filter(|at| !at.is_empty()).or(Some(file.display().to_string())), ..error };
    unpack::read(BufReader::with_capacity(BUFFER, from), stage).map_err(at)
}

pub(crate) fn restore(places: &Places, args: &Restore) -> Result<(), Error> {
    check_stopped(places)?;
    let _lock = stage::lock(places, args.file.is_some())?;
    match (Plan::left(places)?, &args.file) {
        (Some(plan), None) => carry_out(places, &plan),
        (Some(_), Some(_)) => {
            Err(Error::conflict("a restore was interrupted while it replaced the data").hint("ken restore --finish"))
        }
        (None, Some(file)) => put_back(places, file, args.replace),
        (None, None) => Err(Error::conflict("no restore was interrupted")),
    }
}

fn put_back(places: &Places, file: &Path, replace: bool) -> Result<(), Error> {
    let there = present(places).map_err(|error| failed(&places.state, &error))?;
    if let Some(unit) = there.first().filter(|_| !replace) {
        let why = format!("there is a system already: {}", unit.path(places).display());
        return Err(Error::conflict(why).hint("--replace puts the backup in its place, and keeps it beside"));
    }
    let stage = Stage::create(places)?;
    let planned = during("unpacking the backup", || unpack(places, file, &stage)).and_then(|plan| {
        plan.write(places)?;
        // A system that was started meanwhile has either not seen the plan, and is seen here, or it has, and ends.
        check_stopped(places).inspect_err(|_| _ = std::fs::remove_file(places.unfinished_restore()))?;
        Ok(plan)
    });
    // Nothing has been replaced yet.
    let plan = planned.inspect_err(|_| _ = stage::remove(places))?;
    carry_out(places, &plan)
}

/// Unpacks a backup beside the data and checks it.
fn unpack(places: &Places, file: &Path, stage: &Stage) -> Result<Plan, Error> {
    let manifest = read(file, Some(stage))?;
    check_backend(places, &manifest)?;
    if manifest.has_database() {
        let database = stage::folder(Root::State, places).join(STORE).join("ken.db");
        store(&[OsStr::new("--check"), database.as_os_str()])?;
    }
    if !manifest.secrets {
        keep_secret(places, stage)?;
    }
    for path in OF_HOST {
        stage.link(places, Root::State, Path::new(path))?;
    }
    stage.sync().map_err(|error| failed(&places.state, &error))?;
    let is_kept = |unit: &Unit| !manifest.secrets && is_secret(&format!("{}/{}", unit.root.name(), unit.name));
    Plan::new(places, is_kept).map_err(|error| failed(&places.state, &error))
}

/// Fails if the home could not start with the database that the backup has: its settings name a server for the data.
fn check_backend(places: &Places, manifest: &Manifest) -> Result<(), Error> {
    let unpacked = |path: PathBuf| stage::folder(Root::Config, places).join(path.file_name().unwrap_or_default());
    let secrets = if manifest.secrets { unpacked(places.secrets()) } else { places.secrets() };
    // A configuration with errors is brought back as it is.
    let is_on_server = config::is_on_server_with(&unpacked(places.config.clone()), &secrets).unwrap_or(false);
    match (manifest.has_database(), is_on_server) {
        (true, true) => {
            let why = "the backup has its data in SQLite, and the settings of this home name a database server";
            Err(Error::conflict(why).hint(
                "restore it into another home (ken --home DIR restore FILE); from there `ken-store migrate --to-postgres` copies it to an empty \
                 database: ken-postgres(7)",
            ))
        }
        (false, true) => {
            print_note("the backup has no database: its data is on a database server, see ken-postgres(7)");
            Ok(())
        }
        (false, false) => {
            print_note(
                "the backup has no database, because its data is on a database server: set KEN_STORE_URL in secrets.env before `ken up`, or ken \
                 starts without data",
            );
            Ok(())
        }
        (true, false) => Ok(()),
    }
}

/// Takes over the secret that is among other files, if the backup has no secrets.
fn keep_secret(places: &Places, stage: &Stage) -> Result<(), Error> {
    let path = places.state.join(INNER_SECRET);
    let Ok(text) = std::fs::read(&path) else { return Ok(()) };
    let mut to = stage.create_file(Root::State, Path::new(INNER_SECRET), text.len() as u64, 0o600)?;
    to.write_all(&text).map_err(|error| failed(&path, &error))
}

fn carry_out(places: &Places, plan: &Plan) -> Result<(), Error> {
    let kept = plan.carry_out(places).map_err(|error| {
        let why = format!("the restore was interrupted while it replaced the data: {error}");
        Error::unavailable(why).hint("mend that, then: ken restore --finish")
    })?;
    let kept: Vec<String> = kept.iter().map(|folder| folder.display().to_string()).collect();
    match kept.as_slice() {
        [] => print_line("restored"),
        kept => print_line(&format!("restored; the previous data is in {}", kept.join(" and "))),
    }
}
