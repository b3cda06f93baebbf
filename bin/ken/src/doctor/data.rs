//! Checks of the data on disk: the database and the audit log.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ken_types::config::{Days, Retention};
use ken_types::ops::Nothing;
use ken_types::ops::hosts::{Hosts, HostsList, HostsServer, ServerHealth};
use ken_types::ops::service::ServiceStats;
use ken_types::ops::store::{BySession, SessionsScope};
use ken_types::places::Places;
use ken_types::{Code, Timestamp};
use serde_json::Value;

use super::system::Running;
use super::{Findings, bytes_of, call_within, output_of};
use crate::external::{installed, printed};
use crate::output::format_count;
use crate::{backup, client, config, sessions};

/// How long a call to the store may take. There are three.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// The age from which on a transaction on the database server is reported.
const OLD_TRANSACTION_MS: u64 = 5 * 60 * 1_000;
/// How many dead rows a table may have, and no more than it has live ones. The server removes them long before, if nothing keeps it from that.
const DEAD_ROWS: u64 = 10_000;
/// How far the clock of this machine may be from that of the database server.
const MAX_CLOCK_MS: i64 = 2_000;
/// The size in bytes above which the write-ahead log is reported. Checkpoints keep it near 64 MiB, unless somebody reads all the time.
const WAL_BYTES: u64 = 128 * 1024 * 1024;

/// The maximum number of sessions that a remedy names.
const MAX_NAMED: usize = 20;

/// How long after the last write the log is certainly truncated if nobody else reads the database. The store tries it every second.
const IDLE: Duration = Duration::from_secs(10);

pub(super) fn check(places: &Places, running: Running, findings: &mut Findings) {
    // A running store says itself what is wrong with its server.
    if running == Running::Down && config::is_on_server(places).unwrap_or(false) {
        check_url(places, findings);
    } else {
        check_database(&places.state.join("store"), running != Running::Down, findings);
    }
    if running == Running::Answering {
        check_store(places, findings);
        check_server_clock(places, findings);
        check_files_of_deleted(places, findings);
        if let Some(Some(health)) = call_within::<HostsServer>(places, "store", &Nothing {}, CALL_TIMEOUT) {
            check_server(&health, findings);
        }
    }
    check_audit(&places.state.join("cognitive"), findings);
    check_put_aside(places, findings);
}

/// Reports what a restore or a migration has put aside: nothing else reminds of it, and sessions are not deleted there.
fn check_put_aside(places: &Places, findings: &mut Findings) {
    let replaced = backup::replaced(places).into_iter().map(|folder| (folder, "what a restore has replaced"));
    let migrated = places.state.join("store/ken.db.migrated");
    let migrated = migrated.exists().then_some((migrated, "the data that was copied to a database server"));
    for (path, what) in replaced.chain(migrated) {
        let size = bytes_of(&path).div_ceil(1024 * 1024);
        let why = format!("{what}, {size} MiB, where `ken sessions rm` deletes nothing");
        findings.note("put-aside", path.display(), why, format!("rm -r {}", path.display()));
    }
}

/// Reports that the store could not start with the database server that is set, or not use it.
fn check_url(places: &Places, findings: &mut Findings) {
    let file = places.state.join("store/ken.db");
    if file.exists() {
        let why = "this home has its data in SQLite, and the URL of a database server is set";
        let fix = "copy it: ken-store migrate --to-postgres; or remove the URL; or move ken.db away to go on with what the server has";
        return findings.error("database", file.display(), why, fix);
    }
    if let Err(error) = output_of(places, "ken-store", &["--check"]) {
        let fix = error.hint.as_deref().unwrap_or("see ken-postgres(7)");
        findings.error("database", "the database server", error.message.replace('\n', " "), fix);
    }
}

fn check_database(folder: &Path, is_up: bool, findings: &mut Findings) {
    let (database, wal) = (folder.join("ken.db"), folder.join("ken.db-wal"));
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.len());
    let restore = "restore a backup: ken restore FILE";
    if size(&database) == 0 {
        if size(&wal) > 0 || size(&folder.join("ken.db.acknowledged")) > 0 {
            let why = "is missing or empty, and the files that belong to it are there";
            findings.error("database-missing", database.display(), why, restore);
        }
        return;
    }
    if size(&wal) > WAL_BYTES {
        let why = format!(
            "has {} MiB and grows: it cannot begin anew while another program stays in the middle of reading the database",
            size(&wal) / (1024 * 1024)
        );
        let fix = "end that program (fuser -v ken.db names it); if there is none, ken restart store";
        findings.warning("wal-size", wal.display(), why, fix);
    } else if is_up && size(&wal) > 0 && is_idle(&wal) {
        let why = format!(
            "{} KiB wait to be written to the database, and may hold what was deleted: {}",
            size(&wal).div_ceil(1024),
            readers(&database)
        );
        findings.warning("wal-waits", wal.display(), why, "end that program, or its transaction");
    }
    check_losses(folder, findings);
    if !is_up && let Some(writer) = writer(&database) {
        let why = format!("{writer} has locked it, so that ken-store cannot write");
        findings.error("database-locked", database.display(), why, "end that program, or its transaction");
    }
    // If it is missing, that has been reported already.
    let Ok(mut store) = installed("ken-store") else { return };
    let checked = printed(store.arg("--check").arg(&database), Code::Invalid);
    // A lock is no fault while the system runs, because the store uses the database.
    if let Err(error) = checked
        && !(is_up && error.message.contains("locked"))
    {
        let place = database.display().to_string();
        let why = error.message.strip_prefix(&format!("{place}: ")).unwrap_or(&error.message).replace('\n', " ");
        findings.error("database", place, why, error.hint.as_deref().unwrap_or(restore));
    }
}

