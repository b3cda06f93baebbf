//! What follows the end of a part, or of kend itself.

use std::io::Read;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use super::common::{Home, Kend, is_running, kill9, until, wait_for_restart};
use super::{alone, floors, goal, is_exact, ms, names, percentile, ratio, ten, time_until, timed_goal};

#[test]
fn goal_01_a_killed_service_is_back_at_once() {
    let _alone = alone();
    let home = ten();
    let _kend = home.start();
    let (floor, floor_late) = floors(&home);
    let mut times = Vec::new();
    for round in 1..=10 {
        wait_for_restart();
        for name in names() {
            let pids = format!("{name}.pids");
            assert_eq!(home.numbers(&pids).len(), round);
            kill9(Pid::from_raw(*home.numbers(&pids).last().unwrap()));
            times.push(time_until(|| home.numbers(&pids).len() > round));
        }
    }
    let (median, late) = (percentile(&mut times, 50), percentile(&mut times, 95));
    let figure = format!(
        "{} kills, again in main after {:.2} ms, {:.1} x the floor of {:.2} ms, p95 {:.2} ms",
        times.len(),
        ms(median),
        ratio(median, floor),
        ms(floor),
        ms(late)
    );
    let times = [(median, floor * 4), (late, Duration::from_millis(25).max(floor_late * 8))];
    timed_goal(1, "restart", &figure, "4 x, p95 25 ms", true, &times);
}

/// Nobody is refused or reset before the connection is accepted.
#[test]
fn goal_02_held_sockets_refuse_none_of_ten_thousand() {
    let _alone = alone();
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"accept\"]\nsockets = { tcp = { tcp = \"127.0.0.1:0\" } }\n",
    );
    let kend = home.start();
    let address = &kend.addresses()[0];
    let (connects, refused, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    match TcpStream::connect(address) {
                        // A connection that the killed process had accepted may end without an answer.
                        Ok(mut stream) => drop(stream.read_to_string(&mut String::new())),
                        Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                    }
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
    let (connects, refused) = (connects.into_inner(), refused.into_inner());
    let figure = format!("{refused} refused of {connects} connects over 20 kills");
    goal(2, "held sockets", &figure, "0 of 10000", refused == 0);
}

/// The delays that the log names, in milliseconds.
fn delays(kend: &Kend<'_>, part: &str) -> Vec<u64> {
    let delay = |note: &String| note.split_once("next start in ")?.1.split_once(" ms")?.0.parse().ok();
    kend.notes(part).iter().filter_map(delay).collect()
}

/// Whether these are the delays, each at most a tenth longer.
fn are_about(delays: &[u64], wanted: &[u64]) -> bool {
    let is_about = |(delay, wanted): (&u64, &u64)| (*wanted..=wanted + wanted / 10).contains(delay);
    delays.len() >= wanted.len() && delays.iter().zip(wanted).all(is_about)
}

/// Other goals are measured at the same time, because kend does nearly nothing here. It takes a minute, or 20 s without the last delays.
#[test]
fn goal_03_a_crash_loop_is_slow_and_the_delay_resets_by_itself() {
    let entry = |name: &str| {
        format!(
            "[part.{name}]\ncommand = [\"PROBE\", \"pid:DIR/{name}\", \"exit-if:DIR/bad-{name}\", \"ready\", \"hang\"]\n"
        )
    };
    let home = Home::new(&["loop", "calm", "other"].map(entry).concat());
    let kend = home.start();
    let other = kend.part_pid("other");
    let spoil = |name: &str| std::fs::write(home.path(&format!("bad-{name}")), "").unwrap();
    let mend = |name: &str| std::fs::remove_file(home.path(&format!("bad-{name}"))).unwrap();
    for name in ["loop", "calm"] {
        spoil(name);
        kill9(kend.part_pid(name));
    }
    let begun = Instant::now();
    let before = home.numbers("loop").len();
    until("two delays", || delays(&kend, "calm").len() == 2);
    mend("calm");
    kend.until_state("calm", "ready");
    std::thread::sleep(Duration::from_millis(10_100));
    spoil("calm");
    kill9(kend.part_pid("calm"));
    until("a third delay", || delays(&kend, "calm").len() == 3);
    mend("calm");
    let calm = delays(&kend, "calm");
    let at_once = kend.notes("calm").iter().filter(|note| note.ends_with("; starting again at once")).count();

    let (seconds, most) = if is_exact() { (60, 12) } else { (20, 8) };
    std::thread::sleep(Duration::from_secs(seconds).saturating_sub(begun.elapsed()));
    let starts = home.numbers("loop").len() - before;
    let looping = delays(&kend, "loop");
    let others_noticed = kend.part_pid("other") != other || kend.part("other")["restarts"] != 0;
    // A start requested by a person does not wait for the delay.
    let part = kend.part("loop");
    assert!(part["state"] == "backoff" && part["retry_in_ms"].as_u64().unwrap() <= 33_000, "{part}");
    mend("loop");
    assert_eq!(kend.start_part("loop")["state"], "ready");
    let figure = format!(
        "{starts} starts in the first {seconds} s of a crash loop, after {looping:?} ms; after 10.1 s ready: at once, then {} ms",
        calm[2]
    );
    let is_met = starts <= most
        && are_about(&looping, &[250, 500, 1_000, 2_000, 4_000, 8_000])
        && are_about(&calm, &[250, 500, 250])
        && at_once >= 1
        && !others_noticed;
    goal(
        3,
        "restart policy",
        &figure,
        &format!("{most} starts, after 250, 500 ... 30000 ms, reset after 10 s"),
        is_met,
    );
}

