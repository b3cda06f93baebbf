//! Tests of the ken-model daemon: the real program, called over its socket with hand-written lines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

struct Model {
    home: tempfile::TempDir,
    child: Child,
}

/// The items of a call, and its final line without the id.
type Answer = (Vec<Value>, Value);

impl Model {
    fn start(models: &str, script: &[Value]) -> Model {
        let home = tempfile::tempdir().unwrap();
        write_script(home.path(), script);
        let child = command(home.path(), models).spawn().unwrap();
        let model = Model { home, child };
        model.wait();
        model
    }

    fn restart(&mut self, models: &str) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = command(self.home.path(), models).spawn().unwrap();
        self.wait();
    }

    /// Waits until it listens.
    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while UnixStream::connect(self.home.path().join("run/model.sock")).is_err() {
            assert!(Instant::now() < end, "ken-model does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn connect(&self) -> (UnixStream, BufReader<UnixStream>) {
        let to = UnixStream::connect(self.home.path().join("run/model.sock")).unwrap();
        to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let from = BufReader::new(to.try_clone().unwrap());
        (to, from)
    }

    fn call(&self, op: &str, args: &Value) -> Answer {
        let (mut to, mut from) = self.connect();
        writeln!(to, "{}", json!({"id": 1, "op": op, "args": args})).unwrap();
        answer(&mut from)
    }

    fn generate(&self, args: &Value) -> Answer {
        self.call("model.generate", args)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn write_script(home: &Path, script: &[Value]) {
    let lines: String = script.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(home.join("script.jsonl"), lines).unwrap();
}

fn command(home: &Path, models: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ken-model"));
    command.env_clear().env("KEN_MODEL", models).env("KEN_SCRIPT", home.join("script.jsonl"));
    command.arg("--home").arg(home).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn answer(from: &mut impl BufRead) -> Answer {
    let mut items = Vec::new();
    loop {
        let mut line = String::new();
        assert!(from.read_line(&mut line).unwrap() > 0, "the connection has ended after {items:?}");
        let mut line: Value = serde_json::from_str(&line).unwrap();
        match line.get_mut("item") {
            Some(item) => items.push(item.take()),
            None => return (items, line),
        }
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 0})
}

fn asking(text: &str) -> Value {
    json!({"system": "", "purpose": "agent", "messages": [user(text)]})
}

fn with(mut request: Value, field: &str, value: Value) -> Value {
    request[field] = value;
    request
}

/// Returns the text of all deltas, joined.
fn joined_text((items, _): &Answer) -> String {
    let texts = items.iter().filter(|item| item["type"] == "text");
    texts.map(|item| item["delta"].as_str().unwrap()).collect()
}

fn source(id: &str, title: &str, text: &str) -> Value {
    json!({"id": id, "kind": "knowledge", "title": title, "text": text, "score": 0.9})
}

fn canteen() -> Value {
    let sources = json!([
        source("kb-1", "Canteen", "The canteen opens at 8:00. It closes at 18:30 on weekdays. Soup is free."),
        source("kb-2", "Parking", "The parking deck is open all night."),
    ]);
    with(asking("When does the canteen close?"), "sources", sources)
}

#[test]
fn rules_answers_from_a_source_and_names_it() {
    let model = Model::start("rules", &[]);
    let answer = model.generate(&canteen());
    let start = json!({"type": "start", "provider": "rules", "model": "rules-1", "api": "rules"});
    assert_eq!(answer.0[0], start);
    let text = joined_text(&answer);
    assert!(text.contains("Canteen: It closes at 18:30 on weekdays. [kb-1]") && !text.contains("Soup"), "{text}");
    assert!(text.contains("No language model is configured"), "{text}");
    let reply = &answer.1["ok"];
    assert_eq!((&reply["stop_reason"], &reply["model"]["id"]), (&json!("stop"), &json!("rules-1")));
    let usage = &reply["usage"];
    // One token for every four bytes of the prompt, the sources and the answer, and 40 for the marks of each source.
    assert_eq!(usage["output"], text.len().div_ceil(4));
    let request = canteen();
    let shown =
        ["/messages/0/content/0/text", "/sources/0/title", "/sources/0/text", "/sources/1/title", "/sources/1/text"];
    let bytes = shown.map(|at| request.pointer(at).unwrap().as_str().unwrap().len());
    assert_eq!(usage["input"], 2 * 40 + bytes.map(|bytes| bytes.div_ceil(4)).iter().sum::<usize>());
    assert_eq!(usage["cost"]["total"], 0);
}

#[test]
fn rules_says_the_same_again_and_goes_on_from_any_place() {
    let model = Model::start("rules", &[]);
    let whole = joined_text(&model.generate(&canteen()));
    assert_eq!(joined_text(&model.generate(&canteen())), whole);
    for (end, _) in whole.char_indices().step_by(7) {
        let request = with(canteen(), "prefix", json!(whole[..end]));
        assert_eq!(joined_text(&model.generate(&request)), whole[end..], "from {end}");
    }
}

#[test]
fn rules_is_honest_about_what_it_does_not_have() {
    let model = Model::start("rules", &[]);
    let nothing = joined_text(&model.generate(&asking("Who painted the ceiling?")));
    assert!(nothing.starts_with("I found nothing about that") && nothing.contains("No language model"), "{nothing}");
    let greeting = with(asking("gateway: ok\nweb: down"), "system", json!("Rules.\n# Skill: greeting\n"));
    let greeting = joined_text(&model.generate(&greeting));
    assert!(greeting.starts_with("Hello, I am ken. No language model is configured"), "{greeting}");
    assert!(greeting.contains("web: down") && !greeting.contains("gateway: ok"), "{greeting}");
    let remember = joined_text(&model.generate(&asking("Remember that the code is 77.")));
    assert!(remember.contains("POST /api/knowledge") && remember.contains("the code is 77."), "{remember}");
}

#[test]
fn a_long_answer_comes_in_a_handful_of_deltas() {
    let model = Model::start("rules", &[]);
    let text: String = (0..40).map(|number| format!("- item {number} costs a lot of money\n")).collect();
    let history: Vec<Value> = (0..200).map(|_| user(&text)).collect();
    let request = json!({"system": "", "purpose": "compaction", "messages": history});
    let answer = model.generate(&request);
    assert!(joined_text(&answer).len() > 10_000);
    assert!(answer.0.len() <= 9, "{} items", answer.0.len());
}

#[test]
fn info_lists_the_models_in_their_order() {
    let model = Model::start("script/a, rules", &[json!({"events": []})]);
    let info = model.call("model.info", &json!({})).1;
    assert_eq!(info["ok"]["models"], json!(["script/a", "rules/rules-1"]));
    assert_eq!(info["ok"]["context_window"], 98_304);
    let unknown = model.generate(&with(asking("x"), "model", json!("openai/x"))).1;
    assert_eq!(unknown["error"]["code"], "not_found");
    // If a language model is configured too, the engine `rules` does not say that none is.
    let rules = joined_text(&model.generate(&with(asking("Who?"), "model", json!("rules/rules-1"))));
    assert!(rules.contains("No language model can be reached"), "{rules}");
}

#[test]
fn a_script_answers_by_what_is_asked() {
    let lines = [
        json!({"purpose": "compaction", "events": [{"text": "summed up"}]}),
        json!({"when": "weather", "after_tools": 0, "events": [{"think": "hm"}, {"text": "Let me see."},
            {"tool": {"name": "sky", "arguments": {"at": "noon"}}}]}),
        json!({"when": "weather", "after_tools": 1, "events": [{"text": "Sunny."}],
            "usage": {"input": 5, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 6,
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.5}}}),
        json!({"when": "long", "events": [{"text": "cut"}, {"stop": "length"}]}),
        json!({"when": "overload", "events": [{"text": "well"}, {"error": {"class": "overloaded", "message": "full"}}]}),
        json!({"when": "key", "events": [{"error": {"class": "auth", "message": "wrong key"}}]}),
    ];
    let model = Model::start("script", &lines);
    let compaction = json!({"system": "", "purpose": "compaction", "messages": [user("weather")]});
    assert_eq!(joined_text(&model.generate(&compaction)), "summed up");

    let mut weather = asking("How is the weather?");
    let first = model.generate(&weather);
    assert_eq!(first.0[1], json!({"type": "think", "delta": "hm"}));
    let call = json!({"type": "tool_call", "id": "call_1", "name": "sky", "arguments": {"at": "noon"}});
    assert_eq!(first.0[3], call);
    assert_eq!(first.1["ok"]["stop_reason"], "toolUse");
    let result = json!({"role": "toolResult", "toolCallId": "call_1", "toolName": "sky", "content": [], "isError": false,
        "timestamp": 0});
    weather["messages"].as_array_mut().unwrap().push(result);
    let second = model.generate(&weather);
    assert_eq!((joined_text(&second).as_str(), &second.1["ok"]["usage"]["cost"]["total"]), ("Sunny.", &json!(0.5)));

    assert_eq!(model.generate(&asking("long")).1["ok"]["stop_reason"], "length");
    let failed = model.generate(&asking("overload"));
    assert_eq!((joined_text(&failed).as_str(), &failed.1["error"]["code"]), ("well", &json!("busy")));
    assert_eq!(model.generate(&asking("key")).1["error"]["code"], "unauthenticated");
    assert_eq!(model.generate(&asking("anything else")).1["error"]["code"], "invalid");
}

#[test]
fn a_killed_script_goes_on_without_saying_or_waiting_twice() {
    let line = json!({"events": [{"text": "one "}, {"sleep_ms": 60_000}, {"text": "two "}, {"text": "three"}]});
    let mut model = Model::start("script", &[line]);
    let (mut to, mut from) = model.connect();
    writeln!(to, "{}", json!({"id": 1, "op": "model.generate", "args": asking("count"), "deadline_ms": 600_000}))
        .unwrap();
    let mut lines = String::new();
    from.read_line(&mut lines).unwrap();
    from.read_line(&mut lines).unwrap();
    assert!(lines.contains("one "), "{lines}");
    model.restart("script");
    // The recorded text contains more than the part before the pause, so the pause is not repeated.
    let rest = model.generate(&with(asking("count"), "prefix", json!("one tw")));
    assert_eq!(joined_text(&rest), "o three");
}

#[test]
fn a_cancelled_call_ends_at_once() {
    let model = Model::start("script", &[json!({"events": [{"text": "one "}, {"sleep_ms": 60_000}]})]);
    let (mut to, mut from) = model.connect();
    writeln!(to, "{}", json!({"id": 1, "op": "model.generate", "args": asking("count"), "deadline_ms": 600_000}))
        .unwrap();
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    writeln!(to, "{}", json!({"id": 1, "cancel": true})).unwrap();
    assert_eq!(answer(&mut from).1["error"]["code"], "cancelled");
}

fn refused(models: &str, script: &str) -> Output {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("script.jsonl"), script).unwrap();
    command(home.path(), models).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_wrong_configuration_is_refused_at_the_start_and_named() {
    for (models, script, part) in [
        ("opnai/gpt", "", "opnai"),
        ("rules/rules-2", "", "rules-2"),
        ("rules,", "", "empty"),
        ("script", "{\"events\":[{\"txt\":\"x\"}]}", "script.jsonl:1"),
        ("script", "\n{\"evnts\":[]}", "script.jsonl:2"),
    ] {
        let output = refused(models, script);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{models}: {stderr}");
        assert!(output.stdout.is_empty() && stderr.contains(part), "{models}: {stderr}");
    }
}
