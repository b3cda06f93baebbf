//! The goals of kend that are figures, each printed beside its limit (`--nocapture`). Times are held against the time that a program
//! needs from spawn to its `main`, measured in the same run, as machines differ and other tests run beside this one. What is promised
//! without a figure is tested elsewhere: delays, limits, watchdog and deaths in restart.rs, order and the end in start.rs and stop.rs,
//! the rest in the file of its name.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{Home, Kend, is_running, kill9, probe, until, wait_for_restart};
use serde_json::{Value, json};

/// One is measured at a time.
fn alone() -> MutexGuard<'static, ()> {
    static MEASURED: Mutex<()> = Mutex::new(());
    MEASURED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The names of ten parts.
fn names() -> Vec<String> {
    (0..10).map(|number| format!("p{number}")).collect()
}

/// Ten parts that write their pids into files.
fn ten() -> Home {
    let entry =
        |name: String| format!("[part.{name}]\ncommand = [\"PROBE\", \"pid:DIR/{name}.pids\", \"ready\", \"hang\"]\n");
    Home::new(&names().into_iter().map(entry).collect::<String>())
}

/// Waits until something holds, without a pause that would be part of what is measured.
fn time_until(mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(10), "never came");
        std::thread::sleep(Duration::from_micros(50));
    }
    begun.elapsed()
}

/// The time from the spawn of a program to its `main`, median and 95th percentile of 50.
fn floors(home: &Home) -> (Duration, Duration) {
    let action = format!("pid:{}", home.path("floor").display());
    let mut times: Vec<Duration> = (1..=50)
        .map(|round| {
            let begun = Instant::now();
            let mut child = Command::new(probe()).arg(&action).spawn().unwrap();
            time_until(|| home.numbers("floor").len() == round);
            let took = begun.elapsed();
            child.wait().unwrap();
            took
        })
        .collect();
    (percentile(&mut times, 50), percentile(&mut times, 95))
}

fn floor(home: &Home) -> Duration {
    floors(home).0
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn ratio(time: Duration, floor: Duration) -> f64 {
    time.as_secs_f64() / floor.as_secs_f64()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// The median from `kill -9` of a ready service to its next `main` is at most 4 times the floor, the 95th percentile 25 ms.
#[test]
fn a_killed_service_is_back_at_once() {
    let _alone = alone();
    let home = ten();
    let kend = home.start();
    let (floor, floor_late) = floors(&home);
    let mut times = Vec::new();
    for round in 1..=10 {
        wait_for_restart();
        for name in names() {
            let pids = format!("{name}.pids");
            assert_eq!(home.numbers(&pids).len(), round);
            kill9(nix::unistd::Pid::from_raw(*home.numbers(&pids).last().unwrap()));
            times.push(time_until(|| home.numbers(&pids).len() > round));
        }
    }
    let (median, late) = (percentile(&mut times, 50), percentile(&mut times, 95));
    println!(
        "restart: {} kills, restart at a median of {:.2} ms, {:.1} x the floor of {:.2} ms (at most 4); p95 {:.2} ms (25)",
        times.len(),
        ms(median),
        ratio(median, floor),
        ms(floor),
        ms(late)
    );
    assert!(ratio(median, floor) <= 4.0);
    assert!(late <= Duration::from_millis(25).max(floor_late * 8));
    drop(kend);
}

/// Of 10,000 connects over 20 kills none is refused or reset before it is accepted.
#[test]
fn held_sockets_refuse_none_of_ten_thousand() {
    let _alone = alone();
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = { tcp = { tcp = \"127.0.0.1:0\" } }\n",
    );
    let kend = home.start();
    let listeners = kend.call("parts.status", json!({})).unwrap()["listeners"].clone();
    let address = listeners[0]["url"].as_str().unwrap()["http://".len()..].to_owned();
    let (connects, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(&address).expect("refused");
                    // A connection that the killed process had accepted may end without an answer.
                    _ = stream.read_to_string(&mut String::new());
                    connects.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        for kills in 1..=20 {
            wait_for_restart();
            kill9(kend.part_pid("a"));
            until("it is back", || kend.part("a")["restarts"] == kills && kend.state("a") == "ready");
        }
        until("ten thousand", || connects.load(Ordering::Relaxed) >= 10_000);
        over.store(true, Ordering::Relaxed);
    });
    println!("held sockets: {} connects over 20 kills, 0 refused (0 of 10000)", connects.load(Ordering::Relaxed));
}

/// What requires a part starts within 2 ms of its READY. The times are those of the log.
#[test]
fn dependents_start_when_the_part_is_ready() {
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
    println!(
        "order: a dependent runs {:.0} ms after READY, in whole milliseconds, median of 10 (2); the floor is {:.2} ms",
        ms(median),
        ms(floor)
    );
    assert!(median <= Duration::from_millis(2).max(floor * 2));
}

/// A check takes at most 50 ms. That of the configuration that is shipped.
#[test]
fn a_check_is_quick() {
    let _alone = alone();
    let home = Home::new("");
    let floor = floor(&home);
    std::fs::write(home.path("ken.toml"), "[kend]\nwatch = false\n").unwrap();
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let begun = Instant::now();
            let ended = home.run(&["--check"]);
            assert!(ended.status.success(), "{}", ended.stderr);
            begun.elapsed()
        })
        .collect();
    let median = percentile(&mut times, 50);
    println!("check: --check takes {:.1} ms, median of 20 (50)", ms(median));
    assert!(median <= Duration::from_millis(50).max(floor * 25));
}

