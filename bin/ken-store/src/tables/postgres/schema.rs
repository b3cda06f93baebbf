//! The schema `ken` of the database, as a list of migrations from a baseline that has the tables of SQLite's present version. A released
//! migration is never edited.

use ken_types::Error;

use super::session::{NOW, ONE_AT_A_TIME, Session, WRITE};
use crate::tables::HOST_LEASE_MS;
use crate::tables::sql::{Row, params};

/// The oldest release of the server, as it gives its number.
const OLDEST_SERVER: i64 = 150_000;

const STEPS: &[&str] = &[
    include_str!("baseline.sql"),
    include_str!("several_hosts.sql"),
    include_str!("../openai_keys.sql"),
    concat!(include_str!("schedules_of_sessions.sql"), include_str!("../deliveries.sql")),
];

/// A number for the lock under which the schema is created: "KEN1".
const LOCK: &str = "SELECT pg_advisory_xact_lock(1262833201)";

/// Checks whether the server can be used, and creates or migrates the schema. Called for each new connection, because another server may
/// answer then, and before this host begins to work again, because a newer ken may have migrated the schema meanwhile. `host` is the id of
/// this host.
pub(super) fn prepare(session: &mut Session, host: &str) -> Result<(), Error> {
    let checked = check(session);
    let done = checked.and_then(|has_schema| {
        let version = if has_schema { version(session)? } else { 0 };
        check_version(session, version)?;
        if version < STEPS.len() { migrate(session, host) } else { Ok(()) }
    });
    if done.is_err() {
        // The next attempt begins with the checks again.
        session.cut();
    }
    done
}

/// Checks the server, and that it has the schema of this release.
pub(super) fn check_present(session: &mut Session) -> Result<(), Error> {
    if !check(session)? {
        return Err(refuse(session, "the database has no tables of ken", "start ken once, or name another database"));
    }
    check_current(session)
}

/// Checks that the schema is that of this release.
pub(super) fn check_current(session: &mut Session) -> Result<(), Error> {
    let version = version(session)?;
    check_version(session, version)?;
    if version < STEPS.len() {
        let what = format!("the schema ken has version {version}, this ken-store knows {}", STEPS.len());
        return Err(refuse(session, &what, "start this ken-store, which migrates it"));
    }
    Ok(())
}

/// The statements that would make the columns, constraints and indexes that temporary tables have and the tables of the schema `ken` have not.
/// The names of the schemas are left out, so that they can be compared. In some releases of the server NOT NULL is a constraint with a name.
/// An index that could not be built counts as missing.
const OBJECTS: &str = "
    WITH schemas AS (SELECT oid, CASE nspname WHEN 'ken' THEN 'ken.' ELSE 'pg_temp.' END AS prefix, nspname = 'ken' AS is_own
                     FROM pg_namespace WHERE nspname = 'ken' OR oid = pg_my_temp_schema()),
      tables AS (SELECT c.oid, quote_ident(c.relname) AS name, prefix, is_own
                 FROM pg_class AS c JOIN schemas ON schemas.oid = relnamespace WHERE relkind = 'r'),
      objects AS (
        SELECT is_own, 0 AS rank, format('ALTER TABLE %s ADD COLUMN %I %s', name, attname, format_type(atttypid, atttypmod)) AS made_by
          FROM pg_attribute JOIN tables ON tables.oid = attrelid WHERE attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT is_own, 1, format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', name, attname)
          FROM pg_attribute JOIN tables ON tables.oid = attrelid WHERE attnum > 0 AND NOT attisdropped AND attnotnull
        UNION ALL
        SELECT is_own, 2, format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, conname, replace(pg_get_constraintdef(k.oid), prefix, ''))
          FROM pg_constraint AS k JOIN tables ON tables.oid = conrelid WHERE contype <> 'n'
        UNION ALL
        SELECT is_own, 3, replace(pg_get_indexdef(indexrelid), prefix, '')
          FROM pg_index AS i JOIN tables ON tables.oid = indrelid
          WHERE indisvalid AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid AND conrelid = indrelid))
    SELECT made_by FROM objects GROUP BY made_by, rank HAVING NOT bool_or(is_own) ORDER BY rank, made_by";