#[test]
fn goal_04_a_limit_ends_in_failed_with_its_cause_until_a_person_says_start() {
    // The process reads the file before it is ready. After that, only the kill ends it.
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"pid:DIR/a\", \"exit-if:DIR/bad\", \"ready\", \"hang\"]\nlimit = { n = 2, within_ms = 60000 }\n",
    );
    let kend = home.start();
    std::fs::write(home.path("bad"), "").unwrap();
    kill9(kend.part_pid("a"));
    kend.until_state("a", "failed");
    let starts = home.numbers("a").len();
    let cause = kend.part("a")["cause"].as_str().unwrap().to_owned();
    let waited = kend.call("parts.wait_ready", json!({"timeout_ms": 50})).unwrap_err();
    assert_eq!(waited["code"], "deadline");
    std::fs::remove_file(home.path("bad")).unwrap();
    assert_eq!(kend.start_part("a")["state"], "ready");
    let figure = format!("failed after {starts} starts with a limit of 2, cause: {cause}");
    goal(4, "give up, if asked", &figure, "2", starts == 2 && cause.starts_with("2 starts within 60000 ms"));
}

const FAMILY: &str = "[part.a]\ncommand = [\"PROBE\", \"pid:DIR/parts\", \"child:DIR/children\", \"daemon:DIR/daemons\", \
                      \"bare:DIR/bare\", \"unmarked:DIR/unmarked\", \"sleep:100\", \"ready\", \"hang\"]\n\
                      [part.b]\ncommand = [\"PROBE\", \"pid:DIR/parts\", \"ready\", \"hang\"]\n";
/// In the part's group, out of it and of its session, and both with a cleared environment.
const DESCENDANTS: [&str; 4] = ["children", "daemons", "bare", "unmarked"];

fn wait_for_family(home: &Home, round: usize) {
    until("all descendants", || DESCENDANTS.iter().all(|kind| home.numbers(kind).len() == round));
}

#[test]
fn goal_11_what_a_dead_part_left_behind_is_killed_with_it() {
    let _alone = alone();
    let home = Home::new(FAMILY);
    let kend = home.start();
    wait_for_family(&home, 1);
    let family: Vec<i32> = DESCENDANTS.iter().map(|kind| home.numbers(kind)[0]).collect();
    assert!(family.iter().all(|pid| is_running(*pid)));
    wait_for_restart();
    let other = kend.part_pid("b");
    kill9(kend.part_pid("a"));
    let gone = time_until(|| family.iter().all(|pid| !is_running(*pid)));
    assert_eq!(kend.part_pid("b"), other);
    wait_for_family(&home, 2);
    assert!(DESCENDANTS.iter().all(|kind| is_running(home.numbers(kind)[1])));
    // A dead process has its folder until it is collected.
    let is_collected = |pid: &i32| !std::path::Path::new(&format!("/proc/{pid}")).exists();
    let of_family = time_until(|| family.iter().all(is_collected));
    drop(kend);

    let home = ten();
    let kend = home.start();
    let pids: Vec<_> = names().iter().map(|name| kend.part_pid(name).as_raw()).collect();
    pids.iter().for_each(|pid| kill9(Pid::from_raw(*pid)));
    let collected = time_until(|| pids.iter().all(is_collected));
    let figure = format!(
        "4 of 4 kinds of descendants are gone {:.1} ms after their part; ten dead parts are collected after {:.1} ms",
        ms(gone),
        ms(collected)
    );
    let times = [(collected.max(of_family), Duration::from_millis(100))];
    timed_goal(11, "orphans", &figure, "no zombie after 100 ms", true, &times);
}

