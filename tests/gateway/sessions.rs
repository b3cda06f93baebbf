//! Sessions: creating, resuming, listing, cancelling and archiving; and their owners.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ken_tests::{Answer, System, scripted, tui};
use serde_json::{Value, json};

const SESSIONS: &str = "/api/chat/sessions";
const SCOPE: &str = "connector=tui&actorId=a&conversationId=c";

fn list(system: &System, query: &str) -> Vec<Value> {
    let page = system.get(&format!("{SESSIONS}?{query}")).expect(200).json();
    page["sessions"].as_array().unwrap().clone()
}

fn ids(sessions: &[Value]) -> Vec<&str> {
    sessions.iter().map(|session| session["sessionId"].as_str().unwrap()).collect()
}

fn resume(system: &System, selector: &str, identity: &Value) -> Answer {
    system.post(&format!("{SESSIONS}/{selector}/resume"), identity)
}

fn archive(system: &System, id: &str, scope: &str) -> Answer {
    system.delete(&format!("{SESSIONS}/{id}?{scope}"))
}

fn rename(system: &System, id: &str, name: &str) {
    system.say(id, &format!("/rename {name}")).expect(200);
}

fn updated(system: &System, id: &str) -> Value {
    let all = list(system, &format!("{SCOPE}&limit=100"));
    let found = all.iter().find(|session| session["sessionId"] == id);
    found.unwrap()["updatedAt"].clone()
}

#[test]
fn sessions() {
    let system = scripted();
    created(&system);
    listed(&system);
    resumed(&system);
    scopes(&system);
    archived(&system);
    cancelled(&system);
    updated_at(&system);
    searched(&system);
    images(&system);
}

fn searched(system: &System) {
    let session = system.session();
    let answer = system.say(&session, "hello to all the lighthouses").expect(200);
    system.say(&session, "hello again").expect(200);
    let found = list(system, "text=Lighthouse");
    assert_eq!(ids(&found), [session.as_str()]);
    assert_eq!(found[0]["found"]["submissionId"], answer.at("/submissionId"));
    assert_eq!(found[0]["found"]["passage"], "hello to all the lighthouses");
    assert_eq!(list(system, "text=lighthouse%20lamp").len(), 0);
    assert_eq!(list(system, "text=lighthouse&q=nothing").len(), 0);
    assert_eq!(list(system, "text=lighthouse&archived=1").len(), 0);
    let with_all = list(system, "text=%20&limit=100");
    assert!(with_all.len() > 1 && with_all.iter().all(|session| session.get("found").is_none()));
    // A session is read by its id, archived or not, and only by its owner if one is named.
    let path = format!("{SESSIONS}/{session}");
    assert_eq!(system.get(&path).expect(200).text("/session/title"), "hello to all the lighthouses");
    system.get(&format!("{path}?connector=tui&actorId=b&conversationId=c")).refused(403, "forbidden", "");
    system.get(&format!("{SESSIONS}/nothing")).refused(404, "not_found", "");
    archive(system, &session, SCOPE).expect(200);
    assert!(system.get(&path).expect(200).json()["session"]["archivedAt"].is_string());
    assert_eq!(ids(&list(system, "text=lighthouse&archived=1")), [session.as_str()]);
    system.delete(&format!("{path}?purge=true")).expect(200);
    system.get(&path).expect(410);
    assert_eq!(list(system, "text=lighthouse&archived=1").len(), 0);
}

