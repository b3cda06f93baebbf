//! ken-tui on a pseudo-terminal, with a whole system. The tests type keys and check the screen.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ken_tests::provider::{Piece, Provider, Reply, openai, refusal};
use ken_tests::{Builder, System, Terminal, binary, tui, until};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const CONTROL_C: &str = "\u{3}";
const ESCAPE: &str = "\u{1b}";
const UP: &str = "\u{1b}[A";
const PAGE_UP: &str = "\u{1b}[5~";

/// A model whose greeting and answers are known.
fn scripted(lines: &[Value]) -> System {
    let mut script =
        vec![json!({"when": "Preflight report", "events": [{"text": "Welcome. "}, {"text": "All is well."}]})];
    script.extend_from_slice(lines);
    script.push(json!({"when": "hold", "events": [{"text": "partial words"}, {"sleep_ms": 60_000}]}));
    script.push(json!({"events": [{"text": "An answer."}]}));
    Builder::default().script(&script).start()
}

/// An answer of 300 lines that arrive slowly.
fn lines_of_text() -> Value {
    let mut events = Vec::new();
    for number in 0..300 {
        events.push(json!({"text": format!("line-{number:03} ")}));
        events.push(json!({"text": "of text\n"}));
        if number % 3 == 0 {
            events.push(json!({"sleep_ms": 10}));
        }
    }
    json!({"when": "count", "events": events})
}

/// A system with a model of this provider.
fn provided(provider: &Provider) -> Builder {
    Builder::default()
        .env("KEN_MODEL", "openai/gpt-x")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-x\n")
}

/// A provider whose answer to "write" stops after each piece until the flag of this piece is set.
fn stepwise(texts: &'static [&'static str]) -> (Provider, Vec<Arc<AtomicBool>>) {
    let steps: Vec<Arc<AtomicBool>> = texts.iter().map(|_| Arc::default()).collect();
    let flags = steps.clone();
    let provider = Provider::answering(move |request| {
        if request.prompt() != "write" {
            return Reply::Stream(openai(&["An answer."], &[]));
        }
        let mut pieces = openai(texts, &[]);
        // The first piece has no text.
        for (at, flag) in flags.iter().enumerate().rev() {
            pieces.insert(at + 2, Piece::Until(flag.clone()));
        }
        Reply::Stream(pieces)
    });
    (provider, steps)
}

fn client(system: &System, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("ken-tui"));
    command.env("KEN_HOME", system.home()).args(arguments);
    command
}

/// The client on a terminal of 80 by 24.
fn open(system: &System, arguments: &[&str]) -> Terminal {
    Terminal::start(&client(system, arguments), 80, 24)
}

/// Opens the client and waits for its greeting.
fn greeted(system: &System) -> Terminal {
    let terminal = open(system, &[]);
    terminal.wait_for_text("All is well.");
    terminal
}

/// Ends the client. Returns the session that it prints.
fn leave(terminal: &mut Terminal) -> String {
    terminal.type_line("/exit");
    assert!(terminal.wait_for_end().success());
    session_of(terminal)
}

fn session_of(terminal: &Terminal) -> String {
    let printed = terminal.printed();
    let line = printed.lines().rev().find_map(|line| line.strip_prefix("session "));
    line.unwrap_or_else(|| panic!("no session in {printed:?}")).to_owned()
}

/// The body of a request on behalf of the person at the terminal.
fn local(fields: &[(&str, Value)]) -> Value {
    let mut body = tui(fields);
    body["actorId"] = json!("local-tui");
    body["conversationId"] = json!("local-tui");
    body
}

fn transcript(system: &System, session: &str) -> Value {
    let target = format!(
        "/api/chat/sessions/{session}/transcript?connector=tui&actorId=local-tui&conversationId=local-tui&limit=100"
    );
    system.get(&target).expect(200).json()
}

/// A session with this many exchanges.
fn long_session(system: &System, exchanges: usize) -> String {
    let session = system.post("/api/chat/sessions", &local(&[])).expect(201).text("/session/id");
    for number in 0..exchanges {
        let body = local(&[("text", json!(format!("question-{number:03}"))), ("session", json!(session))]);
        system.post("/api/chat/events", &body).expect(200);
    }
    session
}

#[test]
fn each_launch_has_a_new_session_with_a_greeting() {
    let system = scripted(&[]);
    let mut first = greeted(&system);
    let screen = first.wait_for_text("connected");
    for row in ["✓ gateway http://127.0.0.1:", "✓ all parts are ready", "✓ session tui-", "Welcome. All is well."]
    {
        assert!(screen.contains(row), "{row}: {screen}");
    }
    assert!(!screen.contains("Preflight report"), "{screen}");
    first.type_line("hello");
    first.wait_for_text("An answer.");
    let session = leave(&mut first);
    // The conversation is in the scrollback of the terminal it left.
    let printed = first.printed();
    for text in ["Welcome. All is well.", "› hello", "An answer."] {
        assert!(printed.contains(text), "{text}: {printed:?}");
    }
    let exchanges = transcript(&system, &session)["exchanges"].clone();
    assert_eq!(exchanges.as_array().unwrap().len(), 2);
    assert!(exchanges[0].get("prompt").is_none() && exchanges[1]["prompt"]["text"] == "hello", "{exchanges}");
    let mut second = greeted(&system);
    assert_ne!(leave(&mut second), session);
    // The log names what happened, and contains no text of the conversation.
    let log = std::fs::read_to_string(system.home().join("state/tui/log.jsonl")).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().any(|event| event["event"] == "input.prompt"), "{log}");
    assert!(!log.contains("hello") && !log.contains("answer") && !log.contains(&session), "{log}");
}

