//! A system whose store cannot write: callers, waiting callers and `/ready` get an error. Reading continues, and everything works
//! again when there is space.

use std::process::Command;
use std::time::Duration;

use ken_tests::{System, scripted, tui, until};
use serde_json::{Value, json};

/// Limits the size of files that the store's process can write, in bytes.
fn limit(system: &System, bytes: &str) {
    let pid = system.pid("store").to_string();
    let limited = Command::new("prlimit").args([&format!("--fsize={bytes}:"), "--pid", &pid]).status();
    assert!(limited.unwrap().success());
}

#[test]
fn a_full_disk_is_reported_and_survived() {
    let system = scripted();
    system.get("/ready").expect(200);
    let session = system.session();
    let size = std::fs::metadata(system.home().join("state/store/ken.db-wal")).unwrap().len();
    limit(&system, &(size + (2 << 20)).to_string());
    let knowledge = |number: usize| json!({"title": format!("t{number}"), "content": "x".repeat(100_000)});
    let waiting = {
        let mut client = system.client();
        let body = tui(&[("text", json!("hold")), ("sessionId", json!(session))]);
        std::thread::spawn(move || {
            let request = client.request("POST", "/api/chat/events").header("Prefer", "wait=60");
            request.json(&body).send()
        })
    };
    until("the turn is held", || system.call("store", "service.stats", &[])["leases_held"] == 1);
    let refused = (0..60)
        .map(|number| system.post("/api/knowledge", &knowledge(number)))
        .find(|answer| answer.status != 201)
        .expect("all of it went into 2 MiB");
    assert_eq!((refused.status, refused.text("/code").as_str()), (503, "unavailable"));
    // Now nothing at all can be written; a small change may have found room before.
    limit(&system, "4096");
    until("it is reported", || system.get("/ready").status == 503);
    let ready = system.get("/ready").expect(503);
    assert_eq!(ready.at("/waiting"), json!(["store"]));
    assert!(ready.text("/error").contains("disk"));
    system.get("/api/knowledge?limit=1").expect(200);
    // A caller that waits for a turn gets its answer at once, long before the minute is over.
    let begun = std::time::Instant::now();
    let reported = waiting.join().unwrap().expect(202);
    assert_eq!((reported.at("/result"), reported.text("/status").as_str()), (Value::Null, "running"));
    assert!(begun.elapsed() < Duration::from_secs(20));
    limit(&system, "unlimited");
    until("the store writes again", || system.get("/ready").status == 200);
    system.post("/api/knowledge", &knowledge(99)).expect(201);
}
