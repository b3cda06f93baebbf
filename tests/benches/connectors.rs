//! Benchmarks of ken-scheduler and ken-messenger. `make bench` runs them with the release binaries.
//!
//! Arguments choose among `idle`, `fire`, `updates` and `crashes`; without any, all of them run.
//! `KEN_BENCH_SECONDS` sets the length of each load (10).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod figures;
#[path = "../connectors/many_schedules.rs"]
mod many_schedules;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use figures::{Samples, per_second, row, title};
use ken_tests::bot_api::{BotApi, InjectedFailure, SECRET, TOKEN};
use ken_tests::{Builder, Client, System, number, until};
use ken_types::ops::schedules::NextSlot;
use many_schedules::{fill, ticks};
use serde_json::{Value, json};

fn main() {
    title("floors of this run");
    row("write and fdatasync of 4 KiB", &figures::sync_floor().text(), "");
    row("/bin/true, start to exit", &figures::spawn_floor().text(), "");
    if wants("idle") {
        title("10 000 schedules, none of which fires");
        idle();
    }
    if wants("fire") {
        title("1 000 schedules that fire in the same second: from the slot until its durable record is seen");
        fire();
    }
    if wants("updates") {
        title("updates while the platform answers in two seconds");
        updates();
    }
    if wants("crashes") {
        title("the gateway while the connector is killed once a second");
        crashes();
    }
}

fn wants(name: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|name| !name.starts_with('-')).peekable();
    names.peek().is_none() || names.any(|wanted| wanted == name)
}

fn seconds() -> u64 {
    number("KEN_BENCH_SECONDS", 10)
}

fn idle() {
    let system = System::start();
    let one = json!({"slug": "s0", "kind": "cron", "schedule": "0 0 1 1 *", "prompt": "p"});
    system.post("/api/schedules", &one).expect(201);
    fill(&system, 1..10_000, |_, _, _| {});
    system.get("/api/schedules").expect(200);
    std::thread::sleep(Duration::from_secs(3));
    for what in ["after a list of all of them", "started anew"] {
        let pid = system.pid("scheduler");
        let before = ticks(pid);
        std::thread::sleep(Duration::from_secs(seconds()));
        let used = ticks(pid) - before;
        row(&format!("processor time in {} s, {what}", seconds()), &format!("{used} ticks of 10 ms"), "goal: 0");
        row(
            &format!("private memory (dirty pages), {what}"),
            &format!("{:.2} MB", figures::dirty_kib(pid) as f64 / 1024.0),
            &format!("PSS {:.2} MB; goal: 4 MB", figures::pss_kib(pid) as f64 / 1024.0),
        );
        system.kill("scheduler");
        system.wait_until_stable("scheduler");
    }
}

fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    since.as_secs_f64() * 1e3
}

/// The time from the planned instant of a slot until a client of the system stream gets its record, which is durable by
/// then.
fn fire() {
    for round in 1..=5 {
        let late = lateness(0);
        row(&format!("all at one instant, round {round}"), &late.text(), "goal: p99 20 ms");
    }
    let late = lateness(1);
    row("one every millisecond", &late.text(), "goal: p99 20 ms");
}

/// The delays of 1,000 slots that are `apart_ms` apart, each from its instant until its durable record is seen.
fn lateness(apart_ms: i64) -> Samples {
    let system = System::start();
    let at = now_ms() as i64 + 6_000;
    let instant = |number: usize| at + apart_ms * number as i64;
    let schedule = |number| ken_types::Timestamp::from_millis(instant(number)).to_string();
    let one = json!({"slug": "s0", "kind": "at", "schedule": schedule(0), "prompt": "Hello."});
    system.post("/api/schedules", &one).expect(201);
    fill(&system, 1..1_000, |number, settings, progress| {
        settings.schedule = schedule(number);
        progress.next = Some(NextSlot { slot: instant(number), fire: instant(number) });
    });
    assert!(now_ms() < at as f64 - 500.0, "the schedules were not there in time");
    let mut stream = system.attach("/api/events?offset=now");
    let mut samples = Vec::new();
    while samples.len() < 1_000 {
        // Other frames arrive for ever.
        assert!(now_ms() < at as f64 + 60_000.0, "only {} of 1,000 slots within a minute", samples.len());
        let Some(frame) = stream.frame() else { continue };
        let now = now_ms();
        let data = frame.data();
        let is_slot = |event: &&Value| event["type"] == "schedule.run" && event["status"] == "queued";
        for event in data.as_array().into_iter().flatten().filter(is_slot) {
            let late = now - event["slotAt"].as_f64().expect("an instant");
            samples.push(Duration::from_secs_f64(late.max(0.0) / 1e3));
        }
    }
    Samples::of(samples)
}

