//! The provider `local`: models that the tests generate answer turns on this machine, with the real parts.

// Both modules below include the same generator of random weights.

#[path = "../../bin/ken-textgen/tests/support/mod.rs"]
mod models;

#[path = "../../bin/ken-textgen/tests/support/bert.rs"]
mod bert;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use bert::Bert;
use ken_tests::{Builder, System, binary, copy_program, until};
use models::Folder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A model that answers every request with these tokens. They follow the token ":" because every prompt ends with a
/// colon.
fn model_that_answers(tokens: &[&str]) -> Folder {
    let tokens: Vec<&[u8]> = std::iter::once(":").chain(tokens.iter().copied()).map(str::as_bytes).collect();
    let folder = Folder::script(&tokens);
    std::fs::write(folder.file("generation_config.json"), r#"{"do_sample": false}"#).unwrap();
    folder
}

fn system(models: &str, folder: &Path) -> System {
    Builder::default()
        .env("KEN_MODEL", models)
        .env("MVLM_MODEL_DIRS", &format!("tiny={},gone=/nowhere/model", folder.display()))
        .start()
}

/// All events of a session's instance.
fn events(system: &System, session: &str) -> Vec<Value> {
    let page = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200);
    page.json().as_array().unwrap().clone()
}

fn of_type<'e>(events: &'e [Value], kind: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// The children of a process.
fn children(pid: i32) -> Vec<i32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Whether the process has ended. It may not have been reaped yet.
fn is_gone(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
}

#[test]
fn a_turn_is_answered_and_ends_before_the_words_of_another_speaker() {
    let folder = model_that_answers(&[" Hello", " there", ".", "\n", "User", " and more"]);
    let system = system("local/tiny,rules", folder.path());
    let session = system.session();
    let answer = system.say(&session, "Who is it?").expect(200);
    // "\nUser" does not end the answer, because no colon follows it.
    let text = "Hello there.\nUser and more";
    assert_eq!(answer.text("/result/text"), text);
    assert_eq!(answer.at("/result/model"), json!({"provider": "local", "id": "tiny"}));
    assert!(answer.at("/result/usage/input").as_u64() > Some(0));
    assert_eq!(answer.at("/result/usage/output"), 7);
    let events = events(&system, &session);
    let deltas = of_type(&events, "text_delta");
    let texts: Vec<&str> = deltas.iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!(texts.concat(), text);
    assert_eq!(system.say(&session, "And now?").expect(200).text("/result/text"), text);
    assert_eq!(children(system.pid("model")).len(), 1, "the process is kept between two texts");
    let info = system.call("model", "model.info", &[]);
    assert_eq!((&info["context_window"], &info["output_reserve"]), (&json!(32), &json!(8)));
}

#[test]
fn a_stop_sequence_ends_the_answer() {
    let folder = model_that_answers(&[" Hello", "\n", "Tool ", "next"]);
    let filter = ask("local/tiny", folder.path(), &["Who is it?"]);
    assert_eq!(filter[0]["text"], "Hello");
    assert_eq!(filter[0]["stopReason"], "stop");
}

#[test]
fn without_the_model_the_rules_engine_answers_and_the_reason_is_given() {
    let folder = model_that_answers(&["never"]);
    let system = system("local/gone,rules", folder.path());
    let session = system.session();
    let answer = system.say(&session, "Who are you?").expect(200);
    assert_eq!(answer.at("/result/model/provider"), "rules");
    let text = answer.text("/result/text");
    assert!(
        text.contains("No language model can be reached just now (local/gone: ") && text.contains("/nowhere/model"),
        "{text}"
    );
    let status = system.ken(&["status"]);
    let status = String::from_utf8_lossy(&status.stderr);
    assert!(status.contains("local/gone") && status.contains("/nowhere/model"), "{status}");
    assert!(status.contains("if the model's folder came after the start: ken restart model"), "{status}");
    let health = system.call("model", "model.health", &[]);
    assert_eq!(health["called"], json!(["rules/rules-1"]), "{health}");
    let events = events(&system, &session);
    let turns = of_type(&events, "turn");
    let reason = turns[0]["error"]["message"].as_str().unwrap();
    assert!(turns[0]["provider"] == "local" && reason.contains("/nowhere/model"), "{reason}");
}

