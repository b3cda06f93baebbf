//! The program of kend and those of its parts are replaced while the system runs.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Home, KEND, Kend, install, until};
use serde_json::{Value, json};

/// Starts a copy of kend, which can be replaced.
fn start(home: &Home) -> (Kend<'_>, PathBuf) {
    let program = home.path("kend");
    install(KEND, &program);
    (home.start_with(&mut home.command_of(&program, &["--announce"])), program)
}

fn upgrade(kend: &Kend<'_>) -> Value {
    let done = kend.call("kend.upgrade", json!({})).unwrap();
    kend.call("parts.wait_ready", json!({"timeout_ms": 20_000})).unwrap();
    done
}

fn pids(kend: &Kend<'_>, names: &[&str]) -> Vec<i32> {
    names.iter().map(|name| kend.part_pid(name).as_raw()).collect()
}

const PARTS: &str = "[part.a]\ncommand = [\"PROBE\", \"ready\", \"say:one\", \"status:busy\", \"hang\"]\n\
    [part.b]\ncommand = [\"PROBE\", \"ready\", \"child:DIR/children\", \"hang\"]\nrequires = [\"a\"]\nwatchdog_ms = 0\n\
    [part.down]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nenabled = false\n";

#[test]
fn kend_is_replaced_and_no_part_notices() {
    let home = Home::new(PARTS);
    let (kend, program) = start(&home);
    let before = pids(&kend, &["a", "b"]);
    let restarts = kend.part("a")["restarts"].clone();
    for round in 0..3 {
        install(KEND, &program);
        let done = upgrade(&kend);
        assert_eq!((&done["version"], &done["parts"]), (&json!(env!("CARGO_PKG_VERSION")), &json!([])));
        let status = kend.call("parts.status", json!({})).unwrap();
        assert_eq!(status["pid"], kend.pid().as_raw());
        assert_eq!(pids(&kend, &["a", "b"]), before, "round {round}");
    }
    assert_eq!((&kend.part("a")["restarts"], kend.state("down").as_str()), (&restarts, "stopped"));
    assert_eq!(kend.part("a")["status_text"], "busy");
    // Everything works as before: deaths, orphans, logs, stops, and the lock against a second kend.
    let orphan = home.numbers("children")[0];
    crate::common::kill9(kend.part_pid("b"));
    until("b is back", || {
        let part = kend.part("b");
        part["state"] == "ready" && part["pid"] != before[1]
    });
    until("its child is gone", || !crate::common::is_running(orphan));
    assert_eq!(kend.restart_part("a")["state"], "ready");
    until("its lines are in the log", || kend.logs("a") == ["one", "one"]);
    home.run(&[]).assert_stderr_contains("kend already runs there");
    let end = kend.stop();
    assert!(end.status.success(), "{end:?}");
    assert!(!home.path("run/kend.sock").exists());
}

#[test]
fn a_program_that_cannot_take_over_changes_nothing() {
    let home = Home::new(PARTS);
    let (kend, program) = start(&home);
    let before = pids(&kend, &["a", "b"]);
    let script = home.path("script");
    for (text, why) in [
        ("echo 'of form 2' >&2; exit 2", "of form 2"),
        ("exit 0 |", "cannot take over"),
        ("kill -9 $$", "cannot take over: signal: 9 (SIGKILL)"),
        // What it says is cut inside a character.
        ("printf '%4095sé' end; exit 2", "cannot take over: end"),
        ("printf 'a warning'; sleep 60", "cannot take over: it has not answered within 5 s"),
    ] {
        std::fs::write(&script, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        install(&script, &program);
        let error = kend.call("kend.upgrade", json!({})).unwrap_err();
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    }
    std::fs::remove_file(&program).unwrap();
    let error = kend.call("kend.upgrade", json!({})).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("No such file"), "{error}");
    // A program that agrees and then cannot be executed, and a configuration that the new program would not take.
    home.configure("[part.a]\nnonsense = 1\n");
    assert_eq!(kend.call("kend.upgrade", json!({})).unwrap_err()["code"], "invalid");
    home.configure(PARTS);
    assert_eq!(pids(&kend, &["a", "b"]), before);
    install(KEND, &program);
    upgrade(&kend);
    assert_eq!(pids(&kend, &["a", "b"]), before);
}