#[test]
fn prompts_during_a_turn_are_queued_and_cancel_applies_to_the_turn_first() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.type_line("hold on");
    terminal.wait_for_text("partial words");
    terminal.type_line("then this");
    terminal.type_line("and that");
    terminal.wait_for_text("2 queued");
    // The last prompt can be recalled and edited.
    terminal.press(UP);
    terminal.wait_for_text("› and that");
    terminal.type_line(", too");
    terminal.wait_for_text("then: and that, too");
    terminal.press(ESCAPE);
    let screen = terminal.wait_for_text("(cancelled)");
    assert!(screen.contains("partial words") && screen.contains("held: then this"), "{screen}");
    terminal.wait_for_screen("the status row again", |screen| !screen.contains("cancelling"));
    terminal.press("\r");
    terminal.wait_for_screen("both are answered", |screen| {
        screen.matches("An answer.").count() == 2 && screen.contains("› and that, too")
    });
    terminal.type_line("hold again");
    terminal.wait_for_screen("it runs", |screen| screen.matches("partial words").count() == 2);
    terminal.press(CONTROL_C);
    terminal.wait_for_screen("it is cancelled", |screen| screen.matches("(cancelled)").count() == 2);
    terminal.press("a draft");
    terminal.press(CONTROL_C);
    terminal.wait_for_text("the draft is in the history");
    terminal.press(CONTROL_C);
    assert!(terminal.wait_for_end().success());
    let session = session_of(&terminal);
    let statuses: Vec<Value> =
        transcript(&system, &session)["exchanges"].as_array().unwrap().iter().map(|e| e["status"].clone()).collect();
    assert_eq!(statuses, ["completed", "cancelled", "completed", "completed", "cancelled"]);
    // The next launch has the draft in its history.
    let mut next = open(&system, &["-c"]);
    next.wait_for_text("(cancelled)");
    next.wait_for_text("connected");
    next.press(UP);
    next.wait_for_text("› a draft");
}

#[test]
fn sessions_are_resumed_by_id_or_name_and_errors_are_sentences() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.type_line("first words");
    terminal.wait_for_text("An answer.");
    terminal.type_line("/rename nightly");
    terminal.wait_for_screen("the name in the status row", |screen| screen.lines().last().unwrap().contains("nightly"));
    terminal.type_line("/resume nowhere");
    let screen = terminal.wait_for_screen("an error", |screen| screen.contains("! "));
    assert!(!screen.contains('{'), "a sentence: {screen}");
    terminal.type_line("/session");
    terminal.wait_for_text(", named nightly.");
    let session = leave(&mut terminal);

    for selector in [session.as_str(), "nightly"] {
        let mut again = open(&system, &["--session", selector]);
        let screen = again.wait_for_text("An answer.");
        assert!(screen.contains("› first words") && !screen.contains("✓ session"), "{screen}");
        assert_eq!(leave(&mut again), session);
    }
    let mut last = open(&system, &["-c"]);
    last.wait_for_text("› first words");
    assert_eq!(leave(&mut last), session);
    // An unknown name starts a new session, and the client says so; where no person sees it, it is an error.
    let mut fresh = open(&system, &["--session", "nigthly"]);
    let screen = fresh.wait_for_text("All is well.");
    assert!(screen.contains("there is no session nigthly (the nearest is nightly)"), "{screen}");
    let refused = piped(&system, &["--session", "nigthly", "--print", "hello"], "");
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && why.contains("the nearest is `nightly`"), "{why}");
    assert_ne!(leave(&mut fresh), session);
    // Two sessions with one name, and one of another person.
    let mut twin = greeted(&system);
    twin.type_line("/rename nightly");
    twin.wait_for_screen("the name", |screen| screen.lines().last().unwrap().contains("nightly"));
    leave(&mut twin);
    let foreign = system.session();
    for selector in ["nightly", foreign.as_str()] {
        let mut refused = open(&system, &["--session", selector]);
        assert_eq!(refused.wait_for_end().code(), Some(1));
        let printed = refused.printed();
        assert!(printed.starts_with("ken-tui: ") && printed.lines().count() == 1, "{printed:?}");
    }
}

#[test]
fn the_picker_switches_to_another_session() {
    let system = scripted(&[]);
    let old = long_session(&system, 2);
    let mut terminal = greeted(&system);
    terminal.type_line("/sessions");
    terminal.wait_for_text("question-000");
    terminal.press("question");
    terminal.press("\r");
    terminal.wait_for_text("› question-001");
    terminal.type_line("more");
    terminal.wait_for_screen("the answer there", |screen| screen.matches("An answer.").count() == 3);
    assert_eq!(leave(&mut terminal), old);
    let mut fresh = open(&system, &["--session", &old]);
    fresh.wait_for_text("› more");
    fresh.type_line("/new other");
    fresh.wait_for_screen("an empty conversation", |screen| !screen.contains("› more") && screen.contains("other"));
    assert_ne!(leave(&mut fresh), old);
}

#[test]
fn a_queued_prompt_goes_to_the_session_in_which_it_was_queued() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.type_line("hold on");
    terminal.wait_for_text("partial words");
    terminal.type_line("for the first");
    terminal.type_line("for it too");
    terminal.wait_for_text("2 queued");
    terminal.type_line("/session");
    let screen = terminal.wait_for_text("This is the session tui-");
    let rest = screen.split("This is the session ").nth(1).unwrap();
    let first: String = rest.chars().filter(|c| !c.is_whitespace()).take_while(|c| *c != '.').collect();
    // What follows the command is for the session that it opens.
    terminal.press("/new\rfor the second\r");
    terminal.wait_for_screen("the other session", |screen| {
        screen.contains("› for the second") && screen.contains("An answer.") && !screen.contains("partial words")
    });
    let second = leave(&mut terminal);
    assert_ne!(second, first);
    let prompts = |session: &str| -> Vec<Value> {
        let exchanges = transcript(&system, session)["exchanges"].clone();
        exchanges.as_array().unwrap().iter().filter_map(|one| one.pointer("/prompt/text").cloned()).collect()
    };
    assert_eq!(prompts(&second), ["for the second"]);
    assert_eq!(prompts(&first), ["hold on", "for the first", "for it too"]);
}