fn images(system: &System) {
    let session = system.session();
    // It has several pieces on the wire.
    let (data, bytes) = ("QUJD".repeat(800_000), "ABC".repeat(800_000));
    let image = |data: &str, kind: &str| json!({"type": "image", "data": data, "mimeType": kind});
    let body = json!({"message": "hello to both", "images": [image("QQ==", "image/png"), image(&data, "image/jpeg")]});
    let prompt = system.post(&format!("/agents/orchestrator/{session}?wait=result"), &body).expect(200);
    let submission = prompt.text("/submissionId");
    let get = |session: &str, number: &str| system.get(&format!("{SESSIONS}/{session}/images/{submission}/{number}"));
    let first = get(&session, "0").expect(200);
    assert_eq!((first.header("content-type"), first.body.as_slice()), (Some("image/png"), &b"A"[..]));
    assert_eq!(first.header("x-content-type-options"), Some("nosniff"));
    let second = get(&session, "1").expect(200);
    assert_eq!(second.header("content-type"), Some("image/jpeg"));
    assert!(second.body == bytes.as_bytes());
    get(&session, "2").refused(404, "not_found", "/number");
    get(&session, "x").refused(400, "invalid", "/number");
    get(&system.session(), "0").refused(404, "not_found", "/number");
    get("nothing", "0").refused(404, "not_found", "");
    // Where nothing else was said, they are what was said.
    let alone = system.session();
    for (text, number) in [("", 1), ("and now?", 0), ("", 2), ("both", 2)] {
        let body = json!({"message": text, "images": vec![image("QQ==", "image/png"); number]});
        system.post(&format!("/agents/orchestrator/{alone}?wait=result"), &body).expect(200);
    }
    let exported = system.get(&format!("{SESSIONS}/{alone}/export")).expect(200).body_text();
    assert!(exported.starts_with("# [image]\n\n## You, "), "{exported}");
    let said: Vec<&str> =
        exported.split("## You, ").skip(1).map(|part| part.split("\n\n## ken").next().unwrap()).collect();
    let said: Vec<&str> = said.iter().map(|part| part.split_once("\n\n").unwrap().1).collect();
    assert_eq!(said, ["[image]", "and now?", "[2 images]", "both\n\n[2 images]"], "{exported}");
    let shown = String::from_utf8(system.ken(&["show", &alone]).stdout).unwrap();
    let turn = shown.split("(turn ").nth(1).unwrap().split(')').next().unwrap();
    let of_turn = String::from_utf8(system.ken(&["show", turn]).stdout).unwrap();
    assert!(of_turn.contains("\n\n> [image]\n"), "{of_turn}");
    assert!(shown.starts_with("> [image]\n") && shown.contains("> both\n> \n> [2 images]\n"), "{shown}");
}

fn created(system: &System) {
    let answer = system.post(SESSIONS, &tui(&[])).expect(201);
    let id = answer.text("/session/id");
    assert_eq!(answer.json(), json!({"session": {"id": id, "surface": "tui", "created": true}}));
    // A session that is created is listed, unless the caller leaves out those without a prompt and without a name.
    let is_listed = |query: &str| ids(&list(system, query)).contains(&id.as_str());
    for scope in ["", SCOPE] {
        assert!(is_listed(&format!("{scope}&limit=100")) && is_listed(&format!("{scope}&limit=100&empty=1")));
        assert!(!is_listed(&format!("{scope}&limit=100&empty=0")));
    }
    system.get(&format!("{SESSIONS}?empty=no")).refused(400, "invalid", "?empty");
    let printed = || String::from_utf8(system.ken(&["sessions"]).stdout).unwrap();
    assert!(!printed().contains(&id));
    let named = system.session();
    rename(system, &named, "Empty");
    assert!(ids(&list(system, "limit=100&empty=0")).contains(&named.as_str()) && printed().contains(&named));
    resume(system, &id, &tui(&[])).expect(200);
    // Its stream exists, and is empty.
    let stream = system.get(&format!("/agents/orchestrator/{id}")).expect(200);
    assert_eq!((stream.body.as_slice(), stream.header("stream-next-offset")), (&b"[]"[..], Some("-1")));
    for (body, at) in [
        (json!({}), "/connector"),
        (tui(&[("connector", json!("web-api"))]), "/connector"),
        (tui(&[("actorId", json!(" "))]), "/actorId"),
        (tui(&[("conversationId", json!(3))]), "/conversationId"),
        (tui(&[("threadId", json!(""))]), "/threadId"),
    ] {
        system.post(SESSIONS, &body).refused(400, "invalid", at);
    }
}

