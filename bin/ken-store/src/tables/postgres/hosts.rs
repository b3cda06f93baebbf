//! The hosts that use the database. Each has a row, which it renews each second, and all of them work. Their changes are made one after the
//! other: each transaction that writes begins by taking a lock of the database. The rules of the store are written for one writer, and so
//! they stay right: what a change has read is still so when it is committed, and numbers are given in the order of the commits.
//!
//! The second statement of such a transaction changes the row of its host under the number of its activity, the epoch. A host that was silent
//! for too long finds another epoch there, and writes nothing: another host has ended its activity and released what its agents held, in one
//! transaction. One of the hosts leads: it has the duties that only one may have.
//!
//! Who is silent is decided by what a host has seen itself ([`Silence`](crate::engine::silence::Silence)), and not by the times in the rows:
//! a commit that waits for a standby shows its time only when it ends, and after a promotion the times are those of the last row that the
//! standby got.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use ken_service::host_name;
use ken_types::id::SubmissionId;
use ken_types::ops::hosts::{HostRecord, HostState, Hosts, ServerHealth};
use ken_types::ops::store::Lease;
use ken_types::ops::telemetry::RunHost;
use ken_types::{Error, Timestamp, hex};

use super::fault::lost_place;
use super::session::{NOW, ONE_AT_A_TIME, Session, WRITE};
use super::{Database, health, schema};
use crate::tables::sql::{Row, Sql, all, first, params};
use crate::tables::{AbsentHost, HOST_LEASE_MS, HostTable, OtherHost, Tended};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The file in the state folder that contains the id of this host.
const FILE: &str = "host";
/// The file beside it that notes its inode. In a home that was copied or restored, the file with the id has another inode than is noted.
const INODE_FILE: &str = "host.inode";

#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) id: Arc<str>,
    /// The name of the machine, for people.
    name: String,
    /// The number of this activity. It is set while this host works, as far as it knows.
    epoch: Option<i64>,
    /// The number of the last transaction that was begun.
    pub(super) batch: i64,
    /// The file with the id, which is locked: two processes of one home would take the place from each other for ever.
    _lock: Arc<File>,
    /// Whether the activity of another process with the id of this host may be ended: it was an earlier one of this home. It may not if this
    /// home is a copy, nor once another process has ended the activity of this one: then that process runs in a copy.
    owns_id: bool,
    /// Where the inode is noted if it is not, once this host works.
    unnoted: Option<(PathBuf, u64)>,
}

