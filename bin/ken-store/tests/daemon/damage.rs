//! Damaged, truncated and missing files. The store must never start without a change that it had answered, unless it reports the loss.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ken_store::tables::sqlite::Sqlite;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::process::*;

const PROMPTS: usize = 60;

/// Waits until the store has copied its log into the database and truncated it.
pub(crate) fn wait_until_idle(peer: &mut Peer) {
    ken_tests::until("the log is cut", || peer.call("service.stats", json!({}))["wal_bytes"] == 0);
}

fn accept(peer: &mut Peer, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let accepted = peer.call("chat.accept", prompt(0, number));
        assert_eq!(accepted.get("refused"), None, "{accepted}");
    }
}

/// Returns every prompt and its answer, as a store that starts with this database would read them; `None` if they cannot be read.
fn stored(database: &Path) -> Option<Vec<(String, String, String)>> {
    let file = rusqlite::Connection::open(database).ok()?;
    let mut select = file.prepare("SELECT id, text, answer FROM events ORDER BY event").ok()?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).ok()?;
    rows.collect::<Result<_, _>>().ok()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Inverts one bit at this percentage of the file's length.
    Flip(usize),
    Cut(usize),
    Remove,
}

impl Fault {
    fn inflict(self, path: &Path) {
        let mut bytes = fs::read(path).unwrap();
        let at = |percent: usize| (bytes.len() * percent / 100).min(bytes.len() - 1);
        match self {
            Fault::Flip(percent) => {
                let at = at(percent);
                bytes[at] ^= 0x10;
            }
            Fault::Cut(percent) => bytes.truncate(at(percent)),
            Fault::Remove => return fs::remove_file(path).unwrap(),
        }
        fs::write(path, bytes).unwrap();
    }
}

fn check(database: &Path) -> (Option<i32>, String) {
    let checked = Command::new(EXE).arg("--check").arg(database).output().unwrap();
    (checked.status.code(), String::from_utf8(checked.stderr).unwrap())
}

/// Returns whether a record of lost changes lies beside the database.
fn has_recorded_loss(database: &Path) -> bool {
    database.with_file_name("ken.db.changes-lost").exists()
}

/// Applies every fault to every file in a copy of `state`. Returns in how many cases the store refused to start, and in how many it
/// recorded a loss. A flipped bit within the text of the database itself is not among them: only the disk or a backup can tell.
fn try_all(state: &Path) -> (usize, usize) {
    let scratch = tempfile::tempdir().unwrap();
    let (mut refused, mut reported) = (0, 0);
    let intact = scratch.path().join("intact");
    copy(state, &intact);
    drop(Sqlite::open(&intact.join("ken.db")).unwrap());
    assert!(!has_recorded_loss(&intact.join("ken.db")));
    let complete = stored(&intact.join("ken.db")).unwrap();
    assert_eq!(complete.len(), PROMPTS);
    let faults = [0, 20, 40, 60, 80, 99].map(Fault::Flip).into_iter();
    let faults = faults.chain([0, 1, 30, 70, 99].map(Fault::Cut)).chain([Fault::Remove]);
    for (number, (fault, name)) in
        faults.flat_map(|fault| ["ken.db", "ken.db-wal", "ken.db-shm"].map(|name| (fault, name))).enumerate()
    {
        let case = scratch.path().join(number.to_string());
        copy(state, &case);
        let (path, database) = (case.join(name), case.join("ken.db"));
        let is_text = name == "ken.db" && matches!(fault, Fault::Flip(1..));
        if is_text || fs::metadata(&path).map_or(0, |meta| meta.len()) == 0 {
            continue;
        }
        fault.inflict(&path);
        let (status, stderr) = check(&database);
        match Sqlite::open(&database) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("ken.db"), "{error}");
                assert_eq!(status, Some(2), "--check is content: {fault:?} {name} {error}");
                assert!(stderr.starts_with("ken-store: "), "{stderr}");
            }
            Ok(opened) => {
                drop(opened);
                let is_complete = stored(&database).as_ref() == Some(&complete);
                assert!(is_complete || status == Some(2), "silent loss: {fault:?} of {name}");
                reported += usize::from(has_recorded_loss(&database));
                let (status, stderr) = check(&database);
                assert!(
                    is_complete || has_recorded_loss(&database) || status == Some(2),
                    "{fault:?} of {name} {stderr}"
                );
            }
        }
    }
    (refused, reported)
}

pub(crate) fn files(state: &Path) -> Vec<String> {
    let entries = fs::read_dir(state).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn state_of(home: &Path) -> PathBuf {
    home.join("state/store")
}

#[test]
fn nothing_is_lost_in_silence_after_a_stop() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..PROMPTS);
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let state = state_of(home.path());
    assert_eq!(files(&state), ["ken.db", "ken.db.acknowledged", "ken.db.lock"]);
    let before = fs::read(state.join("ken.db")).unwrap();
    assert_eq!(check(&state.join("ken.db")).0, Some(0));
    assert_eq!(files(&state), ["ken.db", "ken.db.acknowledged", "ken.db.lock"], "--check leaves files");
    assert!(fs::read(state.join("ken.db")).unwrap() == before);
    let (refused, reported) = try_all(&state);
    // A flipped bit in the header, five lengths, and no file.
    assert_eq!((refused, reported), (7, 0));
}

