//! `ken sessions rm`: a conversation is deleted for good, and no file of the home contains what was said in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ken_tests::provider::{Piece, Provider, ReceivedRequest, Reply, openai};
use ken_tests::{Builder, System, Terminal, binary, until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// Words that occur nowhere else: one that the person writes, one that the model answers, and the beginning of an image.
const ASKED: &str = "zyzzogeton";
const ANSWERED: &str = "quoxapith";
const IMAGE: &str = "iVBORw0KGgpxdW94YXBpdGg1";
/// How long an idle system has to overwrite what was deleted.
const IDLE: Duration = Duration::from_secs(10);

fn reply(request: &ReceivedRequest) -> Reply {
    let prompt = request.prompt().to_string();
    let messages = request.body["messages"].as_array().unwrap();
    let results = messages.iter().rev().take_while(|message| message["role"] != "user");
    let results = results.filter(|message| message["role"] == "tool").count();
    let entry = json!({"title": format!("About {ASKED}"), "content": format!("{ANSWERED} is what it is")});
    let write = json!({"path": "repos/site/NOTE", "content": "Nothing to see.\n"});
    let task = json!({"agent": "coding-worker", "prompt": format!("worker: replace {ASKED}")});
    let call = match () {
        () if results > 0 => None,
        () if prompt.contains("worker:") => Some(("write_file", write)),
        () if prompt.contains("the note") => Some(("task", task)),
        () if prompt.contains("Remember") => Some(("knowledge_add", entry)),
        () => None,
    };
    if prompt.contains("for ever") {
        let mut pieces = openai(&[ANSWERED], &[]);
        pieces.truncate(2);
        pieces.push(Piece::UntilGone);
        return Reply::Stream(pieces);
    }
    Reply::Stream(match call {
        Some((name, arguments)) => openai(&[], &[("call_1", name, &arguments.to_string())]),
        None if prompt.contains("weather") => openai(&["Fine."], &[]),
        None => openai(&[&format!("It is {ANSWERED}.")], &[]),
    })
}

fn started() -> (Provider, System) {
    let provider = Provider::answering(reply);
    let system = Builder::default()
        .env("KEN_MODEL", "openai/m")
        .env("OPENAI_BASE_URL", &format!("{}/v1", provider.url()))
        .secrets("OPENAI_API_KEY=k\n")
        .start();
    (provider, system)
}

fn shell(system: &System, line: &str) -> Output {
    let programs = binary("ken").parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.env_clear().env("PATH", format!("{programs}:/usr/bin:/bin")).env("KEN_HOME", system.home());
    shell.args(["-c", line]).current_dir(system.home()).stdin(Stdio::null()).output().unwrap()
}

/// Runs a line that must succeed, and returns what it prints.
#[track_caller]
fn runs(system: &System, line: &str) -> String {
    let output = shell(system, line);
    assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Returns the files of the home that contain one of the words.
fn holding(system: &System) -> Vec<String> {
    let mut all = Vec::new();
    files(system.home(), &mut all);
    let words = [ASKED, ANSWERED, IMAGE];
    let holds = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        words.into_iter().any(|word| bytes.windows(word.len()).any(|part| part == word.as_bytes()))
    };
    let relative = |file: PathBuf| file.strip_prefix(system.home()).unwrap().display().to_string();
    all.into_iter().filter(holds).map(relative).collect()
}

/// Waits until no file contains the words.
#[track_caller]
fn is_forgotten(system: &System) {
    let end = Instant::now() + IDLE;
    while let left = holding(system)
        && !left.is_empty()
    {
        assert!(Instant::now() < end, "{left:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the only session that is listed.
fn session(system: &System) -> String {
    let list: Value = serde_json::from_str(runs(system, "ken sessions --json").trim()).unwrap();
    list["sessionId"].as_str().unwrap().to_owned()
}

#[test]
fn nothing_that_was_said_is_left() {
    let (provider, system) = started();
    fs::create_dir_all(system.home().join("state/workspace/repos/site")).unwrap();
    fs::write(system.home().join("state/workspace/repos/site/NOTE"), format!("about {ASKED}\n")).unwrap();
    assert_eq!(runs(&system, &format!("ken chat 'Remember {ASKED}'")), format!("It is {ANSWERED}.\n"));
    let id = session(&system);
    runs(&system, &format!("ken sessions rename {id} 'The {ASKED}'"));
    assert!(runs(&system, "ken sessions").contains(&format!("The {ASKED}")));
    // An image, with a key with which the request could be repeated.
    let image = json!({"type": "image", "mimeType": "image/png", "data": IMAGE});
    let prompt = json!({"message": "What is it?", "images": [image]});
    let target = format!("/agents/orchestrator/{id}?wait=result");
    let with_image = || system.client().request("POST", &target).header("idempotency-key", "once").json(&prompt).send();
    assert!(with_image().expect(200).json()["result"]["text"].as_str().unwrap().contains(ANSWERED));
    // A change of a file that somebody approves.
    let mut terminal = Terminal::start(
        Command::new(binary("ken-tui")).env("KEN_HOME", system.home()).args(["--session", &id]),
        110,
        40,
    );
    terminal.wait_for_text(ANSWERED);
    terminal.type_line("Replace the note");
    until("the worker asks", || runs(&system, "ken approvals").contains("NOTE"));
    let pending = system.get("/api/approvals/pending").expect(200).json();
    runs(&system, &format!("ken approve {}", pending[0]["request"]["id"].as_str().unwrap()));
    let note = system.home().join("state/workspace/repos/site/NOTE");
    until("the note is replaced", || fs::read_to_string(&note).unwrap().starts_with("Nothing"));
    terminal.type_line(&format!("And {ASKED}?"));
    let exported = || -> Value {
        serde_json::from_str(&runs(&system, &format!("ken sessions export {id} --format json"))).unwrap()
    };
    until("both turns are over", || {
        let exported = exported();
        let exchanges = exported["exchanges"].as_array().unwrap();
        exchanges.len() == 4 && exchanges.iter().all(|exchange| exchange["status"] == "completed")
    });
    // The person makes a case of the first turn, and exports the session.
    let exported = exported();
    assert_eq!(exported["session"]["displayName"], format!("The {ASKED}"));
    let first = exported["exchanges"][0]["submissionId"].as_str().unwrap();
    runs(&system, &format!("ken eval add {first} --name case"));
    let text = runs(&system, &format!("ken sessions export {id}"));
    assert!(text.starts_with(&format!("# The {ASKED}\n\n## You, ")) && text.contains(ANSWERED), "{text}");
    let before = holding(&system).join(" ");
    for file in ["ken.db", "evals/case.json", "history.jsonl", "coder/objects"] {
        assert!(before.contains(file), "{file}: {before}");
    }
    // Without a terminal nobody can be asked.
    let refused = shell(&system, &format!("ken sessions rm {id}"));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--yes"), "{refused:?}");
    assert_eq!(runs(&system, &format!("ken sessions rm {id} --yes")), format!("deleted {id}\n"));
    terminal.wait_for_text("was deleted for good");
    drop(terminal);
    is_forgotten(&system);
    let backup = system.home().join("copy.db");
    runs(&system, &format!("ken backup {}", backup.display()));
    assert_eq!(holding(&system), Vec::<String>::new());
    // It is gone under each of its names, and no request about it runs again.
    let asked = provider.received().len();
    system.get(&format!("/agents/orchestrator/{id}")).expect(410);
    system.post(&format!("/agents/orchestrator/{id}"), &json!({"message": "again"})).expect(410);
    with_image().expect(410);
    system.delete(&format!("/api/chat/sessions/{id}?purge=true")).expect(410);
    for line in [format!("ken chat -s {id} again"), format!("ken show {id}"), format!("ken sessions export {id}")] {
        let output = shell(&system, &line);
        assert_ne!(output.status.code(), Some(0), "{line}: {output:?}");
    }
    assert_eq!(provider.received().len(), asked);
    assert_eq!(runs(&system, "ken sessions --json"), "");
    assert!(!runs(&system, &format!("ken knowledge search {ASKED}")).contains(ANSWERED));
    // The next conversation does not know of it.
    runs(&system, &format!("ken chat 'What is {}?'", &ASKED[..5]));
    assert!(!provider.received().last().unwrap().body.to_string().contains(ANSWERED));
}

#[test]
fn a_running_turn_is_cancelled_first_and_its_readers_are_told() {
    let (provider, system) = started();
    let id = system.session();
    let stream = format!("/agents/orchestrator/{id}");
    let mut reader = system.attach(&format!("{stream}?offset=-1&live=sse"));
    system.post(&stream, &json!({"message": format!("{ASKED} for ever")})).expect(202);
    until("the model is asked", || !provider.received().is_empty());
    until("the prompt is in the database", || holding(&system).iter().any(|file| file.contains("ken.db")));
    let identity = "connector=tui&actorId=somebody&conversationId=else";
    system.delete(&format!("/api/chat/sessions/{id}?{identity}")).expect(403);
    let kept = system.delete(&format!("/api/chat/sessions/{id}")).expect(409);
    assert!(kept.json()["hint"].as_str().unwrap().contains("cancel"), "{kept:?}");
    let deleted = system.delete(&format!("/api/chat/sessions/{id}?purge=true")).expect(200);
    assert_eq!(deleted.json(), json!({"id": id, "deleted": true, "purged": true}));
    system.get(&stream).expect(410);
    until("the model is no longer asked", || provider.is_gone());
    let mut last = None;
    while let Some(frame) = reader.frame() {
        last = Some(frame);
    }
    assert_eq!(last.unwrap().kind(), "control");
    is_forgotten(&system);
}

/// Two sessions are deleted, one of them while its turn does not stop, and a backup is made at once. It has neither of them. A restore puts
/// aside the database, in which the store has not deleted them yet, and the doctor says how it is removed.
#[test]
fn a_backup_that_is_made_at_once_has_nothing_of_it() {
    let (provider, mut system) = started();
    let ids = [system.session(), system.session()];
    let kept = system.session();
    for (id, text) in [(&ids[0], ASKED), (&ids[1], ASKED), (&kept, "How is the weather?")] {
        system.post(&format!("/agents/orchestrator/{id}?wait=result"), &json!({"message": text})).expect(200);
    }
    let endless = json!({"message": format!("{ASKED} for ever")});
    system.post(&format!("/agents/orchestrator/{}", ids[0]), &endless).expect(202);
    until("the turn runs", || {
        provider.received().iter().any(|request| request.prompt().to_string().contains("for ever"))
    });
    system.signal("agent", Signal::SIGSTOP);
    for id in &ids {
        assert_eq!(runs(&system, &format!("ken sessions rm {id} --yes")), format!("deleted {id}\n"));
    }
    runs(&system, "ken backup now.tar");
    let left = holding(&system);
    assert!(left.iter().any(|file| file.starts_with("state/store/")), "the store had already deleted them: {left:?}");
    assert!(!left.iter().any(|file| file == "now.tar"), "{left:?}");
    let copy = "tar xOf now.tar ken-backup-1/state/store/ken.db >now.db && sqlite3 now.db";
    let counts = "SELECT (SELECT count(*) FROM purges) || ' ' || (SELECT count(*) FROM exchanges)";
    assert_eq!(runs(&system, &format!("{copy} \"{counts}\"")), "0 1\n");
    system.kill("store");
    system.signal("agent", Signal::SIGKILL);
    system.down();
    runs(&system, "ken restore --replace now.tar");
    let aside: Vec<Value> = shell(&system, "ken doctor --json")
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|found| found["id"] == "put-aside")
        .collect();
    assert_eq!(aside.len(), 2, "beside the configuration and beside the data: {aside:?}");
    assert!(holding(&system).iter().all(|file| file.starts_with("state/before-restore-")), "{:?}", holding(&system));
    for found in &aside {
        assert_eq!(found["severity"], "note");
        runs(&system, found["fix"].as_str().unwrap());
    }
    assert_eq!(holding(&system), Vec::<String>::new());
    system.up();
    system.get(&format!("/agents/orchestrator/{}", ids[0])).expect(410);
    system.get(&format!("/agents/orchestrator/{kept}")).expect(200);
}

/// Two terminals are open in one session, in which a turn runs. It is deleted: both say so, and begin another one.
#[test]
fn terminals_in_a_deleted_session_go_on_in_a_new_one() {
    let (_provider, system) = started();
    let open = |arguments: &[&str]| {
        let mut command = Command::new(binary("ken-tui"));
        command.env("KEN_HOME", system.home()).args(arguments);
        Terminal::start(&command, 100, 30)
    };
    let mut first = open(&[]);
    first.wait_for_text(&format!("It is {ANSWERED}"));
    first.type_line(&format!("{ASKED} for ever"));
    let mut second = open(&["-c"]);
    second.wait_for_text(&format!("{ASKED} for ever"));
    first.type_line("queued behind it");
    first.wait_for_text("next: queued");
    let id = session(&system);
    assert_eq!(runs(&system, &format!("ken sessions rm {id} --yes")), format!("deleted {id}\n"));
    for terminal in [&mut first, &mut second] {
        let screen = terminal.wait_for_text("This is a new session.");
        assert!(!screen.contains(ASKED) && !screen.contains("queued behind"), "{screen}");
        assert!(screen.contains(&format!("{id} was deleted for good")), "{screen}");
        terminal.type_line("Hello again");
        terminal.wait_for_text(&format!("It is {ANSWERED}"));
    }
}

#[test]
fn a_kill_in_the_middle_is_made_up_for() {
    let (_provider, system) = started();
    let id = system.session();
    let filler = "lorem ipsum dolor ".repeat(2_000);
    for number in 0..25 {
        let prompt = json!({"message": format!("{number} {ASKED} {filler}")});
        system.post(&format!("/agents/orchestrator/{id}?wait=result"), &prompt).expect(200);
    }
    system.wait_until_stable("store");
    system.delete(&format!("/api/chat/sessions/{id}?purge=true")).expect(200);
    system.kill("store");
    until("the store is back", || system.get(&format!("/agents/orchestrator/{id}")).status == 410);
    is_forgotten(&system);
}

#[test]
fn a_session_that_gives_nothing_away_is_not_remembered_elsewhere() {
    let (provider, system) = started();
    let identity = json!({"connector": "tui", "actorId": "a", "conversationId": "c"});
    let create = |memory: &str| {
        let mut body = identity.clone();
        body["memory"] = memory.into();
        system.post("/api/chat/sessions", &body)
    };
    let say = |session: &str, text: &str| {
        system.post(&format!("/agents/orchestrator/{session}?wait=result"), &json!({"message": text})).expect(200);
        provider.received().last().unwrap().body.to_string()
    };
    let private = create("session").expect(201).text("/session/id");
    say(&private, &format!("A tale of the {ASKED}"));
    // It cannot teach others either: the tool says so, and the model answers without it.
    assert!(say(&private, "Remember the tale").contains("gives nothing to others"));
    let open = create("on").expect(201).text("/session/id");
    assert!(!say(&open, &format!("What was the {ASKED}?")).contains("A tale of"));
    let list = system.get("/api/chat/sessions").expect(200).json();
    let shown: Vec<&Value> = list["sessions"].as_array().unwrap().iter().map(|session| &session["memory"]).collect();
    assert_eq!(shown, [&json!("on"), &json!("session")]);
    let target = format!("/api/chat/sessions/{private}");
    let change = |body: Value| system.client().request("PATCH", &target).json(&body).send();
    assert_eq!(change(json!({"memory": "on"})).expect(200).at("/session/memory"), "on");
    assert!(say(&open, &format!("Once more, what was the {ASKED}?")).contains("A tale of"));
    for (body, at) in [
        (json!({"memory": "none"}), "/memory"),
        (json!({"displayName": " "}), "/displayName"),
        (json!({"displayName": "a\u{7}"}), "/displayName"),
        (json!({"name": "x"}), "/name"),
    ] {
        change(body).refused(400, "invalid", at);
    }
}

fn doctor(system: &System, id: &str) -> Option<Value> {
    let output = shell(system, "ken doctor --json");
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let mut found = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    found.find(|found| found["id"] == id)
}

/// Work that fails neither keeps what was deleted in the files, nor does it fail in silence.
#[test]
fn background_work_that_fails_is_reported_and_stops_no_deletion() {
    let (_provider, mut system) = started();
    runs(&system, &format!("ken chat 'What is {ASKED}?'"));
    let id = session(&system);
    assert_eq!(doctor(&system, "background-failing"), None);
    system.down();
    let sql = "INSERT OR REPLACE INTO facts (name, value) VALUES ('indexes.round', 'x')";
    runs(&system, &format!("sqlite3 state/store/ken.db \"{sql}\""));
    system.up();
    runs(&system, &format!("ken sessions rm {id} --yes"));
    is_forgotten(&system);
    let found = doctor(&system, "background-failing").unwrap();
    assert!(found["why"].as_str().unwrap().contains("merging the indexes"), "{found}");
}

/// The console deletes over HTTP, and `[retention]` in the database. The journal of undo follows at once, or when the part that makes it
/// starts; the history at the next start of the terminal client.
#[test]
fn the_journal_and_the_history_follow_whoever_deletes_a_session() {
    let (_provider, system) = started();
    let note = system.home().join("state/workspace/repos/site/NOTE");
    fs::create_dir_all(note.parent().unwrap()).unwrap();
    let client = || {
        let terminal = Terminal::start(Command::new(binary("ken-tui")).env("KEN_HOME", system.home()), 110, 40);
        terminal.wait_for_text("session tui-");
        terminal
    };
    for is_away in [false, true] {
        fs::write(&note, format!("about {ASKED}\n")).unwrap();
        let mut terminal = client();
        terminal.type_line(&format!("Replace the note about {ASKED}"));
        until("the worker asks", || runs(&system, "ken approvals").contains("NOTE"));
        let pending = system.get("/api/approvals/pending").expect(200).json();
        runs(&system, &format!("ken approve {}", pending[0]["request"]["id"].as_str().unwrap()));
        until("the note is replaced", || fs::read_to_string(&note).unwrap().starts_with("Nothing"));
        let id = session(&system);
        until("the turn is over", || {
            let exported = runs(&system, &format!("ken sessions export {id} --format json"));
            serde_json::from_str::<Value>(&exported).unwrap()["exchanges"][0]["status"] == "completed"
        });
        drop(terminal);
        let before = holding(&system).join(" ");
        assert!(before.contains("history.jsonl") && before.contains("coder/objects"), "{before}");
        if is_away {
            runs(&system, "ken stop tools");
        }
        system.delete(&format!("/api/chat/sessions/{id}?purge=true")).expect(200);
        if is_away {
            runs(&system, "ken start tools");
        }
        until("the journal has nothing of it", || !holding(&system).iter().any(|file| file.contains("coder/")));
        let terminal = client();
        // The greeting of the new session is in the database.
        until("the history has nothing of it", || !holding(&system).iter().any(|file| file.contains("tui/")));
        drop(terminal);
        assert_eq!(doctor(&system, "files-of-deleted"), None);
    }
}

/// What is deleted in another way than with `ken sessions rm` stays in the cases that a person has made. The doctor says so, and how it is
/// removed; also of a run of a schedule.
#[test]
fn the_doctor_names_what_files_hold_of_deleted_sessions() {
    let (_provider, system) = started();
    runs(&system, &format!("ken chat 'What is {ASKED}?'"));
    runs(&system, "ken eval add last --name talk");
    let id = session(&system);
    runs(&system, &format!("ken schedule add daily --cron '0 9 * * *' 'What is {ASKED}?'"));
    runs(&system, "ken schedule run daily --wait");
    runs(&system, "ken eval add last --name run");
    let run: Value = serde_json::from_str(&runs(&system, "cat evals/run.json")).unwrap();
    let run = run.pointer("/record/claim/instance").unwrap().as_str().unwrap().to_owned();
    assert!(run.starts_with("schedule:"), "{run}");
    assert_eq!(doctor(&system, "files-of-deleted"), None);
    for id in [&id, &run] {
        system.delete(&format!("/api/chat/sessions/{id}?purge=true")).expect(200);
    }
    runs(&system, "ken schedule rm daily");
    let found = doctor(&system, "files-of-deleted").unwrap();
    let fix = found["fix"].as_str().unwrap();
    assert!(
        fix.contains(&id) && fix.contains(&run) && found["why"].as_str().unwrap().contains("2 sessions"),
        "{found}"
    );
    runs(&system, fix);
    assert_eq!(doctor(&system, "files-of-deleted"), None);
    assert_eq!(runs(&system, "ls evals"), "");
}