/// Whether a file was last written so long ago that an idle store would have truncated it.
fn is_idle(file: &Path) -> bool {
    let modified = std::fs::metadata(file).and_then(|about| about.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > IDLE))
}

/// Names a program that has locked the database, or the index of its log, for writing.
fn writer(database: &Path) -> Option<String> {
    let index = database.with_extension("db-shm");
    let inodes: Vec<u64> =
        [database, &index].iter().filter_map(|file| Some(std::fs::metadata(file).ok()?.ino())).collect();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // 1: POSIX  ADVISORY  WRITE 4711 08:01:131099 120 120
    locks.lines().find_map(|line| {
        let [_, "POSIX", _, "WRITE", pid, file, ..] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let inode = file.rsplit(':').next()?.parse().ok()?;
        let name = || std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned();
        inodes.contains(&inode).then(|| format!("{} (pid {pid})", name()))
    })
}

/// Names the programs other than the store that have the database open, as far as this user may see them.
fn readers(database: &Path) -> String {
    let database = database.canonicalize().unwrap_or_else(|_| database.to_owned());
    let mut found = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let descriptors = std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten();
        let name = || std::fs::read_to_string(process.path().join("comm")).unwrap_or_default().trim().to_owned();
        let mut open = descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
        if open.any(|file| file == database) && name() != "ken-store" {
            found.push(format!("{} (pid {})", name(), process.file_name().display()));
        }
    }
    match found.as_slice() {
        [] => "another program reads the database".to_owned(),
        readers => format!("{} reads the database", readers.join(", ")),
    }
}

/// Reports the losses that the store has recorded at any of its starts, until a person removes the record.
fn check_losses(folder: &Path, findings: &mut Findings) {
    let path = folder.join("ken.db.changes-lost");
    for loss in std::fs::read_to_string(&path).unwrap_or_default().lines() {
        let fix = format!("restore a backup (ken restore FILE), or accept the loss: rm {}", path.display());
        findings.error("changes-lost", folder.join("ken.db").display(), loss, fix);
    }
}

/// Reports the problems of the running store.
fn check_store(places: &Places, findings: &mut Findings) {
    let Some(stats) = call_within::<ServiceStats>(places, "store", &Nothing {}, CALL_TIMEOUT) else { return };
    let database = places.state.join("store/ken.db");
    if stats.get("writable").and_then(Value::as_u64) == Some(0) {
        let reason = stats.get("failure").and_then(Value::as_str).unwrap_or_default();
        let why = format!("cannot be written now; nothing is accepted until it can: {reason}");
        let (place, fix) = if database.exists() {
            (database.display().to_string(), "make room on the disk; see `ken logs store`")
        } else {
            ("the store".to_owned(), "mend what it says of the database server: ken-postgres(7); see `ken logs store`")
        };
        findings.error("not-writable", place, why, fix);
    } else if let Some(why) = stats.get("read_failure").and_then(Value::as_str) {
        let fix = "let the server and the role have five connections for each store: ken-postgres(7)";
        findings.warning("connections-missing", "the store", why, fix);
    }
    if let Some(failing) = stats.get("background_failure").and_then(Value::as_str) {
        let why = format!("background work fails, and what it would remove stays: {failing}");
        let fix = "see `ken logs store`; ken restart store tries it at once, and ken restore brings back a backup";
        findings.error("background-failing", "the store", why, fix);
    }
}