#[test]
fn nothing_is_lost_in_silence_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    accept(&mut peer, 0..PROMPTS / 2);
    wait_until_idle(&mut peer);
    accept(&mut peer, PROMPTS / 2..PROMPTS);
    daemon.end(Signal::SIGKILL);
    let state = state_of(home.path());
    assert!(fs::metadata(state.join("ken.db-wal")).unwrap().len() > 0);
    let (refused, reported) = try_all(&state);
    assert!(refused >= 5 && reported >= 8, "{refused} {reported}");
}

#[test]
fn nothing_is_lost_in_silence_after_a_kill_while_idle() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    accept(&mut peer, 0..PROMPTS);
    wait_until_idle(&mut peer);
    daemon.end(Signal::SIGKILL);
    assert_eq!(try_all(&state_of(home.path())), (7, 0));
}

/// Returns the error lines of a log that speak of the database.
fn errors(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap();
    let is_error = |line: &&str| line.contains("\"ERROR\"") && line.contains("ken.db");
    text.lines().filter(is_error).map(str::to_owned).collect()
}

fn start_with_log(home: &Path, log: &Path) -> Daemon {
    let mut command = command(home);
    command.stderr(fs::File::create(log).unwrap());
    Daemon::start_as(command, home)
}

#[test]
fn a_loss_is_recorded_until_a_person_removes_the_record_and_the_damaged_log_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..3);
    daemon.end(Signal::SIGKILL);
    let state = state_of(home.path());
    let path = state.join("ken.db-wal");
    Fault::Flip(80).inflict(&path);
    let damaged = fs::read(&path).unwrap();
    let log = home.path().join("log");
    let daemon = start_with_log(home.path(), &log);
    assert!(errors(&log).iter().any(|line| line.contains("acknowledged changes are missing")));
    let copy = files(&state).into_iter().find(|name| name.contains(".damaged-")).unwrap();
    assert!(fs::read(state.join(&copy)).unwrap() == damaged);
    let record = state.join("ken.db.changes-lost");
    let lost = fs::read_to_string(&record).unwrap();
    assert!(lost.contains(&copy) && lost.lines().count() == 1, "{lost}");
    accept(&mut Peer::connect(&daemon.socket()), 10..12);
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    // Later starts lose nothing more, and the record stays.
    let daemon = start_with_log(home.path(), &log);
    assert_eq!((fs::read_to_string(&record).unwrap(), errors(&log)), (lost, Vec::new()));
    daemon.end(Signal::SIGKILL);
}

#[test]
fn a_log_that_is_removed_under_the_store_ends_it_before_it_acknowledges_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let mut daemon = start_with_log(home.path(), &log);
    let mut peer = Peer::connect(&daemon.socket());
    accept(&mut peer, 0..3);
    let (state, mut done) = (state_of(home.path()), 3);
    fs::remove_file(state.join("ken.db-wal")).unwrap();
    while peer.try_call("chat.accept", &prompt(0, done)).is_some() {
        done += 1;
    }
    assert_eq!(done, 3, "a change was acknowledged after the log had gone");
    assert!(!daemon.child.wait().unwrap().success());
    assert!(errors(&log).iter().any(|line| line.contains("was removed or replaced")), "{:?}", errors(&log));
    let daemon = Daemon::start(home.path());
    drop(daemon);
    // The change that was refused may be there too: its caller does not know.
    assert!(stored(&state.join("ken.db")).unwrap().len() >= 3);
    assert!(!has_recorded_loss(&state.join("ken.db")));
}

#[test]
fn a_log_that_was_removed_before_a_kill_is_a_recorded_loss() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..3);
    fs::remove_file(state_of(home.path()).join("ken.db-wal")).unwrap();
    daemon.end(Signal::SIGKILL);
    drop(Daemon::start(home.path()));
    assert!(has_recorded_loss(&state_of(home.path()).join("ken.db")));
}

#[test]
fn another_database_in_its_place_ends_the_store_and_is_a_recorded_loss() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    accept(&mut peer, 0..3);
    let (database, older) = (daemon.database(), home.path().join("older.db"));
    assert!(Command::new(EXE).arg("--backup").args([&database, &older]).status().unwrap().success());
    accept(&mut peer, 3..6);
    fs::rename(&older, &database).unwrap();
    assert!(peer.try_call("chat.accept", &prompt(0, 6)).is_none(), "it was acknowledged");
    drop(daemon);
    for log in ["ken.db-wal", "ken.db-shm"] {
        _ = fs::remove_file(database.with_file_name(log));
    }
    drop(Daemon::start(home.path()));
    assert!(has_recorded_loss(&database));
}

