//! A home whose store is on a PostgreSQL server: it works as with a file, loses nothing when the store or the server is killed or a standby is
//! promoted, and waits for a server that is away.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use ken_tests::{Builder, Client, NO_POOLER, Pooler, Postgres, System, binary, number, skip, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::several_hosts::add;

pub(crate) fn home_on(url: &str) -> System {
    Builder::default().config(&format!("[store]\nurl = \"{url}\"\n")).start()
}

/// Runs a command that must succeed, and returns what it prints.
#[track_caller]
pub(crate) fn runs(system: &System, arguments: &[&str]) -> String {
    let output = system.ken(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Appends numbers to a stream, one after the other, and keeps those that were acknowledged.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Written>,
}

#[derive(Default)]
pub(crate) struct Written {
    pub(crate) acknowledged: Vec<String>,
    /// The longest time without an acknowledgement.
    outage: Duration,
}

impl Writer {
    pub(crate) fn start(system: &System, name: &'static str) -> Writer {
        let (address, stop) = (system.address(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut written, mut newest) = (Written::default(), Instant::now());
            for number in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let text = format!("{name}{number};");
                let Ok(mut client) = Client::try_connect(address) else {
                    sleep(Duration::from_millis(20));
                    continue;
                };
                let sent = client
                    .request("POST", "/streams/numbers")
                    .header("Content-Type", "text/plain")
                    .body(text.as_bytes());
                match sent.try_send() {
                    Ok(answer) if answer.status < 300 => {
                        written.outage = written.outage.max(newest.elapsed());
                        newest = Instant::now();
                        written.acknowledged.push(text);
                    }
                    // Each number is sent once: what was not acknowledged may be there, but not twice.
                    _ => sleep(Duration::from_millis(20)),
                }
            }
            written
        });
        Writer { stop, thread }
    }

    pub(crate) fn end(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

pub(crate) fn writers(system: &System) -> [Writer; 3] {
    system.client().request("PUT", "/streams/numbers").header("Content-Type", "text/plain").send().expect(201);
    ["a", "b", "c"].map(|name| Writer::start(system, name))
}

/// Ends the writers, and compares what was acknowledged with what is stored. Returns how many are stored and were not acknowledged.
#[track_caller]
pub(crate) fn nothing_is_lost_or_doubled(system: &System, writers: [Writer; 3], what: &str) -> usize {
    let written = writers.map(Writer::end);
    let stored = stored(system);
    let outage = written.iter().map(|written| written.outage).max().unwrap();
    let acknowledged: Vec<&String> = written.iter().flat_map(|written| &written.acknowledged).collect();
    let lost: Vec<_> = acknowledged.iter().filter(|number| !stored.contains_key(**number)).collect();
    let doubled: Vec<_> = stored.iter().filter(|(_, times)| **times > 1).collect();
    println!(
        "{what}: {} acknowledged, {} lost, {} doubled, longest outage {outage:?}",
        acknowledged.len(),
        lost.len(),
        doubled.len()
    );
    assert!(acknowledged.len() > 50 && lost.is_empty() && doubled.is_empty(), "lost {lost:?}, doubled {doubled:?}");
    stored.len() - acknowledged.len()
}

/// How often each number is in the stream.
pub(crate) fn stored(system: &System) -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    let mut offset = "-1".to_owned();
    loop {
        let answer = system.get(&format!("/streams/numbers?offset={offset}")).expect(200);
        for number in String::from_utf8(answer.body.clone()).unwrap().split_inclusive(';') {
            *counted.entry(number.to_owned()).or_default() += 1;
        }
        let next = answer.header("stream-next-offset").unwrap().to_owned();
        if answer.header("stream-up-to-date").is_some() || next == offset {
            return counted;
        }
        offset = next;
    }
}

pub(crate) fn is_ready(system: &System) -> bool {
    Client::try_connect(system.address()).is_ok_and(|mut client| client.get("/ready").status == 200)
}