/// What the server has stored for this host when it begins to work.
struct Joined {
    epoch: i64,
    /// The number of the last transaction that this host made before.
    batch: i64,
    /// The time of the server.
    at: Timestamp,
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
        // It becomes a part of statements.
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong(std::io::Error::other("it is no id; remove it, and the host gets a new one")));
        }
        let inode = file.metadata().map_err(wrong)?.ino();
        let noted = noted_inode(&state.join(INODE_FILE));
        let unnoted = (noted != Some(inode)).then(|| (state.join(INODE_FILE), inode));
        let owns_id = noted.is_none_or(|noted| noted == inode);
        let name = host_name().unwrap_or_else(|| "a host without a name".to_owned());
        let (id, _lock) = (id.into(), Arc::new(file));
        Ok(Host { id, name, epoch: None, batch: 0, _lock, owns_id, unnoted })
    }

    pub(super) fn is_active(&self) -> bool {
        self.epoch.is_some()
    }

    /// Begins to work, if this host does not. Returns the time of the server if it had not. Fails if another process has its id.
    pub(super) fn join(&mut self, session: &mut Session) -> Result<Option<Timestamp>, Error> {
        if self.is_active() {
            return Ok(None);
        }
        self.begin_change(session);
        // Under the lock, which a migration takes as well: this host may have been silent while a newer ken has changed the tables.
        let checked = schema::check_current(session);
        let joined = checked
            .and_then(|()| self.join_in(session))
            .and_then(|joined| session.commit_for_certain().map(|()| joined));
        if joined.is_err() {
            _ = session.batch("ROLLBACK");
        }
        let Joined { epoch, batch, at } = joined?;
        tracing::info!(host = &*self.id, epoch, "this host works");
        (self.epoch, self.batch, self.owns_id) = (Some(epoch), batch, false);
        self.note_inode();
        Ok(Some(at))
    }

    /// Notes the inode, because this home now works under the id: from here on it is the original, whatever it was copied from.
    fn note_inode(&mut self) {
        if let Some((path, inode)) = self.unnoted.take()
            && let Err(error) = std::fs::write(&path, format!("{inode}\n"))
        {
            tracing::warn!("{}: cannot be written: {error}", path.display());
        }
    }

    /// Begins a transaction that waits until no other one changes anything.
    pub(super) fn begin_change(&self, session: &mut Session) {
        session.begin(WRITE);
        session.defer(&format!("SET LOCAL ken.host = '{}'", self.id));
        session.defer(ONE_AT_A_TIME);
    }

    fn join_in(&self, session: &mut Session) -> Result<Joined, Error> {
        let sql =
            format!("SELECT 1 FROM hosts WHERE host = $1 AND active = 1 AND renewed_at > {NOW} - {HOST_LEASE_MS}");
        let is_taken = session.first(&sql, params![&*self.id], |_| Ok(()))?.is_some();
        if is_taken && !self.owns_id {
            let message = format!(
                "{}: another ken with the id of this host is active: one home is a copy of the other",
                session.server()
            );
            return Err(Error::unavailable(message)
                .hint("stop one of them, and remove the file store/host in its state folder"));
        }
        // A host that was removed and comes back must not get an epoch again that it has had. The duties it keeps, or takes if nobody has them.
        let leads = "(SELECT CASE WHEN EXISTS (SELECT 1 FROM hosts WHERE leads = 1) THEN 0 ELSE 1 END)";
        let sql = format!(
            "INSERT INTO hosts (host, name, version, epoch, batch, active, renewed_at, leads)
               VALUES ($1, $2, $3, {NOW}, 0, 1, {NOW}, {leads})
             ON CONFLICT (host) DO UPDATE SET name = excluded.name, version = excluded.version, epoch = hosts.epoch + 1,
               active = 1, renewed_at = excluded.renewed_at, leads = greatest(hosts.leads, excluded.leads)
             RETURNING epoch, batch, renewed_at"
        );
        let joined = session.first(&sql, params![&*self.id, self.name, VERSION], |row| {
            Ok(Joined { epoch: row.get("epoch")?, batch: row.get("batch")?, at: row.get("renewed_at")? })
        })?;
        joined.ok_or_else(|| Error::internal("a host could not be stored"))
    }

    /// Changes the row of this host, as the first statement of a transaction after the lock. The transaction fails if this host
    /// works no more.
    pub(super) fn fence(&mut self, session: &mut Session) -> Result<(), Error> {
        self.batch += 1;
        // Without a row it divides by zero. The server then commits nothing, whatever is sent before it has answered.
        let sql = format!(
            "WITH fence AS (UPDATE hosts SET batch = $3, renewed_at = {NOW} WHERE host = $1 AND epoch = $2 AND active = 1 RETURNING 1)
             SELECT 1 / count(*) FROM fence"
        );
        session.queue(&sql, params![&*self.id, self.epoch, self.batch])
    }

    /// Renews the row of this host, and looks at the others, with one statement and without a transaction. Returns also the time of the server.
    ///
    /// It does not wait for a standby. While a standby is away the host could not show otherwise that it works. What a promotion can lose of
    /// it is that this host was seen, and nobody judges by what was seen before one. Nor does it wait for a transaction of its own that still
    /// waits for the standby, after this host has given the answer up.
    pub(super) fn tend(&mut self, session: &mut Session) -> Result<(Tended, Timestamp), Error> {
        let sql = format!(
            "WITH limits AS MATERIALIZED
                 (SELECT set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '1s', true)),
               own AS (UPDATE ken.hosts SET renewed_at = {NOW} FROM limits WHERE host = $1 AND epoch = $2 AND active = 1
                       RETURNING leads, renewed_at),
               others AS (SELECT * FROM ken.hosts WHERE host <> $1)
             SELECT leads, renewed_at, leads + (SELECT count(*) FROM others WHERE others.leads = 1) AS leaders,
               (SELECT string_agg(concat_ws(' ', host, batch, others.renewed_at), ',') FROM others WHERE active = 1) AS others
             FROM own"
        );
        let tended =
            session.first(&sql, params![&*self.id, self.epoch], |row| Ok((tended(row)?, row.get("renewed_at")?)))?;
        tended.ok_or_else(|| self.lose_place(session))
    }

    /// Ends the activity of this host.
    pub(super) fn leave(&mut self, session: &mut Session) -> Result<(), Error> {
        let sql = "UPDATE ken.hosts SET active = 0, leads = 0 WHERE host = $1 AND epoch = $2";
        let epoch = self.epoch.take();
        session.execute(sql, params![&*self.id, epoch]).map(drop)
    }

    /// Dates the row of this host back by a lease, so that it is seen to be away. The others, who go by what they have seen themselves, wait
    /// for as long as if it were silent. Like [`Host::tend`], this waits for nobody.
    pub(super) fn pause(&mut self, session: &mut Session) -> Result<(), Error> {
        let sql = format!(
            "WITH limits AS MATERIALIZED
                 (SELECT set_config('synchronous_commit', 'local', true), set_config('lock_timeout', '1s', true))
             UPDATE ken.hosts SET renewed_at = {NOW} - {HOST_LEASE_MS} FROM limits WHERE host = $1 AND epoch = $2 AND active = 1"
        );
        session.execute(&sql, params![&*self.id, self.epoch]).map(drop)
    }

    /// Notes that this host works no more.
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

