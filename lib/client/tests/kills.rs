//! The client against the real gateway, while its parts are killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_client::chat::{Identity, Prompt};
use ken_client::{Endpoint, Gateway, Method, Reader};
use ken_tests::{System, until};
use ken_types::Code;
use serde_json::{Value, json};

fn gateway(system: &System) -> Gateway {
    Gateway::at(Endpoint::new(&system.url())).unwrap()
}

/// Kills these parts one after the other, each when everything is back, as long as `work` takes.
fn under_kills<T>(system: &System, parts: &[&str], work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut kills = 0;
            for part in parts.iter().cycle() {
                system.kill(part);
                kills += 1;
                // At least one of each, so that quick work is met as well.
                if done.load(Ordering::Relaxed) && kills >= parts.len() {
                    return;
                }
                until("it is back", || system.ken(&["status"]).status.success());
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        killer.join().unwrap();
        result
    })
}

#[test]
fn a_prompt_is_accepted_once_and_its_turn_is_read_to_the_end() {
    const PROMPTS: usize = 12;
    let system = System::start();
    let mut gateway = gateway(&system);
    let first = gateway.chat(&Prompt::new(Identity::local(), "hello")).unwrap();
    let session = first.session().unwrap();
    under_kills(&system, &["gateway", "store", "agent"], || {
        for number in 0..PROMPTS {
            let mut prompt = Prompt::new(Identity::local(), &format!("hello {number}"));
            prompt.session = Some(session.clone());
            let turn = gateway.chat(&prompt).unwrap().turn().unwrap();
            let mut events = gateway.events(&turn.stream, &turn.offset);
            let mut text = String::new();
            let settled = 'turn: loop {
                let batch = events.next(None).unwrap().expect("a session's stream has no end");
                for event in batch
                    .iter()
                    .filter(|event| event["submissionId"] == *turn.submission)
                {
                    match event["type"].as_str().unwrap() {
                        "text_delta" => text += event["text"].as_str().unwrap(),
                        "submission_settled" => break 'turn event["outcome"].clone(),
                        _ => {}
                    }
                }
            };
            assert_eq!(settled, "completed");
            assert!(!text.is_empty());
        }
    });
    let page = gateway.transcript(&Identity::local(), &session, 100).unwrap();
    let exchanges = page["exchanges"].as_array().unwrap();
    let prompts: Vec<&str> = exchanges
        .iter()
        .map(|exchange| exchange["prompt"]["text"].as_str().unwrap())
        .collect();
    let mut wanted = vec!["hello".to_owned()];
    wanted.extend((0..PROMPTS).map(|number| format!("hello {number}")));
    assert_eq!(prompts, wanted);
    assert_eq!(
        gateway
            .sessions(Some(&Identity::local()), false, 10)
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn both_ways_of_reading_give_each_entry_once_and_in_order() {
    const ENTRIES: usize = 200;
    let system = System::start();
    let mut writer = gateway(&system);
    let target = "/streams/numbers";
    writer
        .call(&Method::PUT, target, &[("content-type", "application/json")], &[])
        .unwrap();
    let wanted: Vec<Value> = (0..ENTRIES).map(|number| json!({"n": number})).collect();
    let (pushed, polled) = under_kills(&system, &["gateway", "store"], || {
        let pushed = std::thread::spawn({
            let mut events = writer.events(target, "-1");
            move || {
                let mut found = Vec::new();
                while let Some(batch) = events.next(None).unwrap() {
                    found.extend(batch);
                }
                found
            }
        });
        let polled = std::thread::spawn({
            let mut reader = Reader::new(writer.clone(), target, "-1", None);
            move || {
                let mut found = Vec::new();
                loop {
                    let page = reader.page(true).unwrap();
                    found.extend(page.messages().unwrap());
                    if page.is_last() {
                        return found;
                    }
                }
            }
        });
        for (number, entry) in wanted.iter().enumerate() {
            let sequence = number.to_string();
            let headers = [
                ("content-type", "application/json"),
                ("producer-id", "test"),
                ("producer-epoch", "0"),
                ("producer-seq", sequence.as_str()),
            ];
            writer
                .call(&Method::POST, target, &headers, entry.to_string().as_bytes())
                .unwrap();
        }
        writer
            .call(&Method::POST, target, &[("stream-closed", "true")], &[])
            .unwrap();
        (pushed.join().unwrap(), polled.join().unwrap())
    });
    assert_eq!(pushed, wanted);
    assert_eq!(polled, wanted);
}

#[test]
fn patience_ends_and_a_refusal_is_not_repeated() {
    let system = System::start();
    let mut gateway = gateway(&system);
    assert_eq!(
        gateway.get("/api/knowledge/kb-0").unwrap_err().code,
        Code::NotFound
    );
    let error = gateway
        .post("/api/knowledge", "key", &json!({"title": ""}))
        .unwrap_err();
    assert_eq!((error.code, error.at.is_some()), (Code::Invalid, true));
    // The same key with another body is a mistake of the caller.
    let entry = json!({"title": "Tea", "content": "Green."});
    let first = gateway.post("/api/knowledge", "same", &entry).unwrap();
    assert_eq!(gateway.post("/api/knowledge", "same", &entry).unwrap(), first);
    let other = json!({"title": "Tea", "content": "Black."});
    assert_eq!(
        gateway.post("/api/knowledge", "same", &other).unwrap_err().code,
        Code::Conflict
    );
    let mut nobody = Gateway::at(Endpoint::new("http://127.0.0.1:9")).unwrap();
    nobody = nobody.patience(Duration::from_millis(50));
    let error = nobody.get("/health").unwrap_err();
    assert_eq!(error.code, Code::Unavailable);
    let mut events = nobody.events("/streams/x", "-1");
    assert_eq!(events.next(None).unwrap_err().code, Code::Unavailable);
    assert_eq!(events.next(None).unwrap(), None);
}