#[test]
fn nothing_is_lost_or_doubled_when_the_store_and_the_server_are_killed() {
    let Some(server) = Postgres::start(&[]) else { return };
    let mut system = home_on(&server.url(&server.database()));
    let session = system.session();
    system.say(&session, "what is 2+2").expect(200);
    runs(&system, &["knowledge", "add", "Zones", "The office is in Zone 7."]);
    assert!(runs(&system, &["knowledge", "list", "--json"]).contains("Zones"));
    let writers = writers(&system);
    for round in 0..4 {
        sleep(Duration::from_millis(700));
        if round % 2 == 0 {
            system.kill("store");
        } else {
            server.crash();
            sleep(Duration::from_millis(300));
            server.resume();
        }
        until("it works again", || is_ready(&system));
    }
    sleep(Duration::from_millis(500));
    nothing_is_lost_or_doubled(&system, writers, "4 kills");
    system.say(&session, "and now?").expect(200);
    assert_eq!(system.down(), Some(0));
}

#[test]
fn a_server_that_is_away_is_named_and_waited_for() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    server.crash();
    let mut system = home_on(&server.socket_url(&database));
    let refused = system.post("/api/knowledge", &json!({"title": "t", "content": "c"})).expect(503);
    assert!(refused.text("/error").contains(&database), "{refused:?}");
    let status = system.ken(&["status"]);
    let said = String::from_utf8(status.stderr).unwrap();
    assert!(said.contains("store: postgres://ken@"), "{said}");
    let pid = system.pid("store");
    server.resume();
    until("the store has found its server", || is_ready(&system));
    let entry = system.post("/api/knowledge", &json!({"title": "t", "content": "c"})).expect(201).text("/record/id");
    assert_eq!(system.pid("store"), pid, "the store was restarted");
    // The files of the home are saved and restored, and the data on the server stays as it is. So does the host: what is bound to it goes on.
    let store = system.home().join("state/store");
    let host = || {
        let text = |name: &str| std::fs::read_to_string(store.join(name)).unwrap();
        let inode = store.join("host").metadata().unwrap().ino().to_string();
        assert_eq!(text("host.inode").trim(), inode, "it would count as a copy");
        (text("host"), text("timeline"))
    };
    let before = host();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ken.tar");
    let file = file.to_str().unwrap();
    let backup = system.ken(&["backup", file]);
    let said = String::from_utf8(backup.stderr).unwrap();
    assert!(backup.status.success() && said.contains("not in the backup: the data on the database server"), "{said}");
    assert!(system.ken(&["backup", "--verify", file]).status.success());
    let listed = std::process::Command::new("tar").args(["-tf", file]).output().unwrap();
    assert!(
        !String::from_utf8(listed.stdout).unwrap().contains("state/store/"),
        "another machine would be the same host"
    );
    assert_eq!(system.down(), Some(0));
    std::fs::write(system.home().join("models.toml"), "# written after the backup\n").unwrap();
    for _ in 0..2 {
        let restored = system.ken(&["restore", "--replace", file]);
        let said = String::from_utf8(restored.stderr).unwrap();
        assert!(restored.status.success() && said.contains("the backup has no database"), "{said}");
        assert!(!system.home().join("models.toml").exists());
        assert_eq!(host(), before);
    }
    system.up();
    system.get(&format!("/api/knowledge/{entry}")).expect(200);
    assert_eq!(runs(&system, &["hosts", "list", "--json"]).lines().count(), 1);
}

