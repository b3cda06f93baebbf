//! Tools in a turn: a scripted model calls them, and the real ken-tools runs them in the real sandbox, only once whichever
//! part is killed.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ken_tests::{Answer, Builder, Client, System, until};
use serde_json::{Value, json};

/// A model that calls the tool that the prompt names, and then answers.
fn script(calls: &[(&str, Value)]) -> Vec<Value> {
    let lines = calls.iter().flat_map(|(name, arguments)| {
        let call = json!({"tool": {"name": name, "arguments": arguments}});
        [
            json!({"when": name, "after_tools": 0, "events": [call]}),
            json!({"when": name, "after_tools": 1, "events": [{"text": "Done."}]}),
        ]
    });
    lines.collect()
}

/// Adds a shell script as a tool to `tools.d`. It is allowed to write into the folder `scratch`.
fn add_tool(system: &System, name: &str, script: &str, idempotent: bool) {
    let folder = system.home().join("tools.d");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::create_dir_all(scratch(system)).unwrap();
    let entry = json!({"name": name, "description": "A tool.", "command": ["sh", "-c", script], "input": {"type": "object"},
        "writes": "text", "idempotent": idempotent, "approval": "none", "agents": ["orchestrator"],
        "touch": {"write": [scratch(system)]}});
    std::fs::write(folder.join(format!("{name}.json")), entry.to_string()).unwrap();
}

fn scratch(system: &System) -> PathBuf {
    system.home().join("scratch")
}

/// A script that appends to a file and then takes a while. It contains the path of the folder, because `$PWD` is not writable.
fn slow(system: &System) -> String {
    format!("echo ran >> '{}/runs'; sleep 3; echo finished", scratch(system).display())
}

fn runs(system: &System) -> usize {
    std::fs::read_to_string(scratch(system).join("runs")).unwrap_or_default().lines().count()
}

fn prompt(system: &System, text: &str) -> JoinHandle<Answer> {
    let (address, target) = (system.address(), format!("/agents/orchestrator/{text}?wait=result"));
    let body = json!({ "message": text });
    std::thread::spawn(move || Client::connect(address).post(&target, &body))
}

/// The `tool` events of an instance.
fn results(system: &System, instance: &str) -> Vec<Value> {
    let page = system.get(&format!("/agents/orchestrator/{instance}?offset=-1")).expect(200);
    let events = page.json().as_array().expect("events").clone();
    events.into_iter().filter(|event| event["type"] == "tool").collect()
}

fn result_text(result: &Value) -> &str {
    result["result"]["content"][0]["text"].as_str().expect("a text")
}

/// Waits until a tool is listed. A turn that begins after that can call it.
fn until_listed(system: &System, name: &str) {
    until("the tool is listed", || {
        let listed = system.call("tools", "tools.list", &[]);
        listed["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name))
    });
}

#[test]
fn a_shipped_tool_answers_in_a_turn() {
    let arguments = json!({"facts": ["Rex is a dog"], "rules": [[["?x is a dog"], "?x is an animal"]]});
    let system =
        Builder::default().script(&script(&[("reason", arguments), ("verify_rules", json!({"rules": 7}))])).start();
    let answer = prompt(&system, "reason").join().unwrap().expect(200);
    assert_eq!(answer.text("/result/text"), "Done.");
    let tools = results(&system, "reason");
    assert_eq!((tools.len(), &tools[0]["isError"]), (1, &json!(false)), "{tools:?}");
    assert!(result_text(&tools[0]).contains("Rex is an animal"), "{tools:?}");
    // If the schema refuses the arguments, the model gets an error, and the turn continues.
    prompt(&system, "verify_rules").join().unwrap().expect(200);
    let tools = results(&system, "verify_rules");
    assert!(tools[0]["isError"] == true && result_text(&tools[0]).contains("/arguments/rules"), "{tools:?}");
}

/// Tools and models may write NUL. ken stores its picture, and reads what earlier versions have stored.
#[test]
fn a_turn_with_nul_can_be_read() {
    let call = |arguments: Value| json!({"tool": {"name": "zero", "arguments": arguments}});
    let mut system = Builder::default()
        .script(&[
            json!({"when": "zero", "after_tools": 0, "events":
                [{"think": "Hm\0."}, {"text": "Look\0."}, call(json!({})), call(json!({"x": "a\0b"}))]}),
            json!({"when": "zero", "events": [{"text": "Done\0."}]}),
            json!({"events": [{"text": "No."}, {"error": {"class": "auth", "message": "the key\0 is not taken"}}]}),
        ])
        .start();
    add_tool(&system, "zero", &format!("echo ran >> '{}/runs'; printf 'a\\000b'", scratch(&system).display()), false);
    until_listed(&system, "zero");
    let run = |system: &System, words: &[&str]| {
        let output = system.ken(words);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(&output.stdout), text(&output.stderr), output.status.code())
    };
    let (answer, errors, status) = run(&system, &["chat", "zero"]);
    assert!(answer.ends_with("Done␀.\n") && status == Some(0), "{answer}{errors}");
    let (record, _, _) = run(&system, &["show", "last", "--json"]);
    assert!(record.contains("Done␀."), "{record}");
    let session = system.get("/api/chat/sessions?limit=1").expect(200).text("/sessions/0/sessionId");
    let mut tools = results(&system, &session);
    tools.sort_by_key(|tool| tool["toolCallId"].to_string());
    assert_eq!((tools.len(), runs(&system)), (2, 1), "{tools:?}");
    assert_eq!((result_text(&tools[0]), &tools[0]["isError"]), ("a␀b", &json!(false)));
    // A tool would do something else if an argument were changed.
    assert!(result_text(&tools[1]).contains("cannot be used: malformed JSON: text holds a NUL"), "{tools:?}");
    let (_, errors, status) = run(&system, &["chat", "fail"]);
    assert!(errors.contains("the key␀ is not taken") && status != Some(0), "{errors}");
    system.down();
    let sql = "UPDATE entries SET body = replace(body, '\u{2400}', '\\u0000')";
    let database = system.home().join("state/store/ken.db");
    let python = format!("import sqlite3\nc = sqlite3.connect({database:?})\nc.execute({sql:?})\nc.commit()");
    let changed = std::process::Command::new("python3").args(["-c", &python]).status();
    if !changed.is_ok_and(|status| status.success()) {
        return ken_tests::skip("python3 is not installed");
    }
    system.up();
    let old = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).body_text();
    assert!(old.contains("Done\\u0000."), "{old}");
    let id = results(&system, &session)[0]["submissionId"].as_str().unwrap().to_owned();
    let (shown, errors, status) = run(&system, &["show", &id]);
    assert!(shown.contains("Done␀.") && status == Some(0), "{shown}{errors}");
    let (replayed, errors, status) = run(&system, &["replay", &id]);
    assert!(replayed.contains("the same, ") && status == Some(0), "{replayed}{errors}");
}