fn tended(row: &dyn Row) -> Result<Tended, Error> {
    let others: Option<String> = row.get("others")?;
    Ok(Tended {
        has_duties: row.get("leads")?,
        are_duties_free: row.get::<u64>("leaders")? == 0,
        others: others.unwrap_or_default().split(',').filter_map(other).collect(),
    })
}

fn other(text: &str) -> Option<OtherHost> {
    let mut words = text.split(' ');
    let (host, batch, renewed_at) = (words.next()?.to_owned(), words.next()?, words.next()?);
    Some(OtherHost { host, batch: batch.parse().ok()?, renewed_at: renewed_at.parse().ok()? })
}

impl HostTable for Database {
    fn hosts(&self) -> Result<Hosts, Error> {
        let sql = format!(
            "SELECT host, name, version, active, leads, renewed_at, {NOW} AS now,
               (SELECT count(*) FROM submissions AS s JOIN sessions AS b USING (stream)
                WHERE s.live = 1 AND b.workspace IS NOT NULL AND b.home = hosts.host) AS bound
             FROM hosts ORDER BY active DESC, leads DESC, renewed_at DESC"
        );
        let mut server_time = None;
        let hosts = all(self, &sql, params![], |row| {
            let now = row.get("now")?;
            server_time = Some(now);
            self.record(row, now)
        })?;
        Ok(Hosts { hosts, server_time })
    }

    fn server_health(&self) -> Result<Option<ServerHealth>, Error> {
        health::read(self).map(Some)
    }

    fn remove_host(&self, id: &str) -> Result<(), Error> {
        let sql = format!("DELETE FROM hosts WHERE host = ?1 AND renewed_at <= {NOW} - {HOST_LEASE_MS}");
        self.execute(&sql, params![id])?;
        self.execute("UPDATE sessions SET home = NULL WHERE home = ?1", params![id])
    }

