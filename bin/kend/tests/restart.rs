//! What follows when the process of a part ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Home, kill9, until, wait_for_restart};
use nix::sys::signal::{Signal, kill};
use serde_json::json;

#[test]
fn an_accident_is_repaired_at_once() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    wait_for_restart();
    let old = kend.part_pid("a");
    kill9(old);
    until("a new process", || kend.state("a") == "ready" && kend.part_pid("a") != old);
    assert!(kend.notes("a").iter().any(|note| note.ends_with("; starting again at once")), "{:?}", kend.notes("a"));
    let part = kend.part("a");
    assert_eq!(part["restarts"], 1);
    assert_eq!(part["last_exit"], "signal SIGKILL");
    assert_eq!(part["deaths"][0]["pid"], old.as_raw());
    assert_eq!(part["deaths"][0]["signal"], 9);
    assert_eq!(part["deaths"][0]["ready"], true);
    assert_eq!(part["deaths"][0]["requested"], false);
}

#[test]
fn a_crash_loop_backs_off_and_the_others_do_not_notice() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"pid:DIR/starts\", \"exit-if:DIR/bad\", \"ready\", \"hang\"]\n\
         [part.b]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n",
    );
    let kend = home.start();
    let other = kend.part_pid("b");
    std::fs::write(home.path("bad"), "").unwrap();
    kill9(kend.part_pid("a"));
    until("the fourth death", || kend.part("a")["deaths"].as_array().unwrap().len() >= 4);
    let delays: Vec<u64> = kend
        .notes("a")
        .iter()
        .filter_map(|note| note.split_once("next start in ")?.1.split_once(" ms")?.0.parse().ok())
        .collect();
    for (delay, min) in delays.iter().zip([250, 500, 1_000, 2_000]) {
        assert!((min..=min + min / 10).contains(delay), "{delays:?}");
    }
    assert!(delays.len() >= 4, "{delays:?}");
    let part = kend.part("a");
    assert_eq!(part["state"], "backoff");
    assert!(part["retry_in_ms"].as_u64().unwrap() <= 2_200, "{part}");
    assert_eq!(kend.part_pid("b"), other);
    // A start requested by a person does not wait for the delay.
    std::fs::remove_file(home.path("bad")).unwrap();
    let started = kend.start_part("a");
    assert_eq!(started["state"], "ready");
}

#[test]
fn a_limit_ends_in_failed_with_its_cause_until_a_person_says_start() {
    // The process reads the file before it is ready. After that, only the kill ends it.
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"exit-if:DIR/bad\", \"ready\", \"hang\"]\nlimit = { n = 2, within_ms = 60000 }\n",
    );
    let kend = home.start();
    std::fs::write(home.path("bad"), "").unwrap();
    kill9(kend.part_pid("a"));
    kend.until_state("a", "failed");
    assert!(kend.part("a")["cause"].as_str().unwrap().starts_with("2 starts within 60000 ms"));
    let waited = kend.call("parts.wait_ready", json!({"timeout_ms": 50})).unwrap_err();
    assert_eq!(waited["code"], "deadline");
    std::fs::remove_file(home.path("bad")).unwrap();
    assert_eq!(kend.start_part("a")["state"], "ready");
}

#[test]
fn held_sockets_refuse_nobody_while_their_parts_are_killed() {
    // Four parts, each killed five times after it has been ready for a second.
    let entry = |name: &str| {
        format!(
            "[part.{name}]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = {{ wire = {{ unix = \"{name}.sock\" }} }}\n"
        )
    };
    let names = ["a", "b", "c", "d"];
    let home = Home::new(&names.map(entry).concat());
    let kend = home.start();
    let over = AtomicBool::new(false);
    let answered: usize = std::thread::scope(|scope| {
        let callers = names.map(|name| {
            let path = home.path(&format!("run/{name}.sock"));
            let over = &over;
            scope.spawn(move || {
                let mut answered = 0;
                while !over.load(Ordering::Relaxed) {
                    // A refused connection is an error here. A connection that the killed process had accepted may end
                    // without an answer.
                    let mut stream = UnixStream::connect(&path).expect("refused");
                    let mut text = String::new();
                    answered += usize::from(stream.read_to_string(&mut text).is_ok_and(|length| length > 0));
                }
                answered
            })
        });
        for round in 1..=5 {
            wait_for_restart();
            names.iter().for_each(|name| kill9(kend.part_pid(name)));
            let restarted = |name: &&str| kend.part(name)["restarts"] == round && kend.part(name)["state"] == "ready";
            until("all are back", || names.iter().all(restarted));
        }
        over.store(true, Ordering::Relaxed);
        callers.map(|caller| caller.join().unwrap()).iter().sum()
    });
    assert!(answered > 1_000, "only {answered} were answered");
}