/// The gateway is killed repeatedly while text is streamed and the terminal changes its size. Every line is shown once.
#[test]
fn nothing_is_lost_while_the_gateway_is_killed_and_the_terminal_resized() {
    let system = scripted(&[lines_of_text()]);
    let mut terminal = greeted(&system);
    terminal.type_line("count");
    for (round, (columns, rows)) in [(60, 20), (132, 40), (40, 12), (80, 24)].into_iter().enumerate() {
        let seen = format!("line-{:03}", 20 + round * 55);
        terminal.wait_for_screen(&seen, |screen| {
            screen.lines().any(|line| line.starts_with("line-") && line >= seen.as_str())
        });
        terminal.resize(columns, rows);
        if round % 2 == 0 {
            system.kill("gateway");
        }
    }
    terminal.wait_for_text("line-299 of text");
    terminal
        .wait_for_screen("the end of the turn", |screen| !screen.contains("working") && screen.contains("connected"));
    // Changes the size, also while the conversation is scrolled back.
    terminal.resize(100, 30);
    terminal.wait_for_screen("the new size", |screen| screen.lines().count() == 30 && screen.contains("F1 help"));
    terminal.press(PAGE_UP);
    terminal.wait_for_text("more below");
    terminal.resize(70, 20);
    terminal.wait_for_text("more below");
    terminal.press(ESCAPE);
    terminal.wait_for_text("line-299 of text");
    assert!(!terminal.written().contains("\u{1b}[2J"), "the screen is never cleared");
    let session = leave(&mut terminal);
    let printed = terminal.printed();
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("line-")).collect();
    let expected: Vec<String> = (0..300).map(|number| format!("line-{number:03} of text")).collect();
    assert_eq!(lines, expected);
    let recorded = transcript(&system, &session);
    assert_eq!(recorded["exchanges"][1]["assistant"]["text"].as_str().unwrap().lines().count(), 300);
}

/// The agent is killed while the model thinks. The model then thinks again, with the same words.
#[test]
fn a_thought_that_an_interruption_cuts_off_is_shown_once() {
    let thinks = |words: &str| {
        let event = json!({"choices": [{"index": 0, "delta": {"reasoning_content": words}}]});
        Piece::Bytes(format!("data: {event}\n\n").into_bytes())
    };
    let calls = AtomicUsize::new(0);
    let provider = Provider::answering(move |request| {
        if request.prompt() != "ponder" {
            return Reply::Stream(openai(&["An answer."], &[]));
        }
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::Stream(vec![thinks("I have to"), Piece::UntilGone]),
            _ => Reply::Stream([vec![thinks("I have to "), thinks("count.")], openai(&["One, two."], &[])].concat()),
        }
    });
    let system = provided(&provider).start();
    let mut terminal = open(&system, &[]);
    terminal.wait_for_text("An answer.");
    terminal.type_line("ponder");
    terminal.wait_for_text("I have to");
    system.wait_until_stable("agent");
    system.kill("agent");
    let screen =
        terminal.wait_for_screen("the end", |screen| screen.contains("One, two.") && !screen.contains("working"));
    assert!(screen.contains("resumed after an interruption"), "{screen}");
    assert!(screen.matches("I have to").count() == 1 && screen.contains("I have to count."), "{screen}");
}

#[test]
fn a_running_turn_continues_in_a_client_that_resumes_its_session() {
    let system = scripted(&[lines_of_text()]);
    let mut first = greeted(&system);
    first.type_line("count");
    first.wait_for_screen("some lines", |screen| screen.contains("line-"));
    // The client is killed without a chance to end properly.
    kill(Pid::from_raw(first.pid()), Signal::SIGKILL).unwrap();
    let mut second = open(&system, &["-c"]);
    second.wait_for_screen("the same turn", |screen| screen.contains("line-1"));
    second.wait_for_text("line-299 of text");
    second.wait_for_screen("its end", |screen| !screen.contains("working"));
    leave(&mut second);
    let printed = second.printed();
    assert_eq!(printed.matches("› count").count(), 1, "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("line-")).count(), 300);
}

/// The stream has the prompt, too, and so has the page of the transcript that is fetched for it.
#[test]
fn a_prompt_of_another_client_stands_once_on_the_screen() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.type_line("a wombat from here");
    terminal.wait_for_text("An answer.");
    let list = String::from_utf8(system.ken(&["sessions", "--json"]).stdout).unwrap();
    let session = serde_json::from_str::<Value>(list.lines().next().unwrap()).unwrap()["sessionId"].clone();
    let elsewhere = local(&[("session", session), ("text", json!("a quokka from elsewhere"))]);
    system.post("/api/chat/events", &elsewhere).expect(200);
    terminal.wait_for_screen("the prompt and its answer", |screen| {
        screen.contains("› a quokka from elsewhere") && screen.matches("An answer.").count() == 2
    });
    leave(&mut terminal);
    let printed = terminal.printed();
    for prompt in ["a quokka from elsewhere", "a wombat from here"] {
        assert_eq!(printed.matches(prompt).count(), 1, "{printed}");
    }
}

#[test]
fn older_exchanges_are_loaded_while_scrolling_and_found_by_search() {
    let system = scripted(&[]);
    let session = long_session(&system, 70);
    let mut terminal = open(&system, &["--session", &session]);
    terminal.wait_for_text("question-069");
    for _ in 0..40 {
        if terminal.screen().contains("question-000") {
            break;
        }
        let before = terminal.screen();
        terminal.press(PAGE_UP);
        terminal.wait_for_screen("another page, or the first", |screen| {
            screen != before || screen.contains("question-000")
        });
    }
    terminal.wait_for_text("› question-000");
    // The visible part does not move while answers arrive.
    let body = local(&[("text", json!("from elsewhere")), ("session", json!(session))]);
    let before = terminal.screen();
    system.post("/api/chat/events", &body).expect(200);
    let top = |screen: &str| screen.lines().take(20).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(top(&terminal.screen()), top(&before));
    // Until the client has received the end of that turn, Escape applies to the turn, so the key is repeated.
    until("the end is on the screen", || {
        terminal.press(ESCAPE);
        terminal.screen().contains("› from elsewhere")
    });
    // A new client searches from the end back to exchanges that have to be loaded first.
    let mut again = open(&system, &["--session", &session]);
    again.wait_for_text("› from elsewhere");
    again.press("\u{6}question-003\r");
    again.wait_for_text("› question-003");
}

#[test]
fn the_editor_has_lines_and_a_paste_never_sends() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.press("\u{1b}[200~one\rtwo\r\u{1b}[201~");
    terminal.wait_for_text("› one");
    terminal.wait_for_text("  two");
    terminal.press("three\nfour\u{1b}\rfive");
    let screen =
        terminal.wait_for_screen("five lines", |screen| screen.contains("  four") && screen.contains("  five"));
    assert!(!screen.contains("An answer."), "{screen}");
    // The cursor of the terminal is after the last character.
    let row = screen.lines().position(|line| line.trim_end() == "  five").unwrap();
    assert_eq!(terminal.cursor(), (u16::try_from(row).unwrap(), 6));
    terminal.press("\r");
    terminal.wait_for_text("An answer.");
    let session = leave(&mut terminal);
    let text = transcript(&system, &session)["exchanges"][1]["prompt"]["text"].clone();
    assert_eq!(text, "one\ntwo\nthree\nfour\nfive");
}