/// The server is killed while it commits, and its synchronous standby takes its place. The old one becomes the standby of the new one. In the
/// end an old one comes back as a primary, and is refused.
#[test]
fn nothing_is_lost_or_doubled_when_a_standby_is_promoted() {
    let Some((first, second)) = Postgres::with_standby() else { return };
    let database = first.database();
    let system = home_on(&first.url_of_both(&second, &database));
    let writers = writers(&system);
    let (mut primary, mut standby) = (&first, &second);
    let (promotions, begun) = (number("KEN_PROMOTIONS", 3), Instant::now());
    for round in 1..=promotions {
        sleep(Duration::from_millis(700));
        primary.crash();
        standby.promote();
        until("it works with the new primary", || is_ready(&system));
        primary.follow(standby);
        (primary, standby) = (standby, primary);
        primary.wait_for_standby(true);
        if round % 10 == 0 {
            println!("{round} promotions after {:?}", begun.elapsed());
        }
    }
    sleep(Duration::from_millis(500));
    nothing_is_lost_or_doubled(&system, writers, &format!("{promotions} promotions"));
    first.crash();
    second.crash();
    // The one that the URL names first was the newest standby, so it is promoted, and then the other one comes back as what it was.
    standby.resume();
    standby.promote();
    until("it works with the promoted one", || is_ready(&system));
    standby.crash();
    primary.resume();
    primary.wait_for_standby(false);
    until("the old primary is refused", || {
        String::from_utf8(system.ken(&["status"]).stderr).unwrap().contains("a standby was promoted in its place")
    });
    primary.crash();
    standby.resume();
    until("it works with the newest one again", || is_ready(&system));
}

/// While the synchronous standby is away, a commit waits. A server whose wait is cancelled says so in a warning, which is no acknowledgement, and
/// which a setting of the database keeps from clients that do not ask for it.
#[test]
fn what_is_not_on_the_synchronous_standby_is_not_acknowledged() {
    let Some((server, standby)) = Postgres::with_standby() else { return };
    let database = server.database();
    server.sql("postgres", &format!("ALTER DATABASE {database} SET client_min_messages = error"));
    let system = home_on(&server.url(&database));
    let add = |title: &str| {
        let mut client = Client::connect(system.address());
        client.request("POST", "/api/knowledge").json(&json!({"title": title, "content": "c"})).send()
    };
    add("before").expect(201);
    standby.crash();
    // The gateway gives up first, so the store is asked.
    let put = |name: &str| {
        let rule = format!("rule={}", json!({"name": name, "directives": [{"deny_tool": "git_push"}]}));
        system.ken(&["call", "--timeout", "60s", "store", "rules.put", &rule])
    };
    let begun = Instant::now();
    let refused = std::thread::scope(|scope| {
        let put = scope.spawn(|| put("meanwhile"));
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until("each wait is cancelled", || {
            server.sql("postgres", cancel);
            put.is_finished()
        });
        put.join().unwrap()
    });
    let said = String::from_utf8(refused.stderr).unwrap();
    println!("refused after {:?}: {said}", begun.elapsed());
    assert!(!refused.status.success() && said.contains("the synchronous standby is away"), "{said}");
    standby.resume();
    until("it goes on", || add("after").status == 201);
}

#[test]
fn a_pooler_that_gives_each_transaction_another_connection_does_no_harm() {
    let Some(server) = Postgres::start(&[]) else { return };
    let Some(pooler) = Pooler::start(&server) else {
        return skip(NO_POOLER);
    };
    let system = home_on(&pooler.url(&server.database()));
    let session = system.session();
    system.say(&session, "what is 2+2").expect(200);
    let writers = writers(&system);
    for round in 0..4 {
        sleep(Duration::from_millis(700));
        if round % 2 == 0 {
            system.kill("store");
        } else {
            server.crash();
            server.resume();
        }
        until("it works again", || is_ready(&system));
    }
    sleep(Duration::from_millis(500));
    nothing_is_lost_or_doubled(&system, writers, "4 kills behind a pooler");
    system.say(&session, "and now?").expect(200);
}

#[test]
fn a_pooler_whose_mode_cannot_be_used_is_named_in_its_own_words() {
    let Some(server) = Postgres::start(&[]) else { return };
    let Some(pooler) = Pooler::with_mode(&server, "statement") else {
        return skip(NO_POOLER);
    };
    let system = home_on(&pooler.url(&server.database()));
    let refused = || system.post("/api/knowledge", &json!({"title": "t", "content": "c"})).expect(503);
    for _ in 0..5 {
        let refused = refused();
        assert!(refused.text("/error").contains("statement pooling mode"), "{refused:?}");
        assert!(refused.text("/hint").contains("pool_mode = transaction or session"), "{refused:?}");
        sleep(Duration::from_millis(300));
    }
    let status = String::from_utf8(system.ken(&["status"]).stderr).unwrap();
    assert!(status.contains("statement pooling mode"), "{status}");
}

