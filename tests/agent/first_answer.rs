//! The main use of ken: a message gets an answer from knowledge that was added a minute ago.

use ken_tests::System;
use serde_json::json;

#[test]
fn an_answer_cites_added_knowledge() {
    let system = System::start();
    let entry = json!({"title": "Deploy window", "content": "The site is deployed on Tuesdays at 14:00 UTC."});
    let id = system.post("/api/knowledge", &entry).expect(201).text("/record/id");
    let session = system.session();
    let answer = system.say(&session, "When is the site deployed?").expect(200);
    let text = answer.text("/result/text");
    assert!(text.contains("Tuesdays") && text.contains("[1]"), "{text}");
    assert_eq!(answer.text("/result/sources/0/id"), id);
    assert_eq!(answer.at("/status"), "completed");
    assert_eq!(answer.at("/offset"), "-1");
    assert_eq!(answer.text("/streamUrl"), format!("{}/agents/orchestrator/{session}", system.url()));
}
