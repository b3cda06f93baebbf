//! `ken replay`, which runs a turn through the turn loop again from its record, without a socket; and `ken eval`, which tries other
//! models on recorded turns, with the recorded results of tools.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

use ken_tests::provider::{Provider, Reply, openai};
use ken_tests::{Answer, Builder, Client, System, binary, until};
use serde_json::{Value, json};

fn script() -> Vec<Value> {
    let tool = |name: &str, arguments: Value| json!({"tool": {"name": name, "arguments": arguments}});
    let search = tool("knowledge_search", json!({"query": "reactor valve"}));
    let task = tool("task", json!({"agent": "research-worker", "prompt": "dig"}));
    vec![
        json!({"when": "find", "after_tools": 0, "events": [{"think": "Hm. "}, {"text": "I look."}, search,
            tool("absent", json!({})), task]}),
        json!({"when": "find", "events": [{"text": "The reactor valve "}, {"text": "opens at 40 bar."}]}),
        json!({"when": "dig", "after_tools": 0, "events": [search]}),
        json!({"when": "dig", "events": [{"text": "At 40 bar."}]}),
        json!({"when": "hold", "events": [{"text": "part"}, {"sleep_ms": 60_000}, {"text": " and rest"}]}),
        json!({"when": "refused", "events": [{"text": "I "}, {"error": {"class": "auth", "message": "no"}}]}),
        json!({"events": [{"text": "Hello there."}]}),
    ]
}

/// Sends a prompt to an instance in a separate thread, which waits for the result.
fn prompt(system: &System, instance: &str, text: &str) -> JoinHandle<Answer> {
    let target = format!("/agents/orchestrator/{instance}?wait=result");
    let (address, body) = (system.address(), json!({ "message": text }));
    std::thread::spawn(move || Client::connect(address).post(&target, &body))
}

fn events(system: &System, instance: &str) -> Vec<Value> {
    let page = system.get(&format!("/agents/orchestrator/{instance}?offset=-1"));
    match page.status {
        404 => Vec::new(),
        _ => page.json().as_array().unwrap().clone(),
    }
}

fn has(system: &System, instance: &str, kind: &str) -> bool {
    events(system, instance).iter().any(|event| event["type"] == kind)
}

/// The submission of an instance with a single one.
fn id(system: &System, instance: &str) -> String {
    events(system, instance)[0]["submissionId"].as_str().unwrap().to_owned()
}

fn output_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn is_same(system: &System, instance: &str) {
    let output = system.ken(&["replay", &id(system, instance)]);
    let text = output_text(&output) + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let count = events(system, instance).len();
    assert!(text.ends_with(&format!("the same, {count} events\n")), "{text}");
}

#[test]
fn turns_of_every_kind_are_replayed_without_difference() {
    let system = Builder::default().script(&script()).start();
    let entry = json!({"title": "Reactor", "content": "The reactor valve opens at 40 bar."});
    system.post("/api/knowledge", &entry).expect(201);
    for text in ["find", "hello", "refused"] {
        _ = prompt(&system, text, text).join().unwrap();
        is_same(&system, text);
    }
    // A turn in a session with a history that is compacted.
    let session = system.session();
    system.say(&session, "find").expect(200);
    system.say(&session, "/compact").expect(200);
    system.say(&session, "Hello").expect(200);
    let of_session = events(&system, &session);
    for start in of_session.iter().filter(|event| event["type"] == "operation_start") {
        let output = system.ken(&["replay", start["submissionId"].as_str().unwrap()]);
        assert!(output.status.success(), "{}", output_text(&output));
    }
    // A turn that is aborted in the middle of an answer, after a crash of the agent.
    let received = prompt(&system, "cut", "hold");
    until("it has begun", || has(&system, "cut", "text_delta"));
    system.kill("agent");
    until("it has gone on", || has(&system, "cut", "submission_resumed"));
    until("the model is asked again", || {
        let events = events(&system, "cut");
        events.iter().filter(|event| event["type"] == "text_delta").count() > 1
    });
    system.post("/agents/orchestrator/cut/abort", &json!({})).expect(200);
    _ = received.join();
    is_same(&system, "cut");
}

