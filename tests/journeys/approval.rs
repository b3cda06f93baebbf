//! An approval finds its person: the shipped coding worker asks, and every screen shows what it asks for, within a second,
//! until somebody decides anywhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ken_tests::bot_api::{BotApi, InjectedFailure, SECRET, TOKEN};
use ken_tests::{Answer, Builder, System, Terminal, binary, on_terminal, until};
use ken_types::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const F2: &str = "\u{1b}OQ";
const CONTROL_U: &str = "\u{15}";
const PENDING: &str = "/api/approvals/pending";
/// What the worker writes: with a directional mark, a character without a width and a control sequence.
const NOTE: &str = "Adds numbers.\nrun \u{202e}txt.sh\u{200b}\u{1b}[2J\n";

/// A model that delegates each of these prompts to the coding worker.
fn script() -> Vec<Value> {
    let long: String = (0..600).map(|number| format!("line {number:04} of a long file\n")).collect();
    let medium: String = (0..150).map(|number| format!("line {number:04} of a file, {}\n", "x".repeat(30))).collect();
    let huge: String = (0..6_000).map(|number| format!("line {number:04} of a huge file\n")).collect();
    let write = |path: &str, content: &str| ("write_file", json!({"path": path, "content": content}));
    let command = json!({"argv": ["sh"], "cwd": "repos/site", "stdin": "echo PWNED > NOTE\n"});
    let tasks = [
        ("the note", write("repos/site/NOTE", NOTE)),
        ("the medium file", write("repos/site/MEDIUM", &medium)),
        ("the long file", write("repos/site/LONG", &long)),
        ("the huge file", write("repos/site/HUGE", &huge)),
        ("the command", ("run_command", command)),
    ];
    let text =
        |when: &str, after: usize, text: &str| json!({"when": when, "after_tools": after, "events": [{"text": text}]});
    let call = |when: &str, name: &str, arguments: &Value| json!({"when": when, "after_tools": 0, "events": [{"tool": {"name": name, "arguments": arguments}}]});
    let mut lines = vec![json!({"when": "Preflight report", "events": [{"text": "All is well."}]})];
    for (what, (tool, arguments)) in tasks {
        let task = format!("worker: {what}");
        lines.push(call(&task, tool, &arguments));
        lines.push(text(&task, 1, "Tried."));
        lines.push(call(what, "task", &json!({"agent": "coding-worker", "prompt": task})));
        lines.push(text(what, 1, "The turn is over."));
    }
    for (file, after) in [("ONE", 0), ("TWO", 1)] {
        let arguments = json!({"path": format!("repos/site/{file}"), "content": "A number.\n"});
        let call = json!({"tool": {"name": "write_file", "arguments": arguments}});
        lines.push(json!({"when": "worker: two of them", "after_tools": after, "events": [call]}));
    }
    lines.push(text("worker: two of them", 2, "Tried."));
    lines.push(call("two of them", "task", &json!({"agent": "coding-worker", "prompt": "worker: two of them"})));
    lines.push(text("two of them", 1, "The turn is over."));
    lines.push(json!({"events": [{"text": "An answer."}]}));
    lines
}

fn builder() -> Builder {
    Builder::default().script(&script())
}

fn started(builder: Builder) -> System {
    let system = builder.start();
    std::fs::create_dir_all(site(&system)).unwrap();
    system
}

fn site(system: &System) -> PathBuf {
    system.home().join("state/workspace/repos/site")
}

fn client(system: &System, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary("ken-tui"));
    command.env("KEN_HOME", system.home()).args(arguments);
    command
}

fn open(system: &System, arguments: &[&str]) -> Terminal {
    Terminal::start(&client(system, arguments), 110, 40)
}

fn pending(system: &System) -> Vec<Value> {
    system.get(PENDING).expect(200).json().as_array().unwrap().clone()
}

/// Waits for the only pending request.
fn request(system: &System) -> Value {
    until("a request is pending", || pending(system).len() == 1);
    pending(system).remove(0)["request"].clone()
}

fn decide(system: &System, request: &Value, approved: bool) {
    let target = format!("/api/approvals/{}/decision", request["id"].as_str().unwrap());
    system.post(&target, &json!({"decidedBy": "ada", "approved": approved})).expect(200);
}

/// Checks that a screen showed a request within a second of its record. `seen` is the time at which it was seen.
#[track_caller]
fn is_within_a_second(request: &Value, seen: Timestamp) {
    let created: Timestamp = serde_json::from_value(request["createdAt"].clone()).unwrap();
    let late = seen.millis() - created.millis();
    assert!(late < 1_000, "{late} ms after the record");
}

