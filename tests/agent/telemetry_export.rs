//! Traces for OpenTelemetry: ended turns and runs reach a collector even if it fails or parts are killed, and the traces contain no
//! texts.

use std::collections::BTreeSet;
use std::sync::Arc;

use ken_tests::provider::{Provider, Reply, openai, with_usage};
use ken_tests::{Builder, System, otlp, tui, until};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

const SECRET: &str = "canary-4be1";

fn accepted_reply() -> Reply {
    Reply::Status(200, Vec::new(), "{}".to_owned())
}

fn script() -> Vec<Value> {
    let task = json!({"agent": "research-worker", "prompt": format!("dig {SECRET}")});
    vec![
        json!({"when": "dig", "events": [{"text": format!("Dug {SECRET}.")}]}),
        json!({"when": "find", "after_tools": 0, "events": [
            {"tool": {"name": "todo_read", "arguments": {}}}, {"tool": {"name": SECRET, "arguments": {"x": SECRET}}},
            {"tool": {"name": "task", "arguments": task}}]}),
        json!({"events": [{"text": format!("Found {SECRET}.")}]}),
    ]
}

fn system(collector: &Provider, config: &str) -> System {
    let system = Builder::default()
        .script(&script())
        .config(&format!("[telemetry]\notlp = \"{}\"\n{config}", collector.url()))
        .secrets("OTEL_EXPORTER_OTLP_HEADERS=x-key=k%3D7,other=o\n")
        .start();
    // Turns that ended before the export began are not exported.
    until("the export has begun", || system.call("store", "telemetry.ended", &[])["since"].is_string());
    system
}

fn say(system: &System, text: &str) -> Value {
    let body = tui(&[("text", json!(text))]);
    system.post("/api/chat/events", &body).expect(200).json()
}

/// All spans that the collector has received.
fn spans(collector: &Provider) -> Vec<Value> {
    otlp::spans(&collector.received())
}

fn attribute<'a>(span: &'a Value, name: &str) -> Option<&'a str> {
    let attributes = span["attributes"].as_array().unwrap();
    let value = &attributes.iter().find(|attribute| attribute["key"] == name)?["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str())
}

#[test]
fn cached_tokens_are_part_of_the_input_and_named() {
    let collector = Provider::start(vec![accepted_reply()]);
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}});
    let provider = Provider::start(vec![Reply::Stream(with_usage(openai(&["Hello."], &[]), &usage))]);
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())
        .start();
    until("the export has begun", || system.call("store", "telemetry.ended", &[])["since"].is_string());
    say(&system, "Hi");
    until("the trace has come", || !spans(&collector).is_empty());
    let spans = spans(&collector);
    let chat = spans.iter().find(|span| span["name"] == "chat m").unwrap();
    let tokens = ["input_tokens", "cache_read.input_tokens", "cache_creation.input_tokens"];
    let tokens = tokens.map(|name| attribute(chat, &format!("gen_ai.usage.{name}")));
    assert_eq!(tokens, [Some("9"), Some("5"), None]);
}

