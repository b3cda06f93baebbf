//! What is true while nothing happens, or something happens all the time: logs, limits, memory.

use std::time::Duration;

use super::common::{Home, Kend, kill9, until, wait_for_restart};
use super::{alone, context_switches, goal, ms, names, percentile, program, ten, time_until, timed_goal};

#[test]
fn goal_17_no_line_is_lost_and_a_flood_delays_no_restart() {
    let _alone = alone();
    let home = Home::new("[part.a]\ncommand = [\"PROBE\", \"ready\", \"lines:20000\", \"hang\"]\n");
    let kend = home.start();
    let lines = || home.read("state/log/a.log").lines().count();
    until("the first lines", || lines() == 20_000);
    wait_for_restart();
    // It is killed right after it has written, when its output may still be in the pipe.
    kill9(kend.part_pid("a"));
    until("the second lines", || lines() >= 40_000);
    let text = home.read("state/log/a.log");
    let found = text.lines().enumerate().filter(|(index, line)| *line == format!("line {}", index % 20_000)).count();
    drop(kend);

    let home = Home::new(
        "[part.loud]\ncommand = [\"PROBE\", \"ready\", \"sleep:6000\", \"flood:100\"]\n\
         [part.a]\ncommand = [\"PROBE\", \"pid:DIR/pids\", \"ready\", \"hang\"]\n",
    );
    let kend = home.start();
    let log =
        |age: &str| std::fs::metadata(home.path(&format!("state/log/loud.log{age}"))).map_or(0, |meta| meta.len());
    let mut medians = Vec::new();
    for is_loud in [false, true] {
        until("the flood", || !is_loud || log("") > 0);
        let mut times: Vec<Duration> = (0..4).map(|_| restart(&home, &kend)).collect();
        medians.push(percentile(&mut times, 50));
    }
    // Rotation limits the disk space that excessive output can take.
    let is_rotated = log("") <= 10 * 1024 * 1024 && log(".1") > 0 && log(".6") == 0;
    assert!(kend.stop().status.success(), "the end of a part that prints");
    let figure = format!(
        "{} of 40000 lines lost over a kill; a restart takes {:.2} ms, and {:.2} ms beside a part that prints 100 MB/s; rotated: {is_rotated}",
        40_000 - found,
        ms(medians[0]),
        ms(medians[1])
    );
    let times = [(medians[1], medians[0] + Duration::from_millis(20))];
    timed_goal(17, "logs", &figure, "none lost, 20 ms more", found == 40_000 && is_rotated, &times);
}

/// Kills the part `a` after it has been ready for a second, and returns the time to its next process.
fn restart(home: &Home, kend: &Kend<'_>) -> Duration {
    wait_for_restart();
    let count = home.numbers("pids").len();
    kill9(kend.part_pid("a"));
    time_until(|| home.numbers("pids").len() > count)
}

/// The limits are those of the kernel for the process. The rules for files are tried from inside. The filter of system calls is that of
/// a program of ken, which sets it itself (walls.rs of tests/system tries those of all parts).
#[test]
fn goal_18_limits_and_walls_hold_for_each_part() {
    let daemon = program("ken-model");
    let home = Home::new(&format!(
        "[part.a]\ncommand = [\"PROBE\", \"env:DIR/state/own/env\", \"read:DIR/secret\", \"ready\", \"hang\"]\n\
         nofile = 99\naddress_space = 300000000\nnproc = 5000\nnice = 7\n\
         walls = {{ calls = \"local\", write = [\"STATE/own\"] }}\n\
         [part.model]\ncommand = [\"{}\"]\nsockets = {{ wire = {{ unix = \"model.sock\" }} }}\nwalls = {{ calls = \"local\", read = [\"SHARE/models.toml\"] }}\n",
        daemon.display()
    ));
    std::fs::write(home.path("secret"), "").unwrap();
    let mut command = home.command(&["--announce"]);
    let kend = home.start_with(command.env("HIDDEN", "1"));
    let pid = kend.part_pid("a");
    let read = |pid: nix::unistd::Pid, name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let (limits, status) = (read(pid, "limits"), read(pid, "status"));
    let row = |name: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    // The nice value is field 19 of /proc/PID/stat, the 17th after the name. kend itself may have been started with a
    // nice value.
    let nice = |pid: &str| -> i32 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().split_whitespace().nth(16).unwrap().parse().unwrap()
    };
    let environment = home.read("state/own/env");
    let held = [
        ("nofile", row("Max open files") == "99 99"),
        ("as", row("Max address space") == "300000000 300000000"),
        ("nproc", row("Max processes") == "5000 5000"),
        ("core", row("Max core file size") == "0 0"),
        ("nice", nice(&pid.to_string()) == nice("self").max(7)),
        ("no_new_privs", status.contains("NoNewPrivs:\t1\n")),
        ("no blocked signals", status.contains("SigBlk:\t0000000000000000")),
        ("own process group", nix::unistd::getpgid(Some(pid)).unwrap() == pid),
        ("own folder", std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap() == home.path("state")),
        ("environment", environment.contains("KEN_STATE_DIR=") && !environment.contains("HIDDEN=")),
        ("files", kend.part("a")["status_text"] == "Some(PermissionDenied)"),
        ("system calls", read(kend.part_pid("model"), "status").contains("\nSeccomp:\t2\n")),
    ];
    let missing: Vec<&str> = held.iter().filter(|(_, is_held)| !is_held).map(|(what, _)| *what).collect();
    let figure = format!(
        "{} of {} limits hold, read back from the kernel; missing: {missing:?}",
        held.len() - missing.len(),
        held.len()
    );
    goal(18, "limits", &figure, "all", missing.is_empty());
}

/// Not the clean pages of the program itself, of which a build without optimisation has many.
fn private_kib(kend: &Kend<'_>) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", kend.pid())).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("Private_Dirty"));
    lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

/// `KEN_RESTARTS` is the number of restarts, 500 by default.
#[test]
fn goal_19_memory_is_small_and_does_not_grow_and_an_idle_system_wakes_nobody() {
    let _alone = alone();
    let home = ten();
    let text = home.read("ken.toml").replace("watch = false", "watch = true");
    std::fs::write(home.path("ken.toml"), text).unwrap();
    let kend = home.start();
    std::thread::sleep(Duration::from_millis(200));
    let switches = || context_switches(kend.pid().as_raw());
    let before = switches();
    std::thread::sleep(Duration::from_secs(10));
    let woken = switches() - before;

    let restarts: usize = std::env::var("KEN_RESTARTS").map_or(500, |text| text.parse().unwrap());
    let restart = |count: usize| {
        for name in names().iter().cycle().take(count) {
            assert_eq!(kend.restart_part(name)["state"], "ready");
        }
    };
    // The last deaths of each part are kept, so that the first ones take memory.
    restart(200);
    let first = private_kib(&kend);
    restart(restarts);
    let last = private_kib(&kend);
    let figure = format!(
        "{first} kB private with ten services, {last} kB after {restarts} more restarts; {woken} context switches in 10 idle seconds"
    );
    goal(19, "memory and idle", &figure, "3072 kB, no growth, 0", first <= 3_072 && last <= first + 128 && woken == 0);
}