/// Checks that the schema has the columns, constraints and indexes that the migrations make. These make temporary tables for that, in a
/// transaction that is rolled back.
pub(super) fn check_objects(session: &mut Session) -> Result<(), Error> {
    session.begin(WRITE);
    // With all names in quotes, the prefix would not be found in what the server prints.
    session.defer("SET LOCAL search_path = pg_temp; SET LOCAL quote_all_identifiers = off");
    let missing =
        STEPS.iter().try_for_each(|step| session.batch(step)).and_then(|()| session.query(OBJECTS, params![]));
    let ended = session.rollback();
    let missing = missing?.iter().map(|row| <dyn Row>::get(row, "made_by")).collect::<Result<Vec<String>, Error>>()?;
    ended?;
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!("the schema ken lacks what these statements make: {}", missing.join("; "));
    Err(refuse(session, &what, "stop ken on all hosts, and run them in psql after SET search_path = ken"))
}

fn refuse(session: &Session, what: &str, hint: &str) -> Error {
    Error::unavailable(format!("{}: {what}", session.server())).hint(hint)
}

/// Checks the server. Returns whether the schema exists.
fn check(session: &mut Session) -> Result<bool, Error> {
    let sql =
        "SELECT current_setting('server_version_num')::bigint AS number, current_setting('server_version') AS version,
                 current_setting('server_encoding') AS encoding, pg_is_in_recovery()::int::bigint AS standby,
                 current_setting('transaction_read_only') AS read_only, current_setting('fsync') AS fsync,
                 current_setting('synchronous_commit') AS synchronous,
                 current_setting('synchronous_standby_names') AS standbys,
                 (to_regclass('ken.schema_version') IS NOT NULL)::int::bigint AS has_schema";
    let rows = session.query(sql, params![])?;
    let row: &dyn Row = rows.first().ok_or_else(|| Error::internal("the server has not said what it is"))?;
    let (number, version): (i64, String) = (row.get("number")?, row.get("version")?);
    if number < OLDEST_SERVER {
        let what = format!("PostgreSQL {version} is too old");
        return Err(refuse(session, &what, "15 is the oldest release that can be used"));
    }
    let encoding = row.text("encoding")?;
    if encoding != "UTF8" {
        let what = format!("the encoding of the database is {encoding}, not UTF8");
        return Err(refuse(
            session,
            &what,
            "create another database: createdb --encoding UTF8 --template template0 NAME",
        ));
    }
    if row.get("standby")? {
        let what = "the server is read-only: it is a standby";
        return Err(refuse(session, what, "name the primary, with target_session_attrs=read-write for several hosts"));
    }
    if row.text("read_only")? == "on" {
        let what = "transactions are read-only: default_transaction_read_only is on";
        let hint = "ALTER ROLE … SET default_transaction_read_only = off, or ALTER DATABASE … if that has set it";
        return Err(refuse(session, what, hint));
    }
    check_durability(session, row)?;
    row.get("has_schema")
}

/// Checks that a change which is committed stays.
fn check_durability(session: &Session, row: &dyn Row) -> Result<(), Error> {
    if row.text("synchronous")? == "off" {
        let what = "synchronous_commit is off: a change could be lost after it was acknowledged";
        return Err(refuse(session, what, "ALTER ROLE … SET synchronous_commit = on"));
    }
    if session.requires_sync()
        && (row.text("standbys")?.is_empty() || !["on", "remote_apply"].contains(&row.text("synchronous")?))
    {
        let what = "no commit waits for a standby, and [store] require_sync is set";
        let hint = "set synchronous_standby_names and synchronous_commit = on on the server: ken-postgres(7)";
        return Err(refuse(session, what, hint));
    }
    if row.text("fsync")? == "off" {
        tracing::warn!("{}: fsync is off: a crash of the machine can destroy the database", session.server());
    }
    Ok(())
}