    fn bound_to(&self, host: &str) -> Result<Vec<SubmissionId>, Error> {
        if self.shares_folders {
            return Ok(Vec::new());
        }
        let sql = "SELECT s.id FROM submissions AS s JOIN sessions AS b USING (stream)
                   WHERE s.live = 1 AND b.workspace IS NOT NULL AND b.home = ?1 ORDER BY s.submission";
        all(self, sql, params![host], |row| Ok(SubmissionId(row.get(0)?)))
    }

    fn absent_home(&self, stream: i64) -> Result<Option<AbsentHost>, Error> {
        if self.shares_folders {
            return Ok(None);
        }
        let sql = format!(
            "SELECT hosts.name, renewed_at FROM sessions JOIN hosts ON host = home WHERE stream = ?1 AND workspace IS NOT NULL
               AND (active = 0 OR renewed_at <= {NOW} - {HOST_LEASE_MS})"
        );
        first(self, &sql, params![stream], |row| {
            Ok(AbsentHost { name: row.get("name")?, seen_at: row.get("renewed_at")? })
        })
    }

    fn host_of(&self, submission: i64) -> Result<Option<RunHost>, Error> {
        let sql = "SELECT holder, name FROM submissions LEFT JOIN hosts ON host = holder
                   WHERE submission = ?1 AND holder IS NOT NULL";
        first(self, sql, params![submission], |row| Ok(RunHost { id: row.get("holder")?, name: row.get("name")? }))
    }

    fn copy_home(&self, from: i64, to: i64) -> Result<(), Error> {
        let sql = "UPDATE sessions SET home = (SELECT home FROM sessions WHERE stream = ?1) WHERE stream = ?2";
        self.execute(sql, params![from, to])
    }

    fn has_duties(&self) -> Result<bool, Error> {
        let sql = "SELECT 1 FROM hosts WHERE host = ?1 AND active = 1 AND leads = 1";
        Ok(first(self, sql, params![&*self.host], |_| Ok(()))?.is_some())
    }

    fn expire_hosts(&self, silent: &[OtherHost]) -> Result<(), Error> {
        let sql = "UPDATE hosts SET active = 0, leads = 0, epoch = epoch + 1
                   WHERE host = ?1 AND active = 1 AND renewed_at = ?2 RETURNING name";
        for OtherHost { host, renewed_at, .. } in silent {
            if let Some(name) = first(self, sql, params![host, renewed_at], |row| row.get::<String>("name"))? {
                tracing::warn!("the host {name} is silent: its work goes on elsewhere");
            }
        }
        let sql = "UPDATE hosts SET leads = 1 WHERE host = ?1 AND NOT EXISTS (SELECT 1 FROM hosts WHERE leads = 1)";
        self.execute(sql, params![&*self.host])
    }

    fn orphaned_leases(&self) -> Result<Vec<Lease>, Error> {
        let sql = "SELECT id, lease FROM submissions WHERE live = 1 AND open = 0 AND state <> 'queued'
                   AND NOT EXISTS (SELECT 1 FROM hosts WHERE host = holder AND active = 1)";
        all(self, sql, params![], |row| {
            Ok(Lease { submission_id: SubmissionId(row.get("id")?), number: row.get("lease")? })
        })
    }
}

impl Database {
    fn record(&self, row: &dyn Row, now: Timestamp) -> Result<HostRecord, Error> {
        let (id, seen_at): (String, Timestamp) = (row.get("host")?, row.get("renewed_at")?);
        let is_active = row.get("active")? && now.millis() - seen_at.millis() < HOST_LEASE_MS;
        let state = if is_active { HostState::Active } else { HostState::Away };
        let here = *id == *self.host;
        let has_duties = is_active && row.get("leads")?;
        let waiting = if is_active || self.shares_folders { 0 } else { row.get("bound")? };
        let (name, version) = (row.get("name")?, row.get("version")?);
        Ok(HostRecord { id, name, version, state, has_duties, seen_at, waiting, here })
    }
}

/// Returns the inode that was noted. A text that cannot be read is none.
fn noted_inode(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
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
