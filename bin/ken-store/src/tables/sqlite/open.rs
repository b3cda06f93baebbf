//! Opens the database: takes its lock, checks whether this release can read it, and applies the settings of its connections.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ken_types::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::files::{Files, Found, beside, refuse};
use super::migrations::{APPLICATION_ID, STEPS, VERSION, add_functions};

/// The number of the first SQLite version in which resetting the WAL loses no writes.
const OLDEST_LIBRARY: i32 = 3_051_003;
const STATEMENTS: usize = 160;

/// Returns an error for a problem that may disappear by itself (exit status 75).
fn temporary_error(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::unavailable(format!("{}: {what}", path.display()))
}

/// Locks the file beside the database that contains the process id of the running store.
pub(crate) fn lock(database: &Path) -> Result<File, Error> {
    let path = beside(database, ".lock");
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    let mut file = options.map_err(|error| refuse(&path, format_args!("cannot be opened: {error}")))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            _ = file.read_to_string(&mut owner);
            let owner = owner.trim();
            return Err(temporary_error(database, format_args!("another ken-store has it (pid {owner})"))
                .hint("stop that one first"));
        }
        Err(TryLockError::Error(error)) => {
            return Err(refuse(&path, format_args!("cannot be locked: {error}")));
        }
    }
    // The process id is only information for people; the lock is what counts.
    _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Opens the database for writing, and creates or migrates it. The caller holds the lock.
pub(crate) fn writer(path: &Path) -> Result<(Connection, Files, Found), Error> {
    check_library(path)?;
    let fresh = check_header(path)?;
    let mut files = Files::of(path);
    let mut found = files.examine()?;
    if fresh {
        create_file(path)?;
    }
    files.keep_journal(&mut found)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| unusable(path, &error))?;
    // If a check below fails, closing the connection must not change the files.
    set_checkpoint_on_close(&connection, false).map_err(|error| unusable(path, &error))?;
    check_version(path, &connection)?;
    // If SQLite has no permission to write a file, it opens it for reading, and would only report that at the first change.
    if connection.is_readonly("main").map_err(|error| unusable(path, &error))? {
        return Err(read_only(path));
    }
    prepare_writer(&connection, fresh).map_err(|error| unusable(path, &error))?;
    if !fresh {
        let newest = newest_change(&connection).map_err(|error| unusable(path, &error))?;
        files.check_change(newest)?;
    }
    // The marker is written before the first write to the log. With it, a frame that was cut short by a kill can be distinguished from a
    // damaged one.
    let marked = files.mark_running(&found);
    marked.map_err(|error| temporary_error(path, format_args!("its marker cannot be written: {error}")))?;
    if files.has_no_log() {
        begin_log(&connection).map_err(|error| unusable(path, &error))?;
    }
    migrate(path, &connection)?;
    touch_roots(&connection).map_err(|error| unusable(path, &error))?;
    if let Some(complaint) = found.problem() {
        tracing::error!(frames_lost = found.frames_lost, "{}: {complaint}", path.display());
    }
    Ok((connection, files, found))
}

/// Sets whether closing the last connection copies the log into the database and removes the log.
pub(crate) fn set_checkpoint_on_close(connection: &Connection, checkpoint: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !checkpoint).map(drop)
}

/// Returns the number of the newest change in the system's stream; 0 if there is none.
pub(crate) fn newest_change(connection: &Connection) -> rusqlite::Result<u64> {
    // The table may still have its name from an older schema, because this runs before the migration.
    let tables = "SELECT name FROM sqlite_schema WHERE name IN ('system_events', 'happenings')";
    let table: Option<String> = connection.query_row(tables, [], |row| row.get(0)).optional()?;
    let Some(table) = table else { return Ok(0) };
    let newest = format!("SELECT coalesce(max(number), 0) FROM {table}");
    connection.query_row(&newest, [], |row| row.get::<_, i64>(0).map(i64::cast_unsigned))
}

/// Opens an existing and migrated database for checkpoints.
pub(crate) fn checkpointer(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        prepare(&connection)?;
        // Copied pages must be synced before the log is restarted.
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(connection)
    };
    open().map_err(|error| unusable(path, &error))
}

