//! Schedules under a clock that runs faster: each slot has one record.

use std::time::Duration;

use ken_tests::{System, number, until};
use ken_types::Timestamp;
use serde_json::{Value, json};

use super::builder;
use super::table::{Row, print};

const DAY_MS: i64 = 24 * 3_600_000;
/// Without `KEN_SOAK_DAY`, this much of a day passes, at this rate.
const SHORT_MS: i64 = DAY_MS / 48;
const SHORT_RATE: i64 = 240;

/// Slug, kind, schedule, and the time between two slots in milliseconds.
const SCHEDULES: [(&str, &str, &str, i64); 4] = [
    ("minute", "every", "1m", 60_000),
    ("five", "cron", "*/5 * * * *", 300_000),
    ("quarter", "cron", "*/15 * * * *", 900_000),
    ("hour", "cron", "0 * * * *", 3_600_000),
];

pub(crate) fn run() -> Vec<Row> {
    let day = i64::try_from(number("KEN_SOAK_DAY", 0)).expect("seconds");
    let (length, rate) = if day == 0 { (SHORT_MS, SHORT_RATE) } else { (DAY_MS, DAY_MS / 1_000 / day) };
    let now = Timestamp::of_system().millis();
    let system = builder().env("KEN_CLOCK", &format!("{now}={now}*{rate}")).start();
    let first = SCHEDULES.map(|schedule| add(&system, schedule));
    std::thread::sleep(Duration::from_millis(u64::try_from(length / rate).expect("a time")));
    for (slug, ..) in SCHEDULES {
        system.post(&format!("/api/schedules/{slug}/pause"), &json!({})).expect(200);
    }
    until("all runs have ended", || SCHEDULES.iter().all(|(slug, ..)| runs(&system, slug).iter().all(has_ended)));
    let rows: Vec<Row> =
        SCHEDULES.iter().zip(first).map(|(one, first)| row(one, first, &runs(&system, one.0))).collect();
    print(&rows);
    rows
}

/// Returns the time of the first slot.
fn add(system: &System, (slug, kind, schedule, _): (&str, &str, &str, i64)) -> i64 {
    let body = json!({"slug": slug, "kind": kind, "schedule": schedule, "prompt": "What is to be done?", "missed": "all",
        "graceMs": 3_600_000, "overlap": "queue"});
    let made = system.post("/api/schedules", &body).expect(201);
    made.at("/schedule/nextFireAt").as_i64().expect("a time")
}

/// All runs, oldest first.
fn runs(system: &System, slug: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = system.get(&format!("/api/schedules/{slug}/runs?limit=100{after}")).expect(200).json();
        all.extend(page["runs"].as_array().expect("runs").iter().cloned());
        match page["page"]["after"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => break,
        }
    }
    all.reverse();
    all
}

fn has_ended(run: &Value) -> bool {
    !["queued", "admitted", "running"].iter().any(|state| run["status"] == *state)
}

fn row((slug, _, _, step): &(&str, &str, &str, i64), first: i64, runs: &[Value]) -> Row {
    let mut slots: Vec<i64> = runs.iter().filter_map(|run| run["slotAt"].as_i64()).collect();
    slots.sort_unstable();
    let expected = (0..).map(|number| first + number * step).take(slots.len());
    // On a slow machine more slots come than can be queued; the record of such a slot says so.
    let is_skipped = |run: &&Value| run["status"] == "skipped" && run["reason"] == "overlap";
    let are_done = runs.iter().all(|run| run["status"] == "ok" || is_skipped(&run));
    let (count, skipped) = (slots.len(), runs.iter().filter(is_skipped).count());
    let is_met = slots.iter().copied().eq(expected) && are_done;
    Row {
        what: format!("slots of the schedule `{slug}`"),
        figure: if is_met { format!("{count}, each once, {skipped} of them skipped") } else { format!("{runs:?}") },
        goal: "each has one record",
        is_met,
        takes_long: false,
    }
}
