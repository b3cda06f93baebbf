//! Copies all data from a database of one kind to an empty one of the other. The copy is one transaction, and its tables are compared with
//! the original before that is committed.

use std::path::Path;

use ken_types::ops::hosts::{HostRecord, HostState};
use ken_types::{Code, Error, hex};
use sha2::{Digest, Sha256};

use crate::ops::index_again;
use crate::tables::postgres::Postgres;
use crate::tables::sqlite::Sqlite;
use crate::tables::{Backend, Cell, Tables};

/// The tables with data, and their keys. A table comes after those to which it refers.
const TABLES: [(&str, &str); 44] = [
    ("scopes", "scope"),
    ("streams", "stream"),
    ("entries", "place"),
    ("instances", "stream"),
    ("sessions", "stream"),
    ("events", "event"),
    ("submissions", "submission"),
    ("exchanges", "submission"),
    ("documents", "document"),
    ("knowledge", "entry"),
    ("jobs", "job"),
    ("runs", "submission"),
    ("system_events", "number"),
    ("public_streams", "stream"),
    ("appends", "append"),
    ("places", "place"),
    ("producers", "stream, id"),
    ("calls", "slot"),
    ("blobs", "blob"),
    ("pieces", "blob, start"),
    ("blob_uses", "blob, event"),
    ("notes", "stream, kind, name"),
    ("approvals", "approval"),
    ("schedules", "schedule"),
    ("schedule_runs", "run"),
    ("counters", "name"),
    ("facts", "name"),
    ("updates", "id"),
    ("allowed_users", "number"),
    ("chat_groups", "id"),
    ("pairings", "pairing"),
    ("outbox", "message"),
    ("governing_rules", "name"),
    ("telemetry", "submission"),
    ("vectors", "entry"),
    ("vector_usage", "day, model"),
    ("knowledge_uses", "entry, submission"),
    ("budgets", "scope"),
    ("reservations", "id"),
    ("outputs", "blob, submission"),
    ("purges", "stream"),
    ("usage", "submission"),
    ("tips", "stream, digest"),
    ("keys", "id"),
];

/// The tables that a new database fills by itself. What is in them is replaced.
const FILLED: [&str; 2] = ["facts", "counters"];

