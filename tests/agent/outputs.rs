//! Long outputs of tools: the model gets the beginning and the end. The store keeps the whole output, which can be read in
//! parts.

use std::fs;

use ken_tests::provider::{Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, System, until};
use serde_json::{Value, json};

/// The output of the tool: one number per line.
fn whole() -> String {
    let lines: Vec<String> = (1..=40_000).map(|number| number.to_string()).collect();
    lines.join("\n")
}

/// The name of an output, if the text contains one.
fn name(text: &str) -> Option<&str> {
    text.split_once("is kept as ")?.1.split(':').next()
}

/// Calls the tool, reads a part of its output, and answers. For a prompt `read NAME`, reads a part of that output instead.
fn reply(request: &ReceivedRequest) -> Reply {
    let messages = request.body["messages"].as_array().unwrap();
    let content = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let results: Vec<String> = messages
        .iter()
        .rev()
        .take_while(|message| message["role"] != "user")
        .filter(|message| message["role"] == "tool")
        .map(content)
        .collect();
    let part = |output: &str| {
        let arguments = json!({"output": output, "offset": 100_000, "limit": 64}).to_string();
        Reply::Stream(openai(&[], &[("part", "read_output", &arguments)]))
    };
    let prompt = request.prompt();
    let prompt = prompt.as_str().unwrap_or_default();
    match (prompt.strip_prefix("read "), results.as_slice()) {
        (Some(output), []) => part(output),
        (None, []) => Reply::Stream(openai(&[], &[("long", "count", "{}")])),
        (None, [only]) if name(only).is_some() => part(name(only).unwrap()),
        _ => Reply::Stream(openai(&["Done."], &[])),
    }
}

fn start(provider: &Provider) -> System {
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .start();
    let folder = system.home().join("tools.d");
    fs::create_dir_all(&folder).unwrap();
    let entry = json!({"name": "count", "description": "Counts.", "command": ["seq", "1", "40000"], "input": {"type": "object"},
        "writes": "text", "idempotent": true, "approval": "none", "agents": ["orchestrator"]});
    fs::write(folder.join("count.json"), entry.to_string()).unwrap();
    until("the tool is offered", || {
        let tools = system.call("tools", "tools.list", &[])["tools"].to_string();
        tools.contains("\"count\"")
    });
    system
}

/// Sends a message. Returns the tool results of its turn, and its submission.
fn say(system: &System, session: &str, text: &str) -> (Vec<Value>, String) {
    let answer = system.say(session, text).expect(200);
    assert_eq!(answer.text("/result/text"), "Done.");
    let submission = answer.text("/submissionId").to_owned();
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
    let events = events.as_array().unwrap().iter();
    let tools = events.filter(|event| event["type"] == "tool" && event["submissionId"] == submission.as_str());
    (tools.cloned().collect(), submission)
}

fn text(tool: &Value) -> &str {
    tool["result"]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_long_output_is_shown_in_part_and_stored_whole() {
    let provider = Provider::answering(reply);
    let system = start(&provider);
    let (session, whole) = (system.session(), whole());
    let (tools, submission) = say(&system, &session, "count");
    assert_eq!(tools.len(), 2, "{tools:?}");
    let shown = text(&tools[0]);
    let (head, rest) = shown.split_once("\n[cut: bytes ").unwrap();
    let tail = rest.split_once("]\n").unwrap().1;
    assert!(whole.starts_with(head) && whole.ends_with(tail), "{rest}");
    assert!(shown.len() < 33_000 && head.len() > 20_000 && tail.len() > 8_000);
    let output = &tools[0]["result"]["output"];
    assert_eq!(output["bytes"], whole.len());
    let digest = output["blob"].as_str().unwrap();
    assert_eq!(name(shown), digest.get(..16));
    // The model has read a part of the output, which is enclosed in marks.
    assert_eq!(
        tools[1]["result"]["details"],
        json!({"output": &digest[..16], "offset": 100_000, "end": 100_064, "bytes": whole.len()})
    );
    assert!(text(&tools[1]).contains(&format!("\n{}\n--- end ", &whole[100_000..100_064])));
    // `ken why` shows the output of the turn.
    let why = String::from_utf8(system.ken(&["why", &submission]).stdout).unwrap();
    let line = format!("  output    {} bytes: ken call store blobs.get digest={digest}\n", whole.len());
    assert!(why.contains(&line), "{why}");
    let blob = system.call("store", "blobs.get", &[&format!("digest={digest}")]);
    assert_eq!(blob["length"], whole.len());
    let transcript = system
        .get(&format!("/api/chat/sessions/{session}/transcript?connector=tui&actorId=a&conversationId=c"))
        .expect(200)
        .json();
    assert_eq!(transcript["exchanges"][0]["activities"][0]["output"], *output, "{transcript}");
    // The output can be read neither from another conversation nor by a prefix of its name that is too short.
    let other = system.session();
    let (tools, _) = say(&system, &other, &format!("read {}", &digest[..16]));
    assert!(tools[0]["isError"] == true && text(&tools[0]).contains("there is no output"), "{tools:?}");
    let (tools, _) = say(&system, &session, &format!("read {}", &digest[..8]));
    assert!(tools[0]["isError"] == true && text(&tools[0]).contains("at least 16 hexadecimal digits"), "{tools:?}");
    let (tools, _) = say(&system, &session, &format!("read {digest}"));
    assert_eq!(tools[0]["isError"], false, "{tools:?}");
}

#[test]
fn an_output_is_shown_in_part_even_if_it_cannot_be_stored() {
    let provider = Provider::answering(reply);
    let system = start(&provider);
    let called = system.call("tools", "tools.call", &["name=count", "arguments={}"]);
    let digest = called["result"]["output"]["blob"].as_str().unwrap().to_owned();
    // The output of a call outside a turn belongs to no session.
    let get = ["call", "store", "outputs.get", "instance=x"];
    let id = format!("id={digest}");
    let refused = system.ken(&[&get[..], &[id.as_str()]].concat());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no output"));
    let stopped = system.ken(&["stop", "store", "--dependents"]);
    assert!(stopped.status.success(), "{stopped:?}");
    let called = system.call("tools", "tools.call", &["name=count", "arguments={}"]);
    let shown = called["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        shown.contains("The whole output could not be kept: ") && called["result"].get("output").is_none(),
        "{}",
        shown.len()
    );
}