fn version(session: &mut Session) -> Result<usize, Error> {
    let sql = "SELECT version FROM ken.schema_version";
    let Some(version) = session.first(sql, params![], |row| row.get::<i64>("version"))? else {
        let hint = format!(
            "if they are those of this release: INSERT INTO ken.schema_version VALUES ({}); otherwise restore a backup",
            STEPS.len()
        );
        return Err(refuse(
            session,
            "the row of ken.schema_version is missing: the version of the tables is not known",
            &hint,
        ));
    };
    Ok(usize::try_from(version).unwrap_or_default())
}

fn check_version(session: &Session, version: usize) -> Result<(), Error> {
    let known = STEPS.len();
    if version <= known {
        return Ok(());
    }
    let what = format!("the schema ken has version {version}, this ken-store knows versions up to {known}");
    Err(refuse(session, &what, "start the newer ken-store, or restore a backup made before it"))
}

/// Applies the migrations that are missing, in one transaction, while no other store does, and none changes anything.
fn migrate(session: &mut Session, host: &str) -> Result<(), Error> {
    // An index over a large table can take minutes. A store that gave up would begin all again, for ever.
    session.wait_long(true);
    let done = session.batch(&format!("BEGIN; SET LOCAL statement_timeout = 0; {LOCK}; {ONE_AT_A_TIME}"));
    let done = done.and_then(|()| {
        let done = apply(session, host);
        let ended = session.batch(if done.is_ok() { "SELECT 1; COMMIT" } else { "ROLLBACK" });
        done.and_then(|version| ended.map(|()| version))
    });
    session.wait_long(false);
    let version = done?;
    tracing::info!(version, "the schema ken was migrated");
    Ok(())
}

fn apply(session: &mut Session, host: &str) -> Result<usize, Error> {
    // Another store may have done it while this one waited for the lock.
    let from = if check(session)? { version(session)? } else { 0 };
    check_version(session, from)?;
    match from {
        0 => create(session)?,
        from if from < STEPS.len() => check_alone(session, host)?,
        _ => {}
    }
    session.batch("SET LOCAL search_path = ken")?;
    for step in STEPS.iter().skip(from) {
        session.batch(step)?;
    }
    session.batch(&format!("UPDATE ken.schema_version SET version = {}", STEPS.len()))?;
    // A host that has been silent may come back. It works no more then, and finds the new version before it does again.
    session.execute("UPDATE ken.hosts SET active = 0, leads = 0 WHERE host <> $1", params![host])?;
    Ok(STEPS.len())
}

/// Fails while another host works with the older schema.
fn check_alone(session: &mut Session, host: &str) -> Result<(), Error> {
    let sql = format!("SELECT name FROM ken.hosts WHERE host <> $1 AND renewed_at > {NOW} - {HOST_LEASE_MS} LIMIT 1");
    match session.first(&sql, params![host], |row| row.get::<String>("name"))? {
        None => Ok(()),
        Some(name) => {
            let what = format!("the host {name} runs an older ken, whose tables this one would change");
            Err(refuse(session, &what, "stop ken there; then this one migrates the schema"))
        }
    }
}

fn create(session: &mut Session) -> Result<(), Error> {
    // CREATE SCHEMA IF NOT EXISTS needs the privilege even if the schema exists.
    let sql = "SELECT (to_regnamespace('ken') IS NOT NULL)::int::bigint AS is_there";
    if !session.first(sql, params![], |row| row.get::<bool>("is_there"))?.unwrap_or_default() {
        session.batch("CREATE SCHEMA ken")?;
    }
    session
        .batch("CREATE TABLE ken.schema_version (version bigint NOT NULL); INSERT INTO ken.schema_version VALUES (0)")
}