#[track_caller]
fn sees(terminal: &Terminal, text: &str) -> (String, Timestamp) {
    let screen = terminal.wait_for_text(text);
    (screen, Timestamp::now())
}

/// The name that is recorded with a decision of this user.
fn me() -> String {
    let output = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_screen_shows_it_in_a_row_and_in_the_dialog_in_every_client_that_is_open() {
    let system = started(builder());
    let mut terminal = open(&system, &[]);
    terminal.wait_for_text("All is well.");
    terminal.type_line("the note");
    let (screen, seen) = sees(&terminal, "+Adds numbers.");
    let request = request(&system);
    is_within_a_second(&request, seen);
    for text in [
        "approval: Edit repos/site/NOTE",
        "where: repos/site/NOTE",
        "risk:  low",
        "waiting for a decision",
        "F2 decides",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    assert!(screen.contains("run <U+202E>txt.sh<U+200B>␛[2J"), "{screen}");
    // Typed letters are a draft until the dialog is open, and decide nothing.
    terminal.press("a s d");
    terminal.wait_for_text("› a s d");
    terminal.press(CONTROL_U);
    terminal.press(F2);
    let (dialog, _) = sees(&terminal, "a approve once");
    let position = |text: &str| dialog.find(text).unwrap_or_else(|| panic!("{text}: {dialog}"));
    let order = ["Edit repos/site/NOTE", "where:", "why:", "risk:", "+Adds numbers."].map(position);
    assert!(order.is_sorted(), "{order:?} {dialog}");
    let digest = request["metadata"]["action"]["files"][0]["after"]["digest"].as_str().unwrap();
    assert!(!dialog.contains(&digest[..16]) && !dialog.contains("33188"), "{dialog}");
    terminal.press("xyz");
    // A second client that continues the session shows the same.
    let session = request["metadata"]["sessionId"].as_str().unwrap();
    let mut second = open(&system, &["--session", session]);
    second.wait_for_text("+Adds numbers.");
    second.press(F2);
    second.wait_for_text("a approve once");
    terminal.press("a");
    let by = format!("approved by {}", me());
    terminal.wait_for_text(&by);
    assert!(!terminal.screen().contains("xyz"), "keys went into the editor: {}", terminal.screen());
    // A key that was meant for the dialog only closes it.
    second.wait_for_screen("what became of it", |screen| {
        screen.contains(&format!("{by} · any key closes")) && !screen.contains("a approve once")
    });
    second.press("a");
    second.wait_for_screen("the dialog closed", |screen| screen.contains(&by) && !screen.contains("any key closes"));
    for terminal in [&terminal, &second] {
        terminal.wait_for_text("The turn is over.");
    }
    // Whoever opens the session later reads what was asked, who decided, and when.
    let row = |screen: &str| {
        screen.lines().find(|line| line.contains("approval: Edit")).unwrap_or_default().trim().to_owned()
    };
    terminal.wait_for_screen("the time of the decision", |screen| row(screen).ends_with("UTC"));
    let decided = row(&terminal.screen());
    assert!(decided.contains("approval: Edit repos/site/NOTE  approved by "), "{decided}");
    // The row below the screen shows the end of the id, so that is enough.
    let end = &session[session.len() - 8..];
    assert!(terminal.screen().contains(&format!(" {end} · ")), "{}", terminal.screen());
    let third = open(&system, &["--session", end]);
    third.wait_for_text("The turn is over.");
    assert_eq!(row(&third.screen()), decided, "{}", third.screen());
    let plain = open(&system, &["--plain", "--session", session]);
    plain.wait_for_text("[approval: Edit repos/site/NOTE: approved by ");
    assert_eq!(std::fs::read_to_string(site(&system).join("NOTE")).unwrap(), NOTE);
    assert!(pending(&system).is_empty());
}

/// The client is open, and the prompt comes from another one.
#[test]
fn a_client_that_is_open_already_shows_it() {
    let system = started(builder());
    let terminal = open(&system, &[]);
    let screen = terminal.wait_for_text("All is well.");
    let session = screen.split("session ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    let mut chat = system.command(&["chat", "-s", session, "the command"]);
    let mut chat = chat.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let (screen, seen) = sees(&terminal, "echo PWNED > NOTE");
    let request = request(&system);
    is_within_a_second(&request, seen);
    for text in ["command: sh", "input (18 bytes):", "network: none", "may change: "] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    decide(&system, &request, false);
    terminal.wait_for_text("denied by ada");
    terminal.wait_for_text("The turn is over.");
    assert!(chat.wait().unwrap().success());
    assert!(!site(&system).join("NOTE").exists());
}

#[test]
fn line_mode_asks_and_stops_asking_when_it_is_decided_elsewhere() {
    let system = started(builder());
    let mut plain = open(&system, &["--plain"]);
    plain.wait_for_text("All is well.");
    plain.type_line("the note");
    let (screen, seen) = sees(&plain, "[a]pprove once");
    let first = request(&system);
    is_within_a_second(&first, seen);
    assert!(screen.contains("+Adds numbers.") && screen.contains("<U+202E>"), "{screen}");
    plain.type_line("a quick question");
    plain.wait_for_screen("the question again", |screen| screen.matches("[a]pprove once").count() == 2);
    plain.type_line("d not today");
    plain.wait_for_text(&format!("denied by {}", me()));
    plain.wait_for_text("The turn is over.");
    let record = system.get(&format!("/api/approvals/{}", first["id"].as_str().unwrap())).expect(200).json();
    assert_eq!(record["decision"]["reason"], "not today");
    // A resumed session asks, too.
    plain.type_line("the note");
    plain.wait_for_screen("a third question", |screen| screen.matches("[a]pprove once").count() == 3);
    let second = request(&system);
    let session = second["metadata"]["sessionId"].as_str().unwrap();
    let resumed = open(&system, &["--plain", "--session", session]);
    resumed.wait_for_text("[a]pprove once");
    decide(&system, &second, true);
    for (terminal, turns) in [(&plain, 2), (&resumed, 2)] {
        terminal.wait_for_text("approved by ada");
        terminal.wait_for_screen("the end", |screen| screen.matches("The turn is over.").count() == turns);
    }
    assert_eq!(std::fs::read_to_string(site(&system).join("NOTE")).unwrap(), NOTE);
}

/// A program with nothing to read and no terminal.
fn unattended(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A program without a terminal, with a pipe to write to.
fn piped(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the program has ended, and returns its output.
fn ended(child: Child) -> (String, String, Option<i32>) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(stdout), text(stderr), status.code())
}

/// The command in a line like `ken --home DIR approve apr_…`, with the program that the tests use.
fn command_of(line: &str, verb: &str) -> Command {
    let commands = line.split('`').filter(|part| part.starts_with("ken "));
    let mut commands = commands.filter(|command| command.split(' ').any(|word| word == verb));
    let found = commands.next().unwrap_or_else(|| panic!("no command to {verb}: {line}"));
    let mut command = Command::new("sh");
    command.arg("-c").arg(found.replacen("ken ", &format!("{} ", binary("ken").display()), 1));
    command
}

#[test]
fn without_a_terminal_one_line_says_what_to_type_and_nothing_is_asked() {
    let system = started(builder());
    let home = system.home().display().to_string();
    let mut chat = Command::new(binary("ken"));
    chat.args(["--home", &home, "chat", "the note"]);
    let mut events = Command::new(binary("ken"));
    events.args(["--home", &home, "chat", "--events", "the note"]);
    for (verb, command) in [
        ("approve", chat),
        ("deny", events),
        ("approve", client(&system, &["--print", "the note"])),
        ("deny", client(&system, &["--print", "the note", "--json"])),
    ] {
        _ = std::fs::remove_file(site(&system).join("NOTE"));
        let mut child = piped(command);
        // Whatever stands in the pipe decides nothing.
        let mut stdin = child.stdin.take().unwrap();
        _ = stdin.write_all(b"a\na\n");
        drop(stdin);
        let mut stderr = child.stderr.take().unwrap();
        let first = request(&system);
        let printed = std::thread::spawn(move || {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut stderr, &mut text).unwrap();
            text
        });
        std::thread::sleep(Duration::from_millis(700));
        assert_eq!(pending(&system).len(), 1, "nothing is decided");
        let id = first["id"].as_str().unwrap();
        let word = format!("`ken --home {home} {verb} {id}`");
        let shown = format!("`ken --home {home} approvals {id}`");
        let output = command_of(&word, verb).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (_, _, status) = ended(child);
        assert_eq!(status, Some(0));
        let stderr = printed.join().unwrap();
        let lines: Vec<&str> = stderr.lines().collect();
        assert!(lines[0].contains("waiting for a decision: Edit repos/site/NOTE"), "{stderr}");
        assert!(lines[0].contains(&word) && lines[0].contains(&shown), "{stderr}");
        let outcome = if verb == "approve" { "approved" } else { "denied" };
        assert!(lines.len() == 2 && lines[1].contains(&format!("{outcome} by {}", me())), "{stderr}");
        let show = system.ken(&["approvals", id]);
        let show = String::from_utf8(show.stdout).unwrap();
        assert!(show.contains("+Adds numbers.") && show.contains(&format!("{outcome} by")), "{show}");
    }
}

fn chat(system: &System, arguments: &[&str]) -> Terminal {
    Terminal::start(&system.command(arguments), 110, 40)
}

#[test]
fn ken_chat_on_a_terminal_asks() {
    let system = started(builder());
    let mut terminal = chat(&system, &["chat", "--wait", "2s", "the note"]);
    let (screen, seen) = sees(&terminal, "[a]pprove once, for this [s]ession, [d]eny");
    let first = request(&system);
    is_within_a_second(&first, seen);
    let order = ["Edit repos/site/NOTE", "where:", "why:", "risk:", "+Adds numbers."].map(|text| screen.find(text));
    assert!(order.iter().all(Option::is_some) && order.is_sorted(), "{screen}");
    // The wait for a person is longer than the client would wait for data.
    std::thread::sleep(Duration::from_secs(4));
    terminal.type_line("perhaps");
    terminal.wait_for_screen("the question again", |screen| screen.matches("[a]pprove once").count() == 2);
    terminal.type_line("s");
    terminal.wait_for_text(&format!("approved for the session by {}", me()));
    terminal.wait_for_text("The turn is over.");
    assert!(terminal.wait_for_end().success());
    let record = system.get(&format!("/api/approvals/{}", first["id"].as_str().unwrap())).expect(200).json();
    assert_eq!(record["decision"]["scope"], "session");
}

#[test]
fn ken_chat_stops_asking_when_it_is_decided_elsewhere_or_put_off() {
    let system = started(builder());
    let mut terminal = chat(&system, &["chat", "the command"]);
    terminal.wait_for_text("[a]pprove once");
    decide(&system, &request(&system), false);
    terminal.wait_for_text("denied by ada");
    terminal.wait_for_text("The turn is over.");
    assert!(terminal.wait_for_end().success());
    let mut terminal = chat(&system, &["chat", "the command"]);
    terminal.wait_for_text("[a]pprove once");
    terminal.type_line("l");
    terminal.wait_for_text("ken: waiting for a decision: Run sh in repos/site");
    decide(&system, &request(&system), false);
    terminal.wait_for_text("The turn is over.");
    assert!(terminal.wait_for_end().success());
}

/// Standard input is no terminal, so nobody is asked; the progress line says what the turn waits for.
#[test]
fn the_progress_line_says_that_a_decision_is_waited_for() {
    let system = started(builder());
    let command = system.command(&["chat", "the note"]);
    let shown = std::thread::spawn(move || on_terminal(command));
    let request = request(&system);
    std::thread::sleep(Duration::from_millis(3_500));
    decide(&system, &request, true);
    let (printed, status) = shown.join().unwrap();
    assert_eq!(status, 0);
    assert!(printed.contains("ken: waiting for a decision: Edit repos/site/NOTE · "), "{printed}");
    assert!(printed.contains("approved by ada") && !printed.contains("[a]pprove"), "{printed}");
}

/// The diff is longer than a request can hold. Each terminal shows all of it, and only then it can be approved.
#[test]
fn a_long_diff_is_read_whole_on_every_terminal_before_it_is_approved() {
    let system = started(builder());
    let written = site(&system).join("HUGE");
    let last = "+line 5999 of a huge file";
    // On the screen, End goes to the last line. An approval for the session is not offered.
    let mut terminal = open(&system, &[]);
    terminal.wait_for_text("All is well.");
    terminal.type_line("the huge file");
    terminal.wait_for_text("waiting for a decision");
    let first = request(&system);
    assert!(first["metadata"]["whole"]["bytes"].as_u64().is_some_and(|bytes| bytes > 128 * 1024), "{first}");
    terminal.press(F2);
    let dialog = terminal.wait_for_text("a approve once · d deny");
    assert!(dialog.contains("+line 0000 of a huge file") && dialog.contains(" of 6"), "{dialog}");
    terminal.press("s");
    terminal.press("\u{1b}[F");
    terminal.wait_for_text(last);
    assert!(!written.exists());
    terminal.press("a");
    terminal.wait_for_text("The turn is over.");
    assert!(std::fs::read_to_string(&written).unwrap().ends_with("line 5999 of a huge file\n"));
    // In the pager of the environment.
    std::fs::remove_file(&written).unwrap();
    let paged = system.home().join("paged");
    let mut command = system.command(&["chat", "the huge file"]);
    command.env("PAGER", format!("cat > {}", paged.display()));
    let mut terminal = Terminal::start(&command, 110, 40);
    let screen = terminal.wait_for_text("[a]pprove once");
    assert!(!screen.contains("[s]ession"), "{screen}");
    let shown = std::fs::read_to_string(&paged).unwrap();
    assert!((0..6_000).all(|number| shown.contains(&format!("+line {number:04} of a huge file\n"))));
    assert!(!written.exists());
    terminal.type_line("a");
    terminal.wait_for_text("The turn is over.");
    assert!(terminal.wait_for_end().success() && written.exists());
    // On the command line, with the digest that stands below the diff.
    std::fs::remove_file(&written).unwrap();
    let child = unattended(system.command(&["chat", "the huge file"]));
    let last_request = request(&system);
    let id = last_request["id"].as_str().unwrap();
    let bare = system.ken(&["approve", id]);
    assert_eq!(bare.status.code(), Some(2), "{bare:?}");
    let shown = String::from_utf8(system.ken(&["approvals", id]).stdout).unwrap();
    assert!((0..6_000).all(|number| shown.contains(&format!("+line {number:04} of a huge file\n"))));
    let to_type = shown.lines().last().unwrap().strip_prefix("to approve it: ").unwrap();
    assert!(to_type.contains("--digest"), "{to_type}");
    let output = command_of(&format!("`{to_type}`"), "approve").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (_, stderr, status) = ended(child);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("shows it and how to approve it"), "{stderr}");
    assert!(written.exists());
}

/// Leaves a request behind, as of a terminal that was closed. Returns it, and its session.
fn left_behind(system: &System, prompt: &str) -> (Value, String) {
    let terminal = chat(system, &["chat", prompt]);
    terminal.wait_for_text("[a]pprove once");
    drop(terminal);
    let request = request(system);
    let session = request["metadata"]["sessionId"].as_str().unwrap().to_owned();
    (request, session)
}

/// The next turn of the session waits for the request, and its client shows it, once.
#[test]
fn a_request_that_was_left_behind_is_shown_by_the_client_of_the_next_turn() {
    let system = started(builder());
    let (left, session) = left_behind(&system, "the note");
    let id = left["id"].as_str().unwrap();
    let clients = [
        unattended(system.command(&["chat", "--wait", "1s", "-s", &session, "more"])),
        unattended(system.command(&["chat", "--wait", "1s", "--events", "-c", "more"])),
        unattended(client(&system, &["--session", &session, "--print", "more"])),
        unattended(client(&system, &["-c", "--print", "more", "--json"])),
    ];
    until("all turns are queued", || {
        let runs = system.get("/api/telemetry/runs?limit=10").expect(200).json();
        runs["runs"].as_array().unwrap().iter().filter(|run| run["status"] == "queued").count() == clients.len()
    });
    let why: Value = serde_json::from_slice(&system.ken(&["why", "last", "--json"]).stdout).unwrap();
    let front = left["metadata"]["submissionId"].as_str().unwrap();
    let cause = format!("It waits for the end of the turn {front}, which waits for a decision: `ken approvals {id}`.");
    assert_eq!((&why["status"], &why["cause"]), (&json!("queued"), &json!(cause)));
    // The wait for a person is longer than the clients would wait for data.
    std::thread::sleep(Duration::from_secs(3));
    decide(&system, &left, false);
    for client in clients {
        let (stdout, stderr, status) = ended(client);
        let lines: Vec<&str> = stderr.lines().collect();
        assert_eq!((lines.len(), status), (2, Some(0)), "{stderr}");
        assert!(lines[0].contains("waiting for a decision: Edit repos/site/NOTE"), "{stderr}");
        assert!(["approve", "deny"].iter().all(|verb| lines[0].contains(&format!(" {verb} {id}`"))), "{stderr}");
        assert!(lines[1].contains("denied by ada") && lines[1].ends_with(": Edit repos/site/NOTE"), "{stderr}");
        // The events are those of the own turn.
        assert!(stdout == "An answer.\n" || !stdout.is_empty() && !stdout.contains("approval_"), "{stdout}");
    }
    // Each of two requests of the turn before is asked about once, wherever the other one is decided.
    left_behind(&system, "two of them");
    let mut terminal = chat(&system, &["chat", "-c", "more"]);
    terminal
        .wait_for_screen("the first", |screen| screen.contains("repos/site/ONE") && screen.contains("[a]pprove once"));
    terminal.type_line("a");
    terminal.wait_for_screen("the second", |screen| screen.matches("[a]pprove once").count() == 2);
    let second = request(&system);
    assert_eq!(second["target"], "repos/site/TWO");
    decide(&system, &second, true);
    terminal.wait_for_text("approved by ada");
    terminal.wait_for_text("An answer.");
    assert!(terminal.wait_for_end().success());
    assert_eq!(terminal.written().matches("A decision is needed").count(), 2, "{}", terminal.written());
    assert!(site(&system).join("ONE").exists() && site(&system).join("TWO").exists());
    // In line mode, the turn of another client comes before a prompt that is typed.
    let mut plain = open(&system, &["--plain", "-c"]);
    plain.wait_for_text("> more");
    let other = unattended(system.command(&["chat", "-c", "the note"]));
    assert_eq!(request(&system)["target"], "repos/site/NOTE");
    plain.type_line("and now?");
    plain.wait_for_text("[a]pprove once");
    plain.type_line("d");
    plain.wait_for_text(&format!("denied by {}", me()));
    plain.wait_for_screen("its own answer", |screen| screen.matches("An answer.").count() == 2);
    assert_eq!(ended(other).2, Some(0));
}

/// A turn that was only queued ends before the one that it waited for, and leaves its questions.
#[test]
fn a_question_stays_when_a_queued_turn_is_cancelled() {
    let system = started(builder());
    let mut terminal = chat(&system, &["chat", "the note"]);
    terminal.wait_for_text("[a]pprove once");
    let asked = request(&system);
    let session = asked["metadata"]["sessionId"].as_str().unwrap();
    let mut printing = unattended(client(&system, &["--session", session, "--print", "more"]));
    let mut noted = BufReader::new(printing.stderr.take().unwrap());
    noted.read_line(&mut String::new()).unwrap();
    for _ in 0..2 {
        cancel_queued(&system, system.command(&["chat", "-s", session, "again"]), 2);
    }
    terminal.type_line("a");
    terminal.wait_for_text("The turn is over.");
    assert!(terminal.wait_for_end().success());
    let written = terminal.written();
    assert!(!written.contains("cancelled") && written.contains("approved by "), "{written}");
    let mut said = String::new();
    noted.read_to_string(&mut said).unwrap();
    assert!(printing.wait().unwrap().success() && said.lines().count() == 1 && said.contains("approved by "), "{said}");
}

/// Queues a turn, so that as many are queued, and cancels it with Ctrl+C.
fn cancel_queued(system: &System, mut command: Command, count: usize) {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it is queued", || {
        let runs = system.get("/api/telemetry/runs?limit=10").expect(200).json();
        runs["runs"].as_array().unwrap().iter().filter(|run| run["status"] == "queued").count() == count
    });
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert!(!child.wait_with_output().unwrap().status.success(), "it was cancelled");
}

