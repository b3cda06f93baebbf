//! The command `ken` with a whole system: sessions, runs, knowledge, configuration, help and access.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ken_tests::{Builder, System, binary, free_port, until};
use serde_json::{Value, json};

/// Standard output, standard error and exit status.
fn channels(output: &Output) -> (String, String, i32) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

#[track_caller]
fn done(system: &System, arguments: &[&str]) -> String {
    let (stdout, stderr, status) = channels(&system.ken(arguments));
    assert_eq!((stderr.as_str(), status), ("", 0), "{arguments:?}");
    stdout
}

/// The error of a command. Checks the exit status, and that nothing is on standard output.
#[track_caller]
fn refused(system: &System, arguments: &[&str], status: i32) -> Value {
    let (stdout, stderr, found) = channels(&system.ken(arguments));
    assert_eq!((stdout.as_str(), found), ("", status), "{arguments:?}: {stderr}");
    serde_json::from_str::<Value>(&stderr).unwrap()["error"].take()
}

fn sessions(system: &System) -> Vec<Value> {
    let lines = done(system, &["sessions", "--json"]);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_session_is_named_continued_and_shown() {
    let system = System::start();
    // The command creates the session that it names, and no other.
    done(&system, &["chat", "/new nightly"]);
    done(&system, &["chat", "-s", "nightly", "hello"]);
    let all = sessions(&system);
    assert_eq!(all.len(), 1, "{all:?}");
    let id = all[0]["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(all[0]["displayName"], "nightly");
    // Selects the session by the last part of its id, by the beginning of its id, and as the newest one.
    let short = id.rsplit('-').next().unwrap();
    for arguments in [
        &["chat", "-s", short, "hello again"][..],
        &["chat", "-s", &id[..30], "hello again"],
        &["chat", "-c", "hello again"],
    ] {
        done(&system, arguments);
    }
    let exchanges = done(&system, &["show", "--json", short]);
    assert_eq!(exchanges.lines().count(), 4, "{exchanges}");
    let shown = done(&system, &["show", short]);
    assert!(shown.starts_with("> hello\n"), "{shown}");
    assert_eq!(shown.matches("\n> hello again\n").count(), 3, "{shown}");
    assert_eq!(sessions(&system).len(), 1);

    let error = refused(&system, &["chat", "-s", "morning", "hello"], 2);
    assert_eq!((&error["code"], &error["message"]), (&json!("not_found"), &json!("there is no session `morning`")));
    // A slip of the finger names what was meant, with an image too, and begins no other session.
    let image = system.home().join("dot.png");
    std::fs::write(&image, b"\x89PNG\r\n").unwrap();
    let image = image.display().to_string();
    for words in [&["hello"][..], &["-a", &image, "hello"]] {
        let error = refused(&system, &[&["chat", "-s", "nigthly"], words].concat(), 2);
        assert_eq!(error["code"], "not_found", "{error}");
        assert!(error["hint"].as_str().unwrap().contains("the nearest is `nightly`"), "{error}");
    }
    assert_eq!(sessions(&system).len(), 1);
    assert_eq!(refused(&system, &["cancel", short], 2)["code"], "conflict");
    assert_eq!(refused(&system, &["show", "0123abcd"], 2)["code"], "not_found");
    assert_eq!(refused(&system, &["chat", "-c", "-s", "nightly", "x"], 2)["code"], "invalid");
}

#[test]
fn a_list_of_sessions_says_whether_there_are_more() {
    let system = System::start();
    let local = [("connector", "tui"), ("actorId", "local-tui"), ("conversationId", "local-tui")];
    for number in 0..102 {
        let mut body: Value = local.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
        body["text"] = json!(format!("/new n{number}"));
        system.post("/api/chat/events", &body).expect(200);
    }
    for (arguments, shown, has_more) in [
        (&["sessions", "--json"][..], 50, true),
        (&["sessions", "--json", "-n", "100"], 100, true),
        (&["sessions", "--json", "-n", "101"], 101, true),
        (&["sessions", "--json", "-n", "102"], 102, false),
        (&["sessions", "--json", "-n", "1000"], 102, false),
        (&["sessions", "--json", "--archived"], 0, false),
    ] {
        let (stdout, stderr, status) = channels(&system.ken(arguments));
        let ids: BTreeSet<&str> = stdout.lines().collect();
        assert_eq!((ids.len(), status), (shown, 0), "{arguments:?}: {stderr}");
        let note = format!("ken: there are more than {shown}: `ken --home {}", system.home().display());
        assert_eq!((stderr.starts_with(&note), stderr.lines().count()), (has_more, usize::from(has_more)), "{stderr}");
    }
}

#[test]
fn knowledge_is_added_found_and_deleted() {
    let system = System::start();
    let first = done(&system, &["knowledge", "add", "--tag", "runbook", "Failover", "Promote", "the", "replica."]);
    let id = first.trim_end();
    let mut add = system.command(&["knowledge", "add", "Tea"]);
    let mut add = add.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    add.stdin.take().unwrap().write_all(b"Green tea brews\nat 80 degrees.\n").unwrap();
    assert!(add.wait_with_output().unwrap().status.success());
    let titles = |arguments: &[&str]| {
        let lines = done(&system, arguments);
        let title = |line: &str| serde_json::from_str::<Value>(line).unwrap()["title"].take();
        lines.lines().map(title).collect::<Vec<Value>>()
    };
    assert_eq!(titles(&["knowledge", "list", "--json"]), [json!("Tea"), json!("Failover")]);
    assert_eq!(titles(&["knowledge", "search", "--json", "brews"]), [json!("Tea")]);
    for word in [id, &id[..12], &id[3..9]] {
        let shown = done(&system, &["knowledge", "show", word]);
        assert!(shown.starts_with(&format!("id         {id}\n")), "{shown}");
        assert!(shown.ends_with("tags       runbook\n\nPromote the replica.\n"), "{shown}");
        assert_eq!(done(&system, &["show", word]), shown);
    }
    assert_eq!(done(&system, &["knowledge", "rm", &id[..12]]), "");
    assert_eq!(titles(&["knowledge", "list", "--json"]), [json!("Tea")]);
    assert_eq!(refused(&system, &["knowledge", "show", id], 2)["code"], "not_found");
    assert_eq!(refused(&system, &["knowledge", "rm", &id[..12]], 2)["code"], "not_found");
}

#[test]
fn runs_are_listed_shown_and_cancelled() {
    let system = System::start();
    let body = json!({"facts": ["Rex is a dog"], "rules": [[["?x is a dog"], "?x is an animal"]]});
    let run = system.post("/workflows/full_reasoning?wait=result", &body).json();
    let id = run["runId"].as_str().unwrap();
    let listed = done(&system, &["runs"]);
    let row: Vec<&str> = listed.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(&row[..3], [id, "full_reasoning", "completed"]);
    let shown = done(&system, &["show", &id[4..]]);
    assert!(shown.contains(&format!("runId        {id}\n")) && shown.contains("Rex is an animal"), "{shown}");
    assert_eq!(done(&system, &["runs", "--status", "errored", "--json"]), "");
    assert_eq!(refused(&system, &["cancel", id], 2)["code"], "conflict");
    assert_eq!(refused(&system, &["runs", "--status", "odd"], 2)["code"], "invalid");
}

#[test]
fn a_gateway_on_all_addresses_is_used_with_the_secret_of_the_system() {
    let system =
        Builder::default().config("[gateway]\nlisten = \"0.0.0.0\"\n").secrets("API_SECRET=\"a secret\"\n").start();
    for arguments in [
        &["chat", "hello"][..],
        &["sessions"],
        &["sessions", "list"],
        &["events"],
        &["runs"],
        &["runs", "list"],
        &["knowledge", "list"],
        &["stream", "create", "x"],
    ] {
        done(&system, arguments);
    }
}

/// A server that answers each request with an empty list of sessions, and returns the header lines of each.
fn recorder(requests: usize) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for _ in 0..requests {
            let (mut connection, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line == "\r\n" {
                    break;
                }
                lines.push(line.trim_end().to_owned());
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"sessions\":[]}";
            connection.write_all(answer.as_bytes()).unwrap();
        }
        lines
    });
    (url, thread)
}

