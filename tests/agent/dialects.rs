//! The dialects of the two wire formats: answers as servers of many kinds send them, in `bin/ken-model/tests/dialects`. Each
//! is sent by a real server to the real ken-model, in one piece, in single bytes and in pieces of seven bytes.

use std::io::Write;
use std::process::{Command, Stdio};

use ken_tests::provider::{Piece, Provider, Reply, anthropic, openai};
use ken_tests::{Builder, System, binary, root};
use serde_json::{Value, json};

fn recorded(name: &str) -> Vec<u8> {
    std::fs::read(root().join("bin/ken-model/tests/dialects").join(name)).unwrap()
}

fn pieces(bytes: &[u8], size: usize) -> Vec<Piece> {
    bytes.chunks(size).map(|piece| Piece::Bytes(piece.to_vec())).collect()
}

/// What ken-model makes of the answer: its thoughts and its text, each joined, its calls and its end, or the error.
fn events(format: &str, reply: Reply) -> Value {
    let provider = Provider::start(vec![reply]);
    let mut child = Command::new(binary("ken-model"))
        .arg("events")
        .env_clear()
        .env("KEN_ERRORS", "json")
        .env("KEN_MODEL", format!("{format}/m"))
        .env("OPENAI_BASE_URL", format!("{}/v1", provider.url()))
        .env("ANTHROPIC_BASE_URL", provider.url())
        .env("ANTHROPIC_API_KEY", "k")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Hello").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).collect::<Vec<_>>();
    let joined = |kind: &str| of(kind).iter().map(|line| line["delta"].as_str().unwrap()).collect::<String>();
    let calls =
        of("tool_call").into_iter().map(|call| format!("{} {} {}", call["id"], call["name"], call["arguments"]));
    let seals = of("think").into_iter().filter_map(|line| line["opaque"].as_str().map(str::to_owned));
    let end = of("end").first().map_or(Value::Null, |end| {
        let usage = (end["usage"]["input"].as_u64().unwrap(), end["usage"]["output"].as_u64().unwrap());
        json!([end["stop_reason"], usage.0, usage.1])
    });
    let error = String::from_utf8(output.stderr).unwrap();
    let error = serde_json::from_str::<Value>(&error).map_or(Value::Null, |line| line["error"].clone());
    json!({"thought": joined("think"), "text": joined("text"), "calls": calls.collect::<Vec<_>>(),
        "seals": seals.collect::<Vec<_>>(), "end": end, "code": error["code"], "error": error["message"]})
}

/// A recorded answer and what it is expected to be.
struct Dialect {
    name: &'static str,
    thought: &'static str,
    text: &'static str,
    calls: &'static [&'static str],
    seals: &'static [&'static str],
    end: Option<&'static str>,
    /// The code of the error and a part of its message.
    error: Option<(&'static str, &'static str)>,
}