/// Reports sessions that were deleted for good elsewhere than by `ken sessions rm`, of which files outside the database still hold something.
fn check_files_of_deleted(places: &Places, findings: &mut Findings) {
    let named = sessions::in_files(places);
    let Some(mut store) = (!named.is_empty()).then(|| client::connect(places, "store").ok()).flatten() else { return };
    let mut is_gone = |id: &String| {
        let session = BySession { session_id: id.clone() };
        let scope = client::call_on::<SessionsScope>(&mut store, "store", &session, Some(CALL_TIMEOUT));
        scope.is_err_and(|error| error.code == Code::Gone)
    };
    let gone: Vec<String> = named.into_iter().filter(|id| is_gone(id)).collect();
    if !gone.is_empty() {
        let files = format_count(gone.len() as u64, "session that was", "sessions that were");
        let why =
            format!("cases of eval, the journal of undo or the history of ken-tui hold something of {files} deleted");
        // A command has to fit into a line. What is left is reported by the next check.
        let first = gone.get(..MAX_NAMED).unwrap_or(&gone).join(" ");
        findings.warning("files-of-deleted", places.state.display(), why, format!("ken sessions rm --yes {first}"));
    }
}

/// Reports a clock that differs from that of the database server. Nothing depends on it but the times that people read.
fn check_server_clock(places: &Places, findings: &mut Findings) {
    let before = Timestamp::now();
    let Some(Hosts { server_time: Some(server), .. }) =
        call_within::<HostsList>(places, "store", &Nothing {}, CALL_TIMEOUT)
    else {
        return;
    };
    let away = |own: Timestamp| own.millis().saturating_sub(server.millis());
    // The server looked at its clock between the two.
    let off = away(before).max(-away(Timestamp::now()));
    if off > MAX_CLOCK_MS {
        let why = format!("its clock differs by {} s from the clock of the database server", off / 1_000);
        findings.warning("clock", "this machine", why, "set both clocks: timedatectl set-ntp true");
    }
}

/// Reports what the database server does not report by itself: what a fail-over would lose, and what makes it slow.
fn check_server(health: &ServerHealth, findings: &mut Findings) {
    let server = "the database server";
    if health.standbys > 0 && !health.synchronous {
        let behind =
            health.behind_bytes.map(|bytes| format!("; now the last {bytes} bytes of its log")).unwrap_or_default();
        let why = format!(
            "no commit waits for a standby: if one is promoted, what was acknowledged last can be lost{behind}"
        );
        let fix = "set synchronous_standby_names on the server, and [store] require_sync = true: ken-postgres(7)";
        findings.warning("standby-asynchronous", server, why, fix);
    }
    if health.dead_rows > DEAD_ROWS.max(health.live_rows) {
        let ServerHealth { table, dead_rows, live_rows, .. } = health;
        let why = format!("the table {table} has {dead_rows} dead rows and {live_rows} live ones");
        findings.warning("dead-rows", server, why, format!("end old transactions, then: VACUUM ken.{table}"));
    }
    if let Some(whose) = &health.blocking {
        let why = format!("changes wait for a lock that a transaction holds, and fail: {whose}");
        findings.error("lock-held", server, why, "end it, or that program: pg_terminate_backend(PID)");
    }
    let whose = health.oldest.as_deref().unwrap_or("a program");
    if let Some(age) = health.oldest_ms.filter(|age| *age > OLD_TRANSACTION_MS) {
        let why = format!("a transaction has been open for {} minutes, so that dead rows stay: {whose}", age / 60_000);
        findings.warning("old-transaction", server, why, "end it, or that program: pg_terminate_backend(PID)");
    }
}

/// Says when conversations are deleted without anybody asking for it.
pub(super) fn check_retention(places: &Places, retention: Retention, findings: &mut Findings) {
    let days = |days: Days| match days.count() {
        0 => "for ever".to_owned(),
        1 => "for a day".to_owned(),
        count => format!("for {count} days"),
    };
    if retention.sessions.count() > 0 {
        let why = format!(
            "sessions are kept {} after their last use, runs of schedules {}",
            days(retention.sessions),
            days(retention.schedule_runs)
        );
        let fix = "to keep them longer, change [retention]: ken.toml(5)";
        findings.note("retention", places.config.display(), why, fix);
    }
}

/// The age from which on the newest backup is reported. The timer makes one a day.
const BACKUP_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How far the time of a file may be ahead. A file server can have another clock.
const AHEAD: Duration = Duration::from_secs(60 * 60);

