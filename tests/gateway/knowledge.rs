//! Knowledge entries: adding, listing, searching, deleting and reindexing; and the entries that each caller finds.

use std::collections::BTreeSet;

use ken_tests::{System, tui, until};
use serde_json::{Value, json};

const KNOWLEDGE: &str = "/api/knowledge";

fn teach(system: &System, entry: &Value) -> Value {
    system.post(KNOWLEDGE, entry).expect(201).at("/record")
}

fn list(system: &System, query: &str) -> Vec<Value> {
    let page = system.get(&format!("{KNOWLEDGE}?{query}")).expect(200).json();
    page["records"].as_array().unwrap().clone()
}

fn ids(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["id"].as_str().unwrap()).collect()
}

#[test]
fn knowledge() {
    let system = System::start();
    records(&system);
    limits(&system);
    searches(&system);
    pages(&system);
    scopes(&system);
    reindex(&system);
}

/// Five long entries fill a line of the wire protocol, and past turns and memory are added to them.
#[test]
fn a_turn_can_start_with_more_than_one_line_of_the_wire() {
    let system = System::start();
    for number in 0..5 {
        let content = "\"x".repeat(510 * 512);
        teach(&system, &json!({"title": format!("Reactor {number}"), "content": content}));
    }
    let session = system.session();
    let long = format!("How old is the reactor? {}", "It is old. ".repeat(22_000));
    system.say(&session, &long).expect(200);
    let answer = system.say(&session, "How old is the reactor?").expect(200).json();
    assert_eq!(answer["status"], "completed", "{answer}");
}

/// The entries describe twelve hosts with several facts each. The questions use other forms of the words than the
/// entries.
#[test]
fn a_question_is_answered_by_the_entry_with_its_rarer_words() {
    let system = System::start();
    for number in 20..32 {
        let team = 1 + number % 3;
        let content = format!(
            "web{number} has {number} GB of RAM. It is owned by team-{team}. The nightly backup of web{number} starts \
             at 03:{number}."
        );
        teach(&system, &json!({"title": format!("Host web{number}"), "content": content}));
    }
    let ask = |question: &str| {
        let session = system.session();
        let answer = system.say(&session, question).expect(200);
        answer.text("/result/text")
    };
    // When it is asked again, the question itself is in a past turn.
    for _ in 0..2 {
        let text = ask("When is web23 backed up?");
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("The nightly backup of web23 starts at 03:23. [1]"), "{text}");
        assert!(!text.contains("RAM") && !text.contains("When is"), "{text}");
    }
    let text = ask("Which hosts are owned by team-3?");
    assert_eq!(text.matches("owned by team-3").count(), 4, "{text}");
    assert!(!text.contains("team-1") && !text.contains("team-2"), "{text}");
    let text = ask("Which hosts are owned by team-9?");
    assert!(text.starts_with("I found nothing"), "{text}");
}

fn records(system: &System) {
    let entry = json!({"title": "Tea", "content": "Green tea brews at 80 degrees.", "tags": ["kitchen", "tea"]});
    let record = teach(system, &entry);
    let id = record["id"].as_str().unwrap();
    for (name, value) in [
        ("title", json!("Tea")),
        ("content", json!("Green tea brews at 80 degrees.")),
        ("tags", json!(["kitchen", "tea"])),
        ("source", json!("api")),
        ("actorId", json!("api")),
        ("conversationId", json!("default")),
        ("scope", json!("global")),
        ("metadata", json!({})),
        ("createdBy", json!("api")),
    ] {
        assert_eq!(record[name], value, "{name}");
    }
    assert!(record.get("score").is_none());
    assert_eq!(system.get(&format!("{KNOWLEDGE}/{id}")).expect(200).at("/record"), record);
    // Adding the same entry again returns the same id, and changes `updatedAt`.
    std::thread::sleep(std::time::Duration::from_millis(3));
    let again = teach(system, &entry);
    assert_eq!((&again["id"], &again["createdAt"]), (&record["id"], &record["createdAt"]));
    assert!(again["updatedAt"].as_str() > record["updatedAt"].as_str());
    for word in ["green", "brewed", "degree", "teas"] {
        assert_eq!(list(system, &format!("q={word}")).len(), 1, "{word}");
    }
    let deleted = system.delete(&format!("{KNOWLEDGE}/{id}")).expect(200);
    assert_eq!(deleted.json(), json!({"id": id, "deleted": true}));
    system.get(&format!("{KNOWLEDGE}/{id}")).refused(404, "not_found", "");
    system.delete(&format!("{KNOWLEDGE}/{id}")).refused(404, "not_found", "");
    assert_eq!(list(system, "q=green").len(), 0);
}

