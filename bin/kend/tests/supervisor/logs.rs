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
fn fewer_and_smaller_logs_are_in_force_at_once_also_for_the_log_of_kend() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let text = home.read("ken.toml");
    let limits = |limits: &str| {
        let text = text.replace("builtin_parts = false", &format!("builtin_parts = false\n{limits}"));
        std::fs::write(home.path("ken.toml"), text).unwrap();
    };
    std::fs::create_dir_all(home.path("state/log")).unwrap();
    let old = |name: &str, age: u32| home.path(&format!("state/log/{name}.log.{age}"));
    for (name, age) in [("a", 1), ("a", 2), ("a", 5), ("a", 6), ("kend", 1), ("kend", 5), ("kend", 6)] {
        std::fs::write(old(name, age), "old\n").unwrap();
    }
    let ages = |name: &str| (1..10).filter(|age| old(name, *age).exists()).collect::<Vec<u32>>();
    let kend = home.start();
    until("what is above the default is removed", || (ages("a"), ages("kend")) == (vec![1, 2, 5], vec![1, 5]));
    limits("log_keep = 1");
    kend.reload();
    until("only one is kept", || (ages("a"), ages("kend")) == (vec![1], vec![1]));
    limits("log_max_bytes = 4095");
    let error = kend.call("kend.reload", json!({})).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("kend.log_max_bytes: at least 4096"), "{error}");
    limits("log_max_bytes = 4096\nlog_keep = 1");
    for _ in 0..80 {
        kend.reload();
    }
    let last = |name: &str| std::fs::metadata(home.path(&format!("state/log/{name}.log"))).unwrap().len();
    until("the log of kend is rotated", || home.read("state/log/kend.log.1") != "old\n");
    assert!(last("kend") <= 4096, "{}", last("kend"));
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
