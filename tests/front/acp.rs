//! `ken acp`: bad messages, folders that nobody trusts, and two editors on one session. What a client of others sees is in
//! conformance/mcp_clients.js.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use ken_tests::{Builder, System, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Editor {
    fn start(system: &System) -> Editor {
        let mut child = system.command(&["acp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ken acp");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Editor { child, input, output }
    }

    fn write(&mut self, text: &str) {
        self.input.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn send(&mut self, id: u64, method: &str, params: Value) {
        self.write(&format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})));
    }

    /// Reads up to the reply to a request. Returns it, and the messages before it.
    fn reply(&mut self, id: u64) -> (Value, Vec<Value>) {
        let mut before = Vec::new();
        loop {
            let message = self.read();
            if message["id"] == id && message.get("method").is_none() {
                return (message, before);
            }
            before.push(message);
        }
    }

    fn call(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(id, method, params);
        self.reply(id).0
    }

    fn finish(mut self) -> (String, Option<i32>) {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

fn prompt(session: &str, text: &str) -> Value {
    json!({"sessionId": session, "prompt": [{"type": "text", "text": text}]})
}

fn said(messages: &[Value]) -> String {
    let chunks = messages.iter().filter(|one| one["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    chunks.map(|one| one["params"]["update"]["content"]["text"].as_str().unwrap()).collect()
}

fn system() -> System {
    let call = json!({"tool": {"name": "gated", "arguments": {}}});
    Builder::default()
        .script(&[
            json!({"when": "hold", "events": [{"sleep_ms": 60_000}]}),
            json!({"when": "please", "after_tools": 0, "events": [call]}),
            json!({"when": "please", "after_tools": 1, "events": [{"text": "Done."}]}),
            json!({"events": [{"text": "Hello."}]}),
        ])
        .file(
            "tools.d/gated.json",
            &json!({"name": "gated", "description": "A tool.", "command": ["sh", "-c", "cat >/dev/null; echo did it"],
                "input": {"type": "object"}, "writes": "text", "agents": ["orchestrator"]})
            .to_string(),
        )
        .start()
}

/// A session in a folder that a person has trusted meanwhile.
fn session(system: &System, editor: &mut Editor, folder: &Path) -> (String, String) {
    let folder = folder.canonicalize().unwrap().display().to_string();
    let open = json!({"cwd": folder, "mcpServers": []});
    let refused = editor.call(1, "session/new", open.clone());
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("workspace trust {folder}")), "{message}");
    assert!(system.ken(&["workspace", "trust", &folder]).status.success());
    let opened = editor.call(2, "session/new", open);
    (opened["result"]["sessionId"].as_str().unwrap_or_else(|| panic!("{opened}")).to_owned(), folder)
}

#[test]
fn bad_messages_are_refused_and_good_ones_still_answered() {
    let system = system();
    let mut editor = Editor::start(&system);
    let agreed = editor.call(0, "initialize", json!({"protocolVersion": 99, "clientCapabilities": {}}));
    assert_eq!(agreed["result"]["protocolVersion"], 1);
    editor.write("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\n\n");
    assert_eq!(editor.read()["error"]["code"], -32700);
    editor.write(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{}\"}}\n", "x".repeat(17 << 20)));
    assert_eq!(editor.read()["error"]["code"], -32600);
    for (method, params, code, part) in [
        ("session/fork", json!({}), -32601, "session/fork"),
        ("session/prompt", json!({"prompt": []}), -32602, "sessionId"),
        ("session/prompt", json!({"sessionId": "x"}), -32602, "prompt"),
        ("session/prompt", json!({"sessionId": "x", "prompt": [{"type": "audio"}]}), -32602, "audio"),
        ("session/prompt", prompt("tui-none", "hi"), -32602, ""),
        ("session/load", json!({"sessionId": "x", "cwd": "here", "mcpServers": []}), -32602, "cwd"),
        ("session/new", json!({"cwd": "/", "mcpServers": [{"name": "files"}]}), -32602, "accept files"),
    ] {
        let refused = editor.call(2, method, params);
        assert_eq!(refused["error"]["code"], code, "{method}: {refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(part), "{refused}");
    }
    // The end of the input in the middle of a message.
    editor.write("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"initialize\"");
    let (rest, status) = editor.finish();
    assert_eq!((rest.matches("-32700").count(), rest.lines().count(), status), (1, 1, Some(0)), "{rest}");
}

#[test]
fn a_request_is_decided_by_the_editor_by_others_or_by_nobody() {
    let system = system();
    let mut editor = Editor::start(&system);
    let folder = tempfile::tempdir().unwrap();
    let (id, path) = session(&system, &mut editor, folder.path());
    let asked = |editor: &mut Editor, number: u64, text: &str| {
        editor.send(number, "session/prompt", prompt(&id, text));
        loop {
            let message = editor.read();
            if message["method"] == "session/request_permission" {
                return message;
            }
        }
    };
    let question = asked(&mut editor, 10, "please, once");
    let kinds = question["params"]["options"].as_array().unwrap().iter().map(|option| option["kind"].clone());
    assert_eq!(kinds.collect::<Vec<_>>(), ["allow_once", "allow_always", "reject_once"]);
    let answer = |editor: &mut Editor, question: &Value, outcome: Value| {
        editor.write(&format!("{}\n", json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}})));
    };
    // An option that was not offered, and a question that is cancelled, decide nothing.
    answer(&mut editor, &question, json!({"outcome": "cancelled"}));
    let request = question["params"]["toolCall"]["toolCallId"].as_str().unwrap().to_owned();
    let status = || system.get(&format!("/api/approvals/{request}")).expect(200).text("/status");
    assert_eq!(status(), "pending");
    let decision = json!({"decidedBy": "vera", "approved": true});
    system.post(&format!("/api/approvals/{request}/decision"), &decision).expect(200);
    let (reply, before) = editor.reply(10);
    assert_eq!((&reply["result"]["stopReason"], said(&before).trim()), (&json!("end_turn"), "Done."));

    // What an editor has left behind is asked about again with the next prompt, and by every editor that then waits.
    asked(&mut editor, 13, "please, left behind");
    assert_eq!(editor.finish().1, Some(0));
    let mut editor = Editor::start(&system);
    editor.call(1, "session/load", json!({"sessionId": id, "cwd": path, "mcpServers": []}));
    let question = asked(&mut editor, 14, "and now?");
    answer(&mut editor, &question, json!({"outcome": "selected", "optionId": "allow_once"}));
    let (reply, before) = editor.reply(14);
    assert_eq!((&reply["result"]["stopReason"], said(&before).trim()), (&json!("end_turn"), "Hello."), "{before:?}");
    assert!(before.iter().all(|message| message["method"] == "session/update"), "asked once: {before:?}");

    let question = asked(&mut editor, 11, "please, in this session");
    answer(&mut editor, &question, json!({"outcome": "selected", "optionId": "allow_always"}));
    assert_eq!(said(&editor.reply(11).1).trim(), "Done.");
    editor.send(12, "session/prompt", prompt(&id, "please, again"));
    let (_, before) = editor.reply(12);
    assert!(before.iter().all(|message| message["method"] == "session/update"), "{before:?}");
    // Whoever opens the session later sees the calls between the messages.
    let mut other = Editor::start(&system);
    other.send(1, "session/load", json!({"sessionId": id, "cwd": path, "mcpServers": []}));
    let (_, told) = other.reply(1);
    let kinds: Vec<&str> =
        told.iter().map(|one| one["params"]["update"]["sessionUpdate"].as_str().unwrap()).take(4).collect();
    assert_eq!(kinds[0], "user_message_chunk");
    let calls = told.iter().filter(|one| one["params"]["update"]["title"] == "gated");
    assert!(calls.clone().any(|one| one["params"]["update"]["status"] == "completed"), "{told:?}");
    assert!(kinds.contains(&"tool_call") && said(&told).contains("Done."), "{told:?}");
}