/// Nobody decides, and the turn goes on by itself.
#[test]
fn a_request_that_expires_is_no_question_of_the_next_turn_any_more() {
    let system = started(builder().config("[approvals]\nexpiry_ms = 4000\n"));
    let (left, session) = left_behind(&system, "the note");
    let mut terminal = chat(&system, &["chat", "-s", &session, "more"]);
    terminal.wait_for_text("[a]pprove once");
    terminal.wait_for_text("expired: Edit repos/site/NOTE");
    terminal.wait_for_text("An answer.");
    assert!(terminal.wait_for_end().success());
    let id = left["id"].as_str().unwrap();
    assert_eq!(system.get(&format!("/api/approvals/{id}")).expect(200).text("/status"), "expired");
}

#[test]
fn only_what_can_be_decided_is_completed() {
    let system = started(builder());
    let offered = |verb: &str| {
        let output = String::from_utf8(system.ken(&["complete", "--", verb, ""]).stdout).unwrap();
        let word = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        output.lines().map(word).collect::<Vec<_>>()
    };
    assert_eq!(offered("approve"), [""; 0]);
    let first = unattended(system.command(&["chat", "the note"]));
    let one = request(&system)["id"].as_str().unwrap().to_owned();
    for verb in ["approve", "deny", "approvals"] {
        assert_eq!(offered(verb), ["last", &one], "{verb}");
    }
    let second = unattended(system.command(&["chat", "the command"]));
    until("another one is pending", || pending(&system).len() == 2);
    let two = pending(&system)[1]["requestId"].as_str().unwrap().to_owned();
    assert_eq!(offered("deny"), [one.clone(), two.clone()]);
    decide(&system, &pending(&system)[0]["request"], false);
    assert_eq!((offered("deny"), offered("approvals").len()), (vec!["last".to_owned(), two], 3));
    decide(&system, &request(&system), false);
    assert_eq!(offered("approve"), [""; 0]);
    for child in [first, second] {
        assert_eq!(ended(child).2, Some(0));
    }
}