#[test]
fn the_secret_for_another_machine_comes_only_from_a_file_or_the_environment() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("secrets.env"), "API_SECRET=of this system\n").unwrap();
    std::fs::write(home.path().join("secret"), "from a file\n").unwrap();
    let (url, server) = recorder(3);
    let file = home.path().join("secret");
    let mode = |mode| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o644);
    let mut refused = Command::new(binary("ken"));
    refused.env_clear().arg("--home").arg(home.path()).args(["--url", &url, "sessions", "--secret-file"]).arg(&file);
    let (_, stderr, status) = channels(&refused.output().unwrap());
    assert!(status == 2 && stderr.contains("chmod 600"), "{stderr}");
    // Its group may read it.
    mode(0o640);
    let ken = |arguments: &[&str], environment: Option<&str>| {
        let mut command = Command::new(binary("ken"));
        command.env_clear().arg("--home").arg(home.path()).args(["--url", &url, "sessions", "--json"]).args(arguments);
        command.envs(environment.map(|secret| ("KEN_API_SECRET", secret)));
        let (stdout, stderr, status) = channels(&command.output().unwrap());
        assert_eq!((stdout.as_str(), stderr.as_str(), status), ("", "", 0));
    };
    ken(&["--secret-file", file.to_str().unwrap()], Some("from the environment"));
    ken(&[], Some("from the environment"));
    // The secret of this system is not sent to another gateway.
    ken(&[], None);
    let lines = server.join().unwrap();
    let secrets: Vec<&String> = lines.iter().filter(|line| line.to_lowercase().starts_with("x-api-secret")).collect();
    assert_eq!(secrets, ["x-api-secret: from a file", "x-api-secret: from the environment"]);
}