#[test]
fn keys_of_every_kind_of_terminal_and_undo_and_redo() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    // Shift+Enter as the kitty keyboard protocol and as xterm's modifyOtherKeys send it.
    terminal.press("one\u{1b}[13;2utwo\u{1b}[27;2;13~three");
    terminal.wait_for_screen("three lines", |screen| {
        screen.contains("› one") && screen.contains("  two") && screen.contains("  three")
    });
    // Ctrl+_ undoes, Alt+_ redoes.
    terminal.press("!\u{1f}");
    terminal.wait_for_screen("undone", |screen| !screen.contains('!'));
    terminal.press("\u{1b}_");
    terminal.wait_for_text("  three!");
    terminal.press("\r");
    terminal.wait_for_text("An answer.");
    let session = leave(&mut terminal);
    let text = transcript(&system, &session)["exchanges"][1]["prompt"]["text"].clone();
    assert_eq!(text, "one\ntwo\nthree!");
}

/// A key and a new size arrive together while the client is stopped: each key is handled without waiting for the next one.
#[test]
fn no_key_is_lost_while_the_terminal_is_resized() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    let client = Pid::from_raw(terminal.pid());
    let mut typed = String::new();
    for (round, letter) in ('a'..='z').enumerate() {
        kill(client, Signal::SIGSTOP).unwrap();
        until("it is stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{client}/stat")).unwrap();
            stat.contains(") T ")
        });
        terminal.resize(if round % 2 == 0 { 70 } else { 80 }, 24);
        terminal.press(&letter.to_string());
        kill(client, Signal::SIGCONT).unwrap();
        typed.push(letter);
        terminal.wait_for_text(&format!("› {typed}"));
    }
}

#[test]
fn a_notification_is_sent_when_the_terminal_is_not_in_view() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    let reported = |terminal: &Terminal| terminal.written().matches("\u{1b}]9;ken: the answer is there\u{7}").count();
    terminal.type_line("hello");
    terminal.wait_for_screen("an answer", |screen| screen.contains("An answer.") && !screen.contains("working"));
    assert_eq!(reported(&terminal), 0, "nobody is told what is before the eyes");
    terminal.press("hello again\r\u{1b}[O");
    until("the window asks for attention", || reported(&terminal) == 1);
    terminal.press("\u{1b}[I");
    terminal.type_line("and again");
    terminal.wait_for_screen("three answers", |screen| {
        screen.matches("An answer.").count() == 3 && !screen.contains("working")
    });
    assert_eq!(reported(&terminal), 1);
}

/// Every piece is seen rendered before the next one is sent, so no part of it waits for the end of the turn.
#[test]
fn an_answer_is_rendered_as_markdown_while_it_arrives() {
    let pieces = [
        ("# Res", "Res"),
        ("ults\n\nThe **first** p", "The first p"),
        ("art.\n\n- one `x`\n- **tw", "- one x"),
        ("o**\n- three", "- two"),
        ("\n\n```sh\nls -l\n", "│ ls -l"),
        ("df -h\n```\n\n| part | state |\n|---|---|\n| store | ready |\n", "store"),
        ("| gate | shut |\n", "gate"),
        ("\n## Next\n\nThe *end", "Next"),
        ("*.", "The end."),
    ];
    let texts: &'static [&'static str] = Vec::leak(pieces.iter().map(|(text, _)| *text).collect());
    let (provider, steps) = stepwise(texts);
    let system = provided(&provider).start();
    let mut terminal = open(&system, &[]);
    terminal.wait_for_text("An answer.");
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    terminal.type_line("write");
    for ((_, seen), step) in pieces.iter().zip(&steps) {
        let screen = terminal.wait_for_screen(seen, |screen| screen.contains(seen) && screen.contains("working"));
        for mark in ["# ", "|--", "The **", "`x`"] {
            assert!(!screen.contains(mark), "{mark}: {screen}");
        }
        step.store(true, Ordering::Relaxed);
    }
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    leave(&mut terminal);
    let printed = terminal.printed();
    for text in ["Results", "The first part.", "- one x", "- two", "- three", "│ df -h", "shut", "The end."] {
        assert!(printed.contains(text), "{text}: {printed}");
    }
    assert!(!printed.contains("**") && !printed.contains("|--"), "{printed}");
}

#[test]
fn nothing_of_a_growing_answer_is_lost_on_a_narrow_terminal_that_changes_its_size() {
    let (provider, steps) = stepwise(&[
        "# A heading of w01 and w02\n\nA paragraph of **w03** and 日本語 that ends in w04",
        " and w05.\n\n- an item that is longer than twenty columns w06\n  - w07\n",
        "\n```rust\nlet a_name_of_more_than_twenty_columns = \"w08\"; // w09\n",
        "let x = \"w10\";\n```\n\n| a column | another column | w11 |\n|---|---|---|\n| w12 | 13 |",
        " w14 |\n\n> quoted w15\n> - w16\n",
        "\n1. w17\n2. w18\n\nThe last is w19.",
    ]);
    let seen = ["w04", "w07", "w09", "w11", "w16", "w19"];
    let sizes = [(20, 12), (45, 12), (24, 30), (20, 6), (132, 40), (20, 24)];
    let system = provided(&provider).start();
    let mut terminal = Terminal::start(&client(&system, &[]), 20, 24);
    terminal.wait_for_text("An answer.");
    terminal.press("write\r");
    for ((step, seen), (columns, rows)) in steps.iter().zip(seen).zip(sizes) {
        terminal.wait_for_text(seen);
        terminal.resize(9, 3);
        terminal.resize(columns, rows);
        step.store(true, Ordering::Relaxed);
    }
    // The rule above the editor shows for which width the screen was drawn. It need not be a line of its own in the text: the terminal
    // joins two rows if text has wrapped between them, as when the client drew for a wider terminal.
    let drawn =
        |screen: &str, columns| screen.contains(&"─".repeat(columns)) && !screen.contains(&"─".repeat(columns + 1));
    terminal.wait_for_screen("the end", |screen| screen.contains("w19") && drawn(screen, 20));
    terminal.resize(80, 40);
    let screen = terminal.wait_for_screen("the whole answer", |screen| {
        drawn(screen, 80) && screen.contains("w01") && screen.contains("w19") && !screen.contains("working")
    });
    leave(&mut terminal);
    let printed = terminal.printed();
    for number in (1..20).filter(|number| *number != 13) {
        let word = format!("w{number:02}");
        assert_eq!(printed.matches(&word).count(), 1, "{word}: {printed}");
        assert_eq!(screen.matches(&word).count(), 1, "{word}: {screen}");
    }
}

