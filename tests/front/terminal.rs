//! Output to a terminal: data is printed without control characters, and a message names the part that a command waits for.

use std::io::Write;
use std::process::{Command, Stdio};

use ken_tests::{Builder, System, binary, on_terminal, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// The control characters and the characters that change the direction of text. Newline and tab are excluded because they are
/// printed, and NUL because it is not allowed in texts.
fn controls() -> Vec<char> {
    let c0 = (1..0x20).filter(|code| *code != 0x09 && *code != 0x0a);
    let c1 = 0x7f..0xa0;
    let bidi = (0x202a..=0x202e).chain(0x2066..=0x2069);
    c0.chain(c1).chain(bidi).filter_map(char::from_u32).collect()
}

fn text_of(characters: &[char]) -> String {
    characters.iter().map(|c| format!("<{c}>")).collect()
}

/// Whether JSON contains the character unescaped, which holds for all but the control characters below U+0020.
fn is_kept_in_json(c: &char) -> bool {
    !c.is_ascii() || *c == '\x7f'
}

/// The output of commands that print data contains the characters in a pipe and, with `--raw`, on a terminal. Otherwise a
/// terminal gets none of them.
#[test]
fn no_control_character_of_data_reaches_a_terminal() {
    let all = controls();
    let text = text_of(&all);
    let nasty = format!("Colour \u{1b}]52;c;eA==\u{7} {text}");
    let system = Builder::default().script(&[json!({"events": [{"text": nasty}]})]).start();
    // The title of a session is the beginning of its first prompt.
    let prompt: String = all.iter().rev().collect();
    let chat = system.ken(&["chat", &format!("{prompt} {text}")]);
    assert!(chat.status.success());
    let id = knowledge(&system, &nasty);
    append(&system, &["stream", "append", "bytes"], format!("{nasty}\n").as_bytes());
    append(&system, &["stream", "append", "--json", "values"], json!(nasty).to_string().as_bytes());
    let run = system.post("/workflows/full_reasoning?wait=result", &json!({"facts": [nasty], "rules": []}));
    let run = run.json()["runId"].as_str().expect("a run").to_owned();

    let as_text: Vec<char> = all.clone();
    let as_json: Vec<char> = all.iter().copied().filter(is_kept_in_json).collect();
    let session = &session(&system);
    for (command, wanted) in [
        (&["chat", "-c", "again"][..], &as_text),
        (&["chat", "-c", "--events", "again"], &as_json),
        (&["show", session], &as_text),
        (&["show", "--json", session], &as_json),
        (&["sessions", "--json"], &as_json),
        (&["knowledge", "show", &id], &as_text),
        (&["knowledge", "show", "--json", &id], &as_json),
        (&["knowledge", "list"], &as_text),
        (&["knowledge", "search", "Colour"], &as_text),
        (&["stream", "read", "bytes"], &as_text),
        (&["stream", "read", "values"], &as_json),
        (&["show", &run], &as_json),
        (&["call", "store", "knowledge.get", &format!("id={id}")], &as_json),
    ] {
        let piped = String::from_utf8(system.ken(command).stdout).unwrap();
        let kept: Vec<char> = wanted.iter().copied().filter(|c| piped.contains(*c)).collect();
        // The automatic title of a session is one line of visible characters, already in the store.
        let is_title = command.contains(&"sessions");
        let wanted = if is_title { &Vec::new() } else { wanted };
        assert_eq!(&kept, wanted, "{command:?} on a pipe: {piped:?}");
        let (shown, status) = on_terminal(system.command(command));
        assert_eq!(status, 0, "{command:?}: {shown}");
        let reached: Vec<char> = all.iter().copied().filter(|c| shown.contains(*c)).collect();
        assert!(reached.is_empty(), "{command:?} on a terminal: {shown:?}");
        assert!(shown.contains('\u{fffd}'), "{command:?} shows where they were: {shown:?}");
        let raw = [&["--raw"], command].concat();
        let (shown, status) = on_terminal(system.command(&raw));
        assert_eq!(status, 0, "{raw:?}: {shown}");
        let kept: Vec<char> = kept.iter().copied().filter(|c| shown.contains(*c)).collect();
        assert_eq!(&kept, wanted, "{raw:?}: {shown:?}");
    }
    // Lists, events and errors can contain data as well.
    for command in [
        &["sessions"][..],
        &["events", "-n", "100"],
        &["runs"],
        &["logs", "agent"],
        &["show", &format!("x{text}")],
        &["stream", "read", &format!("x{text}")],
        &["frob\u{1b}[31m"],
        &["call", "store", &text],
    ] {
        let (shown, _) = on_terminal(system.command(command));
        let reached: Vec<char> = all.iter().copied().filter(|c| shown.contains(*c)).collect();
        assert!(reached.is_empty(), "{command:?}: {shown:?}");
        assert!(!shown.is_empty(), "{command:?}");
    }
}

/// Output that nobody can read is an error, whose message says that it is the output.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let system = Builder::default().start();
    for (to, why) in [(">/dev/full", "No space left on device"), (">&-", "it is closed")] {
        for (program, words) in [
            ("ken", &["status"][..]),
            ("ken", &["sessions"]),
            ("ken", &["chat", "hello"]),
            ("ken", &["backup", "-"]),
            ("ken-tui", &["--print", "hello"]),
        ] {
            let ken = system.command(words);
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" \"$@\" {to}")]).arg(binary(program)).args(ken.get_args());
            shell.envs(ken.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let output = shell.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(75), "{words:?} {to}: {said}");
            let wanted = format!("cannot write to standard output: {why}");
            assert!(said.contains(&wanted), "{words:?} {to}: {said}");
        }
    }
}