fn limits(system: &System) {
    let fits = json!({"title": "ü".repeat(200), "content": "x".repeat(512 << 10), "tags": vec!["y".repeat(64); 32],
        "actorId": "a".repeat(256), "conversationId": "c".repeat(256)});
    let id = teach(system, &fits)["id"].as_str().unwrap().to_owned();
    system.delete(&format!("{KNOWLEDGE}/{id}")).expect(200);
    let with = |name: &str, value: Value| {
        let mut entry = json!({"title": "t", "content": "c"});
        entry[name] = value;
        entry
    };
    for (entry, at) in [
        (json!({}), "/title"),
        (json!({"title": "t"}), "/content"),
        (with("title", json!("")), "/title"),
        (with("title", json!(" ")), "/title"),
        (with("title", json!("x".repeat(201))), "/title"),
        (with("content", json!("")), "/content"),
        (with("tags", json!("x")), "/tags"),
        (with("tags", json!(vec!["x"; 33])), "/tags"),
        (with("tags", json!(["x", ""])), "/tags/1"),
        (with("tags", json!(["x".repeat(65)])), "/tags/0"),
        (with("tags", json!([7])), "/tags/0"),
        (with("actorId", json!("")), "/actorId"),
        (with("actorId", json!("x".repeat(257))), "/actorId"),
        (with("conversationId", json!("")), "/conversationId"),
        (with("conversationId", json!("x".repeat(257))), "/conversationId"),
        (with("scope", json!("global")), "/scope"),
    ] {
        system.post(KNOWLEDGE, &entry).refused(400, "invalid", at);
    }
    let large = with("content", json!("x".repeat((512 << 10) + 1)));
    system.post(KNOWLEDGE, &large).refused(413, "too_large", "/content");
}

fn searches(system: &System) {
    let best =
        teach(system, &json!({"title": "Mooring", "content": "The mooring lines of the pontoon are checked daily."}));
    teach(system, &json!({"title": "Lines", "content": "Lines of text are wrapped."}));
    let found = list(system, "q=mooring+lines+pontoon");
    assert_eq!(found[0]["id"], best["id"]);
    let scores: Vec<f64> = found.iter().map(|record| record["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b) && scores.iter().all(|score| (0.0..=1.0).contains(score)), "{scores:?}");
    assert_eq!(list(system, "q=nothingofthekind").len(), 0);
    // Operators of a query language are treated as ordinary words.
    for q in ["%22", "a+AND", "*", "NEAR(", "title:x", "-", "%27%27", "(", "a%00b"] {
        let answer = system.get(&format!("{KNOWLEDGE}?q={q}"));
        assert!([200, 400].contains(&answer.status), "{q}: {answer:?}");
    }
}

fn pages(system: &System) {
    let mut expected: BTreeSet<String> = ids(&list(system, "limit=100")).iter().map(ToString::to_string).collect();
    let entry = |number: usize| json!({"title": format!("Entry {number}"), "content": "one of many"});
    expected.extend((0..5).map(|number| teach(system, &entry(number))["id"].as_str().unwrap().to_owned()));
    let (mut seen, mut after, mut number) = (Vec::new(), String::new(), 100);
    loop {
        let page = system.get(&format!("{KNOWLEDGE}?limit=2{after}")).expect(200).json();
        seen.extend(ids(page["records"].as_array().unwrap()).iter().map(ToString::to_string));
        teach(system, &entry(number));
        number += 1;
        match page["page"].get("after") {
            Some(cursor) => after = format!("&after={}", cursor.as_str().unwrap()),
            None => break assert_eq!(page["page"], json!({"limit": 2, "hasMore": false})),
        }
    }
    assert_eq!(seen.len(), expected.len());
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), expected);
    let newest = list(system, "limit=1");
    assert_eq!(newest[0]["title"], json!(format!("Entry {}", number - 1)));
    // A cursor of one list is refused for another.
    system.get(&format!("{KNOWLEDGE}?q=many{after}")).refused(400, "invalid", "?after");
    for number in 200..210 {
        teach(system, &entry(number));
    }
    assert_eq!(list(system, "").len(), 20);
}

