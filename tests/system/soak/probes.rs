//! How long one request takes when nothing else is asked.

use std::time::{Duration, Instant};

use ken_tests::{Client, System, tui};
use serde_json::json;

const PROBES: usize = 60;

/// The median of what `one` takes.
pub(crate) fn median(count: usize, mut one: impl FnMut()) -> Duration {
    middle((0..count).map(|_| time(&mut one)).collect())
}

pub(crate) fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn time(mut one: impl FnMut()) -> Duration {
    let begun = Instant::now();
    one();
    begun.elapsed()
}

/// The time of a turn, of a page of a transcript and of an append, in each of two systems. They take turns, so that both have the same
/// machine.
pub(crate) fn latency(systems: [&System; 2]) -> [[Duration; 2]; 3] {
    let [(turn, page), (other_turn, other_page)] = systems.map(session);
    let mut turns: [Box<dyn FnMut()>; 2] = [Box::new(turn), Box::new(other_turn)];
    let mut pages: [Box<dyn FnMut()>; 2] = [Box::new(page), Box::new(other_page)];
    let mut clients = systems.map(|system| Client::connect(system.address()));
    for client in &mut clients {
        client.request("PUT", "/streams/probe").header("Content-Type", "application/json").send();
    }
    [
        by_turns(|which| turns[which]()),
        by_turns(|which| pages[which]()),
        by_turns(|which| drop(clients[which].post("/streams/probe", &json!([{"probe": which}])).expect(204))),
    ]
}

fn by_turns(mut one: impl FnMut(usize)) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..2 * PROBES {
        times[number % 2].push(time(|| one(number % 2)));
    }
    times.map(middle)
}

/// What asks in a new session, again and again; and what reads its transcript.
pub(crate) fn session(system: &System) -> (impl FnMut() + use<>, impl FnMut() + use<>) {
    let session = system.session();
    let body = tui(&[("session", json!(session)), ("text", json!("What is to be done?"))]);
    let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c&limit=10");
    let [mut asking, mut reading] = [Client::connect(system.address()), Client::connect(system.address())];
    let ask = move || drop(asking.post("/api/chat/events", &body).expect(200));
    (ask, move || drop(reading.get(&target).expect(200)))
}