/// Reads until the line that ends a call.
fn end(next: &mut impl FnMut() -> Value) -> Value {
    std::iter::repeat_with(next).find(|line| line.get("item").is_none()).unwrap()
}

#[test]
fn cancelling_stops_the_generation() {
    let folder = model_that_answers(&[" one", " two"]);
    let system = system("local/tiny", folder.path());
    let mut to = UnixStream::connect(system.socket("model")).unwrap();
    let mut lines = BufReader::new(to.try_clone().unwrap()).lines();
    let mut send = |line: Value| writeln!(to, "{line}").unwrap();
    let call = |id: u64| {
        let args = json!({"system": "", "purpose": "agent", "messages":
            [{"role": "user", "content": [{"type": "text", "text": "go"}], "timestamp": 0}]});
        json!({"id": id, "op": "model.generate", "args": args})
    };
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    send(call(1));
    assert_eq!(end(&mut next)["ok"]["stop_reason"], "stop");
    let process = children(system.pid("model"))[0];
    kill(Pid::from_raw(process), Signal::SIGSTOP).unwrap(); // the generation does not continue, so the text never ends
    send(call(2));
    assert_eq!(next()["item"]["type"], "start");
    send(json!({"id": 2, "cancel": true}));
    assert_eq!(end(&mut next)["error"]["code"], "cancelled");
    until("the process that was given up on dies", || is_gone(process));
    send(call(3));
    assert_eq!(end(&mut next)["ok"]["stop_reason"], "stop");
    // A process that is killed, as for its memory, says nothing of its model, which is called again.
    for id in [4, 6] {
        let process = children(system.pid("model"))[0];
        kill(Pid::from_raw(process), Signal::SIGSTOP).unwrap();
        send(call(id));
        assert_eq!(next()["item"]["type"], "start");
        kill(Pid::from_raw(process), Signal::SIGKILL).unwrap();
        assert_eq!(end(&mut next)["error"]["code"], "unavailable");
        send(call(id + 1));
        assert_eq!(end(&mut next)["ok"]["stop_reason"], "stop");
    }
}

#[test]
fn the_process_ends_with_its_part_and_the_system() {
    let folder = model_that_answers(&[" one"]);
    let mut system = system("local/tiny", folder.path());
    let session = system.session();
    let speaking = |system: &System| {
        system.say(&session, "go").expect(200);
        let pid = children(system.pid("model"))[0];
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        pid
    };
    let process = speaking(&system);
    system.kill("model");
    until("it dies with ken-model", || is_gone(process));
    let process = speaking(&system);
    system.down();
    until("it dies with ken", || is_gone(process));
    system.up();
    system.say(&session, "go").expect(200);
    let process = children(system.pid("model"))[0];
    system.cut_power();
    until("it ends when nobody is left to hear it", || is_gone(process));
}

#[test]
fn an_activated_model_answers_from_then_on() {
    let (one, two) = (model_that_answers(&["one"]), model_that_answers(&["two"]));
    let dirs = format!("one={},two={}", one.path().display(), two.path().display());
    let system = Builder::default().env("KEN_MODEL", "local").env("MVLM_MODEL_DIRS", &dirs).start();
    let session = system.session();
    let text = || system.say(&session, "go").expect(200).text("/result/text");
    assert_eq!(text(), "one");
    let choice = system.home().join("state/models/active_model");
    std::fs::create_dir_all(choice.parent().unwrap()).unwrap();
    std::fs::write(choice, "two\n").unwrap();
    assert_eq!(text(), "two");
}