/// Entries with a scope are found only by turns whose trusted event has the same values.
fn scopes(system: &System) {
    let content = "The gate code of the marina is 7351.";
    let (title, mine) = ("Gate code", json!("a"));
    let of_actor = teach(system, &json!({"title": title, "content": content, "actorId": mine}));
    assert_eq!((&of_actor["scope"], &of_actor["actorId"]), (&json!("actor"), &mine));
    let of_talk = teach(
        system,
        &json!({"title": title, "content": "The gate code of the shed is 2264.", "actorId": mine, "conversationId": "c"}),
    );
    assert_eq!(of_talk["scope"], "conversation");
    assert_ne!(of_actor["id"], of_talk["id"]);
    assert_eq!(ids(&list(system, "actorId=a&conversationId=c")), [of_talk["id"].as_str().unwrap()]);
    let ask = |more: &[(&str, Value)]| {
        let mut body = tui(&[("text", json!("What is the gate code of the marina and the shed?"))]);
        for (name, value) in more {
            body[*name] = value.clone();
        }
        system.post("/api/chat/events", &body).expect(200).at("/result").to_string()
    };
    // The text names an entry by its number, and the sources have its id.
    let names = |text: &str, record: &Value| text.contains(record["id"].as_str().unwrap());
    let here = ask(&[]);
    assert!(names(&here, &of_actor) && names(&here, &of_talk), "{here}");
    let elsewhere = ask(&[("conversationId", json!("other"))]);
    assert!(names(&elsewhere, &of_actor) && !names(&elsewhere, &of_talk), "{elsewhere}");
    let other = ask(&[("actorId", json!("other"))]);
    assert!(!names(&other, &of_actor) && !names(&other, &of_talk) && !other.contains("7351"), "{other}");
    // An instance without an actor finds only global entries.
    let prompt = json!({"message": "What is the gate code of the marina?"});
    let nobody = system.post("/agents/orchestrator/nobody?wait=result", &prompt).expect(200).text("/result/text");
    assert!(!nobody.contains("7351"), "{nobody}");
    let global = teach(system, &json!({"title": title, "content": "The gate code of the garden is 1111."}));
    let answer = system
        .post("/agents/orchestrator/nobody?wait=result", &json!({"message": "What is the gate code of the garden?"}));
    assert!(names(&answer.expect(200).at("/result").to_string(), &global));
}

fn reindex(system: &System) {
    let start = || {
        let answer = system.post("/api/knowledge/reindex", &json!({})).expect(202);
        assert_eq!(answer.at("/status"), "reindexing");
        answer.text("/jobId")
    };
    let job = start();
    let state = |job: &str| system.get(&format!("/api/knowledge/reindex/{job}")).expect(200).json();
    until("the job is done", || state(&job)["status"] == "ok");
    let done = state(&job);
    assert!(done["done"] == done["total"] && done["finishedAt"].is_string() && done["error"].is_null(), "{done}");
    assert_ne!(start(), job, "a job that is over is not named again");
    assert_eq!(list(system, "q=mooring").len(), 1);
    system.get("/api/knowledge/reindex/01K2ZZZZZZZZZZZZZZZZZZZZZZ").refused(404, "not_found", "");
}
