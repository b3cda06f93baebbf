//! Days on which the same is done, while what is older than a day is deleted. The clock is set forward between two days.

use std::path::Path;

use ken_tests::{Client, Random, System, tui, until};
use serde_json::json;

use super::rest::{database_at_rest, mib};
use super::table::{Row, print};
use super::{builder, events};

/// What is kept for longest are system events: a week. Then as much is deleted each day as is added.
const DAYS: u64 = 14;
const FULL: usize = 9;
/// An hour more than a day, so that all of the day before is older than that at once. A round goes on by a day, so what was said on a day is
/// deleted at the latest on the second day after it.
const DAY_MS: u64 = 25 * 3_600_000;
const TURNS_PER_SESSION: u64 = 5;
/// About the number of events that a turn and its session add.
const EVENTS_PER_TURN: u64 = 16;

pub(crate) fn run() -> Vec<Row> {
    let retention = "[retention]\nsessions = 1\nschedule_runs = 1\n";
    let mut system = builder().config(retention).start();
    let turns = (events() / 10 / EVENTS_PER_TURN).max(TURNS_PER_SESSION);
    let mut random = Random::new(7);
    let mut sizes = Vec::new();
    eprintln!("\n{:>5}{:>14}{:>14}", "day", "database MiB", "others MiB");
    for day in 0..DAYS {
        a_day(&system, turns, day, &mut random);
        until("what is old has gone", || day < 2 || !is_there(&system, &mark(day - 2)));
        let size = [database_at_rest(&system), others(&system)];
        eprintln!("{day:>5}{:>14.2}{:>14.2}", mib(size[0]), mib(size[1]));
        sizes.push(size);
        system.down();
        system.set_env("KEN_CLOCK", &format!("0={}*1", (day + 1) * DAY_MS));
        system.up();
    }
    let rows = ["the database", "other files"].map(|what| {
        let number = usize::from(what != "the database");
        let (then, last) = (sizes[FULL][number], sizes[sizes.len() - 1][number]);
        Row {
            what: format!("{what}, MiB, after {} and {DAYS} days", FULL + 1),
            figure: format!("{:.2}, then {:.2}", mib(then), mib(last)),
            goal: "within 5 % or 1 MiB",
            is_met: last < then + (then / 20).max(1 << 20),
            takes_long: false,
        }
    });
    print(&rows);
    rows.into()
}

fn a_day(system: &System, turns: u64, day: u64, random: &mut Random) {
    let mut client = Client::connect(system.address());
    let stream = format!("/streams/day-{day}");
    let put = client.request("PUT", &stream).header("Content-Type", "application/json");
    put.header("Stream-TTL", "86400").send().expect(201);
    let mut session = String::new();
    for turn in 0..turns {
        if turn.is_multiple_of(TURNS_PER_SESSION) {
            session = client.post("/api/chat/sessions", &tui(&[])).expect(201).text("/session/id");
        }
        let text = format!("{} of {} by {}", random.below(1_000_000), random.below(1_000_000), mark(day));
        client.post("/api/chat/events", &tui(&[("session", json!(session)), ("text", json!(text))])).expect(200);
        client.post(&stream, &json!([{"day": day, "turn": turn, "text": "x".repeat(200)}])).expect(204);
    }
}

/// A word that only the sessions of this day contain.
fn mark(day: u64) -> String {
    format!("mark-of-day-{day}.")
}

/// Whether a text is anywhere in the files of the store. What is deleted is overwritten in the end.
fn is_there(system: &System, text: &str) -> bool {
    ["ken.db", "ken.db-wal"].iter().any(|name| {
        let bytes = std::fs::read(system.home().join("state/store").join(name)).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// The bytes of all files but those of the store.
fn others(system: &System) -> u64 {
    let entries = std::fs::read_dir(system.home().join("state")).expect("the state").flatten();
    entries.filter(|entry| entry.file_name() != "store").map(|entry| bytes(&entry.path())).sum()
}

fn bytes(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| bytes(&entry.path())).sum(),
        Err(_) => std::fs::symlink_metadata(path).map_or(0, |about| about.len()),
    }
}
