//! The hosts that use the database. One of them is active: its row has `active`, and it renews the row each second. Each transaction that
//! writes begins by changing the row of its host, and finds out so whether it still is the active one; a host that wants the place changes
//! the same row and therefore waits for such a transaction. The clock of the server decides how old a row is.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use ken_types::{Error, hex};

use super::session::{Session, WRITE};
use super::values::{Row, params};

/// How long the active host keeps its place without renewing it, in milliseconds.
const LEASE_MS: i64 = 10_000;
/// The time of the server in milliseconds.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// The file in the state folder that contains the id of this host.
const FILE: &str = "host";

/// This host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    id: String,
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
        if file.try_lock().is_err() {
            let message = format!("{}: another ken-store of this home runs", path.display());
            return Err(Error::unavailable(message).hint("stop that one first"));
        }
        let id = std::fs::read_to_string(&path).map_err(wrong)?.trim().to_owned();
        if id.is_empty() {
            return Err(wrong(std::io::Error::other("it is empty; remove it, and the host gets a new id")));
        }
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name = Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or("a host without a name").to_owned();
        Ok(Host { id, name, epoch: None, batch: 0, _lock: Arc::new(file), owns_id: true })
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
        let taken = self.take_in(session);
        match taken {
            Ok((epoch, batch)) => {
                session.batch("COMMIT")?;
                tracing::info!(host = self.id, epoch, "this host is the active one");
                (self.epoch, self.batch, self.owns_id) = (Some(epoch), batch, false);
                Ok(true)
            }
            Err(error) => {
                _ = session.batch("ROLLBACK");
                Err(error)
            }
        }
    }

    fn take_in(&self, session: &mut Session) -> Result<(i64, i64), Error> {
        // The lock makes this wait for the end of a transaction that the active host has begun.
        let sql = format!("SELECT host, name, {NOW} - renewed_at AS age FROM hosts WHERE active = 1 FOR UPDATE");
        let active = session.query(&sql, params![])?.first().map(active).transpose()?;
        if let Some(active) = active {
            let is_own = active.host == self.id;
            if active.age_ms < LEASE_MS && !(is_own && self.owns_id) {
                return Err(self.standby(session, &active));
            }
            let sql = "UPDATE hosts SET active = 0, epoch = epoch + 1 WHERE host = $1";
            session.execute(sql, params![active.host])?;
        }
        let sql = format!(
            "INSERT INTO hosts (host, name, version, epoch, batch, active, renewed_at) VALUES ($1, $2, $3, 1, 0, 1, {NOW})
             ON CONFLICT (host) DO UPDATE SET name = excluded.name, version = excluded.version, epoch = hosts.epoch + 1,
               active = 1, renewed_at = excluded.renewed_at
             RETURNING epoch, batch"
        );
        let taken = session.query(&sql, params![self.id, self.name, env!("CARGO_PKG_VERSION")])?;
        let row = taken.first().ok_or_else(|| Error::internal("a host could not be stored"))?;
        Ok((row.get("epoch")?, row.get("batch")?))
    }

    /// Returns the error of a store that waits for the place of the active host.
    fn standby(&self, session: &Session, active: &Active) -> Error {
        let Active { host, name, age_ms } = active;
        let server = session.server();
        if *host == self.id {
            let message =
                format!("{server}: another ken with the id of this host is active: one home is a copy of the other");
            return Error::unavailable(message)
                .hint("stop one of them, and remove the file store/host in its state folder");
        }
        let seconds = age_ms.max(&0) / 1_000;
        let message = format!("{server}: standby: the host {name} is the active one (seen {seconds} s ago)");
        Error::unavailable(message).hint("this host takes over by itself when the other one stops")
    }

    /// Changes the row of this host, as the first statement of a transaction. Fails if it is not the active host any more.
    pub(super) fn fence(&mut self, session: &mut Session) -> Result<(), Error> {
        self.batch += 1;
        let sql =
            format!("UPDATE hosts SET batch = $3, renewed_at = {NOW} WHERE host = $1 AND epoch = $2 AND active = 1");
        let rows = session.execute(&sql, params![self.id, self.epoch, self.batch])?;
        if rows == 1 { Ok(()) } else { Err(self.lost(session)) }
    }

    /// Renews the place of this host without a transaction.
    pub(super) fn renew(&mut self, session: &mut Session) -> Result<(), Error> {
        if self.epoch.is_none() {
            return Ok(());
        }
        let sql = format!("UPDATE ken.hosts SET renewed_at = {NOW} WHERE host = $1 AND epoch = $2 AND active = 1");
        let rows = session.execute(&sql, params![self.id, self.epoch])?;
        if rows == 1 { Ok(()) } else { Err(self.lost(session)) }
    }

    fn lost(&mut self, session: &Session) -> Error {
        self.epoch = None;
        let message = format!("{}: another host has taken the place of this one", session.server());
        Error::unavailable(message).hint("nothing was written; this host waits until the other one stops")
    }

    /// Returns whether the last transaction of this host was committed; `None` if that is not recorded. Waits until the server has ended
    /// that transaction.
    pub(super) fn is_committed(&self, session: &mut Session) -> Result<Option<bool>, Error> {
        session.begin(WRITE);
        let found = session.query("SELECT batch FROM hosts WHERE host = $1 FOR UPDATE", params![self.id]);
        let ended = session.batch("ROLLBACK");
        let batch = found?.first().map(|row| row.get::<i64>("batch")).transpose()?;
        ended?;
        Ok(batch.map(|batch| batch >= self.batch))
    }
}

fn active(row: &Row) -> Result<Active, Error> {
    Ok(Active { host: row.get("host")?, name: row.get("name")?, age_ms: row.get("age")? })
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
