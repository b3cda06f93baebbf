//! From the command line to a system that runs.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::common::{Home, until};
use super::{alone, floor, ms, percentile, ten, ten_that, timed_goal, times};

/// What requires a part starts within 2 ms of its READY. The times are those of the log.
#[test]
fn goal_05_dependents_start_when_the_part_is_ready() {
    let _alone = alone();
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"sleep:20\", \"ready\", \"hang\"]\n\
         [part.b]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"a\"]\n",
    );
    let floor = floor(&home);
    let mut gaps: Vec<Duration> = (0..10)
        .map(|_| {
            let kend = home.start();
            let journal = kend.journal();
            let at = |part: &str, what: &str| {
                let records = journal.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
                let mut found = records.filter(|record| {
                    record["part"] == part && record["message"].as_str().is_some_and(|text| text.starts_with(what))
                });
                let time = found.next_back().expect(what)["timestamp"].as_str().unwrap().to_owned();
                let (minutes, seconds) = (time[14..16].parse::<f64>().unwrap(), time[17..23].parse::<f64>().unwrap());
                Duration::from_secs_f64(minutes * 60.0 + seconds)
            };
            let gap = at("b", "started").saturating_sub(at("a", "ready"));
            assert!(kend.stop().status.success());
            gap
        })
        .collect();
    let median = percentile(&mut gaps, 50);
    let figure = format!(
        "a dependent runs {:.0} ms after READY, in whole milliseconds, median of 10 (the floor is {:.2} ms)",
        ms(median),
        ms(floor)
    );
    timed_goal(5, "readiness", &figure, "2 ms", true, &[(median, Duration::from_millis(2).max(floor * 2))]);
}