#[test]
fn the_status_counts_what_waits() {
    let system = started(builder());
    let note = |system: &System| String::from_utf8(system.ken(&["status"]).stderr).unwrap();
    assert!(!note(&system).contains("wait"), "{}", note(&system));
    let child = unattended(system.command(&["chat", "the note"]));
    let request = request(&system);
    assert!(note(&system).contains("1 approval waits for a decision: `ken approvals`"), "{}", note(&system));
    decide(&system, &request, true);
    assert!(!note(&system).contains("decision"), "{}", note(&system));
    assert_eq!(ended(child).2, Some(0));
}

/// The stream has one event for the request and one for the decision, of the agent itself, which name the worker.
#[test]
fn the_stream_has_each_approval_once() {
    let system = started(builder());
    let child = unattended(system.command(&["chat", "the note"]));
    let request = request(&system);
    decide(&system, &request, true);
    assert_eq!(ended(child).2, Some(0));
    let session = request["metadata"]["sessionId"].as_str().unwrap();
    let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200).json();
    let of_type =
        |kind: &str| events.as_array().unwrap().iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    let task = of_type("task_start")[0]["taskId"].clone();
    for kind in ["approval_requested", "approval_decided"] {
        let [event] = of_type(kind)[..] else { panic!("{events}") };
        assert_eq!((&event["requestId"], &event["agent"]), (&request["id"], &json!("coding-worker")), "{event}");
        assert_eq!((&event["session"], event.get("parentSession")), (&json!("default"), None), "{event}");
        assert_eq!(event["taskId"], task, "{event}");
        let worker = event["workerSession"].as_str().unwrap();
        assert_eq!(worker, format!("task:default:{}", task.as_str().unwrap()));
    }
    assert_eq!(of_type("approval_decided")[0]["decidedBy"], "ada");
}