/// A tool whose texts are in UTF-16, as those of JavaScript are, may cut one within a character.
#[test]
fn a_tool_that_writes_half_a_character_has_its_result() {
    let system = Builder::default().start();
    add_tool(&system, "cut", r#"printf '{"a\\udc00":["a\\ud83d","\\ud83d\\ude00","\\\\ud83d"]}'"#, false);
    let file = system.home().join("tools.d/cut.json");
    let entry = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, entry.replace(r#""writes":"text""#, r#""writes":"json""#)).unwrap();
    until_listed(&system, "cut");
    let called = system.call("tools", "tools.call", &["name=cut", "arguments={}"]);
    let details = json!({"a\u{fffd}": ["a\u{fffd}", "😀", "\\ud83d"]});
    assert_eq!((&called["is_error"], &called["result"]["details"]), (&json!(false), &details), "{called}");
}

#[test]
fn an_added_tool_works_without_a_restart() {
    let system = Builder::default().script(&script(&[("fresh", json!({}))])).start();
    prompt(&system, "fresh").join().unwrap().expect(200);
    assert!(result_text(&results(&system, "fresh")[0]).contains("There is no tool `fresh`"));
    add_tool(&system, "fresh", "echo here I am", false);
    until_listed(&system, "fresh");
    let body = json!({"message": "fresh"});
    system.post("/agents/orchestrator/again?wait=result", &body).expect(200);
    let tools = results(&system, "again");
    assert_eq!(result_text(&tools[0]), "here I am");
}

#[test]
fn a_tool_runs_once_whichever_part_is_killed() {
    for (part, idempotent, wanted) in [("tools", false, 1), ("agent", false, 1), ("agent", true, 2)] {
        let system = Builder::default().script(&script(&[("slow", json!({}))])).start();
        add_tool(&system, "slow", &slow(&system), idempotent);
        until_listed(&system, "slow");
        let answer = prompt(&system, "slow");
        until("the tool runs", || runs(&system) == 1);
        system.kill(part);
        let answer = answer.join().unwrap().expect(200);
        assert_eq!(answer.text("/result/text"), "Done.", "{part} killed");
        let tools = results(&system, "slow");
        assert_eq!((tools.len(), runs(&system)), (1, wanted), "{part} killed, idempotent {idempotent}: {tools:?}");
        let interrupted = result_text(&tools[0]).contains("interrupted");
        assert_eq!((interrupted, &tools[0]["isError"]), (!idempotent, &json!(!idempotent)), "{tools:?}");
    }
}

/// A part that is told to stop ends what it has begun, and so do its tools.
#[test]
fn a_restart_of_ken_tools_lets_a_call_end() {
    let system = Builder::default().script(&script(&[("slow", json!({}))])).start();
    add_tool(&system, "slow", &format!("echo ran >> {}/runs; sleep 1; echo did it", scratch(&system).display()), false);
    until_listed(&system, "slow");
    let answer = prompt(&system, "slow");
    until("the tool runs", || runs(&system) == 1);
    assert!(system.ken(&["restart", "tools"]).status.success());
    answer.join().unwrap().expect(200);
    let tools = results(&system, "slow");
    assert_eq!((result_text(&tools[0]), runs(&system)), ("did it", 1), "{tools:?}");
}

#[test]
fn an_abort_kills_the_tool_with_its_children() {
    let system = Builder::default().script(&script(&[("endless", json!({}))])).start();
    let script = format!(
        // A child that has left the process group, and whose parent has ended.
        "(setsid sh -c 'while :; do date >> {0}/clock; sleep 0.05; done' &) ; \
         until [ -s '{0}/clock' ]; do sleep 0.05; done; echo ran >> '{0}/runs'; sleep 1000",
        scratch(&system).display()
    );
    add_tool(&system, "endless", &script, false);
    until_listed(&system, "endless");
    let answer = prompt(&system, "endless");
    until("the tool runs", || runs(&system) == 1);
    let aborted = Instant::now();
    system.post("/agents/orchestrator/endless/abort", &json!({})).expect(200);
    answer.join().unwrap().expect(500);
    let clock = || std::fs::metadata(scratch(&system).join("clock")).map(|file| file.len()).unwrap_or_default();
    until("the tool has ended", || {
        let before = clock();
        std::thread::sleep(Duration::from_millis(300));
        clock() == before
    });
    assert!(aborted.elapsed() < Duration::from_secs(5), "it ended {:?} after the abort", aborted.elapsed());
}