#[test]
fn a_database_is_checked_and_a_home_with_two_stores_does_not_start() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (database, unused) = (server.database(), server.database());
    let mut system = home_on(&server.url(&database));
    let session = system.session();
    system.say(&session, "what is 2+2").expect(200);
    let check = |arguments: &[&str]| {
        let output = std::process::Command::new(binary("ken-store")).arg("--check").args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let home = system.home().display().to_string();
    let (code, said) = check(&["--home", &home]);
    assert!(code == Some(0) && said.contains("rows of 44 tables were read"), "{said}");
    assert_eq!(check(&[&server.url(&database)]).0, Some(0));
    let (code, said) = check(&[&server.url(&unused)]);
    assert!(code != Some(0) && said.contains("no tables of ken"), "{said}");
    let (code, said) = check(&["postgres://ken:s3cret@127.0.0.1:1/ken"]);
    assert!(code == Some(2) && said.contains("can be read by every user") && !said.contains("s3cret"), "{said}");
    // A text that PostgreSQL cannot store is refused, and nothing of it is stored.
    let nul = json!({"title": "t", "content": "a\u{0}b"});
    let refused = system.post("/api/knowledge", &nul).expect(400);
    assert!(refused.text("/error").contains("NUL"), "{refused:?}");
    assert_eq!(server.sql(&database, "SELECT count(*) FROM ken.knowledge WHERE title = 't'"), "0");
    // What keeps rows apart can be dropped without a row being wrong. What is said to be missing makes it again.
    server.sql(&database, "CREATE INDEX of_a_person ON ken.sessions (title)");
    assert_eq!(check(&["--home", &home]).0, Some(0), "what a person has added is not missing");
    server.sql("postgres", &format!("ALTER DATABASE {database} SET quote_all_identifiers = on"));
    for (dropped, named) in [
        (&["DROP INDEX ken.schedule_slots"][..], &["CREATE UNIQUE INDEX schedule_slots ON schedule_runs"][..]),
        (
            &["ALTER TABLE ken.schedules DROP CONSTRAINT schedules_id_key"],
            &["ADD CONSTRAINT schedules_id_key UNIQUE (id)"],
        ),
        (
            &["ALTER TABLE ken.events ALTER COLUMN text DROP NOT NULL"],
            &["ALTER TABLE events ALTER COLUMN text SET NOT NULL"],
        ),
        (
            &["ALTER TABLE ken.schedules DROP CONSTRAINT schedules_owner_fkey", "DROP INDEX ken.knowledge_by_source"],
            &["FOREIGN KEY (owner) REFERENCES scopes(scope)", "CREATE INDEX knowledge_by_source"],
        ),
    ] {
        dropped.iter().for_each(|sql| drop(server.sql(&database, sql)));
        let (code, said) = check(&["--home", &home]);
        assert!(code != Some(0) && named.iter().all(|name| said.contains(name)), "{said}");
        let (_, statements) = said.split_once("statements make: ").unwrap();
        let (statements, _) = statements.split_once("; stop ken").unwrap();
        server.sql(&database, &format!("SET search_path = ken; {statements}"));
        let (code, said) = check(&["--home", &home]);
        assert!(code == Some(0) && said.contains("rows of 44 tables were read"), "{said}");
    }
    assert_eq!(server.sql(&database, "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"), "0");
    // A row that this release cannot read is found.
    server.sql(&database, "UPDATE ken.sessions SET origin = 'nowhere'");
    assert_eq!(check(&["--home", &home]).0, Some(0), "its form is right");
    assert_eq!(system.down(), Some(0));
    std::fs::write(system.home().join("state/store/ken.db"), "").unwrap();
    let refused = system.ken(&["up", "-d", "--port", "0", "--cognitive-port", "0"]);
    let log =
        String::from_utf8([refused.stdout, refused.stderr, system.ken(&["logs", "store"]).stdout].concat()).unwrap();
    assert!(log.contains("has its data in SQLite"), "{log}");
    let found = || String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap();
    let line = r#""id":"database","severity":"error""#;
    assert!(found().contains(line) && found().contains("this home has its data in SQLite"), "{}", found());
    std::fs::remove_file(system.home().join("state/store/ken.db")).unwrap();
    assert!(!found().contains(line), "{}", found());
    drop(server);
    assert!(found().contains(line) && found().contains("refused"), "{}", found());
}

