//! Benchmarks of a store on a PostgreSQL server: accepted events beside what pgbench reaches on the same server with one insert a
//! transaction and with the statements of an accept, and beside a store with a file; then with a synchronous standby on the same machine.
//! `make bench` runs them with the release binaries, if a server is installed.
//!
//! `KEN_BENCH_SECONDS` sets the length of each load (3).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]
#![allow(dead_code, reason = "the other benches use more of the figures")]

mod figures;
mod load;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use figures::{Samples, per_second, row, title};
use ken_tests::{Builder, NO_POSTGRES, Postgres, Relay, System};
use ken_types::Timestamp;
use ken_types::id::{EventId, Mint, Origin, SessionId};
use ken_types::ops::Op;
use ken_types::ops::store::*;
use ken_wire::blocking::Client;
use load::{load, seconds};
use serde::Serialize;

/// How many prompts a session gets before the next one is used. At most 256 may wait in one.
const PROMPTS: u64 = 200;
/// How long the idle system is watched.
const IDLE: Duration = Duration::from_secs(10);
/// The server counts the transactions of a connection that has become idle up to 10 seconds later, those of the start among them.
const COUNTED: Duration = Duration::from_secs(12);

fn main() {
    title("a store on a PostgreSQL server");
    let Some(server) = Postgres::start(&["fsync=on"]) else {
        return row("not measured", NO_POSTGRES, "");
    };
    let database = server.database();
    let on_server = start(&format!("[store]\nurl = \"{}\"\n", server.url(&database)));
    let on_file = start("");
    server.sql(&database, "CREATE TABLE bench (number bigserial PRIMARY KEY, body text)");
    idle(&server, &database);
    let (_working, recorded, statements) = record(&server);
    let mut alone = Vec::new();
    for clients in [1, 16, 64] {
        let of_insert = pgbench(&server, &database, INSERT, clients);
        let of_statements = pgbench(&server, &recorded, &statements, clients);
        let (rate, latency) = accepts(&on_server, "alone", clients);
        let (of_file, _) = accepts(&on_file, "file", clients);
        alone.push((clients, rate));
        row(
            &format!("accepted events, {clients} clients"),
            &format!("{}, {}", per_second(rate), latency.text()),
            &format!(
                "{:.2} x its statements by pgbench ({}), {:.2} x one insert by pgbench ({}); a file: {}",
                rate / of_statements,
                per_second(of_statements),
                rate / of_insert,
                per_second(of_insert),
                per_second(of_file)
            ),
        );
    }
    drop(on_file);
    let _standby = server.standby();
    server.wait_for_standby(true);
    for (clients, alone) in alone {
        let of_statements = pgbench(&server, &recorded, &statements, clients);
        let (rate, latency) = accepts(&on_server, "standby", clients);
        row(
            &format!("with a synchronous standby, {clients} clients"),
            &format!("{}, {}", per_second(rate), latency.text()),
            &format!(
                "{:.2} x its statements by pgbench ({}), {:.2} x without a standby; goal 0.60",
                rate / of_statements,
                per_second(of_statements),
                rate / alone
            ),
        );
    }
    server.wait_for_standby(false);
    drop(on_server);
    round_trips(&server);
}

/// Starts a system in which nobody works, so that only the store is measured.
fn start(config: &str) -> System {
    let system = Builder::default().config(config).start();
    assert!(system.ken(&["stop", "agent"]).status.success());
    system
}

const INSERT: &str = "INSERT INTO bench (body) VALUES (repeat('x', 600));";

fn pgbench(server: &Postgres, database: &str, statements: &str, clients: usize) -> f64 {
    let mut script = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut script, statements.as_bytes()).unwrap();
    let output = Command::new("pgbench")
        .args(["--no-vacuum", "--jobs=2", &format!("--client={clients}"), &format!("--time={}", seconds().as_secs())])
        .arg("--file")
        .arg(script.path())
        .arg(server.url(database))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "pgbench: {text} {}", String::from_utf8_lossy(&output.stderr));
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("pgbench: {text} {}", String::from_utf8_lossy(&output.stderr)))
}

/// A client of the store, with a session of its own.
struct Sender {
    client: Client,
    mint: Mint,
    name: String,
    sent: u64,
    session: SessionId,
}

impl Sender {
    fn of(socket: &Path, name: String) -> Sender {
        let client = Client::connect(socket, "store").expect("the store");
        let session = SessionId(String::new());
        Sender { client, mint: Mint::fresh().expect("random bytes"), name, sent: 0, session }
    }

    fn call<O: Op>(&mut self, args: &impl Serialize) {
        let args = serde_json::to_value(args).unwrap();
        self.client.call(O::NAME, &args, Some(Duration::from_secs(60)), |_| Ok(())).expect("the store answers");
    }

    /// Sends a prompt, and returns the ids of the event and the submission.
    fn send(&mut self) -> [String; 2] {
        if self.sent.is_multiple_of(PROMPTS) {
            self.session = SessionId(format!("tui-{}-{}", self.name, self.sent));
            let fresh = FreshSession::new(self.session.clone(), Origin::Tui);
            self.call::<SessionsCreate>(&CreateSession { scope: scope(), fresh });
        }
        self.sent += 1;
        let submission_id = self.mint.submission();
        let (id, ids) = (self.mint.prefixed("tui:"), submission_id.as_str().to_owned());
        let ids = [id.clone(), ids];
        let accept = Accept {
            event: InboundEvent {
                id: EventId(id),
                scope: scope(),
                kind: "chat.message".into(),
                text: "When does the depot open on a Saturday, and who has the key?".into(),
                received_at: Timestamp::now(),
                context: None,
                raw: None,
                images: Vec::new(),
            },
            target: Target::Selector(self.session.0.clone()),
            action: Action::Prompt { submission_id, policy: Policy::Queue },
            counted: false,
        };
        self.call::<ChatAccept>(&accept);
        ids
    }
}

