//! How long one request takes when nothing else is asked.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ken_tests::{Client, System, tui};
use serde_json::{Value, json};

const PROBES: usize = 60;

/// The median of what `one` takes.
pub(crate) fn median(count: usize, mut one: impl FnMut(usize)) -> Duration {
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            let begun = Instant::now();
            one(number);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[count / 2]
}

/// The time of a turn, of a page of a transcript and of an append; and of a sync of the disk in the same minutes.
pub(crate) fn latency(system: &System) -> ([Duration; 3], Duration) {
    let (mut turn, session) = turns(system);
    let turn = median(PROBES, |_| turn());
    let mut client = Client::connect(system.address());
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c&limit=10");
    let page = median(PROBES, |_| drop(client.get(&target).expect(200)));
    client.request("PUT", "/streams/probe").header("Content-Type", "application/json").send();
    let append = median(PROBES, |number| drop(client.post("/streams/probe", &json!([{"probe": number}])).expect(204)));
    ([turn, page, append], sync())
}

/// Asks in a new session, again and again.
pub(crate) fn turns(system: &System) -> (impl FnMut() + use<>, String) {
    let session = system.session();
    let body = tui(&[("session", json!(session)), ("text", json!("What is to be done?"))]);
    (turn(system.address(), body), session)
}

fn turn(address: SocketAddr, body: Value) -> impl FnMut() {
    let mut client = Client::connect(address);
    move || drop(client.post("/api/chat/events", &body).expect(200))
}

fn sync() -> Duration {
    let mut file = tempfile::tempfile().expect("a file");
    median(PROBES, |_| file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).expect("a synced write"))
}