fn messenger(platform: &BotApi) -> System {
    let secrets = format!("MESSENGER_BOT_TOKEN={TOKEN}\nMESSENGER_WEBHOOK_SECRET_TOKEN={SECRET}\n");
    started(
        builder()
            .secrets(&secrets)
            .env("MESSENGER_API_BASE_URL", &platform.url())
            .env("MESSENGER_APPROVED_USER_IDS", "7")
            .env("MESSENGER_BOT_USERNAME", "ken_bot"),
    )
}

fn send(system: &System, update: &Value) -> Answer {
    let mut client = system.client();
    let request = client.request("POST", "/channels/messenger/webhook");
    request.header("X-Telegram-Bot-Api-Secret-Token", SECRET).json(update).send().expect(200)
}

fn say(system: &System, id: u64, text: &str) {
    send(
        system,
        &json!({"update_id": id, "message": {"message_id": id, "date": 1, "text": text,
            "from": {"id": 7, "is_bot": false, "first_name": "Ada"}, "chat": {"id": 7, "type": "private"}}}),
    );
}

fn press(system: &System, id: u64, data: &str) {
    send(
        system,
        &json!({"update_id": id, "callback_query": {"id": format!("q{id}"), "from": {"id": 7}, "data": data,
            "message": {"message_id": 1, "chat": {"id": 7}}}}),
    );
}

