//! What a system has when it rests between two legs of the load.

use std::collections::BTreeMap;
use std::time::Duration;

use ken_tests::{System, children_of, private_kib, until};

use super::probes;
use super::table::Row;

/// Less than this may be added to the memory of a part at any time, in KiB: the allocator and the page tables round.
const ROUNDING_KIB: u64 = 256;

pub(crate) struct Rest {
    /// The events that were added before it.
    pub(crate) events: u64,
    pub(crate) private: BTreeMap<String, u64>,
    pub(crate) descriptors: BTreeMap<String, u64>,
    /// The bytes of the database, whose log is empty.
    pub(crate) database: u64,
    /// Of a turn, a page of a transcript, and an append to a stream; and the same in a system that has done nothing else.
    pub(crate) latency: [[Duration; 2]; 3],
}

impl Rest {
    /// Waits until nothing is left to do, and measures.
    pub(crate) fn of(system: &System, fresh: &System, events: u64) -> Rest {
        let latency = probes::latency([system, fresh]);
        let database = database_at_rest(system);
        let kend = system.pid("kend");
        let mut processes = children_of(kend);
        processes.push((kend, "kend".to_owned()));
        let by_name = |of: fn(i32) -> u64| processes.iter().map(|(pid, name)| (name.clone(), of(*pid))).collect();
        Rest { events, private: by_name(private_kib), descriptors: by_name(descriptors), database, latency }
    }

    pub(crate) fn bytes_per_event(&self, before: &Rest) -> f64 {
        self.database.saturating_sub(before.database) as f64 / self.events as f64
    }
}

/// The size of the database when its log has been copied into it.
pub(crate) fn database_at_rest(system: &System) -> u64 {
    let mut stats = serde_json::Value::Null;
    until("the store rests", || {
        stats = system.call("store", "service.stats", &[]);
        stats["leases_held"] == 0 && stats["wal_bytes"] == 0
    });
    stats["database_bytes"].as_u64().expect("a size")
}

pub(crate) fn descriptors(pid: i32) -> u64 {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count() as u64
}

pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// What changed from the beginning of the load to its end. Of each, the middle of some rests counts.
pub(crate) fn rows(rests: &[Rest]) -> Vec<Row> {
    let mut rows: Vec<Row> = rests[0].private.keys().map(|part| memory(part, rests)).collect();
    rows.push(row("descriptors of all parts", &ends(rests, |rest| rest.descriptors.values().sum::<u64>() as f64), 0.0));
    for (number, what) in ["a turn", "a page of a transcript", "an append to a stream"].into_iter().enumerate() {
        rows.push(latency(what, rests, number));
    }
    let bytes = |number: usize| rests[number].bytes_per_event(&rests[number - 1]);
    rows.push(row("bytes per event in the first and the last tenth", &[bytes(1), bytes(rests.len() - 1)], 0.0));
    rows
}

fn ends(rests: &[Rest], of: impl Fn(&Rest) -> f64) -> [f64; 2] {
    let middle = |rests: &[Rest]| {
        let mut all: Vec<f64> = rests.iter().map(&of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let third = (rests.len() - 1) / 3;
    [middle(&rests[1..=third]), middle(&rests[rests.len() - third..])]
}

fn drift([first, last]: &[f64; 2]) -> f64 {
    100.0 * (last / first - 1.0)
}

fn row(what: &str, ends: &[f64; 2], allowed: f64) -> Row {
    let [first, last] = ends;
    Row {
        what: what.to_owned(),
        figure: format!("{first:.2}, then {last:.2}: {:+.1} %", drift(ends)),
        goal: "at most 5 % more",
        is_met: drift(ends) < 5.0 || last - first < allowed,
        takes_long: true,
    }
}

fn memory(part: &str, rests: &[Rest]) -> Row {
    let of = |rest: &Rest| rest.private.get(part).copied().unwrap_or_default() as f64;
    let mut row = row(&format!("private memory of {part}, KiB"), &ends(rests, of), ROUNDING_KIB as f64);
    row.goal = "at most 5 % or 256 KiB more";
    row
}

/// The time itself says nothing on a machine that others use, too.
fn latency(what: &str, rests: &[Rest], number: usize) -> Row {
    let ratio = |rest: &Rest| rest.latency[number][0].as_secs_f64() / rest.latency[number][1].as_secs_f64();
    let mut row = row(&format!("{what} ÷ that of a fresh system"), &ends(rests, ratio), 0.0);
    row.goal = "at most 5 % more";
    row
}