#[test]
fn goal_12_nothing_survives_a_killed_kend() {
    let _alone = alone();
    let home = Home::new(FAMILY);
    let mut longest = Duration::ZERO;
    for round in 1..=20 {
        let mut kend = home.start();
        wait_for_family(&home, round);
        // What had left its group is killed by the next kend, before it starts anything.
        let earlier = DESCENDANTS.iter().flat_map(|kind| home.numbers(kind)[..round - 1].to_vec());
        assert!(earlier.into_iter().all(|pid| !is_running(pid)), "two copies at once");
        let parts = home.numbers("parts");
        assert_eq!(parts.len(), 2 * round, "two copies at once");
        kend.child.kill().unwrap();
        kend.child.wait().unwrap();
        longest = longest.max(time_until(|| parts.iter().all(|pid| !is_running(*pid))));
    }
    // The next one kills what the last of them has left behind.
    let kend = home.start();
    wait_for_family(&home, 21);
    drop(kend);
    let figure =
        format!("20 of 20 kills of kend: all parts gone after {:.1} ms at most, never two copies", ms(longest));
    timed_goal(12, "kill -9 of kend", &figure, "1 s, 20 of 20", true, &[(longest, Duration::from_secs(1))]);
}

#[test]
fn goal_14_a_silent_part_is_aborted_and_then_killed() {
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\nwatchdog_ms = 150\n\
         [part.deaf]\ncommand = [\"PROBE\", \"deaf:ABRT\", \"ready\", \"hang\"]\nwatchdog_ms = 150\n\
         [part.b]\ncommand = [\"PROBE\", \"ready\", \"alive:20\"]\nwatchdog_ms = 5000\n",
    );
    let kend = home.start();
    let death = |name: &str| {
        until("a death", || !kend.part(name)["deaths"].as_array().unwrap().is_empty());
        kend.part(name)["deaths"][0].clone()
    };
    let (aborted, killed) = (death("a"), death("deaf"));
    assert_eq!(kend.part("a")["last_exit"], "watchdog timeout after 150 ms, signal SIGABRT");
    assert_eq!((&aborted["signal"], &aborted["requested"], &killed["signal"]), (&json!(6), &json!(false), &json!(9)));
    until("a second start", || kend.part("a")["restarts"].as_u64().unwrap() >= 1);
    assert_eq!(kend.part("b")["restarts"], 0);
    let counted = kend.notes("a").iter().any(|note| note.contains("next start in 2"));
    let ran = |death: &serde_json::Value| death["ran_ms"].as_u64().unwrap();
    let figure = format!(
        "with an interval of 150 ms SIGABRT ends it after {} ms, SIGKILL after {} ms, counted as a failure",
        ran(&aborted),
        ran(&killed)
    );
    let is_met = counted && (150..1_000).contains(&ran(&aborted)) && (5_150..6_500).contains(&ran(&killed));
    goal(14, "watchdog", &figure, "ABRT after the interval, KILL 5 s later", is_met);
}

#[test]
fn goal_20_the_last_sixteen_deaths_are_kept() {
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"exit-if:DIR/bad\", \"ready\", \"hang\"]\n");
    let kend = home.start();
    for _ in 0..15 {
        kend.restart_part("a");
    }
    kill(kend.part_pid("a"), Signal::SIGUSR1).unwrap();
    until("it is back", || kend.part("a")["restarts"] == 16 && kend.state("a") == "ready");
    std::fs::write(home.path("bad"), "").unwrap();
    kill9(kend.part_pid("a"));
    until("it has failed to start", || kend.part("a")["last_exit"] == "exit 1");
    let part = kend.part("a");
    let deaths = part["deaths"].as_array().unwrap();
    let how = |field: &str, value: i64| deaths.iter().filter(|death| death[field] == value).count();
    let ways = [how("signal", 15), how("signal", 10), how("signal", 9), how("code", 1)];
    let are_whole = deaths.iter().all(|death| {
        death["at"].is_string() && death["ran_ms"].is_u64() && death["ready"] == (death["code"] != json!(1))
    });
    let figure = format!(
        "{} of at least 18 deaths kept: {ways:?} by TERM, USR1, KILL and exit 1, each with time, age and readiness",
        deaths.len()
    );
    let is_met = deaths.len() == 16 && are_whole && ways[1..=2] == [1, 1] && ways[3] >= 1;
    goal(20, "deaths", &figure, "the last 16", is_met);
}