fn listed(system: &System) {
    let scope = "connector=web-api&actorId=list&conversationId=l";
    let say = |text: &str| {
        let body = json!({"text": text, "actorId": "list", "conversationId": "l"});
        system.post("/api/chat/events", &body).expect(200).text("/session/id")
    };
    let long = format!("  many \n words {}", "x".repeat(100));
    let (first, second) = (say("hello  there"), say(&long));
    let all = list(system, scope);
    assert_eq!(ids(&all), [second.as_str(), &first]);
    assert_eq!(all[1]["title"], "hello there");
    let title = all[0]["title"].as_str().unwrap();
    assert!(title.starts_with("many words xxx") && title.ends_with("x...") && title.chars().count() == 80, "{title}");
    assert_eq!(
        (&all[0]["origin"], &all[0]["actorId"], &all[0]["conversationId"]),
        (&json!("web"), &json!("list"), &json!("l"))
    );
    assert!(all[0].get("displayName").is_none() && all[0].get("threadId").is_none());
    // A search finds sessions that have each word in the name, the title or the id.
    assert_eq!(ids(&list(system, &format!("{scope}&q=THERE%20hel"))), [first.as_str()]);
    assert_eq!(ids(&list(system, &format!("{scope}&q={second}"))), [second.as_str()]);
    assert_eq!(list(system, &format!("{scope}&q=there%20words")).len(), 0);
    // Without a scope, all sessions are listed. A partial scope is refused.
    assert!(list(system, "limit=100").len() >= 2);
    system.get(&format!("{SESSIONS}?actorId=list&conversationId=l")).refused(400, "invalid", "?connector");
    // A session without a thread does not match a query with one.
    assert_eq!(list(system, &format!("{scope}&threadId=t")).len(), 0);
    pages(system, scope, &say);
}

/// A cursor is a position in the list, so new sessions neither repeat nor hide others.
fn pages(system: &System, scope: &str, say: &dyn Fn(&str) -> String) {
    let mut expected: BTreeSet<String> = (0..5).map(|_| say("hello")).collect();
    expected.extend(ids(&list(system, scope)).iter().map(ToString::to_string));
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = system.get(&format!("{SESSIONS}?{scope}&limit=2{after}")).expect(200).json();
        seen.extend(ids(page["sessions"].as_array().unwrap()).iter().map(ToString::to_string));
        assert_eq!(page["page"]["limit"], 2);
        say("hello in between");
        match page["page"].get("after") {
            Some(cursor) => {
                assert_eq!(page["page"]["hasMore"], true);
                after = format!("&after={}", cursor.as_str().unwrap());
            }
            None => break assert_eq!(page["page"]["hasMore"], false),
        }
    }
    assert_eq!(seen.iter().cloned().collect::<BTreeSet<_>>(), expected);
    assert_eq!(seen.len(), expected.len(), "a session came twice");
    // A cursor of another list is refused.
    system.get(&format!("{SESSIONS}?{SCOPE}{after}")).refused(400, "invalid", "?after");
    system.get(&format!("/api/knowledge?{}", after.trim_start_matches('&'))).refused(400, "invalid", "?after");
}

fn resumed(system: &System) {
    let id = system.session();
    let answer = resume(system, &id, &tui(&[])).expect(200);
    assert_eq!(answer.json(), json!({"session": {"id": id, "surface": "tui", "created": false}}));
    rename(system, &id, "Night shift");
    for selector in [id.as_str(), "Night%20shift", "%20Night%20shift%20"] {
        let answer = resume(system, selector, &tui(&[])).expect(200);
        assert_eq!((answer.text("/session/id"), answer.text("/session/title")), (id.clone(), "Night shift".into()));
    }
    // No session of the caller matches, so a new one is created, with a new id.
    for selector in ["night%20shift", "Night", "nothing", "tui-2027-02-03T04-05-06-789Z-0f3c9a1e"] {
        let answer = resume(system, selector, &tui(&[])).expect(201);
        assert_eq!(answer.at("/session/created"), true);
        assert!(answer.text("/session/id") != id && answer.text("/session/id") != selector);
    }
    resume(system, "%20", &tui(&[])).expect(400);
    resume(system, &id, &tui(&[("actorId", json!("other"))])).refused(403, "forbidden", "");
    resume(system, "Night%20shift", &tui(&[("actorId", json!("other"))])).expect(201);
    resume(system, &id, &tui(&[("connector", json!("web-api"))])).refused(400, "invalid", "/connector");
    // Names need not be unique, but an ambiguous name selects nothing.
    rename(system, &system.session(), "Night shift");
    resume(system, "Night%20shift", &tui(&[])).refused(409, "conflict", "");
    // An id has priority over a name.
    let other = system.session();
    rename(system, &other, &id);
    assert_eq!(resume(system, &id, &tui(&[])).expect(200).text("/session/id"), id);
}

