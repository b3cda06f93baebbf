//! Samples and lower bounds, and functions that print them.

#[path = "bound.rs"]
mod bound;

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// Sorted durations of repeated measurements.
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn of(mut samples: Vec<Duration>) -> Samples {
        samples.sort_unstable();
        Samples(samples)
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    fn quantile(&self, part: f64) -> Duration {
        let index = (self.0.len() as f64 * part) as usize;
        self.0.get(index).or(self.0.last()).copied().unwrap_or_default()
    }

    /// The median and the maximum.
    #[allow(dead_code, reason = "not every bench asks")]
    pub(crate) fn with_worst(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let worst = self.0.last().copied().unwrap_or_default();
        format!("median {:.1} ms, worst {:.1} ms of {}", ms(self.median()), ms(worst), self.0.len())
    }

    /// Median and 99th percentile.
    pub(crate) fn text(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!("median {:.3} ms, p99 {:.3} ms", ms(self.median()), ms(self.quantile(0.99)))
    }
}

pub(crate) fn title(text: &str) {
    bound::progress();
    println!("\n{text}");
}

pub(crate) fn row(what: &str, figure: &str, note: &str) {
    bound::progress();
    println!("  {what:<48} {figure:<44} {note}");
}

#[allow(dead_code, reason = "not every bench asks")]
pub(crate) fn per_second(rate: f64) -> String {
    format!("{rate:.0}/s")
}

/// The duration of a durable write: 4 KiB are appended and synced, in the folder of the test homes.
pub(crate) fn sync_floor() -> Samples {
    let mut file = tempfile::tempfile().expect("a file");
    let page = [7; 4096];
    let samples = (0..500).map(|_| {
        let begun = Instant::now();
        file.write_all(&page).and_then(|()| file.sync_data()).expect("a synced write");
        begun.elapsed()
    });
    Samples::of(samples.collect())
}

pub(crate) fn spawn_floor() -> Samples {
    let samples = (0..200).map(|_| {
        let begun = Instant::now();
        Command::new("/bin/true").status().expect("/bin/true");
        begun.elapsed()
    });
    Samples::of(samples.collect())
}

/// The proportional set size of a process, in KiB.
#[allow(dead_code, reason = "not every bench asks")]
pub(crate) fn pss_kib(pid: i32) -> u64 {
    memory_kib(pid, "Pss:")
}

/// What of it is not the content of a file, in KiB.
#[allow(dead_code, reason = "not every bench asks")]
pub(crate) fn anonymous_kib(pid: i32) -> u64 {
    memory_kib(pid, "Anonymous:")
}

/// The time that the threads of a process have run.
#[allow(dead_code, reason = "not every bench asks")]
pub(crate) fn processor(pid: i32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").flatten();
    let ran = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    });
    ran.sum()
}

/// The memory that a process shares with no other, in KiB.
#[allow(dead_code, reason = "not every bench asks")]
pub(crate) fn private_kib(pid: i32) -> u64 {
    memory_kib(pid, "Private_Clean:") + memory_kib(pid, "Private_Dirty:")
}

/// What of that is not the content of a file, in KiB.
#[allow(dead_code, reason = "not every bench asks")]
pub(crate) fn dirty_kib(pid: i32) -> u64 {
    memory_kib(pid, "Private_Dirty:")
}

fn memory_kib(pid: i32, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}
