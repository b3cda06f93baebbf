//! `ken-store migrate`: copies all data between a file of SQLite and a database on a server.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use ken_store::tables::sqlite::{beside, keep, temporary_error};
use ken_store::transfer::{self, Copied};
use ken_types::places::Places;
use ken_types::{Code, Error};

use crate::cli::print;
use crate::settings::server_url_of;

/// Copy all data between SQLite and the PostgreSQL database of the settings; no store of this home may run
#[derive(Debug, Parser)]
#[command(name = "ken-store migrate", bin_name = "ken-store migrate", version, after_help = "Manual: ken-postgres(7)")]
struct Migrate {
    /// The home, as for the daemon
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Copy ken.db of this home to the server, whose database has to be empty
    #[arg(long, required_unless_present = "to_sqlite", conflicts_with = "to_sqlite")]
    to_postgres: bool,
    /// Copy the database of the server to a new file
    #[arg(long, value_name = "FILE")]
    to_sqlite: Option<PathBuf>,
}

/// The end of the name of the file that records a database's last change.
const ACKNOWLEDGED: &str = ".acknowledged";
/// The name that `ken.db` has after its data was copied.
const MOVED: &str = "ken.db.migrated";

/// Returns whether the command line asks for a migration.
pub(crate) fn is_requested() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "migrate")
}

pub(crate) fn run() -> ExitCode {
    let args = match Migrate::try_parse_from(std::env::args_os().skip(1)) {
        Ok(args) => args,
        Err(shown) => {
            _ = shown.print();
            return ExitCode::from(u8::try_from(shown.exit_code()).unwrap_or(2));
        }
    };
    print(migrate(&args))
}

fn migrate(args: &Migrate) -> Result<String, Error> {
    let places = Places::here(args.home.as_deref())?;
    let url = server_url_of(&places)?;
    let url = url.ok_or_else(|| {
        Error::new(Code::Invalid, "no database server is set").hint("set KEN_STORE_URL in secrets.env: ken-postgres(7)")
    })?;
    let folder = places.state.join("store");
    match &args.to_sqlite {
        Some(file) => to_sqlite(&url, &folder, file),
        None => to_postgres(&folder, &url),
    }
}

fn summary(copied: &Copied) -> String {
    let rows: u64 = copied.iter().map(|(_, rows)| rows).sum();
    format!("{rows} rows of {} tables were copied and compared", copied.len())
}

fn to_postgres(folder: &Path, url: &str) -> Result<String, Error> {
    let (file, moved) = (folder.join("ken.db"), folder.join(MOVED));
    let copied = transfer::to_postgres(&file, url, folder)?;
    // Beside a file that is copied back later, the old record would say that changes are missing.
    _ = std::fs::rename(beside(&file, ACKNOWLEDGED), beside(&moved, ACKNOWLEDGED));
    // Only now: with the file at its place the home would not start, which is better than to start without its data.
    std::fs::rename(&file, &moved).map_err(|error| {
        let message = format!("the data was copied, but {} cannot be renamed: {error}", file.display());
        Error::unavailable(message).hint("move it away, then start ken")
    })?;
    Ok(format!("{}; the file is now {}", summary(&copied), moved.display()))
}

/// Copies to another name in the same folder, so that a file with the name that is asked for is always whole, even if this process is ended
/// at any time. What it leaves then is removed by the next one.
fn to_sqlite(url: &str, folder: &Path, file: &Path) -> Result<String, Error> {
    if file.exists() {
        return Err(Error::new(Code::Invalid, format!("{}: exists already", file.display())).hint("name a new file"));
    }
    // What has this name is removed, so it is a name that nobody else gives.
    let part = beside(file, ".ken-part");
    let remove_part = || {
        _ = std::fs::remove_file(&part);
        remove_beside(&part);
    };
    remove_part();
    let copied = transfer::to_sqlite(url, folder, &part).and_then(|copied| {
        // What is beside the new file is that of an older one, and would be taken for its log and its last change.
        remove_beside(file);
        keep(&part, file).map_err(|error| temporary_error(file, error)).map(|()| copied)
    });
    remove_part();
    let hint = "to use it, put it into state/store as ken.db, and remove the URL from the settings";
    Ok(format!("{}: {}; {hint}", file.display(), summary(&copied?)))
}

/// Removes the files that belong to a database of this name, but not the database.
fn remove_beside(file: &Path) {
    for suffix in ["-wal", "-shm", ".lock", ACKNOWLEDGED] {
        _ = std::fs::remove_file(beside(file, suffix));
    }
}