const USERS: u64 = 200;

fn connected(platform: &BotApi) -> System {
    let users: Vec<String> = (1..=USERS).map(|user| user.to_string()).collect();
    Builder::default()
        .secrets(&format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n"))
        .env("MESSENGER_API_BASE_URL", &platform.url())
        .env("MESSENGER_APPROVED_USER_IDS", &users.join(","))
        .start()
}

fn update(id: u64) -> Value {
    let user = id % USERS + 1;
    json!({"update_id": id, "message": {"message_id": id, "date": 1, "text": "Hello.",
        "from": {"id": user, "is_bot": false, "first_name": "Ada"}, "chat": {"id": user, "type": "private"}}})
}

/// Updates are sent at fixed times, even if earlier ones are not answered yet. Latency is measured from the planned
/// time.
fn updates() {
    const CLIENTS: u64 = 32;
    for rate in [100, 1_000] {
        let platform = BotApi::start();
        platform.always("sendMessage", Some(InjectedFailure::Slow(Duration::from_secs(2))));
        let system = connected(&platform);
        let address = system.address();
        let (total, begun) = (rate * seconds(), Instant::now() + Duration::from_millis(200));
        let client = move |first: u64| {
            let mut client = Client::connect(address);
            let mut times = Vec::new();
            for id in (first..total).step_by(CLIENTS as usize) {
                let due = begun + Duration::from_secs_f64(id as f64 / rate as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let request = client
                    .request("POST", "/channels/messenger/webhook")
                    .header("X-Telegram-Bot-Api-Secret-Token", SECRET);
                request.json(&update(id + 1)).send().expect(200);
                times.push(due.elapsed());
            }
            times
        };
        let clients: Vec<_> = (0..CLIENTS).map(|first| std::thread::spawn(move || client(first))).collect();
        let times: Vec<Duration> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        let taken = times.len() as f64 / begun.elapsed().as_secs_f64();
        row(
            &format!("{rate} updates/s accepted, {} s", seconds()),
            &Samples::of(times).text(),
            &format!("{} taken; goal: p99 20 ms at 1 000/s", per_second(taken)),
        );
    }
}

fn crashes() {
    let platform = BotApi::start();
    let system = connected(&platform);
    let long = number("KEN_BENCH_SECONDS", 60);
    let rounds = [false, true].map(|kills| {
        let (address, session) = (system.address(), system.session());
        let end = Instant::now() + Duration::from_secs(long);
        let target = format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c");
        let worker = std::thread::spawn(move || {
            let mut client = Client::connect(address);
            let mut times = Vec::new();
            while Instant::now() < end {
                let begun = Instant::now();
                client.get(&target).expect(200);
                times.push(begun.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            times
        });
        // Both rounds look for the process, so that they differ only in the kills.
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1_100));
            if kills {
                system.kill("messenger");
            } else {
                _ = system.pid("messenger");
            }
        }
        Samples::of(worker.join().unwrap())
    });
    row("transcript, connector at rest", &rounds[0].text(), "");
    row("transcript, connector killed", &rounds[1].text(), "goal: p99 within 10 %, no 5xx");
    until("the connector is back", || system.get("/ready").status == 200);
}
