//! Tests of the real binary: its wire, `kill -9`, and files that cannot be used.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod damage;
mod disk;
mod foreign;
mod process;

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ken_wire::conformance::{Subject, check};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use process::*;
use serde_json::{Value, json};

#[test]
fn it_conforms_and_ends_on_term_with_0() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let slow = Some(("submissions.claim", json!({"holder": "t", "max": 1, "wait_ms": 60_000})));
    let failed = check(&Subject { socket: daemon.socket(), slow });
    assert!(failed.is_empty(), "{failed:#?}");
    let mut peer = Peer::connect(&daemon.socket());
    ken_tests::until("the requests of earlier connections are removed", || {
        let stats = peer.call("service.stats", json!({}));
        assert!(stats["database_bytes"].as_u64().unwrap() > 0);
        stats["waiters"] == 0 && stats["write_queue"] == 0
    });
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
}

#[test]
fn a_closed_connection_frees_its_leases() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut client = Peer::connect(&daemon.socket());
    client.call("chat.accept", prompt(0, 0));
    let claim = json!({"holder": "t", "max": 1, "wait_ms": 8_000});
    let mut first = Peer::connect(&daemon.socket());
    let lease = first.call("submissions.claim", claim.clone())["claims"][0]["lease"].take();
    assert_eq!(lease["number"], 1);
    drop(first);
    let mut second = Peer::connect(&daemon.socket());
    let again = second.call("submissions.claim", claim)["claims"][0]["lease"].take();
    assert_eq!(again["number"], 2);
    let late = client.append(&lease, 0, &[event("s0-0", 0)]).unwrap().unwrap_err();
    assert_eq!(late["code"], "conflict");
    second.append(&again, 0, &[event("s0-0", 0)]).unwrap().unwrap();
}

/// The answers that clients have got, over all kills.
#[derive(Default)]
struct Acknowledged {
    /// The answer to each prompt, by submission.
    prompts: BTreeMap<String, Value>,
    /// The number of events whose append was answered, by submission.
    events: BTreeMap<String, u64>,
    keys: BTreeMap<String, Value>,
}

impl Acknowledged {
    fn answers(&self) -> usize {
        self.prompts.len() + self.events.len() + self.keys.len()
    }
}

/// Sends changes as one client until the daemon has ended. Returns the number of the next prompt.
fn write_until_gone(socket: &Path, client: usize, from: usize, acknowledged: &Mutex<Acknowledged>) -> usize {
    let mut peer = Peer::connect(socket);
    for number in from.. {
        let submission = format!("s{client}-{number}");
        let Some(answer) = peer.try_call("chat.accept", &prompt(client, number)) else {
            return number;
        };
        let answer = answer.unwrap();
        assert_eq!(answer.get("refused"), None, "{answer}");
        acknowledged.lock().prompts.insert(submission, answer);
        let key = format!("{client}-{number}");
        let Some(answer) = peer.try_call("keys.begin", &key_of(&key)) else {
            return number + 1;
        };
        acknowledged.lock().keys.insert(key, answer.unwrap());
        let claim = json!({"holder": "t", "max": 1, "wait_ms": 0});
        let Some(claims) = peer.try_call("submissions.claim", &claim) else {
            return number + 1;
        };
        for claim in claims.unwrap()["claims"].as_array().unwrap() {
            let submission = claim["lease"]["submission_id"].as_str().unwrap().to_owned();
            let first = claim["next_event_index"].as_u64().unwrap();
            for index in first..first + 5 {
                match peer.append(&claim["lease"], index, &[event(&submission, index)]) {
                    None => return number + 1,
                    Some(answer) => answer.unwrap(),
                };
                acknowledged.lock().events.insert(submission.clone(), index + 1);
            }
        }
    }
    unreachable!()
}

