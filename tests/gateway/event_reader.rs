//! A reader of the event format, written from ken-stream(5) alone: what it shows while turns run is what it shows after a
//! reload, and every prompt stands there once.

use std::collections::BTreeMap;

use ken_tests::{Builder, System, tui, until};
use serde_json::{Value, json};

/// One message or activity of a submission.
#[derive(Debug, Clone, PartialEq)]
enum Row {
    Said(String),
    /// The parts of an answer in order: thoughts and text.
    Answered(Vec<(&'static str, String)>),
    Tool(String, &'static str),
    Asked(String, String),
}

/// What is shown of one submission.
#[derive(Debug, Clone, Default, PartialEq)]
struct Shown {
    rows: Vec<(String, Row)>,
    is_idle: bool,
    /// The outcome, and the error.
    end: Option<(String, String)>,
}

/// The screen: the submissions in the order of their first events.
#[derive(Debug, Clone, Default, PartialEq)]
struct Screen {
    order: Vec<String>,
    shown: BTreeMap<String, Shown>,
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

impl Screen {
    fn of(events: &[Value]) -> Screen {
        let mut screen = Screen::default();
        events.iter().for_each(|event| screen.add(event));
        screen
    }

    fn add(&mut self, event: &Value) {
        if event.get("parentSession").is_some() {
            return;
        }
        let id = text(event, "submissionId").to_owned();
        if !self.order.contains(&id) {
            self.order.push(id.clone());
        }
        self.shown.entry(id).or_default().add(event);
    }

    fn get(&self, id: &str) -> &Shown {
        self.shown.get(id).unwrap_or_else(|| panic!("{id} is not shown: {self:?}"))
    }
}

impl Shown {
    fn add(&mut self, event: &Value) {
        let turn = format!("turn {}", text(event, "turnId"));
        let call = format!("call {}", text(event, "toolCallId"));
        let asked = format!("request {}", text(event, "requestId"));
        match text(event, "type") {
            "message_start" | "message_end" => self.message(&turn, &event["message"]),
            "text_delta" => self.grow(&turn, "text", text(event, "text")),
            "thinking_start" => self.parts(&turn).push(("thought", String::new())),
            "thinking_delta" => self.grow(&turn, "thought", text(event, "delta")),
            "thinking_end" => {
                let thought = self.parts(&turn).iter_mut().rfind(|part| part.0 == "thought").unwrap();
                thought.1 = text(event, "content").to_owned();
            }
            "tool_start" => self.put(&call, Row::Tool(text(event, "toolName").into(), "runs")),
            "tool" => {
                let end = if event["isError"] == true { "failed" } else { "done" };
                self.put(&call, Row::Tool(text(event, "toolName").into(), end));
            }
            "approval_requested" => {
                let what = format!("{} for {}", text(event, "actionType"), text(event, "agent"));
                self.put(&asked, Row::Asked(what, "pending".into()));
            }
            "approval_decided" => {
                let row = self.rows.iter_mut().find(|(key, _)| *key == asked).expect("it was requested");
                if let Row::Asked(_, status) = &mut row.1 {
                    *status = text(event, "status").to_owned();
                }
            }
            "idle" => self.is_idle = true,
            "submission_settled" => {
                self.end = Some((text(event, "outcome").to_owned(), text(event, "error").to_owned()));
            }
            _ => {}
        }
    }

    /// Replaces the row with this key, or adds it.
    fn put(&mut self, key: &str, row: Row) {
        match self.rows.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = row,
            None => self.rows.push((key.to_owned(), row)),
        }
    }

    fn message(&mut self, turn: &str, message: &Value) {
        let blocks = message["content"].as_array().unwrap().iter();
        let parts = blocks.filter_map(|block| match text(block, "type") {
            "text" => Some(("text", text(block, "text").to_owned())),
            "thinking" => Some(("thought", text(block, "thinking").to_owned())),
            _ => None,
        });
        match text(message, "role") {
            // Keyed by its submission, so that it stands there once.
            "user" => self.put("prompt", Row::Said(parts.map(|(_, text)| text).collect())),
            "assistant" => self.put(turn, Row::Answered(parts.filter(|(_, text)| !text.is_empty()).collect())),
            _ => {}
        }
    }

    fn parts(&mut self, turn: &str) -> &mut Vec<(&'static str, String)> {
        let row = self.rows.iter_mut().find(|(key, _)| key == turn).expect("its message has begun");
        match &mut row.1 {
            Row::Answered(parts) => parts,
            other => panic!("{other:?}"),
        }
    }

    fn grow(&mut self, turn: &str, kind: &'static str, more: &str) {
        let parts = self.parts(turn);
        match parts.last_mut() {
            Some((last, text)) if *last == kind => text.push_str(more),
            _ => parts.push((kind, more.to_owned())),
        }
    }

    fn rows(&self) -> Vec<Row> {
        self.rows.iter().map(|(_, row)| row.clone()).collect()
    }
}

fn script() -> Vec<Value> {
    let write = json!({"path": "repos/site/NOTE", "content": "Adds numbers.\n"});
    let task = json!({"agent": "coding-worker", "prompt": "worker: a note"});
    let call = |when: &str, name: &str, arguments: &Value| json!({"when": when, "after_tools": 0, "events": [{"tool": {"name": name, "arguments": arguments}}]});
    vec![
        json!({"when": "think", "events": [{"think": "Hm. "}, {"think": "So."}, {"text": "I "}, {"text": "see."}]}),
        json!({"when": "refused", "events": [{"text": "I "}, {"error": {"class": "auth", "message": "the key is not taken"}}]}),
        json!({"when": "hold", "events": [{"think": "Well."}, {"text": "part"}, {"sleep_ms": 60_000}, {"text": " and rest"}]}),
        json!({"when": "silence", "events": [{"think": "Nothing comes to mind."}]}),
        call("worker: a note", "write_file", &write),
        json!({"when": "worker: a note", "after_tools": 1, "events": [{"text": "Written."}]}),
        call("leave a note", "task", &task),
        json!({"when": "leave a note", "after_tools": 1, "events": [{"text": "It is written."}]}),
        json!({"events": [{"text": "All is well."}]}),
    ]
}

/// Reads the whole stream again, page by page.
fn reload(system: &System, stream: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut offset = "-1".to_owned();
    loop {
        let page = system.get(&format!("{stream}?offset={offset}")).expect(200);
        all.extend(page.json().as_array().unwrap().iter().cloned());
        if page.header("stream-up-to-date").is_some() {
            return all;
        }
        offset = page.header("stream-next-offset").unwrap().to_owned();
    }
}

fn settled(events: &[Value]) -> usize {
    events.iter().filter(|event| event["type"] == "submission_settled").count()
}

/// Accepts a prompt without waiting for its end, and returns the id of its submission.
fn send(system: &System, session: &str, text: &str, more: &[(&str, Value)]) -> String {
    let body = [&[("session", json!(session)), ("text", json!(text))], more].concat();
    let mut client = system.client();
    let request = client.request("POST", "/api/chat/events").header("Prefer", "respond-async");
    request.json(&tui(&body)).send().expect(202).text("/submissionId")
}

#[test]
fn the_screen_of_a_live_reader_is_that_of_one_that_reloads() {
    let system = Builder::default().script(&script()).start();
    std::fs::create_dir_all(system.home().join("state/workspace/repos/site")).unwrap();
    let session = system.session();
    let stream = format!("/agents/orchestrator/{session}");
    let mut live = system.attach(&format!("{stream}?offset=-1&live=sse"));
    let mut seen = Vec::new();
    let mut until_settled = |seen: &mut Vec<Value>, count: usize| {
        while settled(seen) < count {
            live.until_control(seen);
        }
    };
    let hidden = send(&system, &session, "Preflight report", &[("workflow", json!("tui.startup-preflight"))]);
    let thought = send(&system, &session, "think", &[]);
    let failed = send(&system, &session, "refused", &[]);
    let silent = send(&system, &session, "silence", &[]);
    until_settled(&mut seen, 4);
    let aborted = send(&system, &session, "hold", &[]);
    let queued = send(&system, &session, "never mind", &[]);
    until("the model has said something", || {
        let is_said = |event: &Value| event["submissionId"] == *aborted && event["type"] == "text_delta";
        reload(&system, &stream).iter().any(is_said)
    });
    system.post(&format!("{stream}/abort"), &json!({})).expect(200);
    until_settled(&mut seen, 6);
    let asked = send(&system, &session, "leave a note", &[]);
    until("a person is asked", || {
        let pending = system.get("/api/approvals/pending").expect(200).json();
        let Some(request) = pending.as_array().unwrap().first() else { return false };
        let target = format!("/api/approvals/{}/decision", text(request, "requestId"));
        system.post(&target, &json!({"decidedBy": "ada", "approved": true})).expect(200);
        true
    });
    until_settled(&mut seen, 7);

    let screen = Screen::of(&seen);
    assert_eq!(screen, Screen::of(&reload(&system, &stream)));
    assert_eq!(screen.order, [&hidden, &thought, &failed, &silent, &aborted, &queued, &asked].map(String::clone));
    // A reader that has loaded a part and then attaches shows the same.
    let half = system.get(&format!("{stream}?offset=-1&limit=1")).expect(200);
    let mut joined: Vec<Value> = half.json().as_array().unwrap().clone();
    let offset = half.header("stream-next-offset").unwrap();
    let mut rest = system.attach(&format!("{stream}?offset={offset}&live=sse"));
    while settled(&joined) < 7 {
        rest.until_control(&mut joined);
    }
    assert_eq!(screen, Screen::of(&joined));

    let said = |text: &str| Row::Said(text.to_owned());
    let answered = |parts: &[(&'static str, &str)]| {
        Row::Answered(parts.iter().map(|(kind, text)| (*kind, (*text).to_owned())).collect())
    };
    let outcome = |id: &str| {
        let (outcome, error) = screen.get(id).end.clone().expect("an end");
        assert!(screen.get(id).is_idle, "{id}");
        (outcome, error)
    };
    let completed = || ("completed".to_owned(), String::new());
    assert_eq!(screen.get(&hidden).rows(), [answered(&[("text", "All is well.")])]);
    assert_eq!(screen.get(&thought).rows(), [said("think"), answered(&[("thought", "Hm. So."), ("text", "I see.")])]);
    assert_eq!((outcome(&hidden), outcome(&thought)), (completed(), completed()));
    assert_eq!(screen.get(&failed).rows(), [said("refused"), answered(&[("text", "I ")])]);
    let (state, why) = outcome(&failed);
    assert!(state == "failed" && why.contains("the key is not taken"), "{state}: {why}");
    let nothing = answered(&[("thought", "Nothing comes to mind.")]);
    assert_eq!(screen.get(&silent).rows(), [said("silence"), nothing.clone(), nothing], "it is asked twice");
    let (state, why) = outcome(&silent);
    assert_eq!(state, "failed");
    assert!(why.contains("gave an empty answer twice"), "{why}");
    assert_eq!(screen.get(&aborted).rows(), [said("hold"), answered(&[("thought", "Well."), ("text", "part")])]);
    assert_eq!(outcome(&aborted).0, "aborted");
    assert_eq!(screen.get(&queued).rows(), []);
    assert_eq!(outcome(&queued).0, "aborted");
    let rows = screen.get(&asked).rows();
    assert_eq!((&rows[0], &rows[2]), (&said("leave a note"), &Row::Tool("task".into(), "done")));
    assert_eq!(rows[3], Row::Asked("file.edit for coding-worker".into(), "approved".into()), "{rows:?}");
    assert_eq!(rows[4..], [answered(&[("text", "It is written.")])]);
    assert_eq!(outcome(&asked), completed());

    // At no moment is a text shown before the thoughts of its message.
    let mut growing = Screen::default();
    for event in &seen {
        growing.add(event);
        for (_, row) in growing.shown.values().flat_map(|shown| &shown.rows) {
            if let Row::Answered(parts) = row {
                let kinds: Vec<&str> = parts.iter().map(|part| part.0).collect();
                assert!(kinds.is_sorted_by(|one, next| *one != "text" || *next != "thought"), "{kinds:?}");
            }
        }
    }
    of_the_transcript(&system, &session, &[&failed, &silent, &queued]);
}

/// In the transcript each turn ends as on the stream, and a failed one says why. So does `ken show`.
fn of_the_transcript(system: &System, session: &str, [failed, silent, queued]: &[&str; 3]) {
    let identity = "connector=tui&actorId=a&conversationId=c";
    let page = system.get(&format!("/api/chat/sessions/{session}/transcript?{identity}")).expect(200).json();
    let of = |id: &str| {
        let exchanges = page["exchanges"].as_array().unwrap().iter();
        exchanges.clone().find(|exchange| exchange["id"] == id).unwrap().clone()
    };
    let failed = of(failed);
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("model_failed")));
    assert!(text(&failed["error"], "message").contains("the key is not taken"), "{failed}");
    let silent = of(silent);
    assert_eq!((&silent["error"]["code"], silent.get("assistant")), (&json!("empty_answer"), None));
    let queued = of(queued);
    assert_eq!((&queued["status"], queued.get("error")), (&json!("cancelled"), None));
    assert_eq!(queued["prompt"]["text"], "never mind");
    let output = system.ken(&["show", session]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.contains("> refused\nI \n(turn ")
            && printed.contains(": failed: ")
            && printed.contains("the key is not taken"),
        "{printed}"
    );
    assert!(printed.contains("> silence\n(turn ") && printed.contains("gave an empty answer twice"), "{printed}");
    for prompt in ["think", "refused", "silence", "hold", "never mind", "leave a note"] {
        assert_eq!(printed.matches(&format!("> {prompt}\n")).count(), 1, "{prompt}: {printed}");
    }
}
