//! Kills, stops and restarts.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ken_tests::{Client, Random, System, children_of};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::door::Shared;

const EVERY: Duration = Duration::from_millis(300);
const PARTS: [&str; 9] =
    ["store", "model", "tools", "approver", "agent", "scheduler", "messenger", "gateway", "cognitive"];
/// Each disturbance of this number is of kend itself, and each of the five ways has its turn.
const KEND_EVERY: u64 = 10;
/// How long a process may outlive its kend (kend(8)).
const OUTLIVES: Duration = Duration::from_secs(1);

/// What was done to the system, and what went wrong with its processes.
#[derive(Default)]
pub(crate) struct Disturbed {
    /// What was done, for a person, unless it were kills.
    pub(crate) lines: Vec<String>,
    kills: usize,
    stops: usize,
    restarts: usize,
    kend: [usize; 5],
    took: Duration,
    pub(crate) faults: Vec<String>,
}

impl Disturbed {
    pub(crate) fn summary(&self) -> String {
        if !self.lines.is_empty() {
            return self.lines.join("\n");
        }
        let [killed, power, stopped, restarted, upgraded] = self.kend;
        let all = self.kills + self.stops + self.restarts + self.kend.iter().sum::<usize>();
        format!(
            "{all} disturbances in {:.0} s: parts {} killed, {} stopped, {} restarted; kend {killed} killed, {stopped} stopped, \
             {restarted} restarted, {upgraded} upgraded; everything killed at once {power} times",
            self.took.as_secs_f64(),
            self.kills,
            self.stops,
            self.restarts
        )
    }
}

/// A process that is stopped, and when it is continued.
struct Stopped {
    pid: i32,
    until: Instant,
}

/// Disturbs the system so many times, and returns when all parts are ready again.
pub(crate) fn run(system: &mut System, shared: &Shared, count: u64, seed: u64) -> Disturbed {
    let (mut random, mut done) = (Random::new(seed), Disturbed::default());
    let mut stopped = Vec::new();
    let mut kend = system.pid("kend");
    let mut zombies = Vec::new();
    let begun = Instant::now();
    for number in 1..=count {
        std::thread::sleep(EVERY);
        continue_some(&mut stopped, Instant::now());
        if !stopped.iter().any(|one: &Stopped| one.pid == kend) {
            zombies = done.check_zombies(kend, &zombies);
        }
        if number.is_multiple_of(KEND_EVERY) {
            kend = disturb_kend(system, shared, kend, &mut random, &mut stopped, &mut done);
        } else {
            disturb_part(system, kend, &mut random, &mut stopped, &mut done);
        }
    }
    done.took = begun.elapsed();
    continue_some(&mut stopped, Instant::now() + Duration::from_secs(60));
    ken_tests::until("all parts are back", || is_ready(shared));
    done
}

pub(crate) fn is_ready(shared: &Shared) -> bool {
    let ready =
        |mut client: Client| client.request("GET", "/ready").try_send().is_ok_and(|answer| answer.status == 200);
    shared.connect().is_ok_and(ready)
}

fn continue_some(stopped: &mut Vec<Stopped>, now: Instant) {
    stopped.retain(|one| {
        let is_over = one.until <= now;
        if is_over {
            signal(one.pid, Signal::SIGCONT);
        }
        !is_over
    });
}

fn signal(pid: i32, what: Signal) {
    // The process may have ended meanwhile.
    _ = kill(Pid::from_raw(pid), what);
}

fn stop(pid: i32, random: &mut Random) -> Stopped {
    signal(pid, Signal::SIGSTOP);
    Stopped { pid, until: Instant::now() + Duration::from_millis(500 + random.below(3_500) as u64) }
}

fn disturb_part(system: &System, kend: i32, random: &mut Random, stopped: &mut Vec<Stopped>, done: &mut Disturbed) {
    let part = random.of(&PARTS);
    let running = children_of(kend).into_iter().find(|(_, name)| *name == format!("ken-{part}"));
    match (random.below(10), running) {
        (0, _) => {
            begin(system, &["restart", part]);
            done.restarts += 1;
        }
        (1 | 2, Some((pid, _))) => {
            stopped.push(stop(pid, random));
            done.stops += 1;
        }
        (_, Some((pid, _))) => {
            signal(pid, Signal::SIGKILL);
            done.kills += 1;
        }
        // It is being started.
        (_, None) => disturb_part(system, kend, random, stopped, done),
    }
}

/// Begins a command of ken. It is not waited for: a part that it needs can be stopped.
fn begin(system: &System, words: &[&str]) {
    let mut command = system.command(words);
    let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn();
    std::thread::spawn(move || child.as_mut().map(std::process::Child::wait).is_ok());
}

/// Returns the pid of kend, which is another one if it was killed.
fn disturb_kend(
    system: &mut System,
    shared: &Shared,
    kend: i32,
    random: &mut Random,
    stopped: &mut Vec<Stopped>,
    done: &mut Disturbed,
) -> i32 {
    let how = done.kend.iter().sum::<usize>() % 5;
    done.kend[how] += 1;
    if how == 2 {
        stopped.push(stop(kend, random));
        return kend;
    }
    if how == 4 {
        begin(system, &["upgrade"]);
        return kend;
    }
    shared.epoch.fetch_add(1, Ordering::SeqCst);
    if how != 0 {
        continue_some(stopped, Instant::now() + Duration::from_secs(60));
    }
    match how {
        0 => signal(kend, Signal::SIGKILL),
        1 => system.cut_power(),
        _ => _ = system.down(),
    }
    stopped.clear();
    done.check_orphans(kend);
    system.down();
    system.up();
    shared.epoch.fetch_add(1, Ordering::SeqCst);
    system.pid("kend")
}

impl Disturbed {
    /// Checks that all processes of a kend end soon after it.
    fn check_orphans(&mut self, kend: i32) {
        let begun = Instant::now();
        let mut left = marked(kend);
        while !left.is_empty() && begun.elapsed() < OUTLIVES {
            std::thread::sleep(Duration::from_millis(10));
            left = marked(kend);
        }
        self.faults.extend(left.into_iter().map(|one| format!("{one} lives without kend")));
    }

    /// Checks that no dead child of kend waits for two looks. Returns those that wait.
    fn check_zombies(&mut self, kend: i32, before: &[i32]) -> Vec<i32> {
        let now = zombies_of(kend);
        self.faults.extend(now.iter().filter(|pid| before.contains(pid)).map(|pid| format!("{pid} is a zombie")));
        now
    }
}

fn zombies_of(parent: i32) -> Vec<i32> {
    let is_one = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(&format!("Z {parent} ")))
    };
    pids().filter(is_one).collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The processes that descend from the parts of a kend. It marks them with a value of RLIMIT_LOCKS, from a range of its own, which
/// nobody below it can change: the range ends a million below the hard limit, times its pid.
pub(crate) fn marked(kend: i32) -> Vec<String> {
    const MARKS: u64 = 1 << 20;
    let (_, max) = getrlimit(Resource::RLIMIT_LOCKS).expect("a limit");
    let end = max.min(1 << 60) - u64::try_from(kend).expect("a pid") * MARKS;
    let mark = |pid: &i32| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max file locks"))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let own = pids().filter(|pid| mark(pid).is_some_and(|mark| mark < end && mark >= end - MARKS));
    // A process that has ended and is not collected yet holds nothing.
    let named = own.filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (name, rest) = stat.rsplit_once(") ")?;
        (!rest.starts_with(['Z', 'X'])).then(|| format!("{})", name))
    });
    named.collect()
}
