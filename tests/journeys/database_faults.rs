//! Faults between a home and its PostgreSQL server, and settings of the server that can lose data: connections that are cut at a COMMIT, clocks
//! that differ, an old primary that comes back, an asynchronous standby, a transaction that is held open.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ken_tests::{Builder, Client, Cut, Postgres, Relay, System, until};
use serde_json::{Value, json};

use super::database_server::{home_on, is_ready, nothing_is_lost_or_doubled, runs, writers};
use super::several_hosts::add;

const HOUR_MS: i64 = 3_600_000;

fn status(system: &System) -> String {
    String::from_utf8(system.ken(&["status"]).stderr).unwrap()
}

/// The ids and the reasons of what `ken doctor` finds.
fn doctor(system: &System) -> Vec<(String, String)> {
    let found = String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap();
    let finding = |line: &str| {
        let finding: Value = serde_json::from_str(line).unwrap();
        let text = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        (text("id"), text("why"))
    };
    found.lines().map(finding).collect()
}

fn finds(system: &System, id: &str) -> Option<String> {
    doctor(system).into_iter().find(|(found, _)| found == id).map(|(_, why)| why)
}

/// Each second commit reaches the server and its answer is thrown away; each other one does not reach it. The store asks the row of its host
/// what has become of it, so that every change is acknowledged exactly if it was made.
#[test]
fn a_connection_that_is_cut_at_its_commit_loses_and_doubles_nothing() {
    let Some(server) = Postgres::start(&[]) else { return };
    let relay = Relay::before(&server);
    let system = home_on(&relay.url(&server.database()));
    let writers = writers(&system);
    for round in 0..20 {
        let before = relay.cuts();
        relay.cut_in(3 + round % 5, if round % 2 == 0 { Cut::After } else { Cut::Before });
        until("a commit was cut", || relay.cuts() > before);
        until("it works again", || is_ready(&system));
    }
    sleep(Duration::from_millis(300));
    let unacknowledged = nothing_is_lost_or_doubled(&system, writers, "20 cuts at a commit");
    assert_eq!(unacknowledged, 0, "the outcome of a commit was not found out");
    let log = String::from_utf8(system.ken(&["logs", "store"]).stdout).unwrap();
    assert!(!log.contains("is not known"), "{log}");
}

/// The second host has a clock that is an hour ahead. The clock of the server decides who works, and every slot of a schedule has one record.
#[test]
fn hosts_whose_clocks_are_an_hour_apart_take_over_in_time_and_record_each_slot_once() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let url = server.url(&database);
    let mut first = home_on(&url);
    let ahead = Builder::default().config(&format!("[store]\nurl = \"{url}\"\n"));
    let mut second = ahead.env("KEN_CLOCK", &format!("0={HOUR_MS}*1")).start();
    let body = json!({"slug": "often", "kind": "every", "schedule": "1s", "prompt": "Hello."});
    first.post("/api/schedules", &body).expect(201);
    let slots = || -> (i64, i64) {
        let sql = "SELECT count(*), count(DISTINCT slot_at) FROM ken.schedule_runs WHERE slot_at IS NOT NULL";
        let counted = server.sql(&database, sql);
        let (all, different) = counted.split_once('|').unwrap();
        (all.parse().unwrap(), different.parse().unwrap())
    };
    until("the first host records slots", || slots().0 >= 3);
    let why = finds(&second, "clock").expect("the clock is reported");
    assert!(why.contains("3599 s") || why.contains("3600 s"), "{why}");
    assert_eq!(finds(&first, "clock"), None);
    assert_eq!(add(&first, "by the first"), 201);
    first.cut_power();
    let (begun, before) = (Instant::now(), slots().0);
    until("the second host works", || is_ready(&second) && add(&second, "by the second") == 201);
    let took = begun.elapsed();
    until("the second host records slots", || slots().0 > before);
    // By a clock that is an hour behind, the second host has just been seen; by one that is an hour ahead, long ago.
    first.up();
    until("both are seen", || runs(&first, &["hosts", "list", "--json"]).lines().count() == 2);
    sleep(Duration::from_secs(3));
    assert_eq!(add(&second, "by the second again"), 201);
    second.cut_power();
    until("the first host works again", || is_ready(&first) && add(&first, "by the first again") == 201);
    let (all, different) = slots();
    println!("taken over after {took:?}; {all} records of {different} slots");
    assert!(took < Duration::from_secs(25), "{took:?}");
    assert_eq!(all, different, "a slot has two records");
    let titles = server.sql(&database, "SELECT count(DISTINCT title) FROM ken.knowledge");
    assert_eq!(titles, "4");
}

