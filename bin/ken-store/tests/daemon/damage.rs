//! Damaged, truncated and missing files. The store must never start without a change that it had answered, unless it reports the loss.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use ken_store::tables::sqlite::Sqlite;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::process::*;

const PROMPTS: usize = 60;

/// Waits until the store has copied its log into the database and truncated it.
fn wait_until_idle(peer: &mut Peer) {
    let until = Instant::now() + TIMEOUT;
    while peer.call("service.stats", json!({}))["wal_bytes"] != 0 {
        assert!(Instant::now() < until, "the log is not cut");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
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

/// Applies every fault to every file in a copy of `state`. Returns in how many cases the store refused to start, and in how many it
/// reported a loss.
fn try_all(state: &Path) -> (usize, usize) {
    let scratch = tempfile::tempdir().unwrap();
    let (mut refused, mut reported) = (0, 0);
    let intact = scratch.path().join("intact");
    copy(state, &intact);
    let sound = Sqlite::open(&intact.join("ken.db")).unwrap();
    assert_eq!(sound.found().problem(), None);
    drop(sound);
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
        if fs::metadata(&path).map_or(0, |meta| meta.len()) == 0 {
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
                let complaint = opened.found().problem();
                drop(opened);
                let is_complete = stored(&database).as_ref() == Some(&complete);
                assert!(is_complete || complaint.is_some(), "silent loss: {fault:?} of {name}");
                if let Some(complaint) = complaint {
                    reported += 1;
                    assert_eq!(status, Some(2), "--check is content: {fault:?} {name} {complaint}");
                }
            }
        }
    }
    (refused, reported)
}

fn files(state: &Path) -> Vec<String> {
    let entries = fs::read_dir(state).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn state_of(home: &Path) -> PathBuf {
    home.join("state/store")
}

#[test]
fn nothing_is_lost_in_silence_after_a_stop() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..PROMPTS);
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let state = state_of(home.path());
    assert_eq!(files(&state), ["ken.db", "ken.db.lock", "ken.db.mark"]);
    let before = fs::read(state.join("ken.db")).unwrap();
    assert_eq!(check(&state.join("ken.db")).0, Some(0));
    assert_eq!(files(&state), ["ken.db", "ken.db.lock", "ken.db.mark"], "--check leaves files");
    assert!(fs::read(state.join("ken.db")).unwrap() == before);
    let (refused, reported) = try_all(&state);
    // Whether a fault is refused or reported depends on what the damaged page contains. Each of the twelve must be noticed.
    assert_eq!((refused >= 5, refused + reported), (true, 12), "{refused} {reported}");
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
    let marker = state_of(home.path()).join("ken.db.mark");
    let until = Instant::now() + TIMEOUT;
    // The marker is updated after the log is truncated. If the store is killed between the two, the older marker remains, which contains
    // less.
    while !fs::read_to_string(&marker).unwrap().contains("\"sum\"") {
        assert!(Instant::now() < until, "the marker does not follow");
    }
    daemon.end(Signal::SIGKILL);
    let (refused, reported) = try_all(&state_of(home.path()));
    assert_eq!((refused >= 5, refused + reported), (true, 12), "{refused} {reported}");
}

#[test]
fn a_damaged_log_is_reported_in_the_log_and_the_statistics_and_a_copy_is_kept() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    accept(&mut Peer::connect(&daemon.socket()), 0..3);
    daemon.end(Signal::SIGKILL);
    let state = state_of(home.path());
    let path = state.join("ken.db-wal");
    Fault::Flip(80).inflict(&path);
    let damaged = fs::read(&path).unwrap();
    let log = home.path().join("log");
    let mut command = command(home.path());
    command.stderr(fs::File::create(&log).unwrap());
    let daemon = Daemon::start_as(command, home.path());
    let stats = Peer::connect(&daemon.socket()).call("service.stats", json!({}));
    let lost = stats["journal_frames_lost"].as_u64().unwrap();
    assert!(lost > 0, "{stats}");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains(&format!("{lost} frames that had been committed")), "{log}");
    let copy = files(&state).into_iter().find(|name| name.contains(".damaged-"));
    assert!(fs::read(state.join(copy.unwrap())).unwrap() == damaged);
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let daemon = Daemon::start(home.path());
    let stats = Peer::connect(&daemon.socket()).call("service.stats", json!({}));
    assert_eq!((&stats["journal_frames_lost"], &stats["database_changed"]), (&json!(0), &json!(0)));
}

#[test]
fn a_missing_database_is_refused_with_the_way_back_and_an_older_copy_too() {
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
    fs::write(&database, older).unwrap();
    let (code, stderr) = crate::refused(command(home.path()));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("older copy") && stderr.contains("ken.db.mark"), "{stderr}");
    fs::write(&database, newer).unwrap();
    let daemon = Daemon::start(home.path());
    assert_eq!(Peer::connect(&daemon.socket()).call("service.stats", json!({}))["database_changed"], 0);
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
            let opened = Sqlite::open(&database).unwrap();
            assert_eq!(opened.found().problem(), None, "{more:?}");
        }
    }
}