fn scope() -> Scope {
    Scope { connector: "tui".into(), actor_id: "a".into(), conversation_id: "c".into(), thread_id: None }
}

/// `run` is part of the names of the sessions, because a system is measured more than once.
fn accepts(system: &System, run: &'static str, clients: usize) -> (f64, Samples) {
    let socket = system.socket("store");
    load(clients, move |number| {
        let mut sender = Sender::of(&socket, format!("{run}-{clients}-{number}"));
        move || _ = sender.send()
    })
}

/// What the store does while nobody calls it.
fn idle(server: &Postgres, database: &str) {
    let count = || -> f64 {
        let sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        server.sql(database, sql).parse().unwrap()
    };
    std::thread::sleep(COUNTED);
    let before = count();
    std::thread::sleep(IDLE);
    // The two questions are transactions too.
    let each = (count() - before - 1.0) / IDLE.as_secs_f64();
    row("idle", &format!("{each:.1} transactions/s"), "");
}

/// Returns the statements of one accept as a script of pgbench, with the database in which they can be run. Each transaction has ids of its own.
/// The submission is deleted at the end, because at most 256 wait in a session of ken.
fn record(server: &Postgres) -> (System, String, String) {
    let database = server.database();
    let system = start(&format!("[store]\nurl = \"{}\"\n", server.url(&database)));
    let mut sender = Sender::of(&system.socket("store"), "recorded".to_owned());
    sender.send();
    let set = |to: &str| {
        server.sql("postgres", &format!("ALTER SYSTEM SET log_statement = '{to}'"));
        server.sql("postgres", "SELECT pg_reload_conf()");
        std::thread::sleep(Duration::from_millis(500));
    };
    set("all");
    let before = server.log().len();
    let [event, submission] = sender.send();
    let log = server.log();
    set("none");
    let script = statements_of(log.get(before..).unwrap_or_default(), &event);
    assert!(script.contains("INSERT INTO events"), "{log}");
    let script = script.replace(&event, "tui_:number").replace(&submission, "sub_:number");
    let end = format!("DELETE FROM submissions WHERE id = 'sub_:number'; {COMMIT}");
    let script = script.replace(COMMIT, &end);
    // It runs on, because the statements are those of a host that works.
    (system, database, format!("\\set number random(1, 1000000000000000)\n{script}"))
}

const COMMIT: &str = "SELECT 1; COMMIT";

/// Returns the statements of the process that has stored an event, from a log of all statements, with their parameters in them.
fn statements_of(log: &str, event: &str) -> String {
    let lines: Vec<String> = log.replace("\n\t", " ").lines().map(str::to_owned).collect();
    let process = lines.iter().find(|line| line.contains("INSERT INTO events")).and_then(|line| line.split(' ').nth(3));
    let process = process.expect("the event was stored").to_owned();
    let mut statements: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| line.contains(&process)) {
        if let Some((_, sql)) =
            line.split_once("LOG:  statement: ").or_else(|| line.split_once("LOG:  execute <unnamed>: "))
        {
            statements.push(sql.to_owned());
        } else if let (Some((_, values)), Some(last)) = (line.split_once("arameters: "), statements.last_mut()) {
            *last = with_values(last, values);
        }
    }
    // The numbers of the events of the system are given by the store.
    for statement in statements.iter_mut().filter(|statement| statement.starts_with("INSERT INTO system_events")) {
        let (start, rest) = statement.split_once("VALUES (").expect("values");
        let (_, others) = rest.split_once(',').expect("a number");
        *statement = format!("{start}VALUES (:number,{others}");
    }
    let begun = statements.iter().position(|statement| statement.contains("BEGIN ISOLATION LEVEL READ COMMITTED"));
    let own: Vec<String> = statements.split_off(begun.expect("a transaction"));
    let ended = own.iter().position(|statement| statement == COMMIT).expect("a commit");
    assert!(own.iter().take(ended).any(|statement| statement.contains(event)), "{own:?}");
    own.into_iter().take(ended + 1).map(|statement| statement + ";\n").collect()
}

/// Puts the values of `$1 = 'one', $2 = NULL` into a statement.
fn with_values(sql: &str, values: &str) -> String {
    let mut sql = sql.to_owned();
    let count = (1..).take_while(|number| values.contains(&format!("${number} = "))).count();
    for number in (1..=count).rev() {
        let (_, value) = values.rsplit_once(&format!("${number} = ")).expect("a value");
        let value = value.split(&format!(", ${} = ", number + 1)).next().unwrap_or_default();
        sql = sql.replace(&format!("${number}"), value);
    }
    sql
}

/// Counts how often the store waits for its server for an accept: of one client, and of many, which share transactions.
fn round_trips(server: &Postgres) {
    let (relay, database) = (Relay::before(server), server.database());
    let system = start(&format!("[store]\nurl = \"{}\"\n", relay.url(&database)));
    let mut sender = Sender::of(&system.socket("store"), "one".to_owned());
    sender.send();
    // The store renews its place between some of them.
    let of_one = (0..20).map(|_| {
        let before = relay.round_trips();
        sender.send();
        relay.round_trips() - before
    });
    row("round trips of one accept", &of_one.min().unwrap_or_default().to_string(), "");
    let accepted = || -> f64 { server.sql(&database, "SELECT count(*) FROM ken.events").parse().unwrap() };
    let (before, trips) = (accepted(), relay.round_trips());
    accepts(&system, "counted", 16);
    let each = (relay.round_trips() - trips) as f64 / (accepted() - before);
    row("round trips per accept, 16 clients", &format!("{each:.1}"), "");
}
