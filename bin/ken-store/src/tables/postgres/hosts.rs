//! The hosts that use the database. One of them is active: its row has `active`, and it renews the row each second. Each transaction that
//! writes begins by changing the row of its host, and finds out so whether it still is the active one; a host that wants the place changes
//! the same row and therefore waits for such a transaction. The clock of the server decides how old a row is.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use ken_types::ops::hosts::{HostRecord, HostState, Hosts, ServerHealth};
use ken_types::{Error, Timestamp, hex};

use super::fault::lost_place;
use super::session::{Session, WRITE};
use super::{Database, health};
use crate::tables::HostTable;
use crate::tables::columns::time;
use crate::tables::sql::{Row, Sql, all, params};

/// How long the active host keeps its place without renewing it, in milliseconds.
const LEASE_MS: i64 = 10_000;
/// The time of the server in milliseconds.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The file in the state folder that contains the id of this host.
const FILE: &str = "host";

/// This host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    id: Arc<str>,
    /// The name of the machine, for people.
    name: String,
    /// The number of this activity. It is set while this host is the active one, as far as it knows.
    epoch: Option<i64>,
    /// The number of the last transaction that was begun.
    batch: i64,
    /// The file with the id, which is locked: two processes of one home would take the place from each other for ever.
    _lock: Arc<File>,
    /// Whether the place may be taken from a process with the id of this host: it was an earlier one of this home. Once this process has
    /// lost the place to such a process, that one is of a copy of the home.
    owns_id: bool,
}

/// What came of taking the place.
enum Taken {
    Active { epoch: i64, batch: i64 },
    ByOther(Active),
}

/// The host that is active, as another one sees it.
struct Active {
    host: String,
    name: String,
    age_ms: i64,
}

