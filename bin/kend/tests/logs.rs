//! The output of the parts is kept across restarts and rotations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Home, kill9, until, wait_for_restart};
use serde_json::json;

#[test]
fn no_line_is_lost_over_restarts() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"lines:20000\", \"hang\"]\n");
    let kend = home.start();
    let count = || home.read("state/log/a.log").lines().count();
    until("the first lines", || count() == 20_000);
    wait_for_restart();
    // It is killed right after it has written, when its output may still be in the pipe.
    kill9(kend.part_pid("a"));
    until("the second lines", || count() == 40_000);
    for (index, line) in home.read("state/log/a.log").lines().enumerate() {
        assert_eq!(line, format!("line {}", index % 20_000));
    }
}

#[test]
fn the_last_lines_and_what_follows_over_a_restart_and_rotations() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"lines:3000\", \"say:end\", \"ready\", \"hang\"]\n");
    let text = home
        .read("ken.toml")
        .replace("builtin_parts = false", "builtin_parts = false\nlog_max_bytes = 20000\nlog_keep = 3");
    std::fs::write(home.path("ken.toml"), text).unwrap();
    let kend = home.start();
    until("the first lines", || kend.logs("a").last().is_some_and(|line| line == "end"));
    let mut caller = kend.connect();
    caller.send("parts.logs", json!({"name": "a", "lines": 2, "follow": true}));
    assert_eq!(caller.item().unwrap(), "line 2999");
    assert_eq!(caller.item().unwrap(), "end");
    for _ in 0..3 {
        kend.restart_part("a");
        for line in 0..3000 {
            assert_eq!(caller.item().unwrap(), format!("line {line}"));
        }
        assert_eq!(caller.item().unwrap(), "end");
    }
    assert!(home.path("state/log/a.log.1").exists());
    assert!(!home.path("state/log/a.log.4").exists());
}

#[test]
fn kend_has_a_log_of_its_own_and_an_unknown_name_has_none() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    let own = kend.logs("kend");
    assert!(own.iter().any(|line| line.contains("ready after")), "{own:?}");
    assert_eq!(kend.logs("a"), [""; 0]);
    assert_eq!(kend.call("parts.logs", json!({"name": "b"})).unwrap_err()["code"], "not_found");
}

#[test]
fn a_flood_delays_nobody_else_and_its_own_end() {
    let home = Home::new(
        "[part.loud]\ncommand = [\"PROBE\", \"ready\", \"flood:100\"]\n[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n",
    );
    let kend = home.start();
    for _ in 0..5 {
        let done = kend.restart_part("a");
        assert_eq!(done["state"], "ready");
    }
    // Rotation limits the disk space that excessive output can take.
    let size =
        |age: &str| std::fs::metadata(home.path(&format!("state/log/loud.log{age}"))).map_or(0, |meta| meta.len());
    assert!(size("") <= 10 * 1024 * 1024 && size(".6") == 0);
    assert!(kend.stop().status.success());
}

#[test]
fn bytes_that_are_no_text_are_shown_as_such() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"raw\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    until("the line", || kend.logs("a") == ["a\u{fffd}\u{fffd}z"]);
}
