//! The output of the parts is kept across restarts and rotations.

use std::time::{Duration, Instant};

use crate::common::{Home, kill9, until, wait_for_restart};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::json;

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
fn bytes_that_are_no_text_are_shown_as_such() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"raw\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    until("the line", || kend.logs("a") == ["a\u{fffd}\u{fffd}z"]);
}

/// A log that is a FIFO without a reader is a disk that stands still: opening it waits.
fn stall(home: &Home, part: &str) -> std::path::PathBuf {
    let path = home.path(&format!("state/log/{part}.log"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    path
}

#[test]
fn a_disk_that_stands_still_delays_no_restart_and_what_is_missing_is_said() {
    let home = Home::new(
        "[part.loud]\ncommand = [\"PROBE\", \"ready\", \"flood:20\"]\n[part.a]\ncommand = [\"PROBE\", \"ready\", \"pid:DIR/pids\", \"hang\"]\n",
    );
    let path = stall(&home, "loud");
    let kend = home.start();
    let mut longest = Duration::ZERO;
    for round in 1..5 {
        until("it runs", || home.numbers("pids").len() == round);
        wait_for_restart();
        let begun = Instant::now();
        kill9(kend.part_pid("a"));
        until("it runs again", || home.numbers("pids").len() == round + 1);
        longest = longest.max(begun.elapsed());
    }
    println!("the longest restart while the disk stands still: {longest:?}");
    assert!(longest < Duration::from_millis(500));
    // Nobody waits for a log that cannot be read further.
    assert_eq!(kend.logs("a"), [""; 0]);
    let deaths = || kend.notes("a").iter().filter(|note| note.contains("SIGKILL")).count();
    assert_eq!(deaths(), 0, "they wait behind the flood");
    let reader = std::thread::spawn(move || std::fs::read_to_string(path).unwrap());
    until("the disk has caught up", || deaths() == 4);
    kend.restart_part("loud");
    assert!(kend.stop().status.success());
    let text = reader.join().unwrap();
    let notes: Vec<_> = text.lines().filter(|line| line.starts_with("kend: ")).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].ends_with(" bytes could not be written here"), "{notes:?}");
    let before = text.split("kend: ").next().unwrap().len();
    assert!((1 << 20..3 << 20).contains(&before), "{before} bytes waited");
    assert!(text.lines().all(|line| line.starts_with("kend: ") || line.bytes().all(|byte| byte == b'x')));
}

#[test]
fn the_end_waits_for_the_disk_but_not_for_ever() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"lines:10\", \"ready\", \"hang\"]\n");
    stall(&home, "a");
    let kend = home.start();
    let begun = Instant::now();
    let end = kend.stop();
    assert!(end.status.success(), "{end:?}");
    end.assert_stderr_contains("the last lines of the logs are missing");
    let took = begun.elapsed();
    assert!((10..15).contains(&took.as_secs()), "{took:?}");
}
