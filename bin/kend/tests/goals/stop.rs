//! Stopping, and what a person is told of it.

use std::net::TcpStream;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::common::{Home, is_running, until};
use super::{alone, context_switches, floor, goal, ken, ms, percentile, ratio, ten, time_until, timed_goal, times};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn goal_10_ten_services_are_down_in_no_time_and_the_stubborn_are_killed() {
    let _alone = alone();
    let home = ten();
    let floor = floor(&home).max(Duration::from_millis(1));
    let mut times: Vec<Duration> = (0..10)
        .map(|_| {
            let kend = home.start();
            let begun = Instant::now();
            assert!(kend.stop().status.success());
            begun.elapsed()
        })
        .collect();
    let median = percentile(&mut times, 50);

    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"deaf\", \"pid:DIR/pid\", \"child:DIR/pid\", \"sleep:50\", \"ready\", \"hang\"]\nstop_timeout_ms = 100\n\
         sockets = { tcp = { tcp = \"127.0.0.1:0\" } }\n",
    );
    let mut kend = home.start();
    until("the child", || home.numbers("pid").len() == 2);
    let address = kend.addresses().remove(0);
    let stopped = ken(&home, &["stop", "a"]).output().unwrap();
    // The child, which is killed once its parent has ended, has the socket, too.
    until("nobody listens", || TcpStream::connect(&address).is_err());
    let said = text(&stopped);
    assert!(stopped.status.success() && said.starts_with("a stopped\n") && said.contains("was killed"), "{said}");
    assert!(ken(&home, &["start", "a"]).output().unwrap().status.success());
    until("the next child", || home.numbers("pid").len() == 4);
    kend.signal(nix::sys::signal::Signal::SIGTERM);
    let ended = kend.end();
    assert!(ended.status.success());
    ended.assert_stderr_contains("a did not end within its time; killed: ");
    let stubborn = home.numbers("pid");
    stubborn[2..].iter().for_each(|pid| ended.assert_stderr_contains(&format!("{pid} (probe)")));
    let left = stubborn.iter().filter(|pid| is_running(**pid)).count();
    let figure = format!(
        "ten idle services and kend have ended after {:.1} ms, median of 10; {left} of 4 deaf processes live on, and each was named",
        ms(median)
    );
    let times = [(median, Duration::from_millis(50).max(floor * 25))];
    timed_goal(10, "stop", &figure, "50 ms", left == 0, &times);
}

#[test]
fn goal_15_the_status_is_a_table_for_people_and_lines_for_programs() {
    let _alone = alone();
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n[part.longer-name]\ncommand = [\"PROBE\", \"ready\", \"hang\"]\n",
    );
    let floor = floor(&home);
    let kend = home.start();
    let status = |args: &[&str]| ken(&home, &[&["status"], args].concat()).output().unwrap();
    let table = text(&status(&[]));
    let lines: Vec<&str> = table.lines().collect();
    let titles: Vec<&str> = lines[0].split_whitespace().collect();
    assert!(titles.starts_with(&["NAME", "STATE", "PID", "UPTIME", "RESTARTS", "LAST-EXIT"]), "{table}");
    let column = lines[0].find("STATE").unwrap();
    let is_aligned = lines[1..].iter().all(|line| line[column..].starts_with("ready"));
    let rows: Vec<Value> = text(&status(&["--json"])).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "longer-name"]);
    let up = status(&[]).status.code();
    let unknown = status(&["nope"]).status.code();
    let mut times = times(20, || drop(status(&["--json"])));
    let median = percentile(&mut times, 50);
    kend.stop_part("a");
    let down = status(&[]).status.code();
    let codes = [up, down, unknown].map(Option::unwrap);
    let figure = format!(
        "aligned: {is_aligned}; exit {codes:?} when all are up, one is not, the name is unknown; {:.1} ms, median of 20, {:.1} x the floor",
        ms(median),
        ratio(median, floor)
    );
    goal(15, "status", &figure, "0, 3, 4", is_aligned && codes == [0, 3, 4]);
}

#[test]
fn goal_16_waiting_is_a_subscription() {
    let _alone = alone();
    // Its pid is in the file right before it is ready.
    let home = Home::new(
        "[part.a]\ncommand = [\"PROBE\", \"sleep:700\", \"pid:DIR/ready\", \"ready\", \"hang\"]\nenabled = false\n",
    );
    let floor = floor(&home);
    let kend = home.start();
    let (mut woken, mut late) = (0, Vec::new());
    for round in 1..=5 {
        let mut command = ken(&home, &["start", "a", "--wait", "ready", "--timeout", "5s"]);
        let mut waiting = command.stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(waiting.id()).unwrap();
        // By then both wait, and neither is woken before the part is ready.
        std::thread::sleep(Duration::from_millis(350));
        let switches = || context_switches(pid) + context_switches(kend.pid().as_raw());
        let before = switches();
        std::thread::sleep(Duration::from_millis(200));
        woken += switches() - before;
        time_until(|| home.numbers("ready").len() == round);
        late.push(time_until(|| waiting.try_wait().unwrap().is_some()));
        assert!(waiting.wait().unwrap().success());
        kend.stop_part("a");
    }
    let short = ken(&home, &["start", "a", "--wait", "ready", "--timeout", "100ms"]).output().unwrap();
    assert!(!short.status.success() && text(&short).contains("a is still starting"), "{}", text(&short));
    let median = percentile(&mut late, 50);
    let figure = format!(
        "`ken start --wait ready` returns {:.1} ms after READY, median of 5; {woken} context switches of ken and kend while they wait",
        ms(median)
    );
    let times = [(median, Duration::from_millis(10).max(floor * 10))];
    timed_goal(16, "wait", &figure, "by subscription, 0 polls", woken == 0, &times);
}