/// The number of values, and about the number of bytes, that are inserted with one statement.
const MAX_VALUES: usize = 4_096;
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// What was copied: the number of rows of each table.
pub type Copied = Vec<(&'static str, u64)>;

/// Copies a file to the database of a URL. `state` is the folder with the id of this host. No store of this home may run, and no other host
/// may be active.
pub fn to_postgres(file: &Path, url: &str, state: &Path) -> Result<Copied, Error> {
    if !file.is_file() {
        return Err(Error::new(Code::Invalid, format!("{}: there is no database", file.display())));
    }
    let mut source = Sqlite::open(file)?;
    // Closed last, which copies its log into the file, so that the file alone has everything.
    let _log = source.writer()?;
    let mut reader = source.reader()?;
    let mut writer = Postgres::open(url, state)?.writer()?;
    let copied = writer.begin().and_then(|_| {
        writer.tables().lift_limits()?;
        check_alone(writer.tables())?;
        let mut copied = Copied::new();
        reader.read(false, &mut |from| {
            copied = copy(from, writer.tables())?;
            Ok(())
        })?;
        writer.commit().map(|()| copied)
    });
    writer.rollback();
    writer.leave();
    copied
}

/// Copies the database of a URL to a new file.
pub fn to_sqlite(url: &str, state: &Path, file: &Path) -> Result<Copied, Error> {
    let mut source = Postgres::open(url, state)?.writer()?;
    // A transaction that writes, so that no store changes anything meanwhile.
    let copied = source.begin().and_then(|_| {
        source.tables().lift_limits()?;
        check_alone(source.tables())?;
        let mut target = Sqlite::open(file)?.writer()?;
        target.begin()?;
        let copied = copy(source.tables(), target.tables())?;
        target.commit().map(|()| copied)
    });
    source.rollback();
    source.leave();
    copied
}

/// Reads all rows of the database of a URL. Returns its name, and the number of rows of each table. Changes nothing, and may be used while
/// stores run.
pub fn check_server(url: &str) -> Result<(String, Copied), Error> {
    let mut read = Copied::new();
    let name = Postgres::read_whole(url, &mut |tables| {
        for (table, key) in TABLES {
            read.push((table, read_table(tables, table, &tables.columns(table)?, key, &mut |_| Ok(()))?.0));
        }
        Ok(())
    })?;
    Ok((name, read))
}

fn copy(from: &dyn Tables, to: &dyn Tables) -> Result<Copied, Error> {
    for (table, key) in TABLES {
        check_empty(to, table, key)?;
    }
    let mut copied = Copied::new();
    for (table, key) in TABLES {
        let rows = copy_and_compare(from, to, table, key)
            .map_err(|error| Error { message: format!("table {table}: {}", error.message), ..error })?;
        copied.push((table, rows));
    }
    to.continue_keys()?;
    index_again(from, to)?;
    Ok(copied)
}

fn copy_and_compare(from: &dyn Tables, to: &dyn Tables, table: &str, key: &str) -> Result<u64, Error> {
    let columns = from.columns(table)?;
    let (rows, digest) = copy_table(from, to, table, &columns, key)?;
    let (found, of_copy) = read_table(to, table, &columns, key, &mut |_| Ok(()))?;
    if (rows, &digest) != (found, &of_copy) {
        let message = format!("the copy is not equal: {rows} rows ({digest}), {found} rows ({of_copy})");
        return Err(Error::internal(message).hint("nothing was changed"));
    }
    Ok(rows)
}

/// Fails if another host works with the database.
fn check_alone(tables: &dyn Tables) -> Result<(), Error> {
    let is_other = |host: &&HostRecord| !host.here && host.state == HostState::Active;
    match tables.hosts()?.hosts.iter().find(is_other) {
        None => Ok(()),
        Some(host) => {
            Err(Error::unavailable(format!("the host {} works with this database", host.name))
                .hint("stop ken there first"))
        }
    }
}

fn check_empty(to: &dyn Tables, table: &str, key: &str) -> Result<(), Error> {
    if FILLED.contains(&table) {
        return to.clear(table);
    }
    let columns = to.columns(table)?;
    to.each_row(table, &columns, key, &mut |_| {
        let message = format!("the database has data already: table {table} is not empty");
        Err(Error::new(Code::Invalid, message).hint("name an empty database, or: DROP SCHEMA ken CASCADE"))
    })
}

fn copy_table(
    from: &dyn Tables,
    to: &dyn Tables,
    table: &str,
    columns: &[String],
    key: &str,
) -> Result<(u64, String), Error> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    let read = read_table(from, table, columns, key, &mut |row| {
        bytes += row.iter().map(size).sum::<usize>();
        rows.push(row);
        if rows.len() * columns.len() >= MAX_VALUES || bytes >= MAX_BYTES {
            to.insert_rows(table, columns, &rows)?;
            rows.clear();
            bytes = 0;
        }
        Ok(())
    })?;
    if !rows.is_empty() {
        to.insert_rows(table, columns, &rows)?;
    }
    Ok(read)
}

/// Gives each row of a table to `see`. Returns their number, and a digest of them.
fn read_table(
    tables: &dyn Tables,
    table: &str,
    columns: &[String],
    key: &str,
    see: &mut dyn FnMut(Vec<Cell>) -> Result<(), Error>,
) -> Result<(u64, String), Error> {
    let (mut count, mut hash) = (0, Sha256::new());
    tables.each_row(table, columns, key, &mut |row| {
        count += 1;
        add(&mut hash, &row);
        see(row)
    })?;
    Ok((count, hex::encode(hash.finalize().get(..8).unwrap_or_default())))
}

fn size(cell: &Cell) -> usize {
    match cell {
        Cell::Text(text) => text.len(),
        Cell::Bytes(bytes) => bytes.len(),
        _ => 8,
    }
}

/// Adds a row to a digest: for each value a letter for its type, its length, and its bytes.
fn add(hash: &mut Sha256, row: &[Cell]) {
    for cell in row {
        let (letter, bytes) = match cell {
            Cell::Null => (b'n', Vec::new()),
            Cell::Whole(number) => (b'w', number.to_be_bytes().to_vec()),
            Cell::Real(number) => (b'r', number.to_bits().to_be_bytes().to_vec()),
            Cell::Text(text) => (b't', text.as_bytes().to_vec()),
            Cell::Bytes(bytes) => (b'b', bytes.clone()),
        };
        hash.update([letter]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
}