fn scopes(system: &System) {
    let id = system.session();
    let paths = |id: &str, scope: &str| {
        [system.get(&format!("{SESSIONS}/{id}/transcript?{scope}")), archive(system, id, scope), {
            let parts = scope.split('&').map(|pair| pair.split_once('=').unwrap());
            let body: Value =
                parts.map(|(name, value)| (name.to_owned(), json!(value))).collect::<serde_json::Map<_, _>>().into();
            system.post(&format!("{SESSIONS}/{id}/cancel"), &body)
        }]
    };
    for scope in [
        "connector=tui&actorId=other&conversationId=c",
        "connector=tui&actorId=a&conversationId=other",
        "connector=web-api&actorId=a&conversationId=c",
        "connector=messenger&actorId=a&conversationId=c",
        "connector=tui&actorId=a&conversationId=c&threadId=t",
    ] {
        _ = paths(&id, scope).map(|answer| answer.refused(403, "forbidden", ""));
    }
    _ = paths("tui-nobody", SCOPE).map(|answer| answer.refused(404, "not_found", ""));
    // Transcript, cancel and delete accept only ids.
    rename(system, &id, "Only-a-name");
    _ = paths("Only-a-name", SCOPE).map(|answer| answer.expect(404));
    let threaded = tui(&[("threadId", json!("t"))]);
    let threaded = system.post(SESSIONS, &threaded).expect(201).text("/session/id");
    _ = paths(&threaded, SCOPE).map(|answer| answer.expect(403));
    _ = paths(&threaded, &format!("{SCOPE}&threadId=t")).map(|answer| answer.expect(200));
}

fn archived(system: &System) {
    let id = system.session();
    rename(system, &id, "Attic");
    system.say(&id, "hello").expect(200);
    for _ in 0..2 {
        let answer = archive(system, &id, SCOPE).expect(200);
        assert_eq!(answer.json(), json!({"session": {"id": id}, "archived": true}));
    }
    assert!(!ids(&list(system, &format!("{SCOPE}&limit=100"))).contains(&id.as_str()));
    let attic = list(system, &format!("{SCOPE}&archived=1&limit=100"));
    assert!(ids(&attic).contains(&id.as_str()) && attic[0]["archivedAt"].is_string());
    system.say("Attic", "hello").expect(404);
    assert_ne!(resume(system, "Attic", &tui(&[])).expect(201).text("/session/id"), id);
    let transcript = system.get(&format!("{SESSIONS}/{id}/transcript?{SCOPE}")).expect(200);
    assert_eq!(transcript.at("/exchanges").as_array().unwrap().len(), 1);
    // Resuming or prompting it by id restores it.
    resume(system, &id, &tui(&[])).expect(200);
    assert!(ids(&list(system, &format!("{SCOPE}&limit=100"))).contains(&id.as_str()));
    archive(system, &id, SCOPE).expect(200);
    system.say(&id, "hello").expect(200);
    assert!(ids(&list(system, &format!("{SCOPE}&limit=100"))).contains(&id.as_str()));
    // The operator can omit the whole identity, but not a part of it.
    archive(system, &id, "connector=tui").refused(400, "invalid", "?actorId");
    archive(system, &id, "").expect(200);
    archive(system, "tui-nobody", "").refused(404, "not_found", "");
    resume(system, &id, &tui(&[])).expect(200);
    // It cannot be archived while a turn runs or waits.
    hold(system, &id);
    archive(system, &id, SCOPE).refused(409, "conflict", "");
    system.post(&format!("{SESSIONS}/{id}/cancel"), &tui(&[])).expect(200);
}

