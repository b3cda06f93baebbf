//! The twenty goals of kend, each with the figure that a test measures (`--nocapture`; `sort` puts the lines into their order). Times
//! are held against the time that a program needs from spawn to its `main`, measured in the same run, as machines differ and other
//! tests run beside this one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

#[path = "../common/mod.rs"]
mod common;

mod changes;
mod deaths;
mod rest;
mod start;
mod stop;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Home, probe};
use parking_lot::{Mutex, MutexGuard};

/// The factor by which a time may exceed its limit in `make test`, where other tests use the machine at the same time.
const BUSY: u32 = 10;

/// Whether times are checked without the factor `BUSY`, and each goal is measured alone. `make torture` sets `KEN_RESTARTS`.
fn is_exact() -> bool {
    std::env::var_os("KEN_RESTARTS").is_some()
}

/// Prints the figure of a goal, and fails if the goal is missed.
fn goal(number: u8, what: &str, figure: &str, goal: &str, is_met: bool) {
    timed_goal(number, what, figure, goal, is_met, &[]);
}

/// Like `goal`, for a goal with limits of time. `times` contains each measured time and its limit.
fn timed_goal(number: u8, what: &str, figure: &str, goal: &str, is_right: bool, times: &[(Duration, Duration)]) {
    let are_within = |factor: u32| times.iter().all(|(time, limit)| *time <= *limit * factor);
    let state = if is_right && are_within(1) { "met" } else { "MISSED" };
    eprintln!("goal {number:>2}  {what:<18}  {figure}; goal: {goal}: {state}");
    let factor = if is_exact() { 1 } else { BUSY };
    assert!(is_right && are_within(factor), "goal {number}, {what}: {figure}; goal: {goal}");
}

/// Keeps other goals from being measured at the same time, if the times are exact.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static MEASURED: Mutex<()> = Mutex::new(());
    is_exact().then(|| MEASURED.lock())
}

/// The names of ten parts.
fn names() -> Vec<String> {
    (0..10).map(|number| format!("p{number}")).collect()
}

/// Ten parts that write their pids into files, and then do what is named.
fn ten_that(act: &str) -> Home {
    let entry = |name: String| format!("[part.{name}]\ncommand = [\"PROBE\", \"pid:DIR/{name}.pids\", {act}]\n");
    Home::new(&names().into_iter().map(entry).collect::<String>())
}

fn ten() -> Home {
    ten_that("\"ready\", \"hang\"")
}

/// A program of ken beside kend.
fn program(name: &str) -> PathBuf {
    let path = Path::new(common::KEND).with_file_name(name);
    assert!(path.exists(), "build it first: cargo build --workspace --bins");
    path
}

/// A command of `ken` about the system of a test.
fn ken(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::new(program("ken"));
    command.arg("--home").arg(home.dir.path()).args(args);
    command
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

/// The time that each of several repetitions takes.
fn times(count: usize, mut one: impl FnMut()) -> Vec<Duration> {
    let time = |_| {
        let begun = Instant::now();
        one();
        begun.elapsed()
    };
    (0..count).map(time).collect()
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

/// How often the threads of a process have been taken off a processor.
fn context_switches(pid: i32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).unwrap();
    let texts: Vec<String> = tasks.map(|task| status(task.unwrap())).collect();
    let lines = texts.iter().flat_map(|text| text.lines());
    let counts = lines.filter(|line| line.contains("ctxt_switches"));
    counts.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}