#[test]
fn config_show_names_the_origin_of_settings_and_hides_secrets() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("ken.toml");
    std::fs::write(&config, "[chat]\nwait_ms = 5\n").unwrap();
    let secrets = home.path().join("secrets.env");
    std::fs::write(&secrets, "# keys\nAPI_SECRET=canary-4711\n").unwrap();
    let ken = |arguments: &[&str]| {
        let mut command = Command::new(binary("ken"));
        channels(&command.arg("--home").arg(home.path()).args(arguments).output().unwrap())
    };
    let (shown, stderr, status) = ken(&["config", "show"]);
    assert_eq!((stderr.as_str(), status), ("", 0));
    let line =
        |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {shown}"));
    assert!(line("wait_ms = 5 ").ends_with(&format!("# {}:2", config.display())));
    assert!(line("port = 3940 ").ends_with("# default"));
    assert!(line("# API_SECRET = ***").ends_with(&format!("# {}:2", secrets.display())));
    assert!(!shown.contains("canary"), "{shown}");
    let (one, ..) = ken(&["config", "show", "chat", "--json"]);
    let values: Vec<Value> = one.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let wait = values.iter().find(|value| value["key"] == "chat.wait_ms").unwrap();
    assert_eq!(wait["value"], 5, "{one}");
    std::fs::write(&config, "[chat\n").unwrap();
    assert_eq!(ken(&["config", "show"]).2, 2);
}

#[test]
fn help_completions_and_a_mistyped_command() {
    let ken = |arguments: &[&str]| channels(&Command::new(binary("ken")).args(arguments).output().unwrap());
    let (help, stderr, status) = ken(&["help", "chat"]);
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert!(help.contains("Usage: ken chat"), "{help}");
    assert!(ken(&["help"]).0.contains("Commands:"));
    assert!(ken(&["help", "stream", "append"]).0.contains("Usage: ken stream append"));
    // Prints the manual page or, without man(1), the help of the program.
    let (page, _, status) = ken(&["help", "esl"]);
    assert!(status == 0 && page.to_lowercase().contains("ken-esl"), "{page}");
    assert_eq!(ken(&["help", "frobnicate"]).2, 2);
    for (shell, word) in [("bash", "complete -F"), ("zsh", "#compdef ken"), ("fish", "complete -c ken")] {
        let (script, stderr, status) = ken(&["completions", shell]);
        assert_eq!((stderr.as_str(), status), ("", 0));
        assert!(script.contains(word) && script.contains("knowledge"), "{shell}");
    }
    for (typed, meant) in [("statsu", "status"), ("knowlege", "knowledge"), ("eslx", "esl")] {
        let (_, stderr, status) = ken(&[typed]);
        assert_eq!(status, 2);
        assert!(stderr.contains(&format!("did you mean `ken {meant}`?")), "{stderr}");
    }
}