impl Host {
    /// Reads the id of this host, or makes one.
    pub(super) fn of(state: &Path) -> Result<Host, Error> {
        let path = state.join(FILE);
        let wrong = |error: std::io::Error| {
            Error::invalid(path.display().to_string(), format!("{}: cannot be used: {error}", path.display()))
        };
        if !path.exists() {
            create(&path).map_err(wrong)?;
        }
        let file = File::open(&path).map_err(wrong)?;
        if !is_locked(&file) {
            let message = format!("{}: another ken-store of this home runs", path.display());
            return Err(Error::unavailable(message).hint("stop that one first"));
        }
        let id = std::fs::read_to_string(&path).map_err(wrong)?.trim().to_owned();
        if id.is_empty() {
            return Err(wrong(std::io::Error::other("it is empty; remove it, and the host gets a new id")));
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or("a host without a name").to_owned();
        Ok(Host { id: id.into(), name, epoch: None, batch: 0, _lock: Arc::new(file), owns_id: true })
    }

    pub(super) fn id(&self) -> Arc<str> {
        self.id.clone()
    }

    pub(super) fn is_active(&self) -> bool {
        self.epoch.is_some()
    }

    /// Makes this host the active one if it is not. Returns whether it had not been. Fails if another host is active.
    pub(super) fn take(&mut self, session: &mut Session) -> Result<bool, Error> {
        if self.is_active() {
            return Ok(false);
        }
        session.begin(WRITE);
        let taken = self.take_in(session).and_then(|taken| session.commit_for_certain().map(|()| taken));
        if taken.is_err() {
            _ = session.batch("ROLLBACK");
        }
        let (epoch, batch) = match taken? {
            Taken::Active { epoch, batch } => (epoch, batch),
            Taken::ByOther(active) => return Err(self.standby(session, &active)),
        };
        tracing::info!(host = &*self.id, epoch, "this host is the active one");
        (self.epoch, self.batch, self.owns_id) = (Some(epoch), batch, false);
        Ok(true)
    }

    fn take_in(&self, session: &mut Session) -> Result<Taken, Error> {
        // The lock makes this wait for the end of a transaction that the active host has begun.
        let sql = format!("SELECT host, name, {NOW} - renewed_at AS age FROM hosts WHERE active = 1 FOR UPDATE");
        let active = session.first(&sql, params![], active)?;
        if let Some(active) = active {
            let is_own = *active.host == *self.id;
            if active.age_ms < LEASE_MS && !(is_own && self.owns_id) {
                if !is_own {
                    self.report(session)?;
                }
                return Ok(Taken::ByOther(active));
            }
            let sql = "UPDATE hosts SET active = 0, epoch = epoch + 1 WHERE host = $1";
            session.execute(sql, params![active.host])?;
        }
        // A host that was removed and comes back must not get an epoch again that it has had.
        let sql = format!(
            "INSERT INTO hosts (host, name, version, epoch, batch, active, renewed_at) VALUES ($1, $2, $3, {NOW}, 0, 1, {NOW})
             ON CONFLICT (host) DO UPDATE SET name = excluded.name, version = excluded.version, epoch = hosts.epoch + 1,
               active = 1, renewed_at = excluded.renewed_at
             RETURNING epoch, batch"
        );
        let taken = session.first(&sql, params![&*self.id, self.name, VERSION], |row| {
            Ok(Taken::Active { epoch: row.get("epoch")?, batch: row.get("batch")? })
        })?;
        taken.ok_or_else(|| Error::internal("a host could not be stored"))
    }

    /// Notes that this host waits for the place, at most every two seconds.
    fn report(&self, session: &mut Session) -> Result<(), Error> {
        let sql = format!(
            "INSERT INTO hosts (host, name, version, epoch, batch, active, renewed_at) VALUES ($1, $2, $3, {NOW}, 0, 0, {NOW})
             ON CONFLICT (host) DO UPDATE SET name = excluded.name, version = excluded.version, renewed_at = excluded.renewed_at
               WHERE hosts.renewed_at < excluded.renewed_at - 2000"
        );
        session.queue(&sql, params![&*self.id, self.name, VERSION])
    }

    /// Returns the error of a store that waits for the place of the active host.
    fn standby(&self, session: &Session, active: &Active) -> Error {
        let Active { host, name, age_ms } = active;
        let server = session.server();
        if **host == *self.id {
            let message =
                format!("{server}: another ken with the id of this host is active: one home is a copy of the other");
            return Error::unavailable(message)
                .hint("stop one of them, and remove the file store/host in its state folder");
        }
        let seconds = age_ms.max(&0) / 1_000;
        let message = format!("{server}: standby: the host {name} is the active one (seen {seconds} s ago)");
        Error::unavailable(message).hint("this host takes over by itself when the other one stops")
    }

    /// Changes the row of this host, as the first statement of a transaction. The transaction fails if it is not the active host any more.
    pub(super) fn fence(&mut self, session: &mut Session) -> Result<(), Error> {
        self.batch += 1;
        // Without a row it divides by zero. The server then commits nothing, whatever is sent before it has answered.
        let sql = format!(
            "WITH fence AS (UPDATE hosts SET batch = $3, renewed_at = {NOW} WHERE host = $1 AND epoch = $2 AND active = 1 RETURNING 1)
             SELECT 1 / count(*) FROM fence"
        );
        session.queue(&sql, params![&*self.id, self.epoch, self.batch])
    }

    /// Renews the place of this host without a transaction.
    pub(super) fn renew(&mut self, session: &mut Session) -> Result<(), Error> {
        if self.epoch.is_none() {
            return Ok(());
        }
        let sql = format!("UPDATE ken.hosts SET renewed_at = {NOW} WHERE host = $1 AND epoch = $2 AND active = 1");
        let rows = session.execute(&sql, params![&*self.id, self.epoch])?;
        if rows == 1 { Ok(()) } else { Err(self.lose_place(session)) }
    }

    /// Notes that this host is not the active one any more.
    pub(super) fn lose_place(&mut self, session: &Session) -> Error {
        self.epoch = None;
        lost_place(session.server())
    }

    /// Returns whether the last transaction of this host was committed; `None` if that is not recorded. Waits until the server has ended
    /// that transaction.
    pub(super) fn is_committed(&self, session: &mut Session) -> Result<Option<bool>, Error> {
        session.begin(WRITE);
        // It changes the row, so that its commit waits until the standby has what was committed before.
        let sql = "UPDATE hosts SET batch = batch WHERE host = $1 RETURNING batch";
        let found = session.first(sql, params![&*self.id], |row| row.get::<i64>("batch"));
        let ended = session.commit_for_certain();
        if ended.is_err() {
            // A transaction in which a statement has failed would still be open.
            session.cut();
        }
        let batch = found?;
        ended?;
        Ok(batch.map(|batch| batch >= self.batch))
    }
}

impl HostTable for Database {
    fn hosts(&self) -> Result<Hosts, Error> {
        let sql = format!(
            "SELECT host, name, version, active, renewed_at, {NOW} AS now FROM hosts ORDER BY active DESC, renewed_at DESC"
        );
        let mut server_time = None;
        let hosts = all(self, &sql, params![], |row| {
            let now = time(row, "now")?;
            server_time = Some(now);
            self.record(row, now)
        })?;
        Ok(Hosts { hosts, server_time })
    }

    fn server_health(&self) -> Result<Option<ServerHealth>, Error> {
        health::read(self).map(Some)
    }

    fn remove_host(&self, id: &str) -> Result<(), Error> {
        self.execute("DELETE FROM hosts WHERE host = ?1 AND active = 0", params![id])
    }
}

impl Database {
    fn record(&self, row: &dyn Row, now: Timestamp) -> Result<HostRecord, Error> {
        let (id, seen_at): (String, Timestamp) = (row.get("host")?, time(row, "renewed_at")?);
        let state = match now.millis() - seen_at.millis() < LEASE_MS {
            false => HostState::Away,
            true if row.get("active")? => HostState::Active,
            true => HostState::Standby,
        };
        let here = *id == *self.host;
        Ok(HostRecord { id, name: row.get("name")?, version: row.get("version")?, state, seen_at, here })
    }
}

fn active(row: &dyn Row) -> Result<Active, Error> {
    Ok(Active { host: row.get("host")?, name: row.get("name")?, age_ms: row.get("age")? })
}

/// Locks the file. A store that ends, or a process that it was just starting, may still hold it for a moment.
fn is_locked(file: &File) -> bool {
    (0..20).any(|attempt| {
        if attempt > 0 {
            sleep(Duration::from_millis(50));
        }
        file.try_lock().is_ok()
    })
}

/// Makes a random id and stores it durably, whole or not at all: a host that forgets its id would wait for itself.
fn create(path: &Path) -> std::io::Result<()> {
    let random: [u8; 16] = ken_types::id::random().map_err(std::io::Error::other)?;
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    writeln!(file, "{}", hex::encode(&random))?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}