/// Checks that every answered change is stored exactly once.
fn compare(daemon: &Daemon, acknowledged: &Acknowledged) {
    let mut peer = Peer::connect(&daemon.socket());
    for (submission, answer) in &acknowledged.prompts {
        let (client, number) = submission[1..].split_once('-').unwrap();
        let again = peer.call("chat.accept", prompt(client.parse().unwrap(), number.parse().unwrap()));
        assert_eq!(again, *answer, "{submission}");
    }
    let database = rusqlite::Connection::open(daemon.database()).unwrap();
    let count = |sql: &str| -> usize {
        let count: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
        count.try_into().unwrap()
    };
    let submissions = count("SELECT count(*) FROM submissions");
    let events = count("SELECT count(*) FROM events");
    assert!(submissions == events && submissions >= acknowledged.prompts.len());
    for (submission, next) in &acknowledged.events {
        let sql = "SELECT next_index FROM submissions WHERE id = ?1";
        let stored: i64 = database.query_row(sql, [submission], |row| row.get(0)).unwrap();
        assert!(stored as u64 >= *next, "{submission}: {stored} of {next}");
    }
    let entries = count("SELECT count(*) FROM entries");
    assert_eq!(entries, count("SELECT coalesce(sum(next_index), 0) FROM submissions"));
    assert_eq!(entries, count("SELECT coalesce(sum(entries), 0) FROM streams"));
    for (key, state) in &acknowledged.keys {
        let mut args = key_of(key);
        args["seed"] = json!("another");
        assert_eq!(peer.call("keys.begin", args), *state);
    }
}

fn key_of(key: &str) -> Value {
    json!({"key": key, "body": "b", "seed": format!("seed {key}"), "at": "2027-02-03T04:05:06.789Z"})
}

#[test]
fn kill_9_at_any_time_loses_nothing_that_was_answered() {
    const CLIENTS: usize = 4;
    let home = tempfile::tempdir().unwrap();
    let acknowledged = Mutex::new(Acknowledged::default());
    let mut from = [0; CLIENTS];
    for round in 0..8usize {
        let daemon = Daemon::start(home.path());
        compare(&daemon, &acknowledged.lock());
        let socket = daemon.socket();
        std::thread::scope(|threads| {
            let (acknowledged, socket, begun) = (&acknowledged, &socket, from);
            let clients: Vec<_> = begun
                .into_iter()
                .enumerate()
                .map(|(client, from)| threads.spawn(move || write_until_gone(socket, client, from, acknowledged)))
                .collect();
            // The daemon is killed after a number of further answers and a short time, both of which differ in each round.
            let enough = acknowledged.lock().answers() + 20 + 13 * round;
            let until = Instant::now() + TIMEOUT;
            while acknowledged.lock().answers() < enough && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_micros(u64::from(std::process::id()) * (round as u64 + 1) % 1_700));
            daemon.signal(Signal::SIGKILL);
            for (from, client) in from.iter_mut().zip(clients) {
                *from = client.join().unwrap();
            }
        });
    }
    let daemon = Daemon::start(home.path());
    let acknowledged = acknowledged.into_inner();
    assert!(!acknowledged.prompts.is_empty() && !acknowledged.events.is_empty() && !acknowledged.keys.is_empty());
    assert!(acknowledged.answers() >= 160, "{} answers", acknowledged.answers());
    compare(&daemon, &acknowledged);
    let file = daemon.database();
    daemon.end(Signal::SIGKILL);
    let checked = Command::new(EXE).arg("--check").arg(&file).output().unwrap();
    let output = (text(&checked.stdout), text(&checked.stderr));
    assert_eq!(output, (format!("{}: ok\n", file.display()).as_str(), ""));
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Runs a command that has to end by itself. Returns its exit status and its standard error.
fn refused(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.env("KEN_ERRORS", "json").spawn().unwrap();
    let until = Instant::now() + TIMEOUT;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            _ = child.kill();
            panic!("it runs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut output = String::new();
    child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    (child.wait().unwrap().code(), output)
}

/// Checks that the output is a single line with an error, whose message contains the words.
fn assert_error_contains(stderr: &str, words: &[&str]) {
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    let line: Value = serde_json::from_str(stderr).unwrap();
    assert_eq!(line["level"], "ERROR");
    for word in words {
        assert!(line["message"].as_str().unwrap().contains(word), "{word:?} is not in {stderr}");
    }
}

#[test]
fn a_second_one_on_the_same_state_is_refused_and_the_first_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let mut second = Command::new(EXE);
    second.env_clear().stderr(Stdio::piped());
    second.env("KEN_STATE_DIR", home.path().join("state")).env("KEN_RUN_DIR", other.path().join("run"));
    second.env("KEN_CONFIG", other.path().join("ken.toml")).env("HOME", other.path());
    let (code, stderr) = refused(second);
    assert_eq!(code, Some(75), "{stderr}");
    assert_error_contains(&stderr, &["another ken-store has it", &daemon.child.id().to_string()]);
    Peer::connect(&daemon.socket()).call("service.ping", json!({}));
}