/// Nothing has run the turn with which the result of a schedule stands in a session.
#[test]
fn a_delivered_result_is_not_replayed() {
    let system = Builder::default().script(&script()).start();
    let session = system.session();
    let schedule = json!({"slug": "yearly", "kind": "cron", "schedule": "@yearly", "prompt": "Hello",
        "deliverTo": {"session": session}});
    system.post("/api/schedules", &schedule).expect(201);
    system.post("/api/schedules/yearly/run?wait=1", &json!({})).expect(200);
    until("it is delivered", || has(&system, &session, "message_start"));
    let delivered = events(&system, &session)[0]["submissionId"].as_str().unwrap().to_owned();
    let output = system.ken(&["replay", &delivered]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the result of a schedule"), "{said}");
}

#[test]
fn differences_from_the_record_are_reported() {
    let system = Builder::default().script(&script()).start();
    prompt(&system, "one", "find").join().unwrap().expect(200);
    let id = id(&system, "one");
    let rule = r#"{"name": "no-search", "directives": [{"deny_tool": "knowledge_search"}]}"#;
    std::fs::write(system.home().join("rule.json"), rule).unwrap();
    let file = system.home().join("rule.json").display().to_string();
    assert!(system.ken(&["rules", "add", &file]).status.success());
    let output = system.ken(&["replay", &id, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let last: Value = serde_json::from_str(output_text(&output).lines().last().unwrap()).unwrap();
    let now = last["difference"]["now"].to_string();
    assert!(now.contains("the rule no-search denies the tool knowledge_search"), "{last}");
    let shown = output_text(&system.ken(&["replay", &id]));
    assert!(shown.contains("\ndiffers at event ") && shown.contains("\n  now "), "{shown}");
    let output = system.ken(&["replay", "none"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no turn `none`"));
}

/// A replay needs only the record. No part is running.
#[test]
fn a_record_is_replayed_without_a_socket() {
    let mut system = Builder::default().script(&script()).start();
    prompt(&system, "one", "find").join().unwrap().expect(200);
    let id = id(&system, "one");
    let file = system.home().join("record.json");
    let record = file.display().to_string();
    assert!(system.ken(&["replay", &id, "--save", &record]).status.success());
    system.down();
    let output = system.ken(&["replay", "--file", &record]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    no_socket(&file);
    // A record that differs from the behaviour of the turn loop.
    let text = std::fs::read_to_string(&file).unwrap();
    let mut changed: Value = serde_json::from_str(&text).unwrap();
    let events = changed["events"].as_array_mut().unwrap();
    let end = events.iter_mut().rfind(|event| event["type"] == "turn_messages").unwrap();
    end["message"]["content"][0]["text"] = json!("It never opens.");
    std::fs::write(&file, changed.to_string()).unwrap();
    let output = system.ken(&["replay", "--file", &record]);
    assert_eq!(output.status.code(), Some(1));
    let text = output_text(&output);
    assert!(text.contains("It never opens.") && text.contains("opens at 40 bar"), "{text}");
    std::fs::write(&file, "{").unwrap();
    assert_eq!(system.ken(&["replay", "--file", &record]).status.code(), Some(2));
}

/// The options of a replay are those that `ken-agent --help` and ken-agent(8) have.
#[test]
fn the_options_of_a_replay_are_checked() {
    let run = |words: &[&str]| Command::new(binary("ken-agent")).arg("--replay").args(words).output().unwrap();
    for (words, code, part) in [
        (&["--help"][..], 0, "With --replay: call this model for real"),
        (&["--version"], 0, "ken-agent"),
        (&["--model", "p/m"], 2, "--model-socket"),
        (&["--model-socket", "/x"], 2, "--model"),
        (&["--print-rules"], 2, "cannot be used with"),
    ] {
        let output = run(words);
        let said = [&output.stdout[..], &output.stderr].concat();
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(String::from_utf8(said).unwrap().contains(part), "{words:?}: {output:?}");
    }
}

/// If strace is installed, checks with it that the replay opens no socket.
fn no_socket(record: &Path) {
    let calls = record.with_extension("calls");
    let traced = Command::new("strace")
        .args(["-f", "-e", "trace=network,execve", "-o"])
        .arg(&calls)
        .arg(binary("ken-agent"))
        .arg("--replay")
        .stdin(std::fs::File::open(record).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let Ok(status) = traced else { return };
    let calls = std::fs::read_to_string(&calls).unwrap_or_default();
    if !calls.contains("execve(") {
        return; // strace is not permitted on this machine
    }
    assert!(status.success(), "{calls}");
    for call in ["socket(", "connect(", "socketpair("] {
        assert!(!calls.contains(call), "{calls}");
    }
}

#[test]
fn models_are_tried_on_recorded_turns_and_nothing_is_executed() {
    let note = r#"{"title": "Leak", "content": "Made by an evaluation."}"#;
    let provider = Provider::start(vec![
        Reply::Stream(openai(&["I look."], &[("c1", "knowledge_search", r#"{"query": "pump"}"#)])),
        Reply::Stream(openai(&[], &[("c2", "knowledge_add", note)])),
        Reply::Stream(openai(&["It opens at 90 bar."], &[])),
    ]);
    let system = Builder::default()
        .script(&script())
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary\n")
        .start();
    let entry = json!({"title": "Reactor", "content": "The reactor valve opens at 40 bar."});
    system.post("/api/knowledge", &entry).expect(201);
    prompt(&system, "one", "find").join().unwrap().expect(200);
    let id = id(&system, "one");
    let ran = |arguments: &[&str], code: i32| {
        let output = system.ken(&[&["eval"], arguments].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{}{stderr}", output_text(&output));
        output_text(&output) + &stderr
    };
    assert!(ran(&["run"], 2).contains("there are no cases"));
    assert!(ran(&["add", "nope"], 2).contains("`ken show SESSION` prints the ids of its turns"));
    assert_eq!(ran(&["add", &id, "--name", "valve"], 0), "valve\n");
    assert!(ran(&["add", &id, "--name", "valve"], 2).contains("there is a case valve already"));
    assert!(ran(&["add", &id, "--name", "../valve"], 2).contains("is not a name of a case"));
    assert!(ran(&["list"], 0).contains("valve"));
    let cases = system.home().join("evals");
    let mode = std::fs::metadata(cases.join("valve.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // The same model behaves the same; the tools do not run again.
    let same = ran(&["run"], 0);
    assert_eq!(same, "valve  same\nscript/script-1: 1 of 1 the same\n");
    assert!(provider.received().is_empty());
    for (model, named) in [("nope/x", "there is no model provider `nope`"), ("openai", "`openai` needs a model")] {
        let refused = ran(&["run", "--model", model], 2);
        assert!(refused.contains(named) && refused.contains("\"at\":\"--model\""), "{refused}");
    }
    let other = ran(&["run", "--model", "openai/other", "--json"], 1);
    let other: Value = serde_json::from_str(other.trim()).unwrap();
    assert_eq!(other["differs"], json!(["tool calls", "verdict", "answer"]), "{other}");
    assert_eq!(other["now"]["answer"], "It opens at 90 bar.");
    assert_eq!(other["unrecordedCalls"][1]["name"], "knowledge_add");
    assert_eq!(provider.received().len(), 3);
    let found = system.ken(&["knowledge", "search", "evaluation", "leak"]);
    assert!(!output_text(&found).contains("Leak"), "{}", output_text(&found));
    let shown = ran(&["run", "valve", "--model", "openai/other"], 1);
    assert!(shown.contains("valve  differs: ") && shown.contains("error: "), "{shown}");
    assert_eq!(ran(&["rm", "valve"], 0), "");
    assert!(ran(&["rm", "valve"], 2).contains("there is no case valve"));
    for (arguments, at) in [(&["rm", "A.b"][..], "NAME"), (&["add", &id, "--name", "A.b"], "--name")] {
        let refused = ran(arguments, 2);
        assert!(refused.contains(&format!("\"at\":\"{at}\"")), "{refused}");
    }
    // A record that cannot be deleted is not reported as missing.
    std::fs::create_dir(cases.join("folder.json")).unwrap();
    let error = ran(&["rm", "folder"], 75);
    assert!(error.contains("evals/folder.json: ") && !error.contains("there is no case"), "{error}");
}

#[test]
fn an_evaluated_model_gets_the_rules_of_the_configured_workspace() {
    let answer = || Reply::Stream(openai(&["Tidied."], &[]));
    let provider = Provider::start(vec![answer(), answer()]);
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("AGENTS.md"), "Indent with tabs.\n").unwrap();
    let system = Builder::default()
        .config(&format!("[workspace]\nroot = {:?}\n", workspace.path()))
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    let accepted = system.ken(&["skills", "accept", "AGENTS.md", "--yes"]);
    assert!(accepted.status.success(), "{accepted:?}");
    let schedule =
        json!({"slug": "tidy", "kind": "cron", "schedule": "@daily", "prompt": "tidy", "targetAgent": "coding-worker"});
    system.post("/api/schedules", &schedule).expect(201);
    let ran = system.post("/api/schedules/tidy/run?wait=1", &json!({})).expect(200);
    let id = id(&system, &ran.text("/instanceId"));
    for arguments in [&["eval", "add", &id, "--name", "tidy"][..], &["eval", "run", "--model", "openai/other"]] {
        let output = system.ken(arguments);
        assert!(output.status.success(), "{output:?}");
    }
    let received = provider.received();
    let reported = received[1].body["messages"][0]["content"].as_str().unwrap();
    assert_eq!(received[1].body["model"], "other");
    assert!(reported.contains("Indent with tabs."), "{reported}");
}
