//! Tests of ken-model as a filter: standard output, standard error and exit code of the real
//! program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A script that consists of one line with these `events`.
struct Script {
    folder: tempfile::TempDir,
}

impl Script {
    fn new(lines: &[Value]) -> Script {
        let script = Script { folder: tempfile::tempdir().unwrap() };
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(script.folder.path().join("script.jsonl"), text).unwrap();
        script
    }

    fn command(&self, models: &str, words: &[&str]) -> Command {
        let mut command = command(words);
        command.env("KEN_MODEL", models);
        command.env("KEN_SCRIPT", self.folder.path().join("script.jsonl"));
        command
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ken-model"));
    command.env_clear().env("KEN_ERRORS", "json").args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(mut command: Command, input: &str) -> Output {
    let mut child = command.spawn().unwrap();
    // Writing fails if the program has ended without reading.
    _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// Returns the answer to one input. Standard error must be empty.
fn answer(command: Command, input: &str) -> Value {
    let output = run(command, input);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), "".into()));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the error, which must be one line. Standard output must be empty.
fn error(command: Command, input: &str) -> Value {
    let output = run(command, input);
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()));
    let line: Value = serde_json::from_slice(&output.stderr).unwrap();
    line["error"].clone()
}

#[test]
fn a_text_and_a_request_are_answered_by_the_rules() {
    let plain = answer(command(&[]), "Who are you?\n");
    assert!(plain["text"].as_str().unwrap().contains("ken"), "{plain}");
    assert_eq!(plain["model"], json!({"provider": "rules", "id": "rules-1"}));
    assert_eq!(plain["stopReason"], "stop");
    assert!(plain["usage"]["totalTokens"].as_u64().unwrap() > 0);
    let request = r#"{"messages":[{"role":"user","content":"Who are you?"}]}"#;
    assert_eq!(answer(command(&[]), request), plain);
    assert_eq!(answer(command(&["--text", request]), ""), plain);
    // A complete request, as on the wire.
    let whole = json!({"system": "", "purpose": "agent", "messages":
        [{"role": "user", "content": [{"type": "text", "text": "Who are you?"}], "timestamp": 5}]});
    assert_eq!(answer(command(&["-"]), &whole.to_string()), plain);
}

#[test]
fn a_source_is_used_and_a_summary_is_the_text_alone() {
    let request = json!({
        "messages": [{"role": "user", "content": "When does the canteen close?"}],
        "sources": [{"id": "kb-1", "kind": "knowledge", "title": "Canteen", "text": "The canteen closes at 18:30.",
            "score": 0.9}],
    });
    let output = run(command(&["--format", "summary"]), &request.to_string());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("The canteen closes at 18:30. [kb-1]") && !text.contains('{'), "{text}");
}

#[test]
fn as_a_co_process_it_answers_each_line_before_the_next_comes() {
    let script = Script::new(&[
        json!({"when": "tool", "events": [{"text": "Let me see."}, {"tool": {"name": "sky", "arguments": {"at": 1}}}]}),
        json!({"when": "bad", "events": [{"text": "half"}, {"error": {"class": "overloaded", "message": "full"}}]}),
        json!({"events": [{"text": "one "}, {"text": "two"}]}),
    ]);
    let mut child = script.command("script/a", &["--lines"]).spawn().unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |line: &str| -> Value {
        writeln!(to, "{line}").unwrap();
        let mut answer = String::new();
        from.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    assert_eq!(ask("hello")["text"], "one two");
    assert_eq!(ask(r#"{"messages":[]}"#)["error"]["at"], "/messages");
    let tool = ask("tool");
    assert_eq!(tool["toolCalls"], json!([{"type": "toolCall", "id": "call_1", "name": "sky", "arguments": {"at": 1}}]));
    assert_eq!((&tool["stopReason"], &tool["model"]["id"]), (&json!("toolUse"), &json!("a")));
    assert_eq!(ask("bad")["error"]["code"], "busy");
    assert_eq!(ask("again")["text"], "one two");
    drop(to);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_next_model_answers_where_one_fails_and_the_reason_is_reported() {
    let script =
        Script::new(&[json!({"events": [{"text": "half"}, {"error": {"class": "auth", "message": "wrong key"}}]})]);
    let request = r#"{"messages":[{"role":"user","content":"Who are you?"}]}"#;
    let answered = answer(script.command("script,rules", &[]), request);
    assert_eq!(answered["model"]["provider"], "rules");
    assert!(!answered["text"].as_str().unwrap().contains("half"), "{answered}");
    let failed = &answered["failed"][0];
    assert_eq!(
        (&failed["model"], &failed["error"]["code"], &failed["error"]["message"]),
        (&json!("script/script-1"), &json!("unauthenticated"), &json!("wrong key"))
    );
    // If a request names a model, only that model is used.
    let named = r#"{"model":"script/script-1","messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(error(script.command("script,rules", &[]), named)["code"], "unauthenticated");
    let all = error(script.command("script/a,script/b", &[]), request);
    let message = all["message"].as_str().unwrap();
    assert!(message.contains("script/a: wrong key") && message.contains("script/b: wrong key"), "{all}");
}

#[test]
fn what_is_wrong_is_one_line_that_names_it() {
    let unknown = r#"{"messages":[{"role":"user","content":"x"}],"temprature":1}"#;
    for (models, input, part) in [
        ("rules", "", "empty"),
        ("rules", unknown, "temprature"),
        ("rules", r#"{"messages":"x"}"#, "/messages"),
        ("rules", r#"{"messages":[{"role":"usr","content":"x"}]}"#, "usr"),
        ("rules", r#"{"model":"openai/x","messages":[{"role":"user","content":"x"}]}"#, "openai/x"),
        ("rules", r#"{"messages":"#, "line 1"),
        ("opnai", "x", "opnai"),
        ("script", "x", "KEN_SCRIPT"),
    ] {
        let mut command = command(&[]);
        command.env("KEN_MODEL", models);
        let error = error(command, input);
        assert!(error.to_string().contains(part), "{models} {input}: {error}");
    }
}

#[test]
fn a_filter_below_a_part_does_not_take_its_sockets() {
    let mut below = command(&[]);
    below.env("LISTEN_PID", "1").env("LISTEN_FDS", "1");
    below.env("KEN_HOME", "/nonexistent");
    assert_eq!(answer(below, "Who are you?")["model"]["provider"], "rules");
}

#[test]
fn help_describes_both_and_touches_nothing() {
    let mut help = command(&["--help"]);
    help.env("KEN_MODEL", "nonsense");
    let text = String::from_utf8(run(help, "").stdout).unwrap();
    assert!(text.contains("--lines") && text.contains("--home DIR"), "{text}");
    let daemon = run(command(&["--home", "/nonexistent", "--help"]), "");
    assert!(String::from_utf8(daemon.stdout).unwrap().contains("--config <FILE>"));
}