#[test]
fn a_turn_is_a_trace_without_texts() {
    let collector = Provider::start(vec![accepted_reply()]);
    let system = system(&collector, "");
    let answer = say(&system, &format!("find {SECRET}"));
    until("the trace has come", || !spans(&collector).is_empty());
    let request = &collector.received()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/v1/traces"));
    assert_eq!((request.header("x-key"), request.header("other")), (Some("k=7"), Some("o")));
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    let traces = otlp::traces(request);
    assert!(!String::from_utf8_lossy(&request.bytes).contains(SECRET), "{traces}");
    let resource = &traces["resourceSpans"][0]["resource"];
    assert_eq!(attribute(resource, "service.name"), Some("ken"));
    let spans = spans(&collector);
    let root = &spans[0];
    assert_eq!(root["name"], "invoke_agent orchestrator");
    assert_eq!(attribute(root, "ken.run.id"), answer["submissionId"].as_str());
    assert_eq!(attribute(root, "gen_ai.conversation.id"), answer["session"]["id"].as_str());
    assert!(root.get("parentSpanId").is_none());
    let count = |name: &str| spans.iter().filter(|span| span["name"] == name).count();
    assert_eq!(count("chat script-1"), 3);
    assert_eq!((count("execute_tool todo_read"), count("execute_tool unknown")), (1, 1));
    assert_eq!((count("invoke_agent research-worker"), spans.len()), (1, 7));
    let worker = spans.iter().find(|span| span["name"] == "invoke_agent research-worker").unwrap();
    let below = |parent: &Value| spans.iter().filter(|span| span["parentSpanId"] == parent["spanId"]).count();
    assert_eq!((below(root), below(worker)), (5, 1));
    let nanos = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    for span in &spans {
        let of = |name: &str| nanos(span, name);
        assert!(of("startTimeUnixNano") <= of("endTimeUnixNano"), "{span}");
        assert!(of("startTimeUnixNano") >= nanos(root, "startTimeUnixNano") - 2_000_000, "{span}");
        assert_eq!(span["traceId"], root["traceId"]);
        assert_eq!((span["traceId"].as_str().unwrap().len(), span["spanId"].as_str().unwrap().len()), (32, 16));
    }
    let chats: Vec<&Value> = spans.iter().filter(|span| span["name"] == "chat script-1").collect();
    let input: u64 =
        chats.iter().map(|span| attribute(span, "gen_ai.usage.input_tokens").unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(attribute(root, "gen_ai.usage.input_tokens"), Some(input.to_string().as_str()));
    let failed = spans.iter().find(|span| span["name"] == "execute_tool unknown").unwrap();
    assert_eq!((&failed["status"]["code"], attribute(failed, "error.type")), (&json!(2), Some("tool_error")));
    // The trace is counted when its answer has arrived.
    let stats = || system.call("model", "service.stats", &[]);
    until("the trace is counted", || stats()["telemetry_exported"] == 1);
    assert_eq!(stats()["telemetry_lost"], 0);
    // The headers are secret, so they are not in the environment of a process.
    for part in ["model", "kend"] {
        let environ = std::fs::read(format!("/proc/{}/environ", system.pid(part))).unwrap();
        assert!(!String::from_utf8_lossy(&environ).contains("k%3D7"));
    }
}

#[test]
fn an_unreachable_collector_delays_no_turn_and_gets_everything_later() {
    let collector = Provider::start(vec![Reply::Status(503, Vec::new(), String::new())]);
    let system = system(&collector, "content = true\n");
    let first = say(&system, "One");
    until("the collector has failed", || !collector.received().is_empty());
    system.kill("model");
    let second = say(&system, "Two");
    collector.push(accepted_reply());
    until("both have come", || {
        let spans = spans(&collector);
        [&first, &second].iter().all(|answer| {
            let id = answer["submissionId"].as_str();
            spans.iter().any(|span| attribute(span, "ken.run.id") == id)
        })
    });
    let wanted = json!([{"role": "assistant", "parts": [{"type": "text", "content": format!("Found {SECRET}.")}],
        "finish_reason": "stop"}]);
    let printed = spans(&collector).iter().any(|span| {
        let printed =
            attribute(span, "gen_ai.output.messages").map(|said| serde_json::from_str::<Value>(said).unwrap());
        printed.as_ref() == Some(&wanted)
    });
    assert!(printed, "{:?}", spans(&collector));
    // Spans that are refused permanently are lost, and counted. The collector has no scripted reply left, so it answers with 500.
    say(&system, "Three");
    let lost = || system.call("model", "service.stats", &[])["telemetry_lost"].as_u64();
    until("it is given up", || lost() > Some(0));
    let doctor = String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap();
    assert!(doctor.contains("\"telemetry-lost\""), "{doctor}");
}

#[test]
fn the_root_span_of_a_scheduled_turn_is_that_of_its_agent() {
    let collector = Provider::start(vec![accepted_reply()]);
    let system = system(&collector, "");
    let schedule =
        json!({"slug": "tidy", "kind": "cron", "schedule": "@daily", "prompt": "tidy", "targetAgent": "coding-worker"});
    system.post("/api/schedules", &schedule).expect(201);
    system.post("/api/schedules/tidy/run?wait=1", &json!({})).expect(200);
    until("the trace has come", || !spans(&collector).is_empty());
    let root = &spans(&collector)[0];
    assert_eq!(root["name"], "invoke_agent coding-worker");
    assert_eq!(attribute(root, "gen_ai.agent.name"), Some("coding-worker"));
}

/// A system with a model over the network.
fn networked(collector: &Provider, model: &Provider) -> System {
    let system = Builder::default()
        .config(&format!("[telemetry]\notlp = \"{}\"\n", collector.url()))
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", model.url()))
        .start();
    until("the export has begun", || system.call("store", "telemetry.ended", &[])["since"].is_string());
    system
}

fn model() -> Provider {
    Provider::answering(|_| Reply::Stream(openai(&["Yes."], &[])))
}

fn exported(system: &System) -> u64 {
    system.call("model", "service.stats", &[])["telemetry_exported"].as_u64().unwrap()
}

/// Checks that the collector has received the two spans of each turn, each once.
fn check_once(collector: &Provider, turns: usize) {
    let spans = spans(collector);
    let ids: BTreeSet<String> = spans.iter().map(|span| format!("{}{}", span["traceId"], span["spanId"])).collect();
    assert_eq!((ids.len(), spans.len()), (2 * turns, 2 * turns), "{spans:?}");
}

#[test]
fn each_span_comes_once_while_a_provider_is_in_use() {
    let (collector, model) = (Provider::answering(|_| accepted_reply()), model());
    let system = networked(&collector, &model);
    for turn in 1..=4 {
        say(&system, "Hello");
        until("it is confirmed", || exported(&system) == turn);
    }
    check_once(&collector, 4);
}

#[test]
fn a_collector_may_answer_late() {
    let is_open = Arc::new((Mutex::new(false), Condvar::new()));
    let gate = Arc::clone(&is_open);
    let collector = Provider::answering(move |_| {
        let (is_open, changed) = &*gate;
        changed.wait_while(&mut is_open.lock(), |is_open| !*is_open);
        accepted_reply()
    });
    let model = model();
    let system = networked(&collector, &model);
    say(&system, "One");
    until("the collector has the trace", || collector.received().len() == 1);
    // The provider ends calls, and closes connections, while the collector has not answered.
    for _ in 0..3 {
        say(&system, "More");
    }
    assert_eq!((collector.received().len(), exported(&system)), (1, 0));
    *is_open.0.lock() = true;
    is_open.1.notify_all();
    until("all are confirmed", || exported(&system) == 4);
    check_once(&collector, 4);
}

/// The same traces in both encodings, for collectors that accept only one.
#[test]
fn a_collector_that_takes_only_one_encoding_gets_it() {
    let takes = |wanted: &'static str| {
        Provider::answering(move |request| match request.header("content-type") {
            Some(given) if given == wanted => accepted_reply(),
            _ => Reply::Status(415, Vec::new(), String::new()),
        })
    };
    for (protocol, taken, other) in [
        ("http/protobuf", "application/x-protobuf", "application/json"),
        ("http/json", "application/json", "application/x-protobuf"),
    ] {
        let (collector, refusing) = (takes(taken), takes(other));
        let config = format!("protocol = \"{protocol}\"\n");
        let system = system(&collector, &config);
        say(&system, "Hello");
        until("it is confirmed", || exported(&system) == 1);
        check_once(&collector, 1);
        // A refusal is final: the batch is counted as lost, and the warning names the encoding.
        let system = self::system(&refusing, &config);
        say(&system, "Hello");
        until("it is counted", || system.call("model", "service.stats", &[])["telemetry_lost"] == 1);
        assert_eq!((refusing.received().len(), exported(&system)), (1, 0));
        let log = std::fs::read_to_string(system.home().join("state/log/model.log")).unwrap();
        assert!(log.contains("415") && log.contains(protocol), "{log}");
    }
}