/// The messages of the chat from the number `from` on, as a person reads them: without tags and entities.
fn read(platform: &BotApi, from: usize) -> Vec<String> {
    let plain = |html: &String| {
        let tags = ["b", "i", "s", "code", "pre"];
        let mut text = html.replace("<code class=\"language-diff\">", "");
        for tag in tags {
            text = text.replace(&format!("<{tag}>"), "").replace(&format!("</{tag}>"), "");
        }
        text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    };
    platform.texts(7).iter().skip(from).map(plain).collect()
}

/// The buttons of the newest message: their texts and data.
fn buttons(platform: &BotApi) -> Vec<(String, String)> {
    let calls = platform.calls("sendMessage");
    let rows = calls.last().unwrap().body["reply_markup"]["inline_keyboard"].clone();
    let text = |button: &Value, name: &str| button[name].as_str().unwrap().to_owned();
    let row = rows.get(0).and_then(Value::as_array).cloned().unwrap_or_default();
    row.iter().map(|button| (text(button, "text"), text(button, "callback_data"))).collect()
}

/// Waits until the whole request is shown in a chat, which ends with `end`.
fn shown(platform: &BotApi, from: usize, end: &str) -> Vec<String> {
    until("the request is shown", || read(platform, from).last().is_some_and(|text| text.contains(end)));
    read(platform, from)
}