/// The answers of the filter to these lines.
fn ask(models: &str, folder: &Path, lines: &[&str]) -> Vec<Value> {
    let mut child = Command::new(binary("ken-model"))
        .env_clear()
        .env("KEN_MODEL", models)
        .env("MVLM_MODEL_DIRS", format!("tiny={},gone=/nowhere/model", folder.display()))
        .arg("--lines")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_filter_uses_it_too_and_fails_over_with_the_reason() {
    let folder = model_that_answers(&[" one", " two"]);
    let prefix = r#"{"messages":[{"role":"user","content":"go"}],"prefix":"one:"}"#;
    let answers = ask("local/tiny", folder.path(), &["go", prefix, r#"{"model":"local/gone","messages":[]}"#]);
    assert_eq!(answers[0]["text"], "one two");
    assert_eq!(answers[0]["model"], json!({"provider": "local", "id": "tiny"}));
    assert_eq!(answers[1]["text"], " one two", "it goes on from what was said");
    assert!(answers[2]["error"].is_object());
    let over = ask("local/gone,local", folder.path(), &["go"]);
    assert_eq!((&over[0]["text"], &over[0]["model"]["id"]), (&json!("one two"), &json!("default")));
    let failed = &over[0]["failed"][0];
    assert_eq!((&failed["model"], &failed["error"]["code"]), (&json!("local/gone"), &json!("not_found")));
    assert!(failed["error"]["message"].as_str().unwrap().contains("/nowhere/model"), "{failed}");
    let unknown = ask("local/other", folder.path(), &["go"]);
    assert_eq!(unknown[0]["error"]["hint"], "it has tiny, gone");
}

#[test]
fn an_empty_answer_is_reported_as_a_failure() {
    let folder = model_that_answers(&[" ", "\n", "User:"]);
    let over = ask("local/tiny,rules", folder.path(), &["Who are you?"]);
    assert_eq!(over[0]["model"]["provider"], "rules");
    assert_eq!(over[0]["failed"][0]["error"]["message"], "the model has nothing to say to this");
}

#[test]
fn entries_are_found_by_meaning_with_a_model_directory() {
    let model = Bert::new(false);
    let system = Builder::default()
        .env("KEN_EMBED", "local/small")
        .env("MVLM_MODEL_DIRS", &format!("small={}", model.path().display()))
        .start();
    for (title, content) in [("Car", "car car"), ("Doctor", "doctor"), ("Harbour", "harbour harbour")] {
        let entry = json!({"title": title, "content": content});
        system.post("/api/knowledge", &entry).expect(201);
    }
    until("all entries have vectors", || {
        let work = system.call("store", "documents.work", &["model=\"local/small\""]);
        work["unembedded"].as_array().is_none_or(Vec::is_empty)
    });
    // The question has no word in common with the entry that answers it.
    let embedded = system.call("model", "model.embed", &["texts=[\"physician\"]"]);
    assert_eq!(embedded["model"], "local/small");
    let vector = json!({"model": "local/small", "values": embedded["vectors"][0]});
    let search = ["query=physician", "limit=1", &format!("vector={vector}")];
    let found = system.call("store", "knowledge.search", &search);
    assert_eq!(found["found"][0]["entry"]["title"], "Doctor", "{found}");
}

#[test]
fn an_unusable_model_directory_is_reported_and_search_is_by_words() {
    let system =
        Builder::default().env("KEN_EMBED", "local/gone").env("MVLM_MODEL_DIRS", "gone=/nowhere/model").start();
    let entry = json!({"title": "Doctor", "content": "The doctor is in room 12."});
    system.post("/api/knowledge", &entry).expect(201);
    until("the status tells it", || {
        let status = system.ken(&["status"]);
        let status = String::from_utf8_lossy(&status.stderr).into_owned();
        status.contains("agent: entries get no vectors: ") && status.contains("/nowhere/model")
    });
    let session = system.session();
    let answer = system.say(&session, "Where is the doctor?").expect(200);
    assert!(answer.text("/result/text").contains("room 12"));
}

/// A text generator that writes much to its standard error does not stop, and neither does the call.
#[test]
fn standard_error_of_the_generator_is_read() {
    let folder = tempfile::tempdir().unwrap();
    copy_program(&binary("ken-model"), &folder.path().join("ken-model"));
    let generator = "#!/bin/sh\ncase \" $* \" in *--lines*) ;; *) exit;; esac\nwhile read -r line; do\n\
        head -c 1000000 /dev/zero | tr '\\0' e >&2\necho '{\"delta\": \"Hello.\"}'\n\
        echo '{\"stop_reason\": \"stop\", \"prompt_tokens\": 1, \"completion_tokens\": 1}'\ndone\n";
    let file = folder.path().join("ken-textgen");
    std::fs::write(&file, generator).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new("timeout")
        .args(["-s", "KILL", "30"])
        .arg(folder.path().join("ken-model"))
        .args(["--model", "local/tiny", "--text", "Hello"])
        .output()
        .unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(answer["text"], "Hello.", "{:?}", output.status);
}