/// The URL names the old primary first. It lets clients in and can be written, but it was replaced.
#[test]
fn an_old_primary_that_the_url_names_first_is_passed_over() {
    let Some((first, second)) = Postgres::with_standby() else { return };
    let database = first.database();
    let system = home_on(&first.url_of_both(&second, &database));
    assert_eq!(add(&system, "on the first"), 201);
    first.crash();
    second.promote();
    until("it works with the promoted one", || is_ready(&system) && add(&system, "on the second") == 201);
    first.resume();
    first.wait_for_standby(false);
    for round in 0..3 {
        system.kill("store");
        until("it works", || is_ready(&system));
        assert_eq!(add(&system, &format!("after restart {round}")), 201);
    }
    let titles =
        |server: &Postgres| server.sql(&database, "SELECT string_agg(title, ', ' ORDER BY entry) FROM ken.knowledge");
    assert_eq!(titles(&first), "on the first");
    assert_eq!(titles(&second), "on the first, on the second, after restart 0, after restart 1, after restart 2");
    // When only the old one is there, it is still refused.
    second.crash();
    until("the old primary is refused", || status(&system).contains("a standby was promoted in its place"));
}

/// Starts a home that does not become ready, and returns what it says.
fn refused(system: &System) -> String {
    let refused = system.ken(&["up", "-d", "--port", "0", "--cognitive-port", "0"]);
    let logs = system.ken(&["logs", "store"]).stdout;
    String::from_utf8([refused.stdout, refused.stderr, logs].concat()).unwrap()
}

#[test]
fn two_urls_that_differ_are_an_error_and_a_password_alone_makes_no_difference() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (database, other) = (server.database(), server.database());
    let mut system = home_on(&server.url(&database));
    assert_eq!(system.down(), Some(0));
    let secrets = system.home().join("secrets.env");
    let kept = std::fs::read_to_string(&secrets).unwrap_or_default();
    std::fs::write(&secrets, format!("{kept}\nKEN_STORE_URL={}\n", server.url(&other))).unwrap();
    std::fs::set_permissions(&secrets, Permissions::from_mode(0o600)).unwrap();
    let said = refused(&system);
    assert!(said.contains("KEN_STORE_URL and [store] url name different databases"), "{said}");
    let schemas = server.sql(&other, "SELECT count(*) FROM pg_namespace WHERE nspname = 'ken'");
    assert_eq!(schemas, "0", "something was written");
    let with_password = server.url(&database).replace("ken@", "ken:unused-password@");
    std::fs::write(&secrets, format!("{kept}\nKEN_STORE_URL={with_password}\n")).unwrap();
    system.ken(&["down"]);
    system.up();
    assert_eq!(add(&system, "t"), 201);
}

#[test]
fn an_asynchronous_standby_is_reported_and_refused_where_a_synchronous_one_is_required() {
    let Some(server) = Postgres::start(&[]) else { return };
    let (database, strict) = (server.database(), server.database());
    let system = home_on(&server.url(&database));
    assert_eq!(finds(&system, "standby-asynchronous"), None, "there is no standby");
    let _standby = server.standby();
    until("the standby is connected", || server.sql("postgres", "SELECT count(*) FROM pg_stat_replication") == "1");
    let why = finds(&system, "standby-asynchronous").expect("it is reported");
    assert!(why.contains("can be lost; now the last "), "{why}");
    let config = format!("[store]\nurl = \"{}\"\nrequire_sync = true\n", server.url(&strict));
    let strict_home = Builder::default().config(&config).start();
    until("the server is refused", || status(&strict_home).contains("no commit waits for a standby"));
    assert_eq!(add(&strict_home, "too early"), 503);
    let schemas = server.sql(&strict, "SELECT count(*) FROM pg_namespace WHERE nspname = 'ken'");
    assert_eq!(schemas, "0", "something was written");
    server.wait_for_standby(true);
    until("it goes on by itself", || is_ready(&strict_home) && add(&strict_home, "t") == 201);
    assert_eq!(finds(&system, "standby-asynchronous"), None);
}