/// A backup is not put where the settings keep the data elsewhere.
#[test]
fn a_backup_with_a_database_is_refused_where_the_data_is_on_a_server() {
    let Some(server) = Postgres::start(&[]) else { return };
    let mut file = Builder::default().start();
    assert_eq!(add(&file, "in the file"), 201);
    let backup = file.home().join("b.tar");
    let backup = backup.to_str().unwrap();
    runs(&file, &["backup", backup]);
    let mut system = home_on(&server.url(&server.database()));
    assert_eq!(add(&system, "on the server"), 201);
    assert_eq!(system.down(), Some(0));
    let secrets = system.home().join("secrets.env");
    std::fs::write(&secrets, format!("KEN_STORE_URL={}\n", server.url("ken0"))).unwrap();
    std::fs::set_permissions(&secrets, Permissions::from_mode(0o600)).unwrap();
    let refused = system.ken(&["restore", "--replace", backup]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(2) && said.contains("the settings of this home name a database server"),
        "{said}"
    );
    assert!(runs(&system, &["up", "-d", "--port", "0", "--cognitive-port", "0"]).starts_with("ready"));
    assert!(runs(&system, &["knowledge", "search", "server"]).contains("on the server"));
    runs(&system, &["down"]);
    // Where the settings name none, it is taken back.
    assert_eq!(file.down(), Some(0));
    assert!(runs(&file, &["restore", "--replace", backup]).starts_with("restored"));
}