#[test]
fn both_encodings_say_the_same() {
    let collector = Provider::answering(|_| Reply::Status(503, Vec::new(), String::new()));
    let system = system(&collector, "protocol = \"http/json\"\ncontent = true\n");
    say(&system, &format!("find {SECRET}"));
    until("the collector has failed", || !collector.received().is_empty());
    let file = system.home().join("ken.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replace("http/json", "http/protobuf")).unwrap();
    system.kill("model");
    let binary = || collector.received().into_iter().find(|request| request.body.is_null());
    until("it is sent again", || binary().is_some());
    let wanted = otlp::traces(&collector.received()[0]);
    assert_eq!(otlp::traces(&binary().unwrap()), wanted);
    assert!(wanted.to_string().contains(SECRET));
}

#[test]
fn an_unknown_encoding_is_refused() {
    let refused = |variable: Option<&str>, config: &str| {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("ken.toml"), format!("[telemetry]\notlp = \"http://127.0.0.1:9\"\n{config}"))
            .unwrap();
        let mut command = std::process::Command::new(ken_tests::binary("ken-model"));
        command.env_clear().env("KEN_MODEL", "rules").arg("--home").arg(home.path());
        command.envs(variable.map(|value| ("OTEL_EXPORTER_OTLP_PROTOCOL", value)));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = refused(Some("grpc"), "");
    assert!(
        error.contains("OTEL_EXPORTER_OTLP_PROTOCOL")
            && error.contains("must be http/protobuf or http/json, not `grpc`"),
        "{error}"
    );
    let error = refused(None, "protocol = \"grpc\"\n");
    assert!(error.contains("ken.toml:3") && error.contains("http/protobuf"), "{error}");
}
