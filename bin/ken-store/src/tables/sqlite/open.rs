//! Opens the database: takes its lock, checks whether this release can read it, and applies the settings of its connections.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use ken_types::Error;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::files::{Acknowledged, beside, length, log_path, record_loss, refuse, temporary_error};
use super::migrations::{APPLICATION_ID, CHANGE_NUMBERS_VERSION, STEPS, VERSION, add_functions};

/// The number of the first SQLite version in which resetting the WAL loses no writes.
const OLDEST_LIBRARY: i32 = 3_051_003;
const STATEMENTS: usize = 160;
/// How long a transaction waits for another program that writes. Callers wait as long, so after this they are told.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

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

/// A database that was opened for writing.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    pub(crate) acknowledged: Acknowledged,
    pub(crate) newest: ChangeNumber,
    /// Whether the last store did not end by itself: it has left its log.
    pub(crate) is_unclean: bool,
}

/// Opens the database for writing, and creates or migrates it. The caller holds the lock.
pub(crate) fn writer(path: &Path) -> Result<Opened, Error> {
    check_library(path)?;
    let fresh = check_header(path)?;
    let known = Acknowledged::read(path)?;
    let is_unclean = log_path(path).exists();
    if fresh {
        check_is_new(path, known)?;
        create_file(path)?;
    }
    let (mut connection, newest) = connect(path, fresh)?;
    if newest < known {
        // Copying the log opens and closes it, which no process may do that has a connection to the database.
        drop(connection);
        record_loss(path, newest, known)
            .map_err(|error| temporary_error(path, format_args!("a loss cannot be recorded: {error}")))?;
        connection = connect(path, fresh)?.0;
    }
    migrate(path, &connection)?;
    touch_roots(&connection).map_err(|error| unusable(path, &error))?;
    let newest = ChangeNumber::read(&connection).map_err(|error| unusable(path, &error))?;
    // After the loss was recorded, so that a kill between the two records it again.
    let acknowledged = Acknowledged::create(path, newest.sum())
        .map_err(|error| temporary_error(path, format_args!("its last change cannot be recorded: {error}")))?;
    Ok(Opened { connection, acknowledged, newest, is_unclean })
}

/// Fails if there is no database, but the files beside it show that there was one.
fn check_is_new(path: &Path, known: u64) -> Result<(), Error> {
    let what = if path.exists() { "the file is empty" } else { "the file is missing" };
    let name = path.file_name().unwrap_or_default().display();
    let leftover = match (known, length(&log_path(path))) {
        (0, 0) => return Ok(()),
        (0, bytes) => format!("{name}-wal beside it has {bytes} bytes"),
        (known, _) => format!("{name}.acknowledged beside it knows of change {known}"),
    };
    let hint = format!(
        "put the file back, or restore a backup; to start empty, move {name}, {name}-wal and {name}.acknowledged away"
    );
    Err(refuse(path, format_args!("{what}, but {leftover}")).hint(hint))
}

/// Opens a connection for writing. Returns it with the number of the newest change.
fn connect(path: &Path, fresh: bool) -> Result<(Connection, u64), Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| unusable(path, &error))?;
    // If a check fails, closing the connection must not change the files.
    set_checkpoint_on_close(&connection, false).map_err(|error| unusable(path, &error))?;
    check_version(path, &connection)?;
    // If SQLite has no permission to write a file, it opens it for reading, and would only report that at the first change.
    if connection.is_readonly("main").map_err(|error| unusable(path, &error))? {
        return Err(read_only(path));
    }
    prepare_writer(&connection, fresh).map_err(|error| unusable(path, &error))?;
    let newest = ChangeNumber::read(&connection).map_err(|error| unusable(path, &error))?;
    Ok((connection, newest.sum()))
}

/// Sets whether closing the last connection copies the log into the database and removes the log.
pub(crate) fn set_checkpoint_on_close(connection: &Connection, checkpoint: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !checkpoint).map(drop)
}

/// The number of a change. Every change raises one of the two numbers, so their sum grows with each. Most changes add to the system's stream
/// anyway, whose last event always stays; a counter of their own would cost each of them a page of the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChangeNumber {
    /// The number of the newest event of the system's stream.
    events: u64,
    /// The number of changes without such an event.
    others: u64,
}

/// The name under which the changes without an event are counted, in the table of counters.
const CHANGES: &str = "changes";

impl ChangeNumber {
    /// Reads the number of the newest change. Before the migrations, tables may be missing, and an earlier release has counted all changes in
    /// the table of counters.
    fn read(connection: &Connection) -> rusqlite::Result<ChangeNumber> {
        let events = if version(connection)? >= CHANGE_NUMBERS_VERSION { newest_event(connection)? } else { 0 };
        if !connection.table_exists(None, "counters")? {
            return Ok(ChangeNumber { events, others: 0 });
        }
        let sql = "SELECT value FROM counters WHERE name = ?1";
        let others = connection.query_row(sql, [CHANGES], |row| row.get::<_, i64>(0)).optional()?;
        Ok(ChangeNumber { events, others: others.unwrap_or_default().cast_unsigned() })
    }

    /// Numbers the change that is about to be committed.
    pub(crate) fn next(self, connection: &Connection) -> rusqlite::Result<ChangeNumber> {
        let events = newest_event(connection)?;
        if events > self.events {
            return Ok(ChangeNumber { events, ..self });
        }
        let others = self.others + 1;
        let sql = "INSERT INTO counters (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = ?2";
        connection.prepare_cached(sql)?.execute((CHANGES, others.cast_signed()))?;
        Ok(ChangeNumber { others, ..self })
    }