const ANSWER: Dialect = Dialect {
    name: "",
    thought: "Hm.",
    text: "Yes.",
    calls: &[],
    seals: &[],
    end: Some(r#"["stop",9,4]"#),
    error: None,
};
const CALLS: Dialect = Dialect {
    thought: "",
    text: "",
    calls: &[r#""call_a" "lookup" {"q":"1"}"#, r#""call_b" "lookup" {"q":"2"}"#],
    end: Some(r#"["toolUse",9,4]"#),
    ..ANSWER
};
const FAILED: Dialect =
    Dialect { thought: "", text: "Half ", end: None, error: Some(("unavailable", "It overheats.")), ..ANSWER };
const OVERLOADED: Dialect = Dialect { error: Some(("busy", "It overheats.")), ..FAILED };
const CUT: Dialect = Dialect { error: Some(("unavailable", "ended before the answer was complete")), ..FAILED };
const NO_ANSWER: Dialect = Dialect { text: "", error: Some(("not_found", "a web page instead of")), ..FAILED };
const OTHER: Dialect = Dialect { error: Some(("not_found", "JSON that holds no answer")), ..NO_ANSWER };
const REPEATED: Dialect = Dialect {
    calls: &[r#""call_a" "lookup" "{\"q\":\"1\",\"q\":\"2\"}""#, r#""call_b" "lookup" "{\"q\":\"1\",\"q\":\"2\"}""#],
    ..CALLS
};
/// A server that cuts texts by units of UTF-16 writes half a character.
const HALVES: Dialect = Dialect { thought: "Hm \u{fffd}.", text: "Yes 🦀 \u{fffd}\u{fffd}\\ud83e.", ..ANSWER };
const ONE_CALL: &[&str] = &[r#""call_a" "lookup" {"q":"1"}"#];

const DIALECTS: [Dialect; 35] = [
    // Thoughts, and where they stand.
    Dialect { name: "openai/groq", ..ANSWER },
    Dialect { name: "openai/openrouter", ..ANSWER },
    Dialect { name: "openai/details", ..ANSWER },
    Dialect { name: "openai/mistral", ..ANSWER },
    Dialect { name: "openai/tag", thought: "Hm, </thin 語.", text: "Yes, <think>x</think>.", ..ANSWER },
    Dialect { name: "openai/tag-in-one-piece", ..ANSWER },
    Dialect { name: "openai/no-done", thought: "", ..ANSWER },
    Dialect { name: "openai/half-characters", ..HALVES },
    Dialect { name: "anthropic/half-characters", ..HALVES },
    // Calls.
    Dialect { name: "openai/ollama", thought: "Hm.", ..CALLS },
    Dialect { name: "openai/gemini", seals: &[r#"call 0 {"google":{"thought_signature":"c2ln/MQ=="}}"#], ..CALLS },
    Dialect {
        name: "openai/vllm",
        thought: "Hm, 語.",
        text: "Grüße 🦀",
        calls: &[r#""call_a" "lookup" {"q":"1"}"#, r#""call_1" "lookup" {"q":"2"}"#],
        ..CALLS
    },
    // The server never counts tokens, so they are estimated.
    Dialect { name: "openai/object-arguments", calls: ONE_CALL, end: Some(r#"["toolUse",2,3]"#), ..CALLS },
    Dialect { name: "openai/repeated-keys", ..REPEATED },
    Dialect { name: "anthropic/repeated-keys", ..REPEATED },
    Dialect {
        name: "anthropic/thinking",
        thought: "Hm, 語.So.",
        text: "Grüße 🦀",
        calls: ONE_CALL,
        seals: &["c2ln/MQ==", "redacted:ZW5j/Q==", "c2lnMg=="],
        ..CALLS
    },
    Dialect { name: "anthropic/at-once", text: "Yes.", calls: ONE_CALL, end: Some(r#"["toolUse",2,4]"#), ..CALLS },
    // Answers that are not streamed.
    Dialect { name: "openai/whole", thought: "Hm.", calls: ONE_CALL, ..CALLS },
    Dialect { name: "anthropic/whole", calls: ONE_CALL, seals: &["c2ln"], end: Some(r#"["toolUse",9,4]"#), ..ANSWER },
    // Failures.
    Dialect { name: "openai/error", ..FAILED },
    Dialect { name: "openai/error-object", text: "", ..FAILED },
    Dialect { name: "openai/error-event", ..OVERLOADED },
    Dialect { name: "openai/error-reason", error: Some(("unavailable", "ended the answer with an error")), ..FAILED },
    Dialect { name: "openai/whole-error", text: "", ..FAILED },
    Dialect { name: "anthropic/error", ..OVERLOADED },
    Dialect { name: "anthropic/whole-error", text: "", ..OVERLOADED },
    Dialect { name: "openai/cut", text: "Half of it", ..CUT },
    Dialect { name: "openai/cut-call", text: "", ..CUT },
    Dialect { name: "openai/cut-message", ..CUT },
    Dialect { name: "openai/whole-cut", text: "", error: Some(("unavailable", "not understood")), ..CUT },
    Dialect { name: "anthropic/cut", ..CUT },
    Dialect { name: "openai/page", ..NO_ANSWER },
    Dialect { name: "anthropic/page", ..NO_ANSWER },
    Dialect { name: "openai/whole-other", ..OTHER },
    Dialect { name: "anthropic/whole-other", ..OTHER },
];

#[test]
fn every_dialect_is_read_however_it_is_cut() {
    for format in ["openai", "anthropic"] {
        for file in std::fs::read_dir(root().join("bin/ken-model/tests/dialects").join(format)).unwrap() {
            let name = format!("{format}/{}", file.unwrap().file_name().display());
            assert!(DIALECTS.iter().any(|dialect| dialect.name == name), "{name} is not tested");
        }
    }
    for dialect in DIALECTS {
        let name = dialect.name;
        let format = name.split('/').next().unwrap();
        let bytes = recorded(name);
        let whole = events(format, Reply::Stream(pieces(&bytes, bytes.len())));
        for field in ["thought", "text"] {
            let wanted = if field == "thought" { dialect.thought } else { dialect.text };
            assert_eq!(whole[field], wanted, "{name}: {whole}");
        }
        assert_eq!(
            (&whole["calls"], &whole["seals"]),
            (&json!(dialect.calls), &json!(dialect.seals)),
            "{name}: {whole}"
        );
        let end = dialect.end.map_or(Value::Null, |end| serde_json::from_str(end).unwrap());
        assert_eq!(whole["end"], end, "{name}: {whole}");
        let (code, message) = dialect.error.unzip();
        assert_eq!(whole["code"], json!(code), "{name}: {whole}");
        assert!(whole["error"].as_str().unwrap_or_default().contains(message.unwrap_or_default()), "{name}: {whole}");
        for size in [1, 7] {
            assert_eq!(events(format, Reply::Stream(pieces(&bytes, size))), whole, "{name} in pieces of {size}");
        }
        // The content type says nothing about what the server sends.
        let text = String::from_utf8(bytes).unwrap();
        for kind in ["application/json", "text/html; charset=utf-8"] {
            let reply = Reply::Status(200, vec![("content-type", kind.to_owned())], text.clone());
            assert_eq!(events(format, reply), whole, "{name} as {kind}");
        }
    }
}

fn system(format: &str, provider: &Provider) -> System {
    Builder::default()
        .env("KEN_MODEL", &format!("{format}/m"))
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .env("ANTHROPIC_BASE_URL", &provider.url())
        .secrets("ANTHROPIC_API_KEY=k\n")
        .start()
}

fn stream(name: &str) -> Reply {
    Reply::Stream(pieces(&recorded(name), 40))
}

/// The messages of the last request.
fn last_messages(provider: &Provider) -> Vec<Value> {
    provider.received().last().unwrap().body["messages"].as_array().unwrap().clone()
}

#[test]
fn thoughts_between_tags_are_no_part_of_the_answer() {
    let provider = Provider::start(vec![stream("openai/tag"), Reply::Stream(openai(&["Again."], &[]))]);
    let system = system("openai", &provider);
    let session = system.session();
    let answer = system.say(&session, "Hello").expect(200);
    assert_eq!(answer.text("/result/text"), "Yes, <think>x</think>.");
    let query = "connector=tui&actorId=a&conversationId=c";
    let transcript = system.get(&format!("/api/chat/sessions/{session}/transcript?{query}")).expect(200).json();
    let exchange = &transcript["exchanges"][0];
    assert_eq!(exchange["assistant"]["text"], "Yes, <think>x</think>.");
    assert_eq!(exchange["activities"][0]["kind"], "thinking");
    system.say(&session, "And now?").expect(200);
    let messages = json!(last_messages(&provider));
    assert!(
        messages.to_string().contains("Yes, <think>x</think>.") && !messages.to_string().contains("Hm"),
        "{messages}"
    );
}

#[test]
fn a_signature_of_gemini_comes_back_with_its_call() {
    let provider = Provider::start(vec![stream("openai/gemini"), Reply::Stream(openai(&["Done."], &[]))]);
    let answer = {
        let system = system("openai", &provider);
        system.say(&system.session(), "Hello").expect(200)
    };
    assert_eq!(answer.text("/result/text"), "Done.");
    let messages = last_messages(&provider);
    let calls = &messages.iter().find(|message| message["role"] == "assistant").unwrap()["tool_calls"];
    assert_eq!(calls[0]["extra_content"], json!({"google": {"thought_signature": "c2ln/MQ=="}}));
    assert_eq!((&calls[0]["id"], calls[1].get("extra_content")), (&json!("call_a"), None));
    // Another model does not get it: it may refuse a field that it does not know.
    let content = json!([{"type": "thinking", "thinking": "", "opaque": "call 0 {\"google\":{}}"},
        {"type": "toolCall", "id": "call_a", "name": "t", "arguments": {}}]);
    for (model, is_sent) in [("m", true), ("other", false)] {
        let provider = Provider::start(vec![Reply::Stream(openai(&["Done."], &[]))]);
        let request = json!({"messages": [{"role": "user", "content": "Hello"},
            {"role": "assistant", "api": "openai-chat", "model": model, "content": content},
            {"role": "toolResult", "toolCallId": "call_a", "toolName": "t", "content": "done"}]});
        let output = Command::new(binary("ken-model"))
            .args(["--text", &request.to_string()])
            .env_clear()
            .env("KEN_MODEL", "openai/m")
            .env("OPENAI_BASE_URL", format!("{}/v1", provider.url()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let call = last_messages(&provider)[2]["tool_calls"][0].clone();
        assert_eq!(call.get("extra_content").is_some(), is_sent, "{call}");
    }
}

#[test]
fn signatures_of_anthropic_come_back_unmodified_each_with_its_thought() {
    let provider = Provider::start(vec![stream("anthropic/thinking"), Reply::Stream(anthropic(&["Done."], &[]))]);
    let system = system("anthropic", &provider);
    let answer = system.say(&system.session(), "Hello").expect(200);
    assert_eq!(answer.text("/result/text"), "Done.");
    let messages = last_messages(&provider);
    let said = messages.iter().find(|message| message["role"] == "assistant").unwrap();
    let wanted = json!([
        {"type": "thinking", "thinking": "Hm, 語.", "signature": "c2ln/MQ=="},
        {"type": "redacted_thinking", "data": "ZW5j/Q=="},
        {"type": "thinking", "thinking": "So.", "signature": "c2lnMg=="},
        {"type": "text", "text": "Grüße 🦀"},
        {"type": "tool_use", "id": "call_a", "name": "lookup", "input": {"q": "1"}},
    ]);
    assert_eq!(said["content"], wanted);
}

/// A whole number that does not fit into 64 bits would become another one on its way to the tool.
#[test]
fn the_model_is_told_that_a_number_is_too_large() {
    let sent = r#"{"q":18446744073709551615,"wei":18446744073709551616}"#;
    let call = Reply::Stream(openai(&[], &[("call_a", "lookup", sent)]));
    let provider = Provider::start(vec![call, Reply::Stream(openai(&["Done."], &[]))]);
    let system = system("openai", &provider);
    assert_eq!(system.say(&system.session(), "Hello").expect(200).text("/result/text"), "Done.");
    let messages = json!(last_messages(&provider)).to_string();
    let told = "its arguments cannot be used: the number 18446744073709551616 at byte 32 has more than 64 bits; give it as text";
    assert!(messages.contains(told), "{messages}");
}

/// If a key is repeated, what a person is shown and what a tool reads could differ.
#[test]
fn the_model_is_told_that_it_has_repeated_a_key() {
    for format in ["openai", "anthropic"] {
        let end = match format {
            "openai" => openai(&["Done."], &[]),
            _ => anthropic(&["Done."], &[]),
        };
        let provider = Provider::start(vec![stream(&format!("{format}/repeated-keys")), Reply::Stream(end)]);
        let system = system(format, &provider);
        let answer = system.say(&system.session(), "Hello").expect(200);
        assert_eq!(answer.text("/result/text"), "Done.");
        let messages = json!(last_messages(&provider)).to_string();
        assert_eq!(
            messages.matches("its arguments cannot be used: malformed JSON: duplicate key `q`").count(),
            2,
            "{messages}"
        );
    }
}