/// The outcome of the change is asked on the promoted server, over a connection that nobody has checked.
#[test]
fn a_server_that_is_promoted_during_a_commit_is_refused_until_it_has_a_standby_too() {
    let Some((first, second)) = Postgres::with_standby() else { return };
    let database = first.database();
    let url = first.url_of_both(&second, &database);
    let system = Builder::default().config(&format!("[store]\nurl = \"{url}\"\nrequire_sync = true\n")).start();
    assert_eq!(add(&system, "before"), 201);
    second.crash();
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| add(&system, "meanwhile"));
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        until("a commit waits for the standby", || first.sql("postgres", waiting) != "0");
        first.crash();
        second.resume();
        second.promote();
        assert_eq!(adding.join().unwrap(), 503);
    });
    let why = "no commit waits for a standby";
    until("the promoted server is refused", || status(&system).contains(why));
    for _ in 0..5 {
        assert_eq!(add(&system, "without a standby"), 503);
    }
    assert_eq!(second.sql(&database, "SELECT string_agg(title, ', ') FROM ken.knowledge"), "before");
    first.follow(&second);
    second.wait_for_standby(true);
    until("it goes on by itself", || is_ready(&system) && add(&system, "with a standby") == 201);
}

/// Makes the home work as a role that does not own the server, and gives it the tables.
fn as_owner(server: &Postgres, database: &str) -> System {
    server.sql("postgres", &format!("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE {database} TO app"));
    let system = home_on(&server.url(database).replace("ken@", "app@"));
    assert_eq!(add(&system, "before"), 201);
    system
}

/// What the store says is the cause, while it is connected all the time, and it goes on when that is mended.
#[test]
fn rights_and_tables_that_are_lost_meanwhile_are_named_with_what_to_do() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let system = as_owner(&server, &database);
    for (lost, why, hint, mended) in [
        (
            "ALTER SCHEMA ken OWNER TO ken",
            "permission denied for schema ken",
            "GRANT USAGE ON SCHEMA ken",
            "GRANT USAGE ON SCHEMA ken TO app",
        ),
        (
            "ALTER TABLE ken.knowledge OWNER TO ken",
            "permission denied for table knowledge",
            "ALL ON ALL TABLES IN SCHEMA ken",
            "GRANT ALL ON ALL TABLES IN SCHEMA ken TO app; GRANT ALL ON ALL SEQUENCES IN SCHEMA ken TO app",
        ),
    ] {
        server.sql(&database, lost);
        let said = || {
            let mut client = Client::connect(system.address());
            client.request("POST", "/api/knowledge").json(&json!({"title": "t", "content": "c"})).send()
        };
        until(lost, || {
            let refused = said();
            refused.status == 503 && refused.text("/error").contains(why) && refused.text("/hint").contains(hint)
        });
        server.sql(&database, mended);
        until("it goes on by itself", || is_ready(&system) && add(&system, "after") == 201);
    }
    // Nothing is left, so the store begins with nothing.
    server.sql(&database, "DROP SCHEMA ken CASCADE");
    until("the tables are made again", || is_ready(&system) && add(&system, "anew") == 201);
    assert_eq!(server.sql(&database, "SELECT string_agg(title, ', ') FROM ken.knowledge"), "anew");
}