#[test]
fn commands_are_completed_and_other_text_stays_text() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    terminal.press("/mo");
    let screen = terminal.wait_for_text("› mo");
    assert!(screen.contains("/model [provider/model | default]") && !screen.contains("/new"), "{screen}");
    terminal.press("\tdefault");
    let screen = terminal.wait_for_text("› /model default");
    assert!(!screen.contains("Commands"), "{screen}");
    terminal.press("\r");
    terminal.wait_for_screen("it is not in the editor any more", |screen| !screen.contains("› /model default\n"));
    terminal.type_line("/etc/hosts is wrong");
    terminal.wait_for_screen("an answer to the text", |screen| {
        screen.contains("› /etc/hosts is wrong") && screen.contains("An answer.")
    });
    // What is pasted is never taken for a choice, and none of it is lost when a list is open.
    for (typed, pasted) in [("", "/new"), ("", "@x"), ("/", "ne"), ("@", "src/a b"), ("a @so", "me one")] {
        terminal.press(&format!("{typed}\u{1b}[200~{pasted}\u{1b}[201~."));
        let screen = terminal.wait_for_text(&format!("› {typed}{pasted}."));
        assert!(!screen.contains("Commands") && !screen.contains("Files"), "{screen}");
        terminal.press("\u{15}");
        terminal.wait_for_screen("an empty editor", |screen| screen.lines().any(|line| line.trim_end() == "›"));
    }
    let session = leave(&mut terminal);
    let exchanges = transcript(&system, &session)["exchanges"].clone();
    let prompts: Vec<&Value> =
        exchanges.as_array().unwrap().iter().filter_map(|one| one.pointer("/prompt/text")).collect();
    assert!(prompts.contains(&&json!("/etc/hosts is wrong")) && !prompts.contains(&&json!("/new")), "{exchanges}");
}

