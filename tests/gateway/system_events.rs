//! GET /api/events: the stream of changes.

use ken_tests::{System, kinds, scripted};
use serde_json::{Value, json};

/// All stored events, read by long polls that return at once.
fn kept(system: &System) -> Vec<Value> {
    let (mut events, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let page = system.get(&format!("/api/events?offset={offset}&live=long-poll")).expect(200);
        events.extend(page.json().as_array().unwrap().iter().cloned());
        if page.header("stream-up-to-date") == Some("true") {
            return events;
        }
        offset = page.header("stream-next-offset").unwrap().to_owned();
    }
}

#[test]
fn changes_are_reported_as_they_happen() {
    let mut system = scripted();
    let mut live = system.attach("/api/events");
    let mut seen = Vec::new();
    assert_eq!(live.until_control(&mut seen)["upToDate"], true);
    assert!(seen.is_empty(), "without an offset it begins now");

    let session = system.session();
    system.say(&session, "hello").expect(200);
    system.say(&session, "/rename Nightly").expect(200);
    let entry = json!({"title": "Gate", "content": "The gate closes at ten."});
    let entry = system.post("/api/knowledge", &entry).expect(201).text("/record/id");
    system.delete(&format!("/api/knowledge/{entry}")).expect(200);
    let expected = [
        "session.created", "submission.queued", "submission.running", "submission.settled", "session.renamed",
        "knowledge.added", "knowledge.deleted",
    ];
    while seen.len() < expected.len() {
        live.until_control(&mut seen);
    }
    assert_eq!(kinds(&seen), expected);
    assert_eq!(seen, kept(&system), "who follows and who comes later see the same");
    for (index, event) in seen.iter().enumerate() {
        assert_eq!((&event["v"], &event["eventIndex"]), (&json!(1), &json!(index)));
    }
    assert_eq!((&seen[0]["sessionId"], &seen[0]["connector"]), (&json!(session), &json!("tui")));
    assert_eq!((&seen[3]["sessionId"], &seen[3]["outcome"]), (&json!(session), &json!("completed")));
    assert_eq!((&seen[5]["id"], &seen[6]["id"]), (&json!(entry), &json!(entry)));
    let text = serde_json::to_string(&seen).unwrap();
    assert!(!text.contains("hello") && !text.contains("Nightly") && !text.contains("Gate"), "ids and states only");

    modes(&system, expected.len());
    // A reader that was disconnected continues where it was.
    drop(live);
    system.kill("store");
    system.down();
    system.up();
    system.session();
    let target = format!("/api/events?offset=0000000000000000_{:016}", expected.len());
    let seen = system.attach(&target).until_event("session.created");
    assert_eq!(seen.len(), 1);
}

/// Like the EventSource of a browser: it requests the same address again, with the last id that it has seen.
#[test]
fn the_last_event_id_resumes() {
    let system = System::start();
    let session = system.session();
    for title in ["One", "Two"] {
        system.post("/api/knowledge", &json!({"title": title, "content": "text"})).expect(201);
    }
    system.say(&session, "hello").expect(200);
    for target in ["/api/events?offset=-1".to_owned(), format!("/agents/orchestrator/{session}?offset=-1&live=sse")] {
        let mut whole = Vec::new();
        let mut live = system.attach(&target);
        let frame = live.frame().unwrap();
        let id = frame.id().expect("a data frame has an id").to_owned();
        whole.extend(frame.data().as_array().unwrap().iter().cloned());
        let control = live.until_control(&mut whole);
        assert_eq!(control["streamNextOffset"], json!(id));
        // The offset in the address is where the reader first began; `Last-Event-ID` overrides it.
        let mut again = system.attach_after(&target, &id);
        let first = again.frame().unwrap();
        assert_eq!((first.kind(), first.id()), ("control", None));
        let second = format!("{}{:016}", &id[..17], 2);
        let mut rest = Vec::new();
        system.attach_after(&target, &second).until_control(&mut rest);
        assert_eq!(rest, whole[2..]);
        // An id that is not an offset of this server is ignored.
        let mut all = Vec::new();
        system.attach_after(&target, "17").until_control(&mut all);
        assert_eq!(all, whole);
    }
}

fn modes(system: &System, count: usize) {
    let last = system.get("/api/events?offset=-1&tail=2&live=long-poll").expect(200);
    assert_eq!(kinds(last.json().as_array().unwrap()), ["knowledge.added", "knowledge.deleted"]);
    let end = format!("0000000000000000_{count:016}");
    assert_eq!(last.header("stream-next-offset"), Some(end.as_str()));
    let mut whole = Vec::new();
    system.attach("/api/events?offset=-1&live=sse").until_control(&mut whole);
    assert_eq!(whole.len(), count);
    for (query, at) in [("offset=bad", "?offset"), ("live=x", "?live"), ("tail=0", "?tail")] {
        system.get(&format!("/api/events?{query}")).refused(400, "invalid", at);
    }
    system.client().request("POST", "/api/events").json(&json!({})).send().expect(405);
}
