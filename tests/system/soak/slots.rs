//! Schedules under a clock that runs faster: each slot has one record.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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

/// The runs of each schedule by their ids, which sort by time. The store keeps the last 200, so that they are read again and again.
type Seen = [BTreeMap<String, Value>; SCHEDULES.len()];

/// How often the runs are read. 200 minutes take longer than this at every rate up to 2,400; that of `make soak` is 24.
const BETWEEN: Duration = Duration::from_secs(5);

pub(crate) fn run() -> Vec<Row> {
    let day = i64::try_from(number("KEN_SOAK_DAY", 0)).expect("seconds");
    let (length, rate) = if day == 0 { (SHORT_MS, SHORT_RATE) } else { (DAY_MS, DAY_MS / 1_000 / day) };
    let now = Timestamp::of_system().millis();
    let system = builder().env("KEN_CLOCK", &format!("{now}={now}*{rate}")).start();
    let first = SCHEDULES.map(|schedule| add(&system, schedule));
    let (begun, length_of_test) =
        (Instant::now(), Duration::from_millis(u64::try_from(length / rate).expect("a time")));
    let mut seen = Seen::default();
    while begun.elapsed() < length_of_test {
        std::thread::sleep(BETWEEN.min(length_of_test.saturating_sub(begun.elapsed())));
        look(&system, &mut seen);
    }
    for (slug, ..) in SCHEDULES {
        system.post(&format!("/api/schedules/{slug}/pause"), &json!({})).expect(200);
    }
    until("all runs have ended", || {
        look(&system, &mut seen);
        seen.iter().flat_map(BTreeMap::values).all(has_ended)
    });
    let rows: Vec<Row> =
        SCHEDULES.iter().zip(first).zip(&seen).map(|((one, first), runs)| row(one, first, length, runs)).collect();
    print(&rows);
    rows
}

fn look(system: &System, seen: &mut Seen) {
    for ((slug, ..), seen) in SCHEDULES.iter().zip(seen) {
        seen.extend(runs(system, slug).into_iter().map(|run| (run["runId"].as_str().expect("an id").to_owned(), run)));
    }
}

/// Returns the time of the first slot.
fn add(system: &System, (slug, kind, schedule, _): (&str, &str, &str, i64)) -> i64 {
    let body = json!({"slug": slug, "kind": kind, "schedule": schedule, "prompt": "What is to be done?", "missed": "all",
        "graceMs": 3_600_000, "overlap": "queue"});
    let made = system.post("/api/schedules", &body).expect(201);
    made.at("/schedule/nextFireAt").as_i64().expect("a time")
}

fn runs(system: &System, slug: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = system.get(&format!("/api/schedules/{slug}/runs?limit=100{after}")).expect(200).json();
        all.extend(page["runs"].as_array().expect("runs").iter().cloned());
        match page["page"]["after"].as_str() {
            Some(cursor) => after = format!("&after={cursor}"),
            None => return all,
        }
    }
}

fn has_ended(run: &Value) -> bool {
    !["queued", "admitted", "running"].iter().any(|state| run["status"] == *state)
}

fn row((slug, _, _, step): &(&str, &str, &str, i64), first: i64, length: i64, runs: &BTreeMap<String, Value>) -> Row {
    let mut slots: Vec<i64> = runs.values().filter_map(|run| run["slotAt"].as_i64()).collect();
    slots.sort_unstable();
    let expected = (0..).map(|number| first + number * step);
    let wrong = slots.iter().zip(expected).find(|(slot, expected)| *slot != expected);
    // On a slow machine more slots come than can be queued; the record of such a slot says so.
    let is_skipped = |run: &&Value| run["status"] == "skipped" && run["reason"] == "overlap";
    let undone = runs.values().find(|run| run["status"] != "ok" && !is_skipped(run));
    let (count, skipped) = (slots.len(), runs.values().filter(is_skipped).count());
    let is_full = i64::try_from(count).expect("a number") >= length / step - 1;
    Row {
        what: format!("slots of the schedule `{slug}`"),
        figure: match (wrong, undone) {
            (Some((slot, expected)), _) => format!("{count}, and {slot} in place of {expected}"),
            (None, Some(run)) => format!("{count}, of which {run}"),
            (None, None) => format!("{count}, each once, {skipped} of them skipped"),
        },
        goal: "each has one record",
        is_met: wrong.is_none() && undone.is_none() && is_full,
        takes_long: false,
    }
}