/// `ken mcp list` and others replace `ken` by another program. That program reports an output that is full, with its own exit status. It could
/// not notice an output that is closed, so `ken` does.
#[test]
fn output_of_a_program_that_ken_becomes_is_checked_before() {
    let system = Builder::default().start();
    let database = system.home().join("state/store/ken.db");
    let check: &[&str] = &["--check", database.to_str().unwrap()];
    for (to, why) in [(">/dev/full", "No space left on device"), (">&-", "it is closed")] {
        for (program, words, of_full) in [
            ("ken", &["mcp", "list"][..], 2),
            ("ken", &["schedule", "preview", "@daily"], 2),
            ("ken", &["esl", "--text", "I see."], 2),
            ("ken", &["tui", "--print", "hello"], 75),
            ("ken-store", check, 75),
        ] {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" \"$@\" {to}")]).arg(binary(program));
            shell.args(words).env("KEN_HOME", system.home());
            let output = shell.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let wanted = if to == ">&-" { 75 } else { of_full };
            assert_eq!(output.status.code(), Some(wanted), "{words:?} {to}: {said}");
            assert!(said.contains(why), "{words:?} {to}: {said}");
        }
    }
    let help = Command::new("sh").args(["-c", "exec \"$0\" help esl >&-"]).arg(binary("ken")).output().unwrap();
    assert_eq!(help.status.code(), Some(75), "{help:?}");
}

#[test]
fn no_control_character_that_a_tool_quotes_reaches_a_terminal() {
    let text = format!("I am so happy! {} It always works.", text_of(&controls()));
    for tool in ["ken-esl", "ken-laws"] {
        for format in ["json", "compact", "summary"] {
            let mut command = Command::new(binary(tool));
            command.args(["--text", &text, "--format", format]);
            let (shown, _) = on_terminal(command);
            let reached: Vec<char> = controls().into_iter().filter(|c| shown.contains(*c)).collect();
            assert!(reached.is_empty() && !shown.is_empty(), "{tool} --format {format}: {shown:?}");
        }
    }
}

fn knowledge(system: &System, content: &str) -> String {
    let title = controls().into_iter().collect::<String>();
    let entry = json!({"title": format!("Colour {title}"), "content": content});
    let record = system.post("/api/knowledge", &entry).expect(201).json();
    record["record"]["id"].as_str().unwrap().to_owned()
}

fn append(system: &System, command: &[&str], input: &[u8]) {
    let mut child = system.command(command).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    assert!(child.wait().unwrap().success());
}

