//! `ken chat` with its options: templates, fragments, attachments, a schema and a model.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_tests::provider::{Piece, Provider, Reply, openai};
use ken_tests::{Builder, System, Terminal, binary, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::Read;

/// A system whose models are `openai/m` and `rules`.
fn system(provider: &Provider) -> System {
    Builder::default()
        .env("KEN_MODEL", "openai/m,rules")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=k\n")
        .start()
}

fn chat_reply(words: &[&str]) -> Reply {
    Reply::Stream(openai(words, &[]))
}

/// The last user message of the newest request to the model, as text.
fn last_user_message(provider: &Provider) -> String {
    match provider.received().last().unwrap().prompt() {
        Value::String(text) => text,
        parts => parts.to_string(),
    }
}

fn file(system: &System, name: &str, bytes: &[u8]) -> String {
    let path: PathBuf = system.home().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn is(output: &Output, status: i32, stdout: &str) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let found = (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
    assert_eq!(found, (Some(status), stdout.to_owned()), "{stderr}");
    stderr
}

#[test]
fn templates_fragments_and_attachments_become_the_message() {
    let provider = Provider::start(vec![chat_reply(&["one"]), chat_reply(&["two"]), chat_reply(&["three"])]);
    let system = system(&provider);
    let rules = file(&system, "rules.md", b"Be brief.");
    let data = file(&system, "data.csv", b"a,b\n1,2\n");
    let run = |words: &[&str]| system.ken(&[&["chat"], words].concat());
    is(&run(&["-f", &rules, "-a", &data, "What", "is", "b?"]), 0, "one\n");
    assert_eq!(
        last_user_message(&provider),
        "Be brief.\n\nWhat is b?\n\nAttached file \"data.csv\":\n\n```\na,b\n1,2\n```"
    );
    file(&system, "templates/mine.md", b"In {{language}}: {{input}}!");
    is(&run(&["-t", "mine", "-p", "language=Latin", "Hello"]), 0, "two\n");
    assert_eq!(last_user_message(&provider), "In Latin: Hello!");
    // An attached picture is sent to the model as an image.
    let picture = file(&system, "dot.png", b"\x89PNG\r\n\x1a\nrest");
    is(&run(&["-a", &picture, "What is it?"]), 0, "three\n");
    assert!(
        last_user_message(&provider).contains("data:image/png;base64,iVBORw0KGgpyZXN0"),
        "{}",
        last_user_message(&provider)
    );
    // Errors are reported before anything is sent.
    let binary = file(&system, "binary", b"\xff\x00\xfe");
    for (words, named) in [
        (&["-t", "mine", "x"][..], "`language` is missing: -p language=VALUE"),
        (&["-t", "mien", "x"], "did you mean `mine`?"),
        (&["-t", "../mine", "x"], "there is no template"),
        (&["-t", "mine", "-p", "language=a", "-p", "other=b", "x"], "has no placeholder `{{other}}`"),
        (&["-a", &binary, "x"], "neither text in UTF-8 nor"),
        (&["-a", "/nonexistent", "x"], "/nonexistent: cannot be read"),
        (&["-m", "openai/x", "x"], "no model `openai/x` is configured"),
    ] {
        let printed = is(&run(words), 2, "");
        assert!(printed.contains(named), "{words:?}: {printed}");
    }
    assert_eq!(provider.received().len(), 3);
}

#[test]
fn an_answer_is_printed_only_if_it_fits_its_schema() {
    let fenced = "```json\n{\"name\": \"Ada\", \"age\": 36}\n```";
    let replies = [fenced, "{\"name\": 7}", "{\"name\": \"Bo\"}", "no", "still no"];
    let provider = Provider::start(replies.iter().map(|reply| chat_reply(&[*reply])).collect());
    let system = system(&provider);
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let schema = file(&system, "person.json", schema.to_string().as_bytes());
    let run = || system.ken(&["chat", "--schema", &schema, "Who?"]);
    is(&run(), 0, "{\"name\":\"Ada\",\"age\":36}\n");
    assert!(last_user_message(&provider).contains("\"required\""), "{}", last_user_message(&provider));
    // If the answer does not fit the schema, the model gets one request for a correction, in the same session.
    is(&run(), 0, "{\"name\":\"Bo\"}\n");
    assert!(
        last_user_message(&provider).contains("does not fit the schema: /name"),
        "{}",
        last_user_message(&provider)
    );
    let printed = is(&run(), 1, "");
    assert!(printed.starts_with("ken: the answer does not fit the schema: it is not JSON"), "{printed}");
    assert_eq!(provider.received().len(), 5);
    let broken = file(&system, "broken.json", b"{\"type\": 7}");
    let printed = is(&system.ken(&["chat", "--schema", &broken, "Who?"]), 2, "");
    assert!(printed.contains("broken.json"), "{printed}");
}

/// A program that reads the answer gets the numbers of the model, and the value that was checked.
#[test]
fn an_answer_in_json_keeps_its_numbers() {
    let exact = r#"{"price":0.10,"id":123456789012345678901,"b":[1E2],"a":"x  \u0000"}"#;
    let spaced = "{ \"price\": 0.10,\n  \"id\": 123456789012345678901, \"b\": [ 1E2 ], \"a\": \"x  \\u0000\" }";
    let twice = r#"{"price":"dear","price":1}"#;
    let replies = [spaced, spaced, twice, exact];
    let provider = Provider::start(replies.iter().map(|reply| chat_reply(&[*reply])).collect());
    let system = system(&provider);
    let schema = json!({"type": "object", "properties": {"price": {"type": "number"}, "id": {"type": "integer"}}});
    let schema = file(&system, "price.json", schema.to_string().as_bytes());
    let run = |more: &[&str]| system.ken(&[&["chat", "--schema", &schema, "How much?"], more].concat());
    is(&run(&[]), 0, &format!("{exact}\n"));
    let printed = run(&["--json"]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.starts_with(&format!("{{\"answer\":{exact},\"model\":{{")), "{printed}");
    is(&run(&[]), 0, &format!("{exact}\n"));
    assert!(last_user_message(&provider).contains("duplicate key"), "{}", last_user_message(&provider));
}

/// After a crash of ken-agent, the next message on the stream repeats the text of the message that was cut off. It is
/// printed only once.
#[test]
fn an_answer_that_was_cut_off_is_printed_once() {
    let provider = Provider::answering(|request| {
        let messages = request.body["messages"].as_array().unwrap();
        let is_rest =
            messages.last().unwrap()["content"].as_str().is_some_and(|note| note.starts_with("Your answer was cut"));
        Reply::Stream(if is_rest {
            openai(&["of ", "it."], &[])
        } else {
            [openai(&["Half "], &[])[..2].to_vec(), vec![Piece::Silence]].concat()
        })
    });
    let system = system(&provider);
    let begun = |count: usize| {
        until("the answer has begun", || {
            let events = system.ken(&["events", "-n", "1000", "--json"]);
            let events = String::from_utf8_lossy(&events.stdout).into_owned();
            let mut sessions: Vec<&str> = events
                .lines()
                .filter(|line| line.contains("submission.running"))
                .filter_map(|line| line.split("\"sessionId\":\"").nth(1)?.split('"').next())
                .collect();
            sessions.sort_unstable();
            sessions.dedup();
            let has_text = |session: &str| {
                let page = system.get(&format!("/agents/orchestrator/{session}?offset=-1"));
                page.expect(200).json().to_string().contains("text_delta")
            };
            sessions.len() == count && sessions.iter().all(|session| has_text(session))
        });
    };
    let tui = || {
        let mut command = std::process::Command::new(binary("ken-tui"));
        command.env_clear().env("KEN_HOME", system.home()).args(["--print", "Hello"]);
        command
    };
    for (number, mut command) in [(1, system.command(&["chat", "Hello"])), (2, tui())] {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        begun(number);
        system.wait_until_stable("agent");
        system.kill("agent");
        is(&child.wait_with_output().unwrap(), 0, "Half of it.\n");
    }
}

/// Each message of the agent ends with a line feed, also a message before a tool call and one of a failed attempt.
#[test]
fn messages_of_one_turn_stand_on_lines_of_their_own() {
    let half = openai(&["Half "], &[])[..2].to_vec();
    let provider = Provider::start(vec![
        Reply::Stream(openai(&["I look."], &[("c1", "note_read", "{}")])),
        Reply::Stream(half),
        chat_reply(&["Nothing ", "there."]),
    ]);
    let system = system(&provider);
    is(&system.ken(&["chat", "Look"]), 0, "I look.\nHalf \nNothing there.\n");
}

/// Wrong options are reported before anything is sent.
#[test]
fn wrong_options_are_refused() {
    let provider = Provider::start(Vec::new());
    let system = system(&provider);
    let schema = file(&system, "s.json", b"{\"type\": \"object\"}");
    let long = file(&system, "long.txt", "x".repeat(300_000).as_bytes());
    let image = file(&system, "dot.png", b"\x89PNG\r\n\x1a\nrest");
    let images: Vec<&str> = ["-a", &image].repeat(9);
    let nine = [images.as_slice(), &["x"]].concat();
    for (words, named) in [
        (&["--schema", &schema, "--events", "x"][..], "--schema"),
        (&["--schema", "/nonexistent", "x"], "/nonexistent: cannot be read"),
        (&["--schema", &long, "x"], "long.txt: has more than"),
        (&["--json", "--events", "x"], "--json"),
        (&["-c", "-s", "abcd", "x"], "--continue"),
        (&["-s", "nonesuch", "x"], "there is no session `nonesuch`"),
        (&["-p", "a=b", "x"], "--template"),
        (&["-t", "explain", "-p", "novalue", "x"], "NAME=VALUE"),
        (&["-f", &long, "x"], "long.txt: has more than 262144 bytes"),
        (&["-a", &long, "x"], "long.txt: has 300000 bytes, a text may have 262144"),
        (&["--wait", "soon", "x"], "--wait"),
        (&["--schema", &schema, "/help"], "a command has no answer to check"),
        (&[" "], "text is blank"),
        (&nine, "9 images, at most 8 can be sent"),
    ] {
        let printed = is(&system.ken(&[&["chat"], words].concat()), 2, "");
        assert!(printed.contains(named), "{words:?}: {printed}");
    }
    assert_eq!(provider.received().len(), 0);
}

/// The system works also while it works on a turn before.
#[test]
fn a_turn_waits_for_the_one_before_it_as_long_as_this_has_data() {
    let slow: Vec<Value> = (0..12).flat_map(|_| [json!({"text": "word "}), json!({"sleep_ms": 500})]).collect();
    let system = Builder::default()
        .script(&[
            json!({"when": "slowly", "events": slow}),
            json!({"when": "hold", "events": [{"text": "part"}, {"sleep_ms": 60_000}]}),
            json!({"events": [{"text": "Hello."}]}),
        ])
        .start();
    let begun = |prompt: &str| {
        let mut child = system.command(&["chat", prompt]).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
        child
    };
    let mut front = begun("slowly");
    let mut terminal = Terminal::start(&system.command(&["chat", "-c", "more"]), 80, 24);
    let output = system.ken(&["chat", "--wait", "2s", "-c", "again"]);
    assert_eq!((is(&output, 0, "Hello.\n").as_str(), front.wait().unwrap().success()), ("", true));
    terminal.wait_for_text("Hello.");
    assert!(terminal.wait_for_end().success());
    assert!(terminal.written().contains("ken: waiting for the turn before it · "), "{}", terminal.written());
    // One that stands still is given up. On a terminal, the error does not stand behind what was said.
    let mut front = begun("hold");
    let said = is(&system.ken(&["chat", "--wait", "2s", "-c", "again"]), 75, "");
    assert!(said.contains("no data has come for 2 s"), "{said}");
    front.kill().unwrap();
    front.wait().unwrap();
    let mut terminal = Terminal::start(&system.command(&["chat", "--wait", "2s", "hold"]), 80, 24);
    terminal.wait_for_screen("the error", |screen| screen.starts_with("part\nken: no data has come for 2 s"));
    assert_eq!(terminal.wait_for_end().code(), Some(75));
}

/// A shell leaves its loop only if the key has ended the program.
#[test]
fn control_c_ends_the_loop_of_a_shell() {
    let system = ken_tests::scripted();
    let home = system.home().display();
    for (times, words) in
        [(1, "chat"), (2, "chat"), (1, "tui --print"), (2, "tui --print"), (1, "tui --plain --session")]
    {
        let mut shell = Command::new("bash");
        let script = format!("for i in 1 2 3; do {} --home {home} {words} 'hold on'; done", binary("ken").display());
        let mut terminal = Terminal::start(shell.arg("-c").arg(script), 80, 24);
        let (shown, is_plain) = if words.contains("plain") { ("> ", true) } else { ("part", false) };
        terminal.wait_for_text(shown);
        if times == 2 {
            system.signal("gateway", Signal::SIGSTOP);
            terminal.press("\u{3}");
            std::thread::sleep(Duration::from_millis(300));
        }
        terminal.press("\u{3}");
        let status = terminal.wait_for_end();
        if times == 2 {
            system.signal("gateway", Signal::SIGCONT);
        }
        assert_eq!(status.signal(), Some(Signal::SIGINT as i32), "{words}: {}", terminal.written());
        assert!(is_plain || terminal.written().matches("part").count() == 1, "{words}: {}", terminal.written());
    }
}

/// The first Ctrl+C cancels the turn in the system, the second one ends the program at once.
#[test]
fn control_c_cancels_the_turn_and_then_ends_the_program() {
    let system = ken_tests::scripted();
    let interrupted = |words: &[&str], times: usize| {
        let mut child = system.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut part = [0; 4];
        child.stdout.as_mut().unwrap().read_exact(&mut part).unwrap();
        assert_eq!(&part, b"part");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        if times == 2 {
            // The gateway cannot answer, so the first one waits for it.
            system.signal("gateway", Signal::SIGSTOP);
            kill(pid, Signal::SIGINT).unwrap();
            let is_caught = || {
                std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("ShdPnd:\t0000000000000000")
            };
            until("the first one has arrived", is_caught);
        }
        kill(pid, Signal::SIGINT).unwrap();
        let output = child.wait_with_output().unwrap();
        if times == 2 {
            system.signal("gateway", Signal::SIGCONT);
        }
        // A shell reports this as 130.
        assert_eq!(output.status.signal(), Some(Signal::SIGINT as i32), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for words in [&["chat", "hold on"][..], &["tui", "--print", "hold on"]] {
        let said = interrupted(words, 1);
        assert!(said.contains("the turn was cancelled; what was said is kept"), "{said}");
        let exchanges = system.ken(&["sessions", "--json"]);
        let newest = exchanges.stdout.split(|byte| *byte == b'\n').next().unwrap();
        let session: Value = serde_json::from_slice(newest).unwrap();
        let shown = system.ken(&["show", session["sessionId"].as_str().unwrap()]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("part") && !shown.contains("(running)"), "{shown}");
        assert_eq!(interrupted(words, 2), "");
    }
}

/// The gateway may have accepted a prompt whose sender has no answer yet.
#[test]
fn control_c_cancels_a_prompt_that_is_being_sent() {
    let system = ken_tests::scripted();
    for words in [&["chat", "hold on"][..], &["tui", "--print", "hold on"]] {
        system.signal("store", Signal::SIGSTOP);
        let child = system.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let status = || std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let catches = |line: &str| u64::from_str_radix(line, 16).unwrap() & 1 << (Signal::SIGINT as u32 - 1) != 0;
        until("Ctrl+C is caught", || {
            status().lines().find_map(|line| line.strip_prefix("SigCgt:\t")).is_some_and(catches)
        });
        // The prompt is sent next.
        std::thread::sleep(Duration::from_millis(500));
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        system.signal("store", Signal::SIGCONT);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.signal(), Some(Signal::SIGINT as i32), "{words:?}: {said}");
        assert!(said.contains("the turn was cancelled; what was said is kept"), "{words:?}: {said}");
        let shown = String::from_utf8(system.ken(&["show", "last"]).stdout).unwrap();
        assert!(shown.contains("hold on") && !shown.contains("(running)"), "{words:?}: {shown}");
    }
}

/// A turn that has ended cannot be cancelled. The answer may fit the schema then; if it does not, no correction is asked for.
#[test]
fn control_c_that_comes_after_the_answer_begins_no_further_turn() {
    for (answer, is_printed) in [("no", false), ("{\"a\":1}", true)] {
        let ends = Arc::new(AtomicBool::new(false));
        let reply = [vec![Piece::Until(Arc::clone(&ends))], openai(&[answer], &[])].concat();
        let provider = Provider::start(vec![Reply::Stream(reply), chat_reply(&["{}"])]);
        let system = system(&provider);
        let schema = file(&system, "any.json", b"{\"type\": \"object\"}");
        let mut command = system.command(&["chat", "--schema", &schema, "Who?"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the model is asked", || provider.received().len() == 1);
        let send = |signal| kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        // It follows the turn, and stands still until that has ended.
        std::thread::sleep(Duration::from_millis(500));
        send(Signal::SIGSTOP);
        ends.store(true, Ordering::Relaxed);
        until("the turn has ended", || {
            let shown = String::from_utf8(system.ken(&["show", "last"]).stdout).unwrap();
            shown.contains(answer) && !shown.contains("(running)")
        });
        send(Signal::SIGINT);
        send(Signal::SIGCONT);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(provider.received().len(), 1, "{answer}: {said}");
        if is_printed {
            is(&output, 0, "{\"a\":1}\n");
        } else {
            assert_eq!(output.status.signal(), Some(Signal::SIGINT as i32), "{said}");
            assert!(output.stdout.is_empty() && said.contains("does not fit the schema: it is not JSON"), "{said}");
        }
    }
}

#[test]
fn a_model_is_chosen_and_the_answer_is_printed_for_programs() {
    let provider = Provider::start(vec![chat_reply(&["I am ", "m."])]);
    let system = system(&provider);
    let output = system.ken(&["chat", "--json", "-m", "openai/m", "Who are you?"]);
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["answer"], "I am m.");
    assert_eq!(record["model"], json!({"provider": "openai", "id": "m"}));
    assert_eq!((&record["usage"]["input"], &record["usage"]["output"]), (&json!(9), &json!(4)));
    assert!(record["sessionId"].as_str().unwrap().starts_with("tui-"));
    // Even without a language model, the text of a file answers the question that is sent with it.
    let pump = file(&system, "pump.txt", b"Our pump P7 runs at 40 bar.\n");
    for flag in ["-a", "-f"] {
        let output = system.ken(&["chat", "-m", "rules/rules-1", flag, &pump, "Which pressure has pump P7?"]);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.starts_with("Your message says: “Our pump P7 runs at 40 bar.”\n\n"), "{printed}");
    }
    // A command such as `/help` starts no turn, so it has no events either.
    for flag in ["--json", "--events"] {
        let output = system.ken(&["chat", flag, "/help"]);
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(printed["answer"].as_str().unwrap().contains("`/new [name]`"), "{printed}");
        assert_eq!((&printed["model"], &printed["submissionId"]), (&Value::Null, &Value::Null));
    }
    let output = system.ken(&["chat", "--no-stream", "-m", "rules/rules-1", "Who are you?"]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("I am ken") && printed.ends_with('\n'), "{printed}");
    assert_eq!(provider.received().len(), 1);
}

/// `/model` chooses the model of a session, in every client and over HTTP, until it is taken back.
#[test]
fn a_session_keeps_the_model_that_was_chosen_for_it() {
    let provider = Provider::answering(|_| Reply::Stream(openai(&["An answer."], &[])));
    let system = Builder::default()
        .env("KEN_MODEL", "openai/first,openai/second")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=k\n")
        .start();
    let chat = |words: &[&str]| {
        let output = system.ken(&[&["chat"], words].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr))
    };
    let asked = || provider.received().last().unwrap().body["model"].clone();
    assert_eq!(chat(&["hello"]).0, Some(0));
    assert_eq!(asked(), "first");
    let (status, said) = chat(&["-c", "/model"]);
    assert!(status == Some(0) && said.contains("the configured models answer"), "{said}");
    let (status, said) = chat(&["-c", "/model openai/second"]);
    assert!(status == Some(0) && said.contains("`openai/second` answers"), "{said}");
    assert_eq!(chat(&["-c", "hello"]).0, Some(0));
    assert_eq!(asked(), "second");
    assert!(chat(&["-c", "/model"]).1.contains("`openai/second` answers"));
    // A prompt that names a model has its way, once.
    assert_eq!(chat(&["-c", "-m", "openai/first", "hello"]).0, Some(0));
    assert_eq!(asked(), "first");
    assert_eq!(chat(&["-c", "hello"]).0, Some(0));
    assert_eq!(asked(), "second");
    // Another session has the configured ones.
    assert_eq!(chat(&["hello"]).0, Some(0));
    assert_eq!(asked(), "first");
    let session = &system.get("/api/chat/sessions").expect(200).json()["sessions"][1];
    assert_eq!(session["model"], "openai/second", "{session}");
    let session = session["sessionId"].as_str().unwrap();
    for (text, why) in [("/model openai/third", "no model `openai/third`"), ("/model second", "provider/model")] {
        let (status, said) = chat(&["-s", session, text]);
        assert!(status == Some(2) && said.contains(why), "{text}: {said}");
    }
    let target = format!("/api/chat/sessions/{session}");
    let patch = |model: &str| {
        let body = serde_json::json!({"model": model});
        system.client().request("PATCH", &target).json(&body).send()
    };
    patch("openai/third").refused(400, "invalid", "/model");
    assert!(patch("default").expect(200).at("/session/model").is_null());
    assert_eq!(chat(&["-s", session, "hello"]).0, Some(0));
    assert_eq!(asked(), "first");
    // A session can begin with one.
    let body = serde_json::json!({"connector": "tui", "actorId": "a", "conversationId": "c", "model": "openai/second"});
    let made = system.post("/api/chat/sessions", &body).expect(201);
    assert_eq!(made.at("/session/model"), "openai/second");
    system.say(&made.text("/session/id"), "hello").expect(200);
    assert_eq!(asked(), "second");
}
