//! Other programs that look at the database while the store uses it. Whatever they do as readers, nothing that was acknowledged may be
//! lost when the store is killed afterwards. `KEN_LOOKS` is the number of rounds for each kind of look, 2 by default.

#![allow(clippy::print_stdout)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::damage::{files, state_of, wait_until_idle};
use crate::process::*;

const ENTRIES: usize = 20;

/// Returns whether the test can run. CI installs the program, so there it does.
fn has_sqlite3() -> bool {
    let found = Command::new("sqlite3").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !found {
        ken_tests::skip("sqlite3 is not installed");
    }
    found
}

/// Runs one command of the `sqlite3` shell on a database.
fn sqlite3(database: &Path, command: &str) -> String {
    let output = Command::new("sqlite3").arg(database).arg(command).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A `sqlite3` shell that has begun a transaction and stays in it.
pub(crate) struct Shell {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Shell {
    /// `begin` is the statement that begins the transaction.
    pub(crate) fn start(database: &Path, begin: &str) -> Shell {
        let mut command = Command::new("sqlite3");
        let mut child = command.arg(database).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        // It waits, because the store may write at this moment, for example when it starts. A shell that fails goes on outside a transaction.
        writeln!(to, ".bail on\n.timeout 20000\n{begin};\nSELECT count(*) FROM knowledge;").unwrap();
        let mut shell = Shell { child, to, from };
        let count = shell.line();
        assert!(count.trim().parse::<u64>().is_ok(), "{begin}: {count:?}");
        shell
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        _ = writeln!(self.to, ".quit");
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn entry(title: &str) -> Value {
    json!({"title": title, "content": "c", "source": "api", "createdBy": "api"})
}

/// Returns the number of entries that the store has.
fn entries(peer: &mut Peer) -> usize {
    let (mut count, mut after) = (0, Value::Null);
    loop {
        let page = peer.call("knowledge.list", json!({"limit": 100, "after": after}));
        count += page["records"].as_array().unwrap().len();
        after = page["page"]["after"].clone();
        if after.is_null() {
            return count;
        }
    }
}

/// Looks at an idle database, stores entries, and kills the store, a number of times. `look` returns a program that still reads, if it does.
fn look_and_kill(look: impl Fn(&Path) -> Option<Shell>) {
    if !has_sqlite3() {
        return;
    }
    let rounds = std::env::var("KEN_LOOKS").map_or(2, |rounds| rounds.parse().unwrap());
    let home = tempfile::tempdir().unwrap();
    let (mut stored, mut daemon) = (0, Daemon::start(home.path()));
    for round in 0..rounds {
        let mut peer = Peer::connect(&daemon.socket());
        peer.call("knowledge.put", entry(&format!("{round} wakes the store")));
        stored += 1;
        wait_until_idle(&mut peer);
        let reader = look(&daemon.database());
        for number in 0..ENTRIES {
            peer.call("knowledge.put", entry(&format!("{round}-{number}")));
            stored += 1;
        }
        let backup = home.path().join(format!("backup-{round}.db"));
        let copied = Command::new(EXE).arg("--backup").arg(daemon.database()).arg(&backup).status().unwrap();
        assert!(copied.success());
        daemon.end(Signal::SIGKILL);
        let in_backup = rusqlite::Connection::open(&backup).unwrap();
        let in_backup: i64 = in_backup.query_row("SELECT count(*) FROM knowledge", [], |row| row.get(0)).unwrap();
        daemon = Daemon::start(home.path());
        let left = entries(&mut Peer::connect(&daemon.socket()));
        assert_eq!((left, in_backup), (stored, stored as i64), "round {round}");
        drop(reader);
    }
    println!("{stored} of {stored} acknowledged entries are there after {rounds} kills");
    let names = files(&state_of(home.path()));
    assert!(!names.iter().any(|name| name.contains("lost") || name.contains("damaged")), "{names:?}");
}

#[test]
fn listing_the_tables_loses_nothing() {
    look_and_kill(|database| {
        assert!(sqlite3(database, ".tables").contains("knowledge"));
        None
    });
}

#[test]
fn vacuum_into_a_copy_loses_nothing() {
    look_and_kill(|database| {
        let copy = database.with_file_name("vacuumed");
        _ = std::fs::remove_file(&copy);
        sqlite3(database, &format!("VACUUM INTO '{}'", copy.display()));
        None
    });
}

#[test]
fn ten_shells_at_once_lose_nothing() {
    look_and_kill(|database| {
        let shells: Vec<Shell> = (0..10).map(|_| Shell::start(database, "BEGIN")).collect();
        drop(shells);
        None
    });
}

#[test]
fn copying_the_files_loses_nothing() {
    look_and_kill(|database| {
        let to = tempfile::tempdir().unwrap();
        let files = ["ken.db", "ken.db-wal", "ken.db-shm"].map(|name| database.with_file_name(name));
        assert!(Command::new("cp").args(&files).arg(to.path()).status().unwrap().success());
        None
    });
}

#[test]
fn a_reader_that_stays_open_loses_nothing() {
    look_and_kill(|database| Some(Shell::start(database, "BEGIN")));
}

#[test]
fn a_lock_of_another_program_is_unavailable_and_passes() {
    if !has_sqlite3() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut peer = Peer::connect(&daemon.socket());
    let writer = Shell::start(&daemon.database(), "BEGIN IMMEDIATE");
    let error = peer.try_call("knowledge.put", &entry("locked")).unwrap().unwrap_err();
    assert_eq!(error["code"], "unavailable", "{error}");
    assert!(error["message"].as_str().unwrap().contains("another program holds a lock"), "{error}");
    assert_eq!((entries(&mut peer), peer.call("service.stats", json!({}))["writable"].clone()), (0, json!(0)));
    drop(writer);
    ken_tests::until("it tries again by itself", || peer.call("service.stats", json!({}))["writable"] != 0);
    peer.call("knowledge.put", entry("free"));
}
