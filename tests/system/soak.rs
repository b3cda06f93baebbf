//! A long load, and what it leaves: memory, descriptors, disk and latency must stay as they were. Then a thousand readers, readers that
//! never read, senders that never end, days with `[retention]`, and a day of schedules.
//!
//! `KEN_SOAK` is the number of events (`make soak`: 1,000,000). What is measured over time is a goal from 300,000 on; below, it is only
//! printed. `KEN_SOAK_DAY` is the number of seconds in which a day of schedules passes (`make soak`: 3,600); without it, half an hour
//! passes in some seconds. Needs a machine that does nothing else. The figures are printed with `--nocapture`.

use ken_tests::{Builder, number};
use serde_json::json;

mod days;
mod load;
mod probes;
mod readers;
mod rest;
mod slots;
mod table;

use load::Callers;
use rest::Rest;
use table::{Row, print};

/// From this number of events on, what changes over time is held to its goal.
const LONG: u64 = 300_000;

fn events() -> u64 {
    number("KEN_SOAK", 3_000)
}

fn is_long() -> bool {
    events() >= LONG
}

/// The load has so many parts of the same length.
fn legs() -> u64 {
    if is_long() { 10 } else { 3 }
}

/// A system with room for all readers, whose model answers at once.
fn builder() -> Builder {
    Builder::default().config("[limits]\nconnections = 4096\nheld_connections = 2048\n").script(&[
        json!({"when": "[[look]]", "after_tools": 0, "events": [{"tool": {"name": "todo_read", "arguments": {}}}]}),
        json!({"events": [{"text": "There "}, {"text": "is "}, {"text": "nothing "}, {"text": "to "}, {"text": "do."}]}),
    ])
}

#[test]
fn nothing_grows_or_slows_down_under_a_long_load() {
    readers::allow_many_files();
    let (system, fresh) = (builder().start(), builder().start());
    let mut callers = Callers::new(&system);
    // The first turns fill caches that stay as they are: the pages of the store, and the histories of the agent.
    callers.run(&system, events() / 5);
    let mut rests = vec![Rest::of(&system, &fresh, 0)];
    table::head(&rests[0]);
    for _ in 0..legs() {
        let events = callers.run(&system, events() / legs());
        rests.push(Rest::of(&system, &fresh, events));
        table::leg(&rests);
    }
    let mut rows = rest::rows(&rests);
    rows.extend(readers::rows(&system));
    print(&rows);
    assert_eq!(callers.audit(&system), Vec::<String>::new());
    held(&rows);
}

#[test]
fn the_disk_does_not_grow_while_what_is_old_is_deleted() {
    held(&days::run());
}

#[test]
fn each_slot_of_a_day_has_one_record() {
    held(&slots::run());
}

fn held(rows: &[Row]) {
    let missed: Vec<&Row> = rows.iter().filter(|row| row.is_missed()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}