/// A started or restarted gateway accepts connections, so an address that refuses them has nothing to wait for.
/// Every trusted folder can have a file of the same name.
#[test]
fn the_last_run_is_that_of_the_folder_where_it_is_said() {
    let (system, own) = (System::start(), tempfile::tempdir().unwrap());
    let own = own.path().canonicalize().unwrap();
    let write = |at: &Path, run: &str| {
        let mut coder = Command::new(binary("ken-coder"));
        coder.args(["write", "--json", r#"{"path":"c","content":"x"}"#]).env("KEN_HOME", system.home());
        let output = coder.env("KEN_FOLDER", at).env("KEN_RUN", run).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let said = |words: &[&str], at: &Path| channels(&system.command(words).current_dir(at).output().unwrap());
    let folders = ["one", "two"].map(|name| own.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder.join("docs")).unwrap();
        done(&system, &["workspace", "trust", folder.to_str().unwrap()]);
        write(folder, folder.file_name().unwrap().to_str().unwrap());
    }
    for folder in &folders {
        let root = folder.display();
        let (shown, _, status) = said(&["diff"], folder);
        assert!(status == 0 && shown.starts_with(&format!("# in {root}\n")), "{shown}");
        // Below it too.
        let (shown, _, status) = said(&["undo", "last"], &folder.join("docs"));
        assert!(status == 0 && shown.starts_with(&format!("in {root}:\nput back c\n")), "{shown}");
        assert!(!folder.join("c").exists());
    }
    // Outside of both it is that of the workspace.
    let (_, error, status) = said(&["undo", "last"], &own);
    assert!(status == 2 && error.contains("no run has changed files yet in "), "{error}");
    let (shown, _, status) = said(&["undo", "one"], &folders[1]);
    assert!(status == 0 && shown.starts_with(&format!("in {}:\n", folders[0].display())), "{shown}");
}

#[test]
fn an_address_where_nobody_listens_is_an_error_at_once() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let home = tempfile::tempdir().unwrap();
    let ken = ["--url", &url];
    for (program, arguments) in [
        ("ken", &[&ken[..], &["chat", "hello"]].concat()),
        ("ken", &[&ken[..], &["chat", "--no-start", "hello"]].concat()),
        ("ken", &[&ken[..], &["sessions"]].concat()),
        ("ken-tui", &[&ken[..], &["--print", "hello"]].concat()),
        ("ken-tui", &["--base-url", &url, "--no-start", "--print", "hello"].to_vec()),
    ] {
        let mut command = Command::new(binary(program));
        command.env_clear().env("KEN_HOME", home.path()).args(arguments).stdin(Stdio::null());
        let begun = std::time::Instant::now();
        let (stdout, stderr, status) = channels(&command.output().unwrap());
        assert_eq!((stdout.as_str(), status), ("", 75), "{arguments:?}: {stderr}");
        assert!(stderr.contains("nothing listens there") && stderr.contains("ken up"), "{arguments:?}: {stderr}");
        // Without the mend it is a minute.
        assert!(begun.elapsed().as_secs() < 20, "{arguments:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_file_that_a_person_names_is_a_regular_file() {
    let system = System::start();
    let fifo = system.home().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let fifo = fifo.display().to_string();
    for arguments in [
        &["chat", "-f", &fifo, "hello"][..],
        &["chat", "-a", &fifo, "hello"],
        &["chat", "--schema", &fifo, "hello"],
        &["--secret-file", &fifo, "chat", "hello"],
        &["rules", "add", &fifo],
        &["replay", "--file", &fifo],
    ] {
        // Without the mend the program waits for a writer of the FIFO, until it is killed.
        let mut command = Command::new("timeout");
        command.args(["20", binary("ken").to_str().unwrap(), "--home", system.home().to_str().unwrap()]);
        let (stdout, stderr, status) = channels(&command.args(arguments).stdin(Stdio::null()).output().unwrap());
        assert_eq!((stdout.as_str(), status), ("", 2), "{arguments:?}: {stderr}");
        assert!(stderr.contains("it is not a regular file"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn config_show_prints_the_ports_at_which_the_system_listens() {
    // `ken up` of the tests has other ports than the configuration.
    let system = System::start();
    for (section, port) in [("gateway", system.address().port()), ("cognitive", system.cognitive().port())] {
        let shown = done(&system, &["config", "show", section]);
        let line = shown.lines().find(|line| line.starts_with("port = ")).unwrap();
        assert!(line.starts_with(&format!("port = {port} ")) && line.contains("# the running system; "), "{line}");
    }
    let error = refused(&system, &["config", "show", "gatway"], 2);
    assert_eq!(error["hint"], "did you mean `gateway`?");
    assert_eq!(refused(&system, &["config", "show", "part.nope"], 2)["code"], "invalid");
    assert!(done(&system, &["config", "show", "part"]).contains("[part.store]"));
}

#[test]
fn config_show_prints_what_is_in_force_while_the_file_is_refused() {
    let system = Builder::default().config("[chat]\nwait_ms = 5\n").start();
    let file = system.home().join("ken.toml");
    let shown = |arguments: &[&str]| channels(&system.ken(&[&["config", "show"], arguments].concat()));
    for text in ["# refused\n[chat]\nwait_ms = -1\n", "[chat\n"] {
        std::fs::write(&file, text).unwrap();
        assert!(!system.ken(&["reload"]).status.success());
        let (out, note, status) = shown(&["chat"]);
        let line = out.lines().find(|line| line.starts_with("wait_ms = 5 ")).expect(&out);
        assert!(status == 0 && line.ends_with(&format!("# {}:2", file.display())), "{line}");
        assert!(note.starts_with("ken: the last good configuration is in force: "), "{note}");
        assert!(shown(&["--json"]).0.contains(r#"{"key":"chat.wait_ms","value":5,"#));
    }
    std::fs::write(&file, "[chat]\n\nwait_ms = 6\n").unwrap();
    system.ken(&["reload"]);
    let (out, note, _) = shown(&["chat"]);
    assert!(out.contains("wait_ms = 6 ") && out.contains("ken.toml:3") && note.is_empty(), "{out}{note}");
}

/// A cleaner of temporary files removes the sockets of a system that runs.
#[test]
fn a_system_whose_sockets_are_gone_is_named_and_how_it_ends() {
    let mut system = System::start();
    let pid = system.pid("kend");
    let run = system.home().join("run");
    std::fs::remove_dir_all(&run).unwrap();
    let why = format!("kend runs, pid {pid}, and cannot be reached, because its sockets in {} are gone", run.display());
    for command in [&["status"][..], &["down"], &["chat", "hello"], &["logs", "-f"]] {
        let error = refused(&system, command, if command == ["status"] { 3 } else { 2 });
        assert_eq!((&error["message"], &error["hint"]), (&json!(why), &json!("end it with kill(1), and start again")));
    }
    let found = String::from_utf8(system.ken(&["doctor", "--json"]).stdout).unwrap();
    assert!(found.contains("\"kend-unreachable\"") && found.contains(&format!("kill {pid}; ken up -d")), "{found}");
    assert_eq!(system.down(), Some(0));
    system.up();
    system.say(&system.session(), "hello").expect(200);
}

#[test]
fn a_turn_continues_when_the_gateway_is_killed() {
    let system = Builder::default()
        .script(&[json!({"events": [{"text": "one "}, {"sleep_ms": 1500}, {"text": "two "}, {"sleep_ms": 1500}, {"text": "three"}]})])
        .start();
    let mut chat = system.command(&["chat", "count"]);
    let mut chat = chat.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    let mut stdout = BufReader::new(chat.stdout.take().unwrap());
    let mut byte = [0];
    while !printed.ends_with("one ") {
        std::io::Read::read_exact(&mut stdout, &mut byte).unwrap();
        printed.push(char::from(byte[0]));
    }
    system.kill("gateway");
    until("it is back", || system.ken(&["sessions"]).status.success());
    std::io::Read::read_to_string(&mut stdout, &mut printed).unwrap();
    let (_, stderr, status) = channels(&chat.wait_with_output().unwrap());
    assert_eq!((printed.as_str(), stderr.as_str(), status), ("one two three\n", "", 0));
}

/// A library that kills the process which is about to rename a file.
const KILLED_AT_RENAME: &str = "#include <signal.h>\n#include <unistd.h>\n\
    int rename(const char *from, const char *to) { (void)from; (void)to; return kill(getpid(), SIGKILL); }\n";

#[test]
fn a_change_of_the_configuration_that_is_killed_changes_nothing_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let (source, library) = (path("shim.c"), path("shim.so"));
    std::fs::write(&source, KILLED_AT_RENAME).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    let before = "# Mine.\n[model]\nuse = \"script\"\n";
    std::fs::write(path("ken.toml"), before).unwrap();
    let mut command = Command::new(binary("ken"));
    command.arg("--home").arg(home.path()).args(["model", "use", "rules"]).stdin(Stdio::null());
    let killed = command.env("LD_PRELOAD", &library).output().unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{killed:?}");
    let new_files = || {
        let names = std::fs::read_dir(home.path()).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.display().to_string().ends_with(".new")).count()
    };
    assert_eq!((std::fs::read_to_string(path("ken.toml")).unwrap().as_str(), new_files()), (before, 1));
    let done = command.env_remove("LD_PRELOAD").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let after = std::fs::read_to_string(path("ken.toml")).unwrap();
    assert_eq!((after.as_str(), new_files()), (before.replace("script", "rules").as_str(), 0));
}