/// Reports backups that are made no more, and those whose age nobody knows. Nothing is said about a system that never had one.
pub(super) fn check_backups(places: &Places, findings: &mut Findings) {
    let folder = places.state.with_file_name("ken-backups");
    let Ok(files) = std::fs::read_dir(&folder) else { return };
    let is_backup = |file: &DirEntry| file.path().extension().is_some_and(|extension| extension == "tar");
    let times = files.flatten().filter(is_backup).filter_map(|file| file.metadata().ok()?.modified().ok());
    let soon = SystemTime::now() + AHEAD;
    let (ahead, past): (Vec<SystemTime>, Vec<SystemTime>) = times.partition(|time| *time > soon);
    let backup = format!("ken backup --keep 7 {}", folder.display());
    if !ahead.is_empty() {
        let files = format_count(ahead.len() as u64, "backup has a date", "backups have dates");
        let why = format!("{files} in the future: the clock was ahead, or it is behind now");
        let fix = format!("check the clock (timedatectl); if it is right, new backups take their place: {backup}");
        findings.warning("backup-ahead", folder.display(), why, fix);
    }
    let why = match past.into_iter().max().map(|newest| newest.elapsed().unwrap_or_default()) {
        None if ahead.is_empty() => "holds no backup".to_owned(),
        Some(age) if age > BACKUP_AGE => format!("the newest backup is {} days old", age.as_secs() / 86_400),
        _ => return,
    };
    findings.warning("backup-old", folder.display(), why, backup);
}

fn check_audit(folder: &Path, findings: &mut Findings) {
    let Some(files) = ken_audit::files(folder).ok().filter(|files| !files.is_empty()) else { return };
    let why = match ken_audit::verify(&files, "") {
        Ok(Ok(_)) => return,
        Ok(Err(bad)) => bad.to_string(),
        Err(error) => error.to_string(),
    };
    let fix = "keep a copy of the folder, and find out who wrote in it; ken-audit(5)";
    findings.error("audit", folder.display(), why, fix);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    use super::*;

    /// Starts a process of this name that has the file open.
    fn reader(folder: &Path, name: &str, file: &Path) -> Child {
        let program = folder.join(name);
        symlink("/bin/sleep", &program).unwrap();
        Command::new(program).arg0("sleep").arg("60").stdin(File::open(file).unwrap()).spawn().unwrap()
    }

    fn found(health: &ServerHealth) -> Vec<&'static str> {
        let mut findings = Findings(Vec::new());
        check_server(health, &mut findings);
        findings.0.iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn a_server_is_reported_when_it_can_lose_something_or_cannot_remove_dead_rows() {
        let sound = ServerHealth {
            standbys: 1,
            synchronous: true,
            live_rows: 50_000,
            dead_rows: 50_000,
            oldest_ms: Some(5 * 60 * 1_000),
            ..ServerHealth::default()
        };
        assert!(found(&sound).is_empty() && found(&ServerHealth::default()).is_empty());
        assert!(found(&ServerHealth { dead_rows: 10_000, ..ServerHealth::default() }).is_empty());
        assert_eq!(found(&ServerHealth { synchronous: false, ..sound.clone() }), ["standby-asynchronous"]);
        assert_eq!(found(&ServerHealth { dead_rows: 50_001, ..sound.clone() }), ["dead-rows"]);
        assert_eq!(found(&ServerHealth { oldest_ms: Some(600_000), ..sound }), ["old-transaction"]);
        let blocking = Some("psql of ken (pid 7)".to_owned());
        assert_eq!(found(&ServerHealth { blocking, ..ServerHealth::default() }), ["lock-held"]);
    }

    #[test]
    fn a_backup_from_the_future_is_reported_and_not_taken_for_a_new_one() {
        let (now, days) = (SystemTime::now(), |days: u64| Duration::from_secs(days * 86_400));
        let (old, new, ahead) = (now - days(8), now - days(6), now + days(1));
        for (times, expected) in [
            (&[][..], &["backup-old"][..]),
            (&[new, old], &[]),
            (&[old], &["backup-old"]),
            (&[ahead], &["backup-ahead"]),
            (&[ahead, new], &["backup-ahead"]),
            (&[ahead, old, ahead], &["backup-ahead", "backup-old"]),
            (&[now + AHEAD / 2, old], &[]),
        ] {
            let home = tempfile::tempdir().unwrap();
            let folder = home.path().join("ken-backups");
            std::fs::create_dir(&folder).unwrap();
            for (number, time) in times.iter().enumerate() {
                File::create(folder.join(format!("{number}.tar"))).unwrap().set_modified(*time).unwrap();
            }
            let mut findings = Findings::default();
            let places = Places::resolve(Some(home.path()), 0, |_| None).unwrap();
            check_backups(&places, &mut findings);
            assert_eq!(findings.0.iter().map(|finding| finding.id).collect::<Vec<_>>(), expected, "{times:?}");
        }
    }

    #[test]
    fn every_reader_of_the_database_but_the_store_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("ken.db");
        std::fs::write(&database, "").unwrap();
        let mut store = reader(folder.path(), "ken-store", &database);
        assert_eq!(readers(&database), "another program reads the database");
        let mut other = reader(folder.path(), "viewer", &database);
        assert_eq!(readers(&database), format!("viewer (pid {}) reads the database", other.id()));
        for process in [&mut store, &mut other] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}