/// After a power failure the file that was not synced may be older than the database, which was.
#[test]
fn an_older_number_of_the_last_change_is_no_loss_and_a_damaged_one_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..3);
    let database = daemon.database();
    daemon.end(Signal::SIGKILL);
    let number = database.with_file_name("ken.db.acknowledged");
    fs::write(&number, "1\n").unwrap();
    drop(Daemon::start(home.path()));
    assert!(!has_recorded_loss(&database));
    assert!(fs::read_to_string(&number).unwrap().trim().parse::<u64>().unwrap() > 1);
    fs::write(&number, "\0\0\0").unwrap();
    let (code, stderr) = crate::refused(command(home.path()));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("ken.db.acknowledged") && stderr.contains("remove this file"), "{stderr}");
}

#[test]
fn damage_is_found_in_the_background_after_a_kill() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    accept(&mut peer, 0..200);
    wait_until_idle(&mut peer);
    daemon.end(Signal::SIGKILL);
    let database = state_of(home.path()).join("ken.db");
    let mut bytes = fs::read(&database).unwrap();
    // A page in the middle of the prompts becomes zeros, as after a write that the disk has lost.
    let text = b"prompt 100";
    let at = bytes.windows(text.len()).position(|found| found == text).unwrap() / 4096 * 4096;
    bytes[at..at + 4096].fill(0);
    fs::write(&database, bytes).unwrap();
    let log = home.path().join("log");
    let daemon = start_with_log(home.path(), &log);
    ken_tests::until("the damage is found", || errors(&log).iter().any(|line| line.contains("damaged: table")));
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
}

#[test]
fn a_missing_database_is_refused_with_the_way_back_and_an_older_copy_is_a_loss() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..3);
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let database = state_of(home.path()).join("ken.db");
    let older = fs::read(&database).unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 3..6);
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let newer = fs::read(&database).unwrap();
    fs::remove_file(&database).unwrap();
    let (code, stderr) = crate::refused(command(home.path()));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("is missing") && stderr.contains("restore a backup"), "{stderr}");
    assert!(!database.exists());
    // The names are those of the file that is checked, which need not be the database of the store.
    let emptied = database.with_file_name("copy.db");
    fs::write(&emptied, "").unwrap();
    let acknowledged = database.with_file_name("ken.db.acknowledged");
    fs::copy(acknowledged, database.with_file_name("copy.db.acknowledged")).unwrap();
    let (code, stderr) = check(&emptied);
    assert!(code == Some(2) && stderr.contains("copy.db.acknowledged beside it knows of change"), "{stderr}");
    assert!(stderr.contains("move copy.db, ") && !stderr.contains("ken.db"), "{stderr}");
    fs::write(&database, &newer).unwrap();
    drop(Daemon::start(home.path()));
    assert!(!has_recorded_loss(&database));
    fs::write(&database, older).unwrap();
    let (code, stderr) = check(&database);
    assert!(code == Some(2) && stderr.contains("had been acknowledged"), "{stderr}");
    drop(Daemon::start(home.path()));
    assert!(has_recorded_loss(&database));
}

/// Writes a frame of the log's current generation that a kill has cut short, and a log header before it if the log is empty.
fn tear_frame(state: &Path) {
    let (log, index) = (state.join("ken.db-wal"), fs::read(state.join("ken.db-shm")).unwrap());
    let mut bytes = fs::read(&log).unwrap_or_default();
    let salt = &index[32..40];
    if bytes.is_empty() {
        let words = [0x377f_0682_u32, 3_007_000, 4_096, 0].map(u32::to_be_bytes);
        bytes.extend(words.as_flattened());
        bytes.extend(salt);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut first, mut second) = (0_u32, 0_u32);
        for at in (0..24).step_by(8) {
            first = first.wrapping_add(word(at)).wrapping_add(second);
            second = second.wrapping_add(word(at + 4)).wrapping_add(first);
        }
        bytes.extend([first, second].map(u32::to_be_bytes).as_flattened());
    }
    bytes.extend([0, 0, 0, 2, 0, 0, 0, 9]);
    bytes.extend(salt);
    bytes.extend([7; 1_000]);
    fs::write(log, bytes).unwrap();
}

#[test]
fn a_frame_that_a_kill_has_cut_short_is_no_damage() {
    let home = tempfile::tempdir().unwrap();
    let database = state_of(home.path()).join("ken.db");
    for prompts in [0..0, 0..3, 3..3] {
        let daemon = Daemon::start(home.path());
        accept(&mut Peer::connect(&daemon.socket()), prompts);
        assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
        // First into an empty log, then after frames that an earlier kill has left.
        for more in [0..0, 10..12] {
            let daemon = Daemon::start(home.path());
            accept(&mut Peer::connect(&daemon.socket()), more.clone());
            daemon.end(Signal::SIGKILL);
            let daemon = Daemon::start(home.path());
            daemon.end(Signal::SIGKILL);
            tear_frame(&state_of(home.path()));
            assert_eq!(Daemon::start(home.path()).end(Signal::SIGTERM), Some(0));
            assert!(!has_recorded_loss(&database), "{more:?}");
        }
    }
}