fn session(system: &System) -> String {
    let listed = String::from_utf8(system.ken(&["sessions", "--json"]).stdout).unwrap();
    let session: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    session["sessionId"].as_str().unwrap().to_owned()
}

/// kend stops the gateway first. The advice to start it again would be wrong then.
#[test]
fn commands_say_that_the_whole_system_is_stopping() {
    let mut system = System::start();
    system.signal("model", Signal::SIGSTOP);
    system.signal("kend", Signal::SIGTERM);
    until("the gateway has stopped", || {
        let parts = system.call("kend", "parts.status", &[])["parts"].take();
        parts.as_array().unwrap().iter().any(|part| part["name"] == "gateway" && part["state"] == "stopped")
    });
    for words in [["chat", "hello"], ["start", "gateway"], ["restart", "store"]] {
        let output = system.ken(&words);
        let error: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(75), "{words:?}: {error}");
        assert_eq!(error["error"]["message"], "the system is stopping", "{words:?}");
        assert_eq!(error["error"]["hint"], "start it again with `ken up`", "{words:?}");
    }
    system.signal("model", Signal::SIGCONT);
    assert_eq!(system.ended(), Some(0));
}

#[test]
fn chat_names_the_part_that_is_down_and_ends_in_time() {
    let system = System::start();
    // While the gateway is stopped no answer is possible, which is reported at once.
    system.ken(&["stop", "gateway", "--wait", "stopped"]);
    let output = system.ken(&["chat", "hello"]);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(75), "{error}");
    assert_eq!(error["error"]["message"], "gateway is stopped");
    assert_eq!(error["error"]["hint"], "start it with `ken start gateway`");
    system.ken(&["start", "gateway", "--wait", "ready"]);
    // Without the model a turn waits, and a terminal shows this until the command ends.
    system.ken(&["stop", "model", "--wait", "stopped"]);
    let (shown, status) = on_terminal(system.command(&["chat", "--wait", "3s", "hello"]));
    assert_eq!(status, 75, "{shown}");
    assert!(shown.contains("ken: waiting for model (stopped: start it with `ken start model`)"), "{shown:?}");
    let output = system.ken(&["chat", "--wait", "1s", "hello"]);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((output.status.code(), &error["error"]["code"]), (Some(75), &json!("deadline")));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("waiting for model (stopped"), "{message}");
    // The turns continue.
    system.ken(&["start", "agent", "--wait", "ready"]);
    until("the first turn is answered", || {
        let shown = system.ken(&["show", &session(&system)]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.starts_with("> hello\n") && !shown.contains("(running)")
    });
}

/// Colours are used only on a terminal that can show them, and not if NO_COLOR is set.
#[test]
fn states_are_coloured_only_on_a_terminal() {
    let system = System::start();
    system.ken(&["stop", "cognitive"]);
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = system.command(&["status"]);
        command.envs(variables.iter().copied());
        on_terminal(command).0
    };
    let shown = coloured(&[("TERM", "xterm")]);
    for state in ["\u{1b}[32mready\u{1b}[0m", "\u{1b}[2mstopped\u{1b}[0m"] {
        assert!(shown.contains(state), "{state:?}: {shown:?}");
    }
    for variables in [&[("TERM", "dumb")][..], &[("TERM", "xterm"), ("NO_COLOR", "1")]] {
        assert!(!coloured(variables).contains('\u{1b}'), "{variables:?}");
    }
    let mut piped = system.command(&["status"]);
    let piped = piped.env("TERM", "xterm").output().unwrap();
    assert!(!piped.stdout.contains(&0x1b));
    // Colour sequences in data are shown as text, within the colours of the command itself.
    let log = system.home().join("state/log/cognitive.log");
    std::fs::write(log, "{\"timestamp\":\"2026-01-01T00:00:00Z\",\"level\":\"ERROR\",\"message\":\"a\\u001b[5mb\"}\n")
        .unwrap();
    let mut logs = system.command(&["logs", "cognitive"]);
    logs.env("TERM", "xterm");
    let (shown, _) = on_terminal(logs);
    assert!(shown.contains("\u{1b}[31m2026-01-01T00:00:00.000Z ERROR a\u{241b}[5mb\u{1b}[0m"), "{shown:?}");
}