/// A part that is not started again at once keeps its socket too: callers wait until it is back.
#[test]
fn held_sockets_refuse_nobody_during_backoff() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"exit-if:DIR/bad\", \"ready\", \"accept\"]\nsockets = { wire = { unix = \"a.sock\" } }\n",
    );
    let kend = home.start();
    std::fs::write(home.path("bad"), "").unwrap();
    kill9(kend.part_pid("a"));
    let mut waiting = Vec::new();
    let mut in_backoff = 0;
    until("three deaths and sixty callers", || {
        in_backoff += u32::from(kend.state("a") == "backoff");
        if waiting.len() < 60 {
            waiting.push(UnixStream::connect(home.path("run/a.sock")).expect("refused"));
        }
        waiting.len() == 60 && kend.part("a")["deaths"].as_array().unwrap().len() >= 3
    });
    assert!(in_backoff > 10, "{in_backoff}");
    std::fs::remove_file(home.path("bad")).unwrap();
    kend.start_part("a");
    for mut stream in waiting {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(!text.is_empty());
    }
}

#[test]
fn a_silent_part_is_aborted_and_started_again() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nwatchdog_ms = 150\n\
         [part.b]\ncommand = [\"PROBE\", \"ready\", \"alive:20\"]\nwatchdog_ms = 5000\n",
    );
    let kend = home.start();
    until("a death", || !kend.part("a")["deaths"].as_array().unwrap().is_empty());
    let part = kend.part("a");
    assert_eq!(part["last_exit"], "watchdog timeout after 150 ms, signal SIGABRT");
    assert_eq!(part["deaths"][0]["requested"], false);
    until("a second start", || kend.part("a")["restarts"].as_u64().unwrap() >= 1);
    assert_eq!(kend.part("b")["restarts"], 0);
}

/// A part that the watchdog ended has failed, no matter how long it was ready.
#[test]
fn a_watchdog_timeout_is_followed_by_a_delay() {
    let home =
        Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"alive-for:1500\", \"hang\"]\nwatchdog_ms = 1000\n");
    let kend = home.start();
    let mut note = String::new();
    until("the end of the first process", || {
        let notes = kend.notes("a");
        note = notes.into_iter().find(|note| note.starts_with("ended")).unwrap_or_default();
        !note.is_empty()
    });
    assert!(note.starts_with("ended (watchdog timeout after 1000 ms, signal SIGABRT) after "), "{note}");
    assert!(note.contains("; next start in 2"), "{note}");
    assert_eq!(kend.part("a")["deaths"][0]["ready"], true);
}

/// If the whole system is suspended for longer than the watchdog allows, no part is treated as hanging.
#[test]
fn a_pause_of_the_whole_system_kills_nobody() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"alive:20\"]\nwatchdog_ms = 1000\n");
    let kend = home.start();
    let part = kend.part_pid("a");
    for pid in [part, kend.pid()] {
        kill(pid, Signal::SIGSTOP).unwrap();
    }
    std::thread::sleep(Duration::from_millis(2500));
    kend.signal(Signal::SIGCONT);
    assert_eq!(kend.state("a"), "ready");
    kill(part, Signal::SIGCONT).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(kend.part("a")["deaths"], json!([]));
}