pub(crate) fn reader(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        prepare(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(|error| unusable(path, &error))
}

/// Reads the whole database and checks that it is sound. `full` also compares indexes with tables. While a store is running, it changes the
/// log and its index, so these are not examined.
pub(crate) fn check(path: &Path, full: bool) -> Result<(), Error> {
    let (fresh, files, in_use) = (check_header(path)?, Files::of(path), is_locked(path));
    let found = match in_use {
        true => Found::default(),
        false => files.examine()?,
    };
    if fresh {
        return Err(refuse(path, "there is no database"));
    }
    if found.frames_lost > 0 {
        // Opening the database would rebuild the index of the log, and the knowledge about lost frames would be gone.
        return Err(refuse(path, found.problem().unwrap_or_default()).hint("ken-store(8), Restoring"));
    }
    let connection = match !in_use && files.has_no_log() {
        true => open_unused(path)?,
        false => reader(path)?,
    };
    check_version(path, &connection)?;
    let newest = newest_change(&connection).map_err(|error| unusable(path, &error))?;
    files.check_change(newest)?;
    let pragma = if full { "PRAGMA integrity_check(1)" } else { "PRAGMA quick_check(1)" };
    let damage: String = connection.query_row(pragma, [], |row| row.get(0)).map_err(|error| unusable(path, &error))?;
    match (damage.as_str(), found.problem()) {
        ("ok", None) => Ok(()),
        ("ok", Some(complaint)) => Err(refuse(path, complaint).hint("ken-store(8), Restoring")),
        (damage, _) => Err(refuse(path, format_args!("damaged: {}", damage.lines().next().unwrap_or_default()))),
    }
}

/// Opens a database that has no log and that nobody writes. Does not create the files that SQLite normally puts beside a database.
fn open_unused(path: &Path) -> Result<Connection, Error> {
    let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(format!("file:{name}?immutable=1"), flags).map_err(|error| unusable(path, &error))
}

/// Returns whether a store holds the lock of the database.
fn is_locked(path: &Path) -> bool {
    let file = File::open(beside(path, ".lock"));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn check_library(path: &Path) -> Result<(), Error> {
    if rusqlite::version_number() >= OLDEST_LIBRARY {
        return Ok(());
    }
    let version = rusqlite::version();
    Err(refuse(path, format_args!("SQLite {version} is too old, 3.51.3 is the oldest that can be trusted with it")))
}

/// Checks the header of the file before SQLite opens it, because SQLite might write to it. Returns true if there is no database yet.
fn check_header(path: &Path) -> Result<bool, Error> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(refuse(path, format_args!("cannot be opened: {error}"))),
    };
    let mut header = Vec::with_capacity(100);
    (&mut file)
        .take(100)
        .read_to_end(&mut header)
        .map_err(|error| refuse(path, format_args!("cannot be read: {error}")))?;
    if header.is_empty() {
        return Ok(true);
    }
    let word = |at: usize| -> Option<u32> {
        let bytes = header.get(at..at + 4)?;
        Some(bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
    };
    let magic = header.starts_with(b"SQLite format 3\0");
    let (Some(pages), Some(id), true) = (word(28), word(68), magic) else {
        return Err(refuse(path, "damaged, or not a database").hint("restore a backup, or move the file away"));
    };
    if id != APPLICATION_ID.cast_unsigned() {
        return Err(refuse(path, "a database of another program (its application_id is not ken's)")
            .hint("move it away, or name another file"));
    }
    let page = word(16).map_or(0, |word| u64::from(word >> 16));
    let page = if page == 1 { 65_536 } else { page };
    let length = file.metadata().map_or(0, |meta| meta.len());
    let journal = std::fs::metadata(beside(path, "-wal")).map_or(0, |meta| meta.len());
    // While there is a log, the file can be shorter than its header says. Without a log, it cannot.
    if journal == 0 && length < u64::from(pages) * page {
        return Err(refuse(path, format_args!("damaged: {length} bytes of {} are there", u64::from(pages) * page))
            .hint("restore a backup"));
    }
    Ok(false)
}

fn create_file(path: &Path) -> Result<(), Error> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(drop).map_err(|error| refuse(path, format_args!("cannot be created: {error}")))
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    Ok(version as usize)
}

fn check_version(path: &Path, connection: &Connection) -> Result<(), Error> {
    let found = version(connection).map_err(|error| unusable(path, &error))?;
    if found <= VERSION {
        return Ok(());
    }
    let message = format!("the database has version {found}, this ken-store knows versions up to {VERSION}");
    Err(refuse(path, message).hint("start the newer ken-store, or restore a backup made before it"))
}

/// Applies the settings that all connections have.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without this setting, SQLite with STAT4 plans a statement again for each new value of a parameter.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "mmap_size", 0)
}

fn prepare_writer(connection: &Connection, fresh: bool) -> rusqlite::Result<()> {
    prepare(connection)?;
    if fresh {
        // The id is written before the write-ahead log is enabled, so that it is in the database file even if the next step fails.
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    connection.pragma_update(None, "cache_size", -16_384)
}

/// Restarts the empty log, so that its index records that the log was empty. An index that SQLite has rebuilt from a log with a damaged
/// first frame looks different.
fn begin_log(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn migrate(path: &Path, connection: &Connection) -> Result<(), Error> {
    let from = version(connection).map_err(|error| unusable(path, &error))?;
    add_functions(connection).map_err(|error| unusable(path, &error))?;
    for (number, step) in STEPS.iter().enumerate().skip(from) {
        let sql = format!("BEGIN IMMEDIATE; {step} PRAGMA user_version = {}; COMMIT", number + 1);
        connection.execute_batch(&sql).map_err(|error| unusable(path, &error))?;
        tracing::info!(version = number + 1, "the database was migrated");
    }
    Ok(())
}

/// Reads the first page of every table, so that serious damage is found before work is accepted.
fn touch_roots(connection: &Connection) -> rusqlite::Result<()> {
    let mut roots = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")?;
    let names: Vec<String> = roots.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for name in names {
        let sql = format!("SELECT 1 FROM \"{name}\" LIMIT 1");
        connection.prepare(&sql)?.exists([])?;
    }
    Ok(())
}

fn read_only(path: &Path) -> Error {
    refuse(path, "cannot be written").hint("the file and its directory must belong to the user that runs ken-store")
}

fn unusable(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            refuse(path, format_args!("damaged: {error}")).hint("restore a backup: ken-store(8)")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => read_only(path),
        _ => temporary_error(path, format_args!("cannot be used: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With NORMAL, an answered change would be on the disk only after the next checkpoint.
    #[test]
    fn the_writer_syncs_every_commit() {
        let dir = tempfile::tempdir().unwrap();
        let (connection, ..) = writer(&dir.path().join("ken.db")).unwrap();
        let pragma = |name: &str| -> String {
            let sql = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        assert_eq!((pragma("synchronous").as_str(), pragma("journal_mode").as_str()), ("2", "wal"));
    }
}