/// Starts a turn that does not end by itself. Returns its submission.
fn hold(system: &System, id: &str) -> String {
    let mut client = system.client();
    let request = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
    let body = tui(&[("text", json!("hold")), ("session", json!(id))]);
    request.json(&body).send().expect(202).text("/submissionId")
}

fn cancelled(system: &System) {
    let id = system.session();
    let cancel = |submission: Option<&str>| {
        let mut body = tui(&[]);
        if let Some(submission) = submission {
            body["submissionId"] = json!(submission);
        }
        let answer = system.post(&format!("{SESSIONS}/{id}/cancel"), &body).expect(200);
        assert_eq!(answer.text("/session/id"), id);
        (answer.at("/cancelled"), answer.at("/submissionId"))
    };
    let nothing = (json!(false), Value::Null);
    assert_eq!(cancel(None), nothing);
    let (running, waiting) = (hold(system, &id), hold(system, &id));
    let mut stream = system.attach(&format!("/agents/orchestrator/{id}?offset=-1&live=sse"));
    stream.until_event("text_delta");
    assert_eq!(cancel(Some("3d2f6a0e-8a55-4d2b-9c55-6f0f6d1f8e11")), nothing);
    // Only the running turn is cancelled, within 2 s, and the next one begins.
    let begun = Instant::now();
    assert_eq!(cancel(None), (json!(true), json!(running)));
    let events = stream.until_event("submission_settled");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let settled = events.iter().find(|event| event["type"] == "submission_settled").unwrap();
    assert_eq!((&settled["outcome"], &settled["submissionId"]), (&json!("aborted"), &json!(running)));
    let transcript = system.get(&format!("{SESSIONS}/{id}/transcript?{SCOPE}")).expect(200);
    assert_eq!(transcript.at("/exchanges/0/status"), "cancelled");
    assert_eq!(transcript.at("/exchanges/0/assistant/text"), "part");
    assert_eq!(transcript.at("/exchanges/1/status"), "running");
    assert_eq!(cancel(Some(&waiting)), (json!(true), json!(waiting)));
    stream.until_event("submission_settled");
    assert_eq!(cancel(Some(&waiting)), nothing);
}

/// `updatedAt` changes on a prompt, command, rename or resume, but not on reading.
fn updated_at(system: &System) {
    let id = system.session();
    system.say(&id, "hello").expect(200);
    let mut last = updated(system, &id);
    let mut moved = |what: &str, moves: bool| {
        let now = updated(system, &id);
        assert_eq!(now != last, moves, "{what}: {last} -> {now}");
        last = now;
        std::thread::sleep(Duration::from_millis(3));
    };
    moved("nothing", false);
    system.get(&format!("{SESSIONS}/{id}/transcript?{SCOPE}")).expect(200);
    system.get(&format!("/agents/orchestrator/{id}")).expect(200);
    system.post(&format!("{SESSIONS}/{id}/cancel"), &tui(&[])).expect(200);
    moved("reading", false);
    system.say(&id, "hello").expect(200);
    moved("a prompt", true);
    system.say(&id, "/session").expect(200);
    moved("a command", true);
    rename(system, &id, "x");
    moved("a name", true);
    resume(system, &id, &tui(&[])).expect(200);
    moved("resume", true);
}

#[test]
fn cursors_survive_a_restart() {
    let mut system = scripted();
    let made: BTreeSet<String> = (0..3).map(|_| system.session()).collect();
    for id in &made {
        system.say(id, "hello").expect(200);
    }
    let page = system.get(&format!("{SESSIONS}?{SCOPE}&limit=1")).expect(200);
    let first = page.text("/sessions/0/sessionId");
    system.down();
    system.up();
    let cursor = page.text("/page/after");
    let rest = list(&system, &format!("{SCOPE}&after={cursor}"));
    let mut seen: BTreeSet<String> = ids(&rest).iter().map(ToString::to_string).collect();
    assert!(rest.len() == 2 && seen.insert(first));
    assert_eq!(seen, made);
}