fn last_edit(platform: &BotApi) -> String {
    let edits = platform.calls("editMessageText");
    edits.last().map(|call| call.body["text"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn the_messenger_shows_the_change_and_what_a_command_gets() {
    let platform = BotApi::start();
    let system = messenger(&platform);
    say(&system, 1, "the note");
    let texts = shown(&platform, 0, "It waits for a decision");
    let seen = Timestamp::now();
    let note = request(&system);
    is_within_a_second(&note, seen);
    assert_eq!(texts.len(), 1);
    for text in ["Edit repos/site/NOTE", "why: ", "risk: low", "+Adds numbers.", "run <U+202E>txt.sh<U+200B>␛[2J"] {
        assert!(texts[0].contains(text), "{text}: {texts:?}");
    }
    assert!(platform.texts(7)[0].contains("<pre><code class=\"language-diff\">"), "{:?}", platform.texts(7));
    let digest = note["metadata"]["action"]["files"][0]["after"]["digest"].as_str().unwrap();
    assert!(!texts[0].contains(&digest[..16]), "{texts:?}");
    press(&system, 2, &buttons(&platform)[0].1);
    until("the decision is shown", || last_edit(&platform).contains("approved by"));
    assert!(last_edit(&platform).contains("+Adds numbers."), "{}", last_edit(&platform));
    shown(&platform, 1, "The turn is over.");
    assert_eq!(std::fs::read_to_string(site(&system).join("NOTE")).unwrap(), NOTE);
    // A command is shown with its input.
    let before = platform.texts(7).len();
    say(&system, 3, "the command");
    let texts = shown(&platform, before, "It waits for a decision");
    for text in ["command: sh", "input (18 bytes):", "echo PWNED > NOTE", "network: none"] {
        assert!(texts[0].contains(text), "{text}: {texts:?}");
    }
    decide(&system, &request(&system), false);
    until("the decision is shown", || last_edit(&platform).contains("denied by ada"));
    let edit = platform.calls("editMessageText").pop().unwrap();
    assert!(edit.body.get("reply_markup").is_none(), "{edit:?}");
}

#[test]
fn the_messenger_does_not_let_approve_what_it_does_not_show_whole() {
    let platform = BotApi::start();
    let system = messenger(&platform);
    // Up to three messages are shown, with the buttons below the last one.
    say(&system, 1, "the medium file");
    let texts = shown(&platform, 0, "It waits for a decision");
    assert!((2..=3).contains(&texts.len()), "{}", texts.len());
    let all = texts.concat();
    assert!((0..150).all(|number| all.contains(&format!("+line {number:04} of a file"))), "{all}");
    let with_buttons =
        platform.calls("sendMessage").iter().filter(|call| call.body.get("reply_markup").is_some()).count();
    assert_eq!((with_buttons, buttons(&platform).len()), (1, 2));
    let approve = buttons(&platform)[0].1.clone();
    decide(&system, &request(&system), false);
    until("the decision is shown", || last_edit(&platform).contains("denied by ada"));
    shown(&platform, texts.len(), "The turn is over.");
    // A longer one is named, and can be denied only.
    let before = platform.texts(7).len();
    say(&system, 2, "the long file");
    let texts = shown(&platform, before, "It waits for a decision");
    let long = request(&system);
    let id = long["id"].as_str().unwrap();
    assert_eq!(texts.len(), 1);
    assert!(
        texts[0].contains("cannot be approved here") && texts[0].contains(&format!("ken approvals {id}")),
        "{texts:?}"
    );
    let offered: Vec<String> = buttons(&platform).into_iter().map(|(text, _)| text).collect();
    assert_eq!(offered, ["Deny"]);
    press(&system, 3, &approve);
    assert_eq!(pending(&system).len(), 1);
    // Elsewhere it is shown whole.
    let whole = String::from_utf8(system.ken(&["approvals", id]).stdout).unwrap();
    assert!((0..600).all(|number| whole.contains(&format!("+line {number:04} of a long file"))));
    press(&system, 4, &buttons(&platform)[0].1);
    until("the decision is shown", || last_edit(&platform).contains("denied by"));
}

/// It is unknown whether the first message of a request arrived. So nobody may press a button below the second one.
#[test]
fn below_a_text_that_may_have_a_gap_there_is_no_button() {
    let platform = BotApi::start();
    let system = messenger(&platform);
    platform.next("sendMessage", InjectedFailure::TakeAndClose);
    say(&system, 1, "the medium file");
    let texts = shown(&platform, 0, "It waits for a decision");
    assert!(texts.len() >= 2, "{texts:?}");
    assert!(platform.calls("sendMessage").iter().all(|call| call.body.get("reply_markup").is_none()));
    decide(&system, &request(&system), false);
}