#[test]
fn files_that_cannot_be_used_end_it_with_one_line() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let file = daemon.database();
    assert_eq!(daemon.end(Signal::SIGTERM), Some(0));
    let newer = rusqlite::Connection::open(&file).unwrap();
    newer.pragma_update(None, "user_version", 4_000).unwrap();
    drop(newer);
    let (code, stderr) = refused(command(home.path()));
    assert_eq!(code, Some(2), "{stderr}");
    assert_error_contains(&stderr, &["version 4000"]);
    std::fs::write(&file, "garbage").unwrap();
    _ = std::fs::remove_file(file.with_extension("db-wal"));
    let (code, stderr) = refused(command(home.path()));
    assert_eq!(code, Some(2), "{stderr}");
    assert_error_contains(&stderr, &["damaged"]);
    assert_eq!(std::fs::read(&file).unwrap(), b"garbage");
    let Output { status, stderr, stdout, .. } = Command::new(EXE).arg("--check").arg(&file).output().unwrap();
    assert_eq!((status.code(), text(&stdout)), (Some(2), ""));
    assert!(text(&stderr).starts_with("ken-store: ") && text(&stderr).contains("damaged"));
}

/// Makes a command run as a user who has no permission to write there. Root could write everywhere.
fn as_nobody(command: &mut Command) {
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
}

#[test]
fn a_directory_or_file_that_may_not_be_written_is_named() {
    let home = tempfile::tempdir().unwrap();
    let exe = home.path().join("ken-store");
    copy_program(EXE, &exe);
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for directory in ["", "run", "state", "state/store"] {
        let path = home.path().join(directory);
        std::fs::create_dir_all(&path).unwrap();
        open(&path, 0o777);
    }
    let start = || {
        let mut command = Command::new(&exe);
        command.env_clear().arg("--home").arg(home.path()).stderr(Stdio::piped());
        as_nobody(&mut command);
        command
    };
    let store = home.path().join("state/store");
    open(&store, 0o555);
    let (code, stderr) = refused(start());
    assert_eq!(code, Some(2), "{stderr}");
    assert_error_contains(&stderr, &["state/store/ken.db", "cannot be"]);
    open(&store, 0o777);
    // A process of its own makes the database: a test beside this one that forks would have a copy of the lock.
    let file = store.join("ken.db");
    assert_eq!(Daemon::start(home.path()).end(Signal::SIGTERM), Some(0));
    for directory in ["run", "state", "state/store"] {
        open(&home.path().join(directory), 0o777);
    }
    for made in std::fs::read_dir(&store).unwrap() {
        open(&made.unwrap().path(), 0o666);
    }
    open(&file, 0o444);
    if nix::unistd::geteuid().is_root() {
        let (code, stderr) = refused(start());
        assert_eq!(code, Some(2), "{stderr}");
        assert_error_contains(&stderr, &["state/store/ken.db", "cannot be written"]);
    }
    std::fs::remove_dir_all(&store).unwrap();
    std::fs::write(&store, "").unwrap();
    let (code, stderr) = refused(start());
    assert_eq!(code, Some(2), "{stderr}");
    assert_error_contains(&stderr, &["state/store", "cannot be created"]);
}

#[test]
fn check_stands_alone() {
    let home = tempfile::tempdir().unwrap();
    let mut command = command(home.path());
    let (code, stderr) = refused({
        command.arg("--check").arg("x");
        command
    });
    assert_eq!(code, Some(2), "{stderr}");
    let help = Command::new(EXE).arg("--help").output().unwrap();
    assert!(help.status.success() && text(&help.stdout).contains("--check [<FILE>]"));
}

/// Another process copies the program: a test beside this one that forks while the file is open for writing would keep it from
/// being run.
fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: impl AsRef<std::ffi::OsStr>) {
    assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
