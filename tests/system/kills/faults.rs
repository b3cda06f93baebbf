//! A disk that is full, stands still or fails, and a clock that is set, while the clients go on.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ken_tests::{System, number, until};
use ken_types::Timestamp;

use super::disk::Disk;
use super::disturb::{Disturbed, is_ready, marked};
use super::door::Shared;

/// How long the clients go on undisturbed, and with a disk that is full or has failed.
const CALM: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(5);
/// Within this time a question has to be answered.
const SOON: Duration = Duration::from_secs(3);
/// Within this time everything has to work again.
const BACK: Duration = Duration::from_secs(10);

pub(crate) fn of_disk(system: &mut System, shared: &Shared, disk: &Disk) -> Disturbed {
    let mut done = Disturbed::default();
    std::thread::sleep(CALM);
    for _ in 0..2 {
        disk.fill();
        done.said(system, shared, "full", "disk");
        std::thread::sleep(FULL);
        disk.make_room();
        done.back(shared, "the disk was full");
        std::thread::sleep(CALM);
    }
    let begun = Instant::now();
    let mut stall = disk.stall(number("KEN_STALL_SECONDS", 5));
    done.said_in_time(system, shared);
    stall.wait().expect("the end of the stall");
    done.lines.push(format!("the disk stood still for {:.1} s", begun.elapsed().as_secs_f64()));
    done.back(shared, "the disk stood still");
    std::thread::sleep(CALM);
    disk.fail();
    done.said(system, shared, "read-only", "read-only");
    std::thread::sleep(CALM);
    shared.epoch.fetch_add(1, Ordering::SeqCst);
    let kend = system.pid("kend");
    system.cut_power();
    until("every process has gone", || marked(kend).is_empty());
    disk.repair();
    system.up();
    shared.epoch.fetch_add(1, Ordering::SeqCst);
    done.back(shared, "the disk was read-only and is mounted anew");
    std::thread::sleep(CALM);
    done
}

impl Disturbed {
    /// Checks that a person is told what is the matter, at each place where one looks.
    fn said(&mut self, system: &System, shared: &Shared, what: &str, word: &str) {
        let begun = Instant::now();
        until("it is not ready", || !is_ready(shared));
        let ready = system.get("/ready").text("/error");
        self.lines
            .push(format!("the disk is {what}: /ready says so after {:.1} s: {ready}", begun.elapsed().as_secs_f64()));
        for words in [&["status"][..], &["doctor"]] {
            // What the store has not tried to write for a moment, it does not know yet.
            let (mut code, mut text, begun) = (None, String::new(), Instant::now());
            let is_said = |text: &str| text.lines().any(|line| line.to_lowercase().contains(word));
            while !is_said(&text) && begun.elapsed() < SOON {
                let output = system.ken(words);
                code = output.status.code();
                text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            }
            match text.lines().find(|line| is_said(line)) {
                Some(line) => self.lines.push(format!("  ken {} ({code:?}): {line}", words[0])),
                None => self.faults.push(format!("ken {} does not say that the disk is {what}: {text}", words[0])),
            }
        }
    }

    /// Checks that a disk that stands still keeps nobody from asking what is the matter.
    fn said_in_time(&mut self, system: &System, shared: &Shared) {
        let begun = Instant::now();
        until("it is not ready", || !is_ready(shared));
        self.lines.push(format!("the disk stands still: /ready says so after {:.1} s", begun.elapsed().as_secs_f64()));
        let begun = Instant::now();
        let output = system.ken(&["status"]);
        let (took, text) = (begun.elapsed(), String::from_utf8_lossy(&output.stderr).trim().to_owned());
        self.lines.push(format!("  ken status ({:?}, {:.1} s): {text}", output.status.code(), took.as_secs_f64()));
        if took > SOON {
            self.faults.push(format!("ken status takes {took:?} while the disk stands still"));
        }
    }

    /// Waits until everything works again.
    fn back(&mut self, shared: &Shared, what: &str) {
        let begun = Instant::now();
        until("everything works again", || is_ready(shared));
        let took = begun.elapsed();
        self.lines.push(format!("{what}: ready after {:.1} s", took.as_secs_f64()));
        if took > BACK {
            self.faults.push(format!("{what}: ready only after {took:?}"));
        }
    }
}

const HOUR_MS: i64 = 3_600_000;
/// The time between two settings of the clock.
const STEP_MS: i64 = 5_000;
/// Time for the start of the system, before the clock is set for the first time.
const START_MS: i64 = 6_000;

/// A clock that is set back an hour, right again, and forward an hour; with the times at which that happens.
pub(crate) fn clock() -> (String, Vec<(i64, i64)>) {
    let now = Timestamp::of_system().millis() + START_MS;
    let steps: Vec<(i64, i64)> =
        [-HOUR_MS, 0, HOUR_MS].into_iter().zip(1..).map(|(by, number)| (now + number * STEP_MS, by)).collect();
    let pieces = steps.iter().map(|(at, by)| format!("{at}={}*1", at + by));
    (pieces.collect::<Vec<_>>().join(","), steps)
}

pub(crate) fn of_clock(shared: &Shared, steps: &[(i64, i64)]) -> Disturbed {
    let mut done = Disturbed::default();
    for (at, by) in steps {
        sleep_until(*at);
        done.lines.push(format!("the clock is {} minutes ahead", by / 60_000));
        std::thread::sleep(Duration::from_secs(1));
        done.back(shared, "the clock was set");
    }
    sleep_until(steps.last().map_or(0, |(at, _)| at + STEP_MS));
    done
}

fn sleep_until(at: i64) {
    let left = at - Timestamp::of_system().millis();
    std::thread::sleep(Duration::from_millis(u64::try_from(left).unwrap_or_default()));
}