    pub(crate) fn sum(self) -> u64 {
        self.events + self.others
    }
}

fn newest_event(connection: &Connection) -> rusqlite::Result<u64> {
    let mut newest = connection.prepare_cached("SELECT number FROM system_events ORDER BY number DESC LIMIT 1")?;
    let newest = newest.query_row([], |row| row.get::<_, i64>(0)).optional()?;
    Ok(newest.unwrap_or_default().cast_unsigned())
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

/// Makes a connection to a copy one that changes it as the store would. A copy in which something fails is removed, so nothing is synced, and
/// no file beside it holds what is deleted.
pub(crate) fn prepare_copy(path: &Path, connection: &Connection) -> Result<(), Error> {
    check_version(path, connection)?;
    let set = || -> rusqlite::Result<()> {
        prepare(connection)?;
        connection.pragma_update(None, "journal_mode", "MEMORY")?;
        connection.pragma_update(None, "synchronous", "OFF")?;
        connection.pragma_update(None, "secure_delete", true)
    };
    set().map_err(|error| unusable(path, &error))?;
    migrate(path, connection)
}

/// Reads the whole database and checks that it is sound, and that it has all changes that were acknowledged. `full` also compares indexes
/// with tables. A store may use the database meanwhile, but not in this process, because this opens and closes the file.
pub(crate) fn check(path: &Path, full: bool) -> Result<(), Error> {
    let fresh = check_header(path)?;
    // Read before the database, because a running store writes the database first.
    let known = Acknowledged::read(path)?;
    if fresh {
        check_is_new(path, known)?;
        return Err(refuse(path, "there is no database"));
    }
    let is_unused = !is_locked(path) && length(&log_path(path)) == 0;
    let connection = if is_unused { open_unused(path)? } else { reader(path)? };
    check_version(path, &connection)?;
    let newest = ChangeNumber::read(&connection).map_err(|error| unusable(path, &error))?.sum();
    let pragma = if full { "PRAGMA integrity_check(1)" } else { "PRAGMA quick_check(1)" };
    let damage: String = connection.query_row(pragma, [], |row| row.get(0)).map_err(|error| unusable(path, &error))?;
    if damage != "ok" {
        return Err(refuse(path, format_args!("damaged: {}", damage.lines().next().unwrap_or_default())));
    }
    if newest < known {
        let what = format_args!("its newest change is {newest}, but change {known} had been acknowledged");
        return Err(refuse(path, what).hint("restore a backup, or put the newer files back: ken-store(8), Restoring"));
    }
    Ok(())
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

/// Checks the header of the file before SQLite opens it, because SQLite might write to it. Returns true if there is no database yet. This
/// opens and closes the file, so no connection to it may be open in this process (see `files`).
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
    let journal = self::length(&log_path(path));
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
    // What is deleted must not stay readable in unused parts of the file.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.busy_timeout(LOCK_TIMEOUT)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    connection.pragma_update(None, "cache_size", -16_384)
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

/// Returns the names of all tables that have pages.
pub(crate) fn table_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut tables = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")?;
    let names = tables.query_map([], |row| row.get(0))?;
    names.collect()
}

/// Reads the first page of every table, so that serious damage is found before work is accepted.
fn touch_roots(connection: &Connection) -> rusqlite::Result<()> {
    for name in table_names(connection)? {
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
        let connection = writer(&dir.path().join("ken.db")).unwrap().connection;
        let pragma = |name: &str| -> String {
            let sql = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
            connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        assert_eq!((pragma("synchronous").as_str(), pragma("journal_mode").as_str()), ("2", "wal"));
    }

    /// Every change has a higher number than the one before, whether or not it adds an event.
    #[test]
    fn each_change_has_a_higher_number() {
        let dir = tempfile::tempdir().unwrap();
        let connection = writer(&dir.path().join("ken.db")).unwrap().connection;
        let event = |number: i64| {
            connection.execute("INSERT INTO system_events (number, at, body) VALUES (?1, 0, '{}')", [number]).unwrap();
        };
        let mut number = ChangeNumber::read(&connection).unwrap();
        let mut numbers = vec![number.sum()];
        for event_number in [None, None, Some(1), Some(4), None, Some(5)] {
            event_number.map(event);
            number = number.next(&connection).unwrap();
            numbers.push(number.sum());
        }
        assert_eq!(numbers, [0, 1, 2, 3, 6, 7, 8]);
        assert_eq!(ChangeNumber::read(&connection).unwrap().sum(), 8);
    }

    /// A loss is seen at the start that migrates, too: the events must not make up for changes that are missing.
    #[test]
    fn a_database_of_an_earlier_release_is_compared_by_its_own_numbers() {
        for (acknowledged, is_lost) in [(50, false), (51, true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("ken.db");
            let connection = writer(&path).unwrap().connection;
            let earlier = CHANGE_NUMBERS_VERSION - 1;
            let sql = format!(
                "DROP INDEX schedules_by_stream;
                 ALTER TABLE schedules DROP COLUMN stream;
                 INSERT INTO counters (name, value) VALUES ('changes', 50);
                 INSERT INTO system_events (number, at, body) VALUES (9, 0, '{{}}'), (10, 0, '{{}}');
                 PRAGMA user_version = {earlier};"
            );
            connection.execute_batch(&sql).unwrap();
            drop(connection);
            Acknowledged::create(&path, acknowledged).unwrap();
            assert_eq!(writer(&path).unwrap().newest.sum(), 60);
            assert_eq!(beside(&path, ".changes-lost").exists(), is_lost, "{acknowledged}");
            assert_eq!(Acknowledged::read(&path).unwrap(), 60);
        }
    }
}