/// A copy of a database to a file, named without a folder. Another program holds a table, so that the copy stands where the test wants it.
#[test]
fn a_copy_to_a_file_is_whole_or_not_there_and_takes_the_time_that_it_needs() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let mut system = home_on(&server.url(&database));
    let session = system.session();
    system.say(&session, "what is 2+2").expect(200);
    assert_eq!(system.down(), Some(0));
    let folder = tempfile::tempdir().unwrap();
    let files = || {
        let names = std::fs::read_dir(folder.path()).unwrap().flatten();
        names.map(|file| file.file_name().into_string().unwrap()).filter(|name| name != "held").collect::<Vec<_>>()
    };
    let sql = |sql: &str| server.sql("postgres", sql);
    let copies = |state: &str| {
        sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ken-store' AND {state}"))
    };
    let held = folder.path().join("held");
    let copy_while_a_table_is_held = |then: &dyn Fn(Pid)| {
        std::fs::write(&held, "").unwrap();
        let lock = format!(
            "BEGIN; LOCK TABLE ken.knowledge IN ACCESS EXCLUSIVE MODE;\n\\! while [ -e {} ]; do sleep 0.02; done\n",
            held.display()
        );
        std::thread::scope(|scope| {
            scope.spawn(|| server.sql(&database, &lock));
            until("the table is held", || {
                sql(
                    "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND locktype = 'relation'",
                ) != "0"
            });
            let mut copy = std::process::Command::new(binary("ken-store"));
            copy.args(["migrate", "--to-sqlite", "out.db", "--home"]).arg(system.home()).current_dir(folder.path());
            copy.stdout(Stdio::piped()).stderr(Stdio::piped());
            let copy = copy.spawn().unwrap();
            until("the copy waits", || copies("wait_event_type = 'Lock'") == "1");
            then(Pid::from_raw(copy.id().cast_signed()));
            if held.exists() {
                std::fs::remove_file(&held).unwrap();
            }
            copy.wait_with_output().unwrap()
        })
    };
    let ended = copy_while_a_table_is_held(&|copy| kill(copy, Signal::SIGTERM).unwrap());
    assert!(!ended.status.success() && files().iter().all(|name| name.starts_with("out.db.ken-part")), "{:?}", files());
    until("the server has ended it", || copies("true") == "0");
    // Longer than the server lets a change of a store stand idle.
    let copied = copy_while_a_table_is_held(&|copy| {
        kill(copy, Signal::SIGSTOP).unwrap();
        std::fs::remove_file(&held).unwrap();
        until("the copy stands idle", || {
            copies("state = 'idle in transaction' AND state_change < now() - interval '6s'") == "1"
                || copies("true") == "0"
        });
        kill(copy, Signal::SIGCONT).unwrap();
    });
    let said = String::from_utf8([copied.stdout, copied.stderr].concat()).unwrap();
    assert!(copied.status.success() && said.starts_with("out.db: "), "{said}");
    assert_eq!(files(), ["out.db"]);
    let check =
        std::process::Command::new(binary("ken-store")).args(["--check", "out.db"]).current_dir(folder.path()).output();
    assert_eq!(String::from_utf8(check.unwrap().stdout).unwrap(), "out.db: ok\n");
    // Another one is not put in its place, and a copy with a fault leaves nothing.
    let copy = |name: &str| {
        let mut copy = std::process::Command::new(binary("ken-store"));
        copy.args(["migrate", "--to-sqlite", name, "--home"]).arg(system.home()).current_dir(folder.path());
        String::from_utf8(copy.output().unwrap().stderr).unwrap()
    };
    assert!(copy("out.db").contains("exists already"));
    server.sql(&database, "ALTER TABLE ken.keys RENAME TO other");
    assert!(copy("other.db").contains("ken-store: "));
    assert_eq!(files(), ["out.db"]);
}

#[test]
fn a_command_that_waits_for_the_server_says_so() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let system = home_on(&server.url(&database));
    runs(&system, &["sessions"]);
    server.crash();
    until("the store has noticed", || !is_ready(&system));
    let mut waiting = system.command(&["sessions"]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let (begun, mut line) = (Instant::now(), String::new());
    std::io::BufRead::read_line(&mut std::io::BufReader::new(waiting.stderr.as_mut().unwrap()), &mut line).unwrap();
    println!("said after {:?}: {line}", begun.elapsed());
    assert!(line.contains("waiting: postgres://ken@") && begun.elapsed() < Duration::from_secs(20), "{line}");
    server.resume();
    assert!(waiting.wait().unwrap().success());
}

/// The tables are on a file system of their own, which is filled by another program.
#[test]
fn a_full_disk_of_the_server_is_named_and_waited_for() {
    if !nix::unistd::geteuid().is_root() {
        return skip("needs root");
    }
    let Some(server) = Postgres::start(&[]) else { return };
    let Some(disk) = server.small_disk("32m") else {
        return skip("namespaces are not allowed here");
    };
    let database = server.database();
    server.sql("postgres", &format!("ALTER DATABASE {database} SET default_tablespace = small"));
    let system = home_on(&server.url(&database));
    let add = || {
        let mut client = Client::connect(system.address());
        // Of numbers, which cannot be compressed well.
        let content: String =
            (0..20_000_u64).map(|number| format!("{:x} ", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
        client.request("POST", "/api/knowledge").json(&json!({"title": "t", "content": content})).send()
    };
    add().expect(201);
    disk.fill();
    let refused = (0..400).map(|_| add()).find(|answer| answer.status != 201).expect("the disk is full");
    assert!(refused.status == 503 && refused.text("/error").contains("No space left"), "{refused:?}");
    let stored: usize = server.sql(&database, "SELECT count(*) FROM ken.knowledge WHERE title = 't'").parse().unwrap();
    disk.empty();
    until("it goes on", || add().status == 201);
    assert!(stored >= 1);
}