#[test]
fn goal_06_systemd_hears_all_that_it_waits_for() {
    const INTERVAL: Duration = Duration::from_millis(400);
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[part.bad]\ncommand = [\"PROBE\", \"exit:1\"]\n\
         [part.blocked]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"bad\"]\n",
    );
    let socket = UnixDatagram::bind(home.path("systemd")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut alive = Vec::new();
    let mut next = || {
        let mut text = [0; 256];
        let length = socket.recv(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        if text == "WATCHDOG=1\n" {
            alive.push(Instant::now());
        }
        text
    };
    let mut command = home.command(&[]);
    command.env("NOTIFY_SOCKET", home.path("systemd")).env("WATCHDOG_USEC", INTERVAL.as_micros().to_string());
    let mut child = command.spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    let mut heard = Vec::new();
    for (signal, wanted) in [
        (None, "READY=1\n"),
        (Some(Signal::SIGHUP), "RELOADING=1\nMONOTONIC_USEC="),
        (None, "READY=1\n"),
        (None, "WATCHDOG=1\n"),
        (None, "WATCHDOG=1\n"),
        (None, "WATCHDOG=1\n"),
        (Some(Signal::SIGTERM), "STOPPING=1\n"),
    ] {
        if let Some(signal) = signal {
            kill(pid, signal).unwrap();
        }
        let found = std::iter::repeat_with(&mut next).find(|text| wanted == "WATCHDOG=1\n" || text != "WATCHDOG=1\n");
        let found = found.unwrap();
        assert!(found.starts_with(wanted), "{found} in place of {wanted}");
        heard.push(wanted.split('=').next().unwrap());
    }
    assert!(child.wait().unwrap().success());
    let longest = alive.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    let figure = format!(
        "{}; at most {:.0} ms between two WATCHDOG=1 with an interval of {} ms",
        heard.join(", "),
        ms(longest),
        INTERVAL.as_millis()
    );
    timed_goal(6, "upward", &figure, "READY, RELOADING, STOPPING, WATCHDOG in time", true, &[(longest, INTERVAL)]);
}

#[test]
fn goal_07_parts_start_at_once_or_in_their_order_and_end_in_reverse() {
    let _alone = alone();
    let home = ten_that("\"sleep:200\", \"ready\", \"hang\"");
    let begun = Instant::now();
    let kend = home.start();
    let parallel = begun.elapsed();
    drop(kend);
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"sleep:50\", \"ready\", \"hang\"]\n\
         [part.b]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nrequires = [\"a\"]\n\
         [part.c]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nafter = [\"b\", \"off\"]\n\
         [part.d]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n\
         [part.off]\ncommand = [\"PROBE\"]\nenabled = false\n",
    );
    let kend = home.start();
    let log = kend.journal();
    let at = |log: &str, part: &str, what: &str| {
        let found = |line: &str| line.contains(&format!("\"part\":\"{part}\"")) && line.contains(what);
        log.lines().position(found).unwrap_or_else(|| panic!("{part} {what}: {log}"))
    };
    let ordered = [
        at(&log, "a", "ready") < at(&log, "b", "started"),
        at(&log, "b", "ready") < at(&log, "c", "started"),
        at(&log, "d", "started") < at(&log, "a", "ready"),
        kend.state("off") == "stopped",
    ];
    assert!(kend.stop().status.success());
    let log = home.read("state/log/kend.log");
    let ended = ["c", "b", "a"].map(|part| at(&log, part, "ended (signal"));
    home.configure(
        "[part.a]\ncommand = [\"PROBE\"]\nafter = [\"b\"]\n[part.b]\ncommand = [\"PROBE\"]\nrequires = [\"a\"]\n",
    );
    home.run(&["--check"]).assert_stderr_contains("these parts wait for each other: a -> b -> a");
    let figure = format!(
        "ten free parts that need 200 ms each are ready after {:.0} ms; 4 of 4 started in order: {}; ended in reverse: {}; a cycle is named",
        ms(parallel),
        ordered.iter().all(|is| *is),
        ended.is_sorted()
    );
    let is_right = ordered.iter().all(|is| *is) && ended.is_sorted();
    timed_goal(7, "order", &figure, "parallel where free", is_right, &[(parallel, Duration::from_millis(1_000))]);
}

/// Each fault of a configuration, with its line.
const FAULTS: [&str; 4] = [
    "ken.toml:5: gateway.prot: unknown key; did you mean `port`?",
    "ken.toml:7: part.a.command: no program `no-such`",
    "part.a.requires: these parts wait for each other: a -> b -> a",
    "secrets.env:1: not of the form NAME=value",
];

#[test]
fn goal_08_a_check_says_every_error_and_is_quick() {
    let _alone = alone();
    let home = Home::new(
        "[gateway]\nprot = 1\n[part.a]\ncommand = [\"no-such\"]\nrequires = [\"b\"]\n[part.b]\ncommand = [\"PROBE\"]\nafter = [\"a\"]\n",
    );
    home.secrets("no pair\n", 0o600);
    let bad = home.run(&["--check"]);
    assert_eq!(bad.status.code(), Some(2));
    let named = FAULTS.iter().filter(|line| bad.stderr.contains(**line)).count();
    assert_eq!(bad.stderr.lines().count(), FAULTS.len(), "{}", bad.stderr);
    home.secrets("", 0o600);
    // The configuration that is shipped.
    std::fs::write(home.path("ken.toml"), "[kend]\nwatch = false\n").unwrap();
    let floor = floor(&home);
    let good = format!("{}: no errors\n", home.path("ken.toml").display());
    let mut times = times(20, || assert_eq!(home.run(&["--check"]).stdout, good));
    assert!(!home.path("run").exists(), "it has started something");
    let median = percentile(&mut times, 50);
    let figure = format!("--check takes {:.1} ms, median of 20; {named} of {} faults named", ms(median), FAULTS.len());
    let times = [(median, Duration::from_millis(50).max(floor * 25))];
    timed_goal(8, "check", &figure, "50 ms, all faults", named == FAULTS.len(), &times);
}

#[test]
fn goal_13_a_second_kend_is_refused_at_once_and_names_the_first() {
    let _alone = alone();
    let home = ten();
    let floor = floor(&home);
    let kend = home.start();
    let pids = || super::names().iter().map(|name| kend.part_pid(name)).collect::<Vec<_>>();
    let before = pids();
    let mut times = times(10, || {
        let second = home.run(&["--announce"]);
        assert!(!second.status.success());
        assert_eq!((second.stdout.as_str(), second.stderr.lines().count()), ("", 1));
        second.assert_stderr_contains(&format!("kend already runs there, pid {}", kend.pid()));
    });
    assert_eq!(pids(), before, "the first one is left alone");
    let median = percentile(&mut times, 50);
    // The lock is held until the end, and by no file that a killed kend leaves.
    assert!(kend.stop().status.success());
    until("it starts again", || home.start().stop().status.success());
    let figure = format!("refused after {:.1} ms, median of 10, and the first is named", ms(median));
    let times = [(median, Duration::from_millis(50).max(floor * 25))];
    timed_goal(13, "double start", &figure, "at once: 50 ms", true, &times);
}