/// It ends before the turn that it waited for, whose question stays.
#[test]
fn a_question_stays_when_a_queued_turn_is_cancelled() {
    let system = system();
    let mut editor = Editor::start(&system);
    let folder = tempfile::tempdir().unwrap();
    let (id, _) = session(&system, &mut editor, folder.path());
    editor.send(10, "session/prompt", prompt(&id, "please"));
    let question = std::iter::repeat_with(|| editor.read())
        .find(|message| message["method"] == "session/request_permission")
        .unwrap();
    for _ in 0..2 {
        let mut queued = system.command(&["chat", "-s", &id, "more"]);
        let queued = queued.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until("it is queued", || {
            let runs = system.get("/api/telemetry/runs?limit=10").expect(200).json();
            runs["runs"].as_array().unwrap().iter().any(|run| run["status"] == "queued")
        });
        kill(Pid::from_raw(queued.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        assert!(!queued.wait_with_output().unwrap().status.success());
    }
    let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
    editor.write(&format!("{}\n", json!({"jsonrpc": "2.0", "id": question["id"], "result": {"outcome": outcome}})));
    let (reply, before) = editor.reply(10);
    assert_eq!((&reply["result"]["stopReason"], said(&before).trim()), (&json!("end_turn"), "Done."));
}

#[test]
fn two_editors_have_one_session_and_a_prompt_can_be_stopped() {
    let system = system();
    let (mut first, mut second) = (Editor::start(&system), Editor::start(&system));
    let folder = tempfile::tempdir().unwrap();
    let (id, path) = session(&system, &mut first, folder.path());
    first.send(10, "session/prompt", prompt(&id, "one"));
    assert_eq!(said(&first.reply(10).1).trim(), "Hello.");
    second.send(1, "session/load", json!({"sessionId": id, "cwd": path, "mcpServers": []}));
    assert_eq!(said(&second.reply(1).1), "Hello.");
    first.send(11, "session/prompt", prompt(&id, "hold"));
    until("the turn runs", || {
        let runs = system.get("/api/telemetry/runs?limit=10").expect(200).json();
        runs["runs"].as_array().unwrap().iter().any(|run| run["status"] == "running")
    });
    let busy = first.call(12, "session/prompt", prompt(&id, "more"));
    assert_eq!(busy["error"]["code"], -32602, "{busy}");
    // The prompt of the second editor waits for its turn, and is that editor's alone.
    second.send(2, "session/prompt", prompt(&id, "two"));
    first.write(&format!("{}\n", json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": id}})));
    assert_eq!(first.reply(11).0["result"]["stopReason"], "cancelled");
    let (reply, before) = second.reply(2);
    assert_eq!((&reply["result"]["stopReason"], said(&before).trim()), (&json!("end_turn"), "Hello."));
    assert_eq!(first.finish(), (String::new(), Some(0)));
}