/// Ten idle services are down in 50 ms. No zombie after 100 ms.
#[test]
fn ten_services_are_down_in_no_time() {
    let _alone = alone();
    let home = ten();
    let mut floor = floor(&home);
    let mut times: Vec<Duration> = (0..10)
        .map(|_| {
            let kend = home.start();
            let begun = Instant::now();
            assert!(kend.stop().status.success());
            begun.elapsed()
        })
        .collect();
    let median = percentile(&mut times, 50);
    println!("stop: ten idle services and kend have ended after {:.1} ms, median of 10 (50)", ms(median));
    floor = floor.max(Duration::from_millis(1));
    assert!(median <= Duration::from_millis(50).max(floor * 25));
    let kend = home.start();
    let pids: Vec<_> = names().iter().map(|name| kend.part_pid(name)).collect();
    pids.iter().for_each(|pid| kill9(*pid));
    // A dead process has its folder until it is collected.
    let took = time_until(|| pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    println!("zombies: ten dead services are collected after {:.1} ms (100)", ms(took));
    assert!(took <= Duration::from_millis(100));
}

/// A second kend on the same folders ends at once and names the first.
#[test]
fn a_second_kend_is_refused_at_once() {
    let _alone = alone();
    let home = ten();
    let floor = floor(&home);
    let kend = home.start();
    let mut times: Vec<Duration> = (0..10)
        .map(|_| {
            let begun = Instant::now();
            home.run(&[]).assert_stderr_contains(&format!("kend already runs there, pid {}", kend.pid()));
            begun.elapsed()
        })
        .collect();
    let median = percentile(&mut times, 50);
    println!("double start: refused after {:.1} ms, median of 10 (at once: 50)", ms(median));
    assert!(median <= Duration::from_millis(50).max(floor * 25));
}

/// After `kill -9` of kend every service is gone within a second, 20 times of 20.
#[test]
fn services_end_with_kend() {
    let _alone = alone();
    let home = ten();
    let mut longest = Duration::ZERO;
    for round in 1..=20 {
        let mut kend = home.start();
        let pids: Vec<i32> =
            names().iter().map(|name| *home.numbers(&format!("{name}.pids")).last().unwrap()).collect();
        assert_eq!(home.numbers("p0.pids").len(), round, "never two copies");
        kend.child.kill().unwrap();
        kend.child.wait().unwrap();
        longest = longest.max(time_until(|| pids.iter().all(|pid| !is_running(*pid))));
    }
    println!("end of kend: 20 kills of kend, ten services gone after {:.1} ms at most (1000)", ms(longest));
    assert!(longest <= Duration::from_secs(1));
}

/// A part that prints as fast as it can delays the restart of another one by at most 20 ms.
#[test]
fn a_flood_delays_no_restart() {
    let _alone = alone();
    let home = Home::new(
        "[part.loud]\ncommand = [\"PROBE\", \"ready\", \"sleep:6000\", \"flood:100\"]\n\
         [part.a]\ncommand = [\"PROBE\", \"pid:DIR/pids\", \"ready\", \"hang\"]\n",
    );
    let kend = home.start();
    let log = || std::fs::metadata(home.path("state/log/loud.log")).map_or(0, |meta| meta.len());
    let mut medians = Vec::new();
    for is_loud in [false, true] {
        until("the flood", || !is_loud || log() > 0);
        let mut times: Vec<Duration> = (0..4).map(|_| restart(&home, &kend)).collect();
        medians.push(percentile(&mut times, 50));
    }
    println!(
        "logs: a restart takes {:.2} ms, and {:.2} ms beside a part that prints 100 MB/s (20 more)",
        ms(medians[0]),
        ms(medians[1])
    );
    assert!(medians[1] <= medians[0] + Duration::from_millis(20));
}

/// Kills the part `a` after it has been ready for a second, and returns the time to its next process.
fn restart(home: &Home, kend: &Kend<'_>) -> Duration {
    wait_for_restart();
    let count = home.numbers("pids").len();
    kill9(kend.part_pid("a"));
    time_until(|| home.numbers("pids").len() > count)
}

/// At most 3 MB of private memory for ten services, and no growth over 10,000 restarts (`KEN_RESTARTS`; 500 by default).
#[test]
fn memory_is_small_and_does_not_grow() {
    let _alone = alone();
    let home = ten();
    let kend = home.start();
    let private = || {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", kend.pid())).unwrap();
        // Not the clean pages of the program itself, of which a build without optimisation has many.
        let lines = text.lines().filter(|line| line.starts_with("Private_Dirty"));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    let restarts: usize = std::env::var("KEN_RESTARTS").map_or(500, |text| text.parse().unwrap());
    let restart = |count: usize| {
        for name in names().iter().cycle().take(count) {
            assert_eq!(kend.restart_part(name)["state"], "ready");
        }
    };
    // The last deaths of each part are kept, so that the first ones take memory.
    restart(200);
    let before = private();
    restart(restarts);
    let after = private();
    println!(
        "memory: {before} kB private with ten services (3072), {after} kB after {restarts} more restarts (no growth)"
    );
    assert!(before <= 3_072 && after <= before + 128, "kB");
}
