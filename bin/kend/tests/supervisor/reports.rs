//! Commands of ken(1) that kend runs: shared by those who ask the same, and gone with kend.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{Home, KEND, Kend, install, is_running, kill9, until};
use serde_json::{Value, json};

const PART: &str = "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n";

/// Starts a copy of kend beside a program `ken` that is this script.
fn start<'a>(home: &'a Home, script: &str) -> Kend<'a> {
    let folder = home.path("bin");
    std::fs::create_dir(&folder).unwrap();
    let text = format!("#!/bin/sh\n{}\n", script.replace("DIR", home.path("").to_str().unwrap()));
    std::fs::write(home.path("script"), text).unwrap();
    std::fs::set_permissions(home.path("script"), PermissionsExt::from_mode(0o755)).unwrap();
    install(KEND, &folder.join("kend"));
    install(home.path("script"), &folder.join("ken"));
    home.start_with(&mut home.command_of(folder.join("kend"), &["--announce"]))
}

const FINDING: &str = r#"echo '{"id":"x","severity":"note","where":"w","why":"y","fix":"f"}'"#;

#[test]
fn one_command_answers_all_who_ask_and_its_answer_is_kept() {
    let home = Home::new(PART);
    let kend = start(&home, &format!("echo $$ >> DIR/runs\nenv > DIR/env\nsleep 0.5\n{FINDING}"));
    let mut callers: Vec<_> = (0..3).map(|_| kend.connect()).collect();
    callers.iter_mut().for_each(|caller| caller.send("kend.doctor", json!({})));
    let replies: Vec<Value> = callers.iter_mut().map(|caller| caller.line()["ok"].clone()).collect();
    assert_eq!(replies[0]["findings"][0]["id"], "x");
    assert!(replies.iter().all(|reply| *reply == replies[0]), "{replies:?}");
    assert_eq!(kend.call("kend.doctor", json!({})).unwrap(), replies[0]);
    assert_eq!(home.numbers("runs").len(), 1);
    // It is told where this system is.
    let env = home.read("env");
    assert!(env.contains(&format!("KEN_STATE_DIR={}", home.path("state").display())), "{env}");
    assert!(env.contains("KEN_ERRORS=json") && !env.contains("NOTIFY_SOCKET"), "{env}");
    // What changes files is never answered from before.
    for _ in 0..2 {
        kend.call("kend.diff", json!({"run": "r1"})).unwrap();
    }
    assert_eq!(home.numbers("runs").len(), 3);
    // After a reload the answer is another one.
    kend.reload();
    kend.call("kend.doctor", json!({})).unwrap();
    assert_eq!(home.numbers("runs").len(), 4);
}

#[test]
fn a_command_fails_without_harm() {
    let home = Home::new(PART);
    let kend = start(&home, "case $1 in doctor) kill -9 $$;; diff) head -c 3000000 /dev/zero;; *) exit 70;; esac");
    for (op, args, code) in [
        ("kend.doctor", json!({}), "unavailable"),
        ("kend.config", json!({}), "unavailable"),
        ("kend.diff", json!({"run": "r"}), "too_large"),
        ("kend.undo", json!({"run": "r;rm"}), "invalid"),
        ("kend.undo", json!({}), "invalid"),
        ("kend.doctor", json!({"x": 1}), "invalid"),
    ] {
        assert_eq!(kend.call(op, args).unwrap_err()["code"], code, "{op}");
    }
    std::fs::remove_file(home.path("bin/ken")).unwrap();
    kend.call("kend.undo", json!({"run": "r"})).unwrap_err();
    assert_eq!(kend.state("a"), "ready");
}

#[test]
fn a_command_is_gone_with_kend_and_so_is_what_it_has_started() {
    for dies in [true, false] {
        let home = Home::new(PART);
        let mut kend = start(&home, "echo $$ >> DIR/pids\nsleep 100 &\necho $! >> DIR/pids\nwait");
        let mut caller = kend.connect();
        caller.send("kend.doctor", json!({}));
        until("both run", || home.numbers("pids").len() == 2);
        if dies {
            kill9(kend.pid());
            kend.end();
        } else {
            assert!(kend.stop().status.success());
        }
        let leader = home.numbers("pids")[0];
        until("the command is gone", || !is_running(leader));
        if !dies {
            until("nothing is left", || home.numbers("pids").iter().all(|pid| !is_running(*pid)));
        }
        for pid in home.numbers("pids") {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}