#[test]
fn a_program_that_cannot_be_executed_is_a_death_with_a_cause() {
    let home = Home::new("[part.a]\ncommand = [\"DIR/program\", \"ready\", \"hang\"]\n");
    copy_program(common::probe(), home.path("program"));
    let kend = home.start();
    std::fs::write(home.path("program.new"), "no program").unwrap();
    std::fs::rename(home.path("program.new"), home.path("program")).unwrap();
    kill9(kend.part_pid("a"));
    until("a failed start", || {
        kend.part("a")["last_exit"].as_str().is_some_and(|cause| cause.starts_with("cannot start: execute: "))
    });
    copy_program(common::probe(), home.path("program.new"));
    std::fs::rename(home.path("program.new"), home.path("program")).unwrap();
    assert_eq!(kend.restart_part("a")["state"], "ready");
}

#[test]
fn a_report_of_a_stranger_counts_for_nobody() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"hang\"]\n");
    let mut command = home.command(&[]);
    let mut child = command.spawn().unwrap();
    until("kend is up", || home.read("state/log/kend.log").contains("started"));
    let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
    socket.send_to(b"READY=1", home.path("run/notify.sock")).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let mut caller = common::Caller::connect(&home.path("run/kend.sock"));
    let status = caller.call("parts.status", json!({})).unwrap();
    assert_eq!(status["parts"][0]["state"], "starting");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_last_sixteen_deaths_are_kept() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    for _ in 0..18 {
        kend.restart_part("a");
    }
    let part = kend.part("a");
    assert_eq!(part["restarts"], 18);
    let deaths = part["deaths"].as_array().unwrap();
    assert_eq!(deaths.len(), 16);
    assert!(deaths.iter().all(|death| death["requested"] == true && death["signal"] == 15));
}

#[test]
fn an_idle_system_does_not_wake_kend() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[part.b]\ncommand = [\"PROBE\", \"say:x\", \"ready\", \"hang\"]\n",
    );
    let text = home.read("ken.toml").replace("watch = false", "watch = true");
    std::fs::write(home.path("ken.toml"), text).unwrap();
    let kend = home.start();
    let switches = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", kend.pid())).unwrap();
        let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap();
        let texts: Vec<String> = tasks.map(|task| status(task.unwrap())).collect();
        let lines = texts.iter().flat_map(|text| text.lines());
        let counts = lines.filter(|line| line.contains("ctxt_switches"));
        counts.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    std::thread::sleep(Duration::from_millis(200));
    let before = switches();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(switches(), before);
}

#[test]
fn a_part_that_says_that_it_stops_is_no_longer_ready_and_comes_back() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"pid:DIR/pid\", \"sleep:1100\", \"stopping\", \"deaf\", \"hang\"]\nstop_timeout_ms = 300\n",
    );
    let kend = home.start();
    kend.until_state("a", "stopping");
    until("killed and started again", || home.numbers("pid").len() == 2);
    let part = kend.part("a");
    assert_eq!(part["deaths"][0]["signal"], 9);
    assert_eq!(part["deaths"][0]["requested"], false);
}

#[test]
fn systemd_hears_ready_when_all_have_had_their_chance() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[part.bad]\ncommand = [\"PROBE\", \"exit:1\"]\n\
         [part.blocked]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"bad\"]\n",
    );
    let socket = std::os::unix::net::UnixDatagram::bind(home.path("systemd")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let next_datagram = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    let mut command = home.command(&[]);
    let mut child = command.env("NOTIFY_SOCKET", home.path("systemd")).spawn().unwrap();
    assert_eq!(next_datagram(), "READY=1\n");
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGHUP).unwrap();
    assert!(next_datagram().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next_datagram(), "READY=1\n");
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(next_datagram(), "STOPPING=1\n");
    assert!(child.wait().unwrap().success());
}

/// Another process copies the program: a test beside this one that forks while the file is open for writing would keep it from
/// being run.
fn copy_program(from: impl AsRef<std::ffi::OsStr>, to: impl AsRef<std::ffi::OsStr>) {
    assert!(std::process::Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