#[test]
fn files_of_the_folder_are_offered_and_the_chosen_one_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("notes.md", "the disk is full");
    write("src/note_of_code.rs", "fn main() {}");
    write(".gitignore", "ignored/\n*.log\n");
    write("ignored/note.md", "secret");
    write("note.log", "secret");
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    link("/etc/passwd", "note_passwd");
    link("/etc", "note_etc");
    nix::unistd::mkfifo(&folder.path().join("note_fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let provider = Provider::answering(|_| Reply::Stream(openai(&["An answer."], &[])));
    let system = provided(&provider).start();
    let mut command = client(&system, &[]);
    command.current_dir(folder.path());
    let mut terminal = Terminal::start(&command, 80, 24);
    terminal.wait_for_text("An answer.");
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    terminal.press("see @note");
    let screen = terminal.wait_for_screen("the files", |screen| screen.contains("› note") && screen.contains("src/"));
    let rows = |screen: &str| screen.lines().filter(|line| line.contains("note")).count();
    // The filter and two files.
    assert_eq!(rows(&screen), 3, "{screen}");
    for hidden in ["ignored", ".log", "passwd", "etc", "fifo"] {
        assert!(!screen.contains(hidden), "{hidden}: {screen}");
    }
    terminal.press("s.\r");
    terminal.wait_for_screen("the attached file", |screen| {
        screen.contains("[notes.md]") && screen.contains("› see notes.md")
    });
    terminal.type_line("please");
    terminal.wait_for_screen("an answer", |screen| screen.matches("An answer.").count() == 2);
    let sent = provider.received().iter().map(|request| request.prompt().to_string()).collect::<Vec<_>>().join("\n");
    assert!(sent.contains("see notes.md please") && sent.contains("the disk is full"), "{sent}");
    assert!(!sent.contains("secret") && !sent.contains("fn main"), "{sent}");
    leave(&mut terminal);
}

#[test]
fn pictures_and_texts_go_with_a_prompt() {
    let answers = (0..3).map(|_| Reply::Stream(openai(&["An answer."], &[]))).collect();
    let provider = Provider::start(answers);
    let system = provided(&provider).file("notes.txt", "the disk is full\n").start();
    let picture = system.home().join("a.png");
    std::fs::write(&picture, b"\x89PNG\r\n\x1a\npicture").unwrap();
    let mut terminal = open(&system, &[]);
    terminal.wait_for_text("An answer.");
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    // Attaches files by key and by command. A path that is not a file causes an error message.
    terminal.press(&format!("\u{1b}a{}\r", picture.display()));
    terminal.wait_for_text("[a.png]");
    terminal.type_line(&format!("/attach {}", system.home().join("notes.txt").display()));
    terminal.wait_for_text("[a.png] [notes.txt]");
    terminal.type_line("/attach /nowhere");
    terminal.wait_for_text("/nowhere: No such file");
    terminal.wait_for_text("[a.png] [notes.txt]");
    terminal.type_line("look");
    terminal.wait_for_screen("both names below the prompt", |screen| {
        screen.contains("› look") && screen.matches("An answer.").count() == 2
    });
    let received = provider.received().pop().unwrap();
    let printed = received.body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let printed = printed.to_string();
    for part in ["data:image/png;base64,iVBORw0KGgpwaWN0dXJl", "look", "the disk is full"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    // Attachments of one prompt are not sent with the next.
    terminal.type_line("again");
    terminal.wait_for_screen("the third", |screen| screen.matches("An answer.").count() == 3);
    let last = provider.received().pop().unwrap().body["messages"].as_array().unwrap().last().unwrap().to_string();
    assert!(last.contains("again") && !last.contains("base64"), "{last}");
}

#[test]
fn a_draft_is_written_in_the_editor_of_the_environment() {
    let system = scripted(&[]);
    let mut command = client(&system, &[]);
    command.env("EDITOR", "sed -i s/draft/text/");
    let mut terminal = Terminal::start(&command, 80, 24);
    terminal.wait_for_text("All is well.");
    terminal.press("my draft\u{7}");
    terminal.wait_for_text("› my text");
}

/// The terminal sends the signal of such a key to the client, too.
#[test]
fn what_an_editor_has_saved_before_it_is_interrupted_is_kept() {
    let system = scripted(&[]);
    for signal in ["INT", "QUIT"] {
        let mut command = client(&system, &[]);
        command.env("EDITOR", format!("printf 'saved\\r\\n\\033[2Jhere\\n' > \"$1\"; kill -{signal} 0; :"));
        let mut terminal = Terminal::start(&command, 80, 24);
        terminal.wait_for_text("All is well.");
        terminal.press("my draft\u{7}");
        terminal.wait_for_text("› saved");
        let screen = terminal.wait_for_text("[2Jhere");
        assert!(!screen.contains("draft"), "{screen}");
        terminal.press(" and more");
        terminal.wait_for_text("and more");

        // The signal reaches the editor, its shell and the client. The editor goes on, and saves later.
        let editor = system.home().join("editor");
        let script = format!("#!/bin/sh\ntrap '' INT QUIT\nkill -{signal} 0\nsleep 0.3\necho 'saved later' > \"$1\"\n");
        std::fs::write(&editor, script).unwrap();
        std::fs::set_permissions(&editor, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut command = client(&system, &[]);
        let mut terminal = Terminal::start(command.env("EDITOR", &editor), 80, 24);
        terminal.wait_for_text("All is well.");
        terminal.press("my draft\u{7}");
        terminal.wait_for_text("› saved later");
    }
}

#[test]
fn answers_are_copied_as_markdown_and_colours_can_be_disabled() {
    let answer = json!({"when": "code", "events": [{"text": "Do **this**:\n\n```sh\nls -l\n```\n"}]});
    let system = scripted(&[answer]);
    let mut command = client(&system, &[]);
    command.env("NO_COLOR", "1");
    let mut terminal = Terminal::start(&command, 80, 24);
    terminal.wait_for_text("All is well.");
    terminal.type_line("code");
    terminal.wait_for_text("│ ls -l");
    terminal.press("\u{1b}k");
    terminal.wait_for_text("5 characters were offered");
    let offered = |text: &str| text.contains("\u{1b}]52;c;bHMgLWw=\u{7}");
    until("the code on the clipboard", || offered(&terminal.written()));
    terminal.press("\u{1b}c");
    terminal.wait_for_text("characters were offered to the terminal's clipboard");
    let written = terminal.written();
    let coloured =
        written.split('\u{1b}').filter(|sequence| sequence.starts_with("[0;3") || sequence.contains(";38;")).count();
    // `[0;3m` is emphasis; colours are 30 and more.
    assert_eq!(coloured, written.matches("\u{1b}[0;3m").count(), "{written:?}");
}

/// Code is coloured by a separate process that ends by itself, so the client stays small.
#[test]
fn code_is_coloured_by_a_process_that_ends() {
    let code = "Like this:\n\n```rust\nfn main() {\n    let x = \"1\"; // one\n}\n```\n";
    let pieces = (0..100).map(|number| format!("```rust\nlet n{number} = 1;\n```\n\n"));
    let many: String = pieces.collect();
    let system = scripted(&[
        json!({"when": "code", "events": [{"text": code}]}),
        json!({"when": "many", "events": [{"text": many}]}),
    ]);
    let mut terminal = greeted(&system);
    terminal.type_line("code");
    terminal.wait_for_text("│     let x = \"1\"; // one");
    // A colour of the palette other than cyan, the colour of all code.
    let is_coloured = |piece: &str| piece.starts_with("[0;3") && !piece.starts_with("[0;36") && piece.contains("mlet");
    until("the keyword has its colour", || terminal.written().split('\u{1b}').any(is_coloured));
    let all = format!("/proc/{}/task", terminal.pid());
    let has_child = || {
        std::fs::read_dir(&all)
            .unwrap()
            .flatten()
            .any(|task| std::fs::read_to_string(task.path().join("children")).is_ok_and(|text| !text.trim().is_empty()))
    };
    until("its process has ended", || !has_child());
    // More pieces than the client queues for colouring at a time: all are coloured, and then the client is idle.
    let coloured = |terminal: &Terminal| {
        let written = terminal.written();
        written.split('\u{1b}').filter(|piece| is_coloured(piece)).count()
    };
    let before = coloured(&terminal);
    terminal.type_line("many");
    terminal.wait_for_text("let n99 = 1;");
    until("the pieces on the screen have their colours", || coloured(&terminal) >= before + 5);
    until("its process has ended again", || !has_child());
    let memory = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", terminal.pid())).unwrap();
    let pss = memory.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    let kib: u64 = pss.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 15 * 1024, "{kib} KiB");
    leave(&mut terminal);
}

#[test]
fn a_suspended_client_leaves_the_conversation_and_comes_back() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.press("\u{1a}");
    // The process group of a session leader is never stopped (POSIX, orphaned process groups), so the client continues at
    // once.
    until("it left the second screen and took it again", || {
        let written = terminal.written();
        let left = written.find("\u{1b}[?1049l");
        left.is_some_and(|at| {
            written[at..].contains("Welcome. All is well.") && written[at..].contains("\u{1b}[?1049h")
        })
    });
    terminal.type_line("hello");
    terminal.wait_for_text("An answer.");
    leave(&mut terminal);
    let printed = terminal.printed();
    assert!(printed.contains("An answer.") && !printed.contains("Welcome."), "once each: {printed}");
}

/// As SIGHUP does, which comes only from the terminal that controls the client.
#[test]
fn a_terminal_that_is_closed_ends_the_client_and_what_was_typed_is_kept() {
    let system = scripted(&[]);
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    // The client would keep its own terminal open.
    fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).unwrap();
    let mut command = client(&system, &[]);
    let of_child = || Stdio::from(pty.slave.try_clone().unwrap());
    // Not the folder of this test, which is in a repository: a person at a terminal is asked about that.
    command.current_dir("/").env("TERM", "xterm").stdin(of_child()).stdout(of_child()).stderr(of_child());
    let mut child = command.spawn().unwrap();
    drop((command, pty.slave));
    let mut terminal = std::fs::File::from(pty.master);
    let (mut shown, mut bytes) = (String::new(), [0; 4096]);
    for (wanted, keys) in [("well.", "unfinished"), ("unfinished", "")] {
        while !shown.contains(wanted) {
            let count = terminal.read(&mut bytes).unwrap();
            shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
        terminal.write_all(keys.as_bytes()).unwrap();
    }
    drop(terminal);
    let mut status = None;
    until("it ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success(), "{status:?}");
    let mut terminal = greeted(&system);
    terminal.press(UP);
    terminal.wait_for_text("unfinished");
}

#[test]
fn an_idle_client_writes_nothing_and_sleeps() {
    let system = scripted(&[]);
    let mut terminal = greeted(&system);
    terminal.wait_for_screen("the end of the turn", |screen| !screen.contains("working"));
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", terminal.pid())).unwrap();
        let fields: Vec<u64> =
            stat.rsplit(") ").next().unwrap().split(' ').filter_map(|field| field.parse().ok()).collect();
        // utime and stime, fields 14 and 15 of proc_pid_stat(5). The index is lower because the fields before the state and
        // the state itself are not in the list.
        fields[10] + fields[11]
    };
    std::thread::sleep(Duration::from_millis(300));
    let (bytes, before) = (terminal.written().len(), ticks());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(terminal.written().len(), bytes);
    assert!(ticks() - before <= 1, "it works while nothing happens");
    leave(&mut terminal);
}

#[test]
fn the_system_is_started_when_nothing_runs() {
    let home = tempfile::tempdir().unwrap();
    let config = "[gateway]\nport = 0\n[cognitive]\nport = 0\n";
    std::fs::write(home.path().join("ken.toml"), config).unwrap();
    let mut command = Command::new(binary("ken-tui"));
    command.arg("--home").arg(home.path());
    let mut refused = Command::new(binary("ken-tui"));
    refused.arg("--home").arg(home.path()).arg("--no-start");
    let mut terminal = Terminal::start(&refused, 80, 24);
    assert_eq!(terminal.wait_for_end().code(), Some(1));
    assert!(
        terminal.printed().starts_with("ken-tui: ken is not running (start it with `ken up`"),
        "{}",
        terminal.printed()
    );
    let mut terminal = Terminal::start(&command, 80, 24);
    terminal.wait_for_text("nothing runs: starting the system");
    terminal.wait_for_text("I am ken");
    leave(&mut terminal);
    let down = Command::new(binary("ken")).arg("--home").arg(home.path()).arg("down").output().unwrap();
    assert!(down.status.success());
}

/// Adds a tool that needs an approval and writes a line for each run.
fn add_gated_tool(system: &System) {
    let folder = system.home().join("scratch");
    std::fs::create_dir_all(system.home().join("tools.d")).unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    let run = format!("cat >> '{0}'; echo >> '{0}'; echo did it", folder.join("runs").display());
    let entry = json!({"name": "gated", "description": "A tool.", "command": ["sh", "-c", run], "approval": "ask",
        "input": {"type": "object"}, "writes": "text", "agents": ["orchestrator"], "touch": {"write": [folder]}});
    std::fs::write(system.home().join("tools.d/gated.json"), entry.to_string()).unwrap();
    until("the tool is listed", || {
        let listed = system.call("tools", "tools.list", &[]);
        listed["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "gated"))
    });
}

#[test]
fn approvals_are_decided_only_in_the_dialog() {
    let call = |word: &str| {
        [
            json!({"when": word, "after_tools": 1, "events": [{"text": format!("After {word}.")}]}),
            json!({"when": word, "events": [{"tool": {"name": "gated", "arguments": {"word": word}}}]}),
        ]
    };
    let system =
        scripted(&["first", "second", "third", "fourth", "fifth"].into_iter().flat_map(call).collect::<Vec<_>>());
    add_gated_tool(&system);
    let runs = || std::fs::read_to_string(system.home().join("scratch/runs")).unwrap_or_default();
    let mut terminal = greeted(&system);
    terminal.type_line("the first");
    terminal.wait_for_text("waiting for a decision");
    // Typed letters are a draft, not a decision.
    terminal.press("a s d");
    terminal.wait_for_text("› a s d");
    assert_eq!(runs(), "");
    terminal.press("\u{1b}OQ");
    let dialog = terminal.wait_for_text("a approve once");
    assert!(dialog.contains(r#"arguments: {"word":"first"}"#), "the exact action: {dialog}");
    terminal.press("a");
    terminal.wait_for_text("After first.");
    assert_eq!(runs().trim(), r#"{"word":"first"}"#);
    terminal.press("\u{15}");
    terminal.type_line("the second");
    terminal.wait_for_text("waiting for a decision");
    terminal.press("\u{1b}OQ");
    terminal.wait_for_text("a approve once");
    terminal.press("dnot today\r");
    terminal.wait_for_text("After second.");
    assert_eq!(runs().trim(), r#"{"word":"first"}"#);
    leave(&mut terminal);
    // In line mode, a decision is a line with a single word instead of a key.
    let mut plain = open(&system, &["--plain"]);
    plain.wait_for_text("All is well.");
    plain.type_line("the third");
    plain.wait_for_text("or [l]ater?");
    plain.type_line("a few more words");
    plain.wait_for_screen("another question", |screen| screen.matches("or [l]ater?").count() == 2);
    plain.type_line("approve");
    plain.wait_for_text("After third.");
    assert!(runs().contains("third"));
    // Ctrl+C at the question ends the client, and the request stays pending.
    plain.type_line("the fifth");
    plain.wait_for_screen("the question of the fifth", |screen| {
        let (_, behind) = screen.rsplit_once(r#"{"word":"fifth"}"#).unwrap_or_default();
        behind.contains("or [l]ater?")
    });
    plain.press(CONTROL_C);
    assert_eq!(plain.wait_for_end().signal(), Some(2));
    let mut terminal = open(&system, &["-c"]);
    terminal.wait_for_text("waiting for a decision");
    terminal.press("\u{1b}OQ");
    terminal.wait_for_text("a approve once");
    terminal.press("a");
    terminal.wait_for_text("After fifth.");
    leave(&mut terminal);
    // After an approval for the session, the same action needs no further approval.
    let mut terminal = open(&system, &["-c"]);
    terminal.wait_for_text("After fifth.");
    terminal.type_line("the fourth");
    terminal.wait_for_text("waiting for a decision");
    terminal.press("\u{1b}OQ");
    terminal.wait_for_text("s for the session");
    terminal.press("s");
    terminal.wait_for_text("After fourth.");
    terminal.type_line("the fourth again");
    terminal.wait_for_screen("the second run", |screen| screen.matches("After fourth.").count() == 2);
    assert_eq!(runs().matches("fourth").count(), 2);
}

/// Runs the client without a terminal, with this input.
fn piped(system: &System, arguments: &[&str], input: &str) -> Output {
    let mut command = client(system, arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn one_turn_in_a_pipe() {
    let refused =
        json!({"when": "refused", "events": [{"error": {"class": "auth", "message": "the key is not taken"}}]});
    let echoed = json!({"when": "the pipe", "events": [{"text": "I read the pipe."}]});
    let system = scripted(&[refused, echoed]);
    let printed = |output: &Output| {
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
            output.status.code(),
        )
    };
    let output = piped(&system, &["--print", "hello"], "");
    assert_eq!(printed(&output), ("An answer.\n".to_owned(), String::new(), Some(0)));
    for arguments in [&["--print"][..], &[], &["--print", "See:"]] {
        let output = piped(&system, arguments, "text of the pipe");
        assert_eq!(printed(&output), ("I read the pipe.\n".to_owned(), String::new(), Some(0)), "{arguments:?}");
    }
    let output = piped(&system, &["--print", "hello", "--json"], "");
    let events: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.first().unwrap()["type"], "operation_start");
    assert_eq!(events.last().unwrap()["type"], "submission_settled");
    let (stdout, stderr, status) = printed(&piped(&system, &["--print", "refused"], ""));
    assert_eq!((stdout.as_str(), status), ("", Some(75)), "{stderr}");
    assert!(stderr.starts_with("ken-tui: ") && stderr.contains("the key is not taken"), "{stderr}");
    let (_, stderr, status) = printed(&piped(&system, &["--print", "refused", "--json"], ""));
    let error: Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!((error["error"]["message"].is_string(), status), (true, Some(75)), "{error}");
    let (_, stderr, status) = printed(&piped(&system, &[], ""));
    assert!(status == Some(2) && stderr.contains("a question is missing"), "{stderr}");
    // No greeting, and a new session each time, except with -c.
    let sessions = system.ken(&["sessions", "--json"]).stdout;
    assert_eq!(String::from_utf8(sessions).unwrap().lines().count(), 7);
    piped(&system, &["-c", "--print", "again"], "");
    let sessions = system.ken(&["sessions", "--json"]).stdout;
    assert_eq!(String::from_utf8(sessions).unwrap().lines().count(), 7);
}

/// The provider refuses the key. Such a request is not repeated, and the reason is reported at once.
#[test]
fn without_a_usable_model_the_reason_is_reported_at_once() {
    let wrong_key = refusal(401, Vec::new(), "invalid_api_key", "Incorrect API key");
    let provider = Provider::start(vec![wrong_key]);
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=sk-canary\n")
        .start();
    assert_eq!(piped(&system, &["--print", "hello"], "").status.code(), Some(75));
    until("the gateway knows", || system.get("/ready").status == 503);
    let received = Instant::now();
    let again = piped(&system, &["--print", "hello"], "");
    let chat = system.ken(&["chat", "hello"]);
    // A temporary error would be retried for a minute.
    assert!(received.elapsed().as_secs() < 30, "after {:?}", received.elapsed());
    for output in [again, chat] {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.stdout.len(), output.status.code()), (0, Some(75)), "{stderr}");
        assert!(
            stderr.contains("openai/m: the provider refused the key") && stderr.contains("secrets.env"),
            "{stderr}"
        );
    }
    assert_eq!(provider.received().len(), 1);
}

#[test]
fn a_terminal_shows_what_the_client_waits_for() {
    let system = scripted(&[]);
    assert!(system.ken(&["stop", "store"]).status.success());
    let mut terminal = open(&system, &["--print", "hello"]);
    terminal.wait_for_text("ken-tui: waiting: ");
    assert!(system.ken(&["start", "store"]).status.success());
    terminal.wait_for_text("An answer.");
    assert!(terminal.wait_for_end().success());
}

#[test]
fn lines_without_a_screen() {
    let system = scripted(&[]);
    let mut terminal = open(&system, &["--plain"]);
    terminal.wait_for_text("All is well.");
    terminal.type_line("hello");
    terminal.wait_for_text("An answer.");
    terminal.type_line("hold on");
    terminal.wait_for_text("partial words");
    terminal.press(CONTROL_C);
    terminal.wait_for_text("ken-tui: the turn was cancelled");
    terminal.type_line("/exit");
    assert!(terminal.wait_for_end().success());
    let written = terminal.written();
    assert!(!written.contains('\u{1b}'), "no sequence at all: {written:?}");
    assert_eq!(written.matches("session tui-").count(), 2);
    // The same conversation continues, without a greeting.
    let mut again = open(&system, &["--plain", "-c"]);
    again.wait_for_screen("what was said", |screen| {
        screen.contains("> hello\nAn answer.") && screen.contains("> hold on")
    });
    again.type_line("more");
    again.wait_for_screen("an answer", |screen| screen.matches("An answer.").count() == 2);
    again.type_line("/exit");
    assert!(again.wait_for_end().success());
    let session = |terminal: &Terminal| {
        let written = terminal.written();
        written.lines().find_map(|line| line.trim().strip_prefix("session ").map(str::to_owned))
    };
    assert_eq!(session(&again), session(&terminal));
    assert!(!again.written().contains("Preflight"), "{}", again.written());
}

#[test]
fn a_secret_comes_from_a_private_file_or_the_environment() {
    let system = Builder::default()
        .config("[gateway]\ntrust_loopback = \"no\"\n")
        .secrets("API_SECRET=s3cret\n")
        .script(&[json!({"events": [{"text": "An answer."}]})])
        .start();
    let file = system.home().join("secret");
    std::fs::write(&file, "s3cret\n").unwrap();
    let url = system.url();
    let ask = |arguments: &[&str], secret: Option<&str>| {
        let mut command = Command::new(binary("ken-tui"));
        command.args(["--base-url", &url, "--print", "hello"]).args(arguments);
        command.env_clear().envs(secret.map(|secret| ("KEN_API_SECRET", secret)));
        command.stdin(Stdio::null()).output().unwrap()
    };
    let path = file.to_str().unwrap();
    let open_to_all = ask(&["--secret-file", path], None);
    let error = String::from_utf8(open_to_all.stderr).unwrap();
    assert!(error.contains("other users can read this secret") && error.contains("chmod 600"), "{error}");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for output in [ask(&["--secret-file", path], None), ask(&[], Some("s3cret"))] {
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "An answer.\n",
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let wrong = ask(&[], Some("another"));
    assert!(!wrong.status.success());
    assert!(!String::from_utf8(wrong.stderr).unwrap().contains("another"));
}