/// The lines that a part prints during an upgrade are all in its log, in their order. While the disk stands still there is no upgrade,
/// because the lines that wait to be written would be lost.
#[test]
fn no_line_is_lost_over_an_upgrade() {
    const LINES: usize = 300_000;
    let home = Home::new(&format!("[part.a]\ncommand = [\"PROBE\", \"ready\", \"lines:{LINES}\", \"hang\"]\n"));
    let (kend, program) = start(&home);
    for _ in 0..5 {
        install(KEND, &program);
        upgrade(&kend);
    }
    let count = || home.read("state/log/a.log").lines().count();
    until("all lines", || count() == LINES);
    for (index, line) in home.read("state/log/a.log").lines().enumerate() {
        assert_eq!(line, format!("line {index}"));
    }
    let path = home.path("state/log/b.log");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    home.configure("[part.b]\ncommand = [\"PROBE\", \"ready\", \"say:one\", \"hang\"]\n");
    kend.reload();
    kend.until_state("b", "ready");
    let mut error = Value::Null;
    until("the part that is no longer named has ended", || {
        error = kend.call("kend.upgrade", json!({})).unwrap_err();
        error["code"] != "busy"
    });
    assert_eq!((&error["code"], &error["hint"]), (&json!("unavailable"), &json!("nothing has changed")), "{error}");
    let mut reader = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "one\n");
    upgrade(&kend);
}

/// 10,000 connects while kend and then the programs of all parts are replaced: none is refused, and the parts start anew one by one.
#[test]
fn parts_with_new_programs_start_anew_one_by_one_and_nobody_is_refused() {
    let names = ["gateway", "agent", "store"];
    let entry = |(name, requires): (&str, &str)| {
        format!(
            "[part.{name}]\ncommand = [\"DIR/{name}\", \"ready\", \"accept\"]\nrequires = [{requires}]\nsockets = {{ tcp = {{ tcp = \"127.0.0.1:0\" }} }}\n"
        )
    };
    let rows = [("gateway", "\"agent\""), ("agent", "\"store\""), ("store", "")];
    let home = Home::new(&rows.map(entry).concat());
    names.iter().for_each(|name| install(crate::common::probe(), &home.path(name)));
    let (kend, program) = start(&home);
    let addresses = kend.addresses();
    assert_eq!(addresses.len(), 3);
    let (connects, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let longest = std::thread::scope(|scope| {
        let callers = addresses.iter().map(|address| {
            let (connects, over) = (&connects, &over);
            scope.spawn(move || {
                let mut longest = Duration::ZERO;
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let mut stream = TcpStream::connect(address).expect("refused");
                    // A connection that a process has accepted before it was told to stop may end without an answer.
                    _ = stream.read_to_string(&mut String::new());
                    longest = longest.max(begun.elapsed());
                    connects.fetch_add(1, Ordering::Relaxed);
                }
                longest
            })
        });
        let callers: Vec<_> = callers.collect();
        let mut rounds = 0;
        while connects.load(Ordering::Relaxed) < 10_000 || rounds < 5 {
            install(KEND, &program);
            names.iter().for_each(|name| install(crate::common::probe(), &home.path(name)));
            let before = pids(&kend, &names);
            let done = upgrade(&kend);
            assert_eq!(done["parts"], json!(names), "the store last");
            assert!(pids(&kend, &names).iter().zip(&before).all(|(now, before)| now != before));
            rounds += 1;
        }
        over.store(true, Ordering::Relaxed);
        println!("{rounds} upgrades");
        callers.into_iter().map(|caller| caller.join().unwrap()).max().unwrap()
    });
    println!("{} connects, none refused; the longest took {longest:?}", connects.load(Ordering::Relaxed));
    assert_eq!(kend.state("store"), "ready");
}

/// What the new program says of a state that it cannot go on with. It is asked before anything has changed.
#[test]
fn a_state_of_another_form_or_with_an_unknown_part_is_refused() {
    let home = Home::new(PARTS);
    let part = json!({"wanted": true, "restart_wanted": false, "delay_ms": 0, "started_ms_ago": [], "starts": 1, "ever_ready": true,
        "setbacks": 0, "deaths": [], "log_read": -1, "log_write": -1, "is_in_a_line": false});
    let state = |form: u32, name: &str| {
        json!({"form": form, "version": "0", "config": home.path("ken.toml"), "state": home.path("state"), "run": home.path("run"),
            "named": false, "background": false, "next_mark": 1, "locks": [-1, -1], "control": -1, "notify": -1, "sockets": [],
            "parts": {name: part}})
        .to_string()
    };
    let check = |text: &str| {
        std::fs::write(home.path("handover"), text).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$0\" --check --takeover 3 3<\"$1\"", KEND]).arg(home.path("handover"));
        let output = shell.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    assert_eq!(check(&state(1, "a")), (Some(0), format!("{}\n", env!("CARGO_PKG_VERSION"))));
    for (text, why) in [
        (state(2, "a"), "the state is of form 2, and this kend takes over form 1"),
        (state(1, "other"), "the part other is unknown"),
        ("{}".to_owned(), "of form 0"),
        ("nonsense".to_owned(), "--takeover"),
        (json!({"form": 1}).to_string(), "missing field"),
    ] {
        let (code, said) = check(&text);
        assert!(code.is_some_and(|code| code != 0) && said.contains(why), "{code:?} {said}");
    }
}