/// The role may have three connections, of which the writer and the listener have two.
#[test]
fn readers_without_a_connection_leave_the_reads_to_one_that_has_one() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let system = as_owner(&server, &database);
    assert_eq!(finds(&system, "connections-missing"), None);
    server.sql("postgres", "ALTER ROLE app CONNECTION LIMIT 3");
    system.kill("store");
    until("it works again", || is_ready(&system));
    let read = || {
        let mut client = Client::connect(system.address());
        (0..60).filter(|_| client.get("/api/knowledge").status != 200).count()
    };
    let refused = std::thread::scope(|scope| {
        let readers = [(); 4].map(|()| scope.spawn(read));
        readers.map(|reader| reader.join().unwrap())
    });
    assert_eq!(refused, [0; 4]);
    let why = finds(&system, "connections-missing").expect("it is reported");
    assert!(
        why.contains("of 3 connections for reading are missing: ") && why.contains("too many connections"),
        "{why}"
    );
    let says = || status(&system).contains("of 3 connections for reading are missing: ");
    until("the status says so", says);
    server.sql("postgres", "ALTER ROLE app CONNECTION LIMIT 5");
    until("all are connected", || finds(&system, "connections-missing").is_none() && !says());
}

#[test]
fn a_lock_that_stops_all_writes_is_reported_with_who_holds_it() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let system = home_on(&server.url(&database));
    let mut open = Open::begin(&server, &database);
    open.input.write_all(b"LOCK TABLE ken.knowledge;\n").unwrap();
    until("the lock is held", || {
        server.sql("postgres", "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock'") != "0"
    });
    // Others go on, so the store does not count as failing.
    std::thread::scope(|scope| {
        let added = scope.spawn(|| add(&system, "behind the lock"));
        until("it is reported", || finds(&system, "lock-held").is_some_and(|why| why.contains("psql of ken (pid ")));
        let log = || String::from_utf8(system.ken(&["logs", "store"]).stdout).unwrap();
        until("it is logged", || log().contains("a change was not made: ") && log().contains("lock timeout"));
        drop(open);
        assert_eq!(added.join().unwrap(), 201);
    });
    assert_eq!(finds(&system, "lock-held"), None);
}

/// A transaction of another program, which is open until this value is dropped.
struct Open {
    program: Child,
    input: ChildStdin,
}

impl Open {
    fn begin(server: &Postgres, database: &str) -> Open {
        let mut command = Command::new("psql");
        command.args(["-XAtq", "-d", &server.url(database)]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut program = command.spawn().unwrap();
        let mut input = program.stdin.take().unwrap();
        input.write_all(b"BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM ken.hosts;\n").unwrap();
        let open =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql' AND state = 'idle in transaction'";
        until("the transaction is open", || server.sql("postgres", open) == "1");
        Open { program, input }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        _ = self.program.kill();
        _ = self.program.wait();
    }
}

#[test]
fn dead_rows_and_the_oldest_transaction_of_the_server_are_known() {
    let Some(server) = Postgres::start(&[]) else { return };
    let database = server.database();
    let system = home_on(&server.url(&database));
    let health = || system.call("store", "hosts.server", &[]);
    let before = health();
    assert!(before["oldest"].as_str().is_none_or(|whose| !whose.contains("psql")), "{before}");
    let open = Open::begin(&server, &database);
    let update = "DO $$ BEGIN FOR number IN 1..12000 LOOP UPDATE ken.hosts SET version = version; END LOOP; END $$";
    server.sql(&database, update);
    until("the dead rows are known", || health()["dead_rows"].as_u64() > Some(10_000));
    let seen = health();
    assert!(seen["table"] == "hosts" && seen["oldest"].as_str().unwrap().starts_with("psql of ken (pid "), "{seen}");
    assert!(seen["oldest_ms"].as_u64() > Some(100), "{seen}");
    let why = finds(&system, "dead-rows").expect("dead rows are reported");
    assert!(why.contains("the table hosts has 1"), "{why}");
    drop(open);
    until("it has ended", || health()["oldest"].as_str().is_none_or(|whose| !whose.contains("psql")));
    server.sql(&database, "VACUUM ken.hosts");
    until("nothing is reported any more", || finds(&system, "dead-rows").is_none());
}
