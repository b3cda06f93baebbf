//! The status of the system and its parts, as `ken status` shows it.

use std::time::Instant;

use ken_types::ops::kend::{ConfigStatus, PartStatus, SystemStatus};
use nix::unistd::Pid;

use crate::part::{Part, State, millis};
use crate::system::System;

impl System {
    pub(crate) fn status(&self, now: Instant) -> SystemStatus {
        SystemStatus {
            pid: i32::try_from(std::process::id()).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            home: self.places.home.as_ref().map(|home| home.display().to_string()),
            listeners: self.listeners(),
            config: ConfigStatus {
                path: self.loaded.source.path().map(|path| path.display().to_string()),
                good: self.config_errors.is_empty(),
                errors: self.config_errors.clone(),
            },
            parts: self.parts.iter().map(|(name, part)| self.part_status(name, part, now)).collect(),
            stopping: self.stopping,
        }
    }

    pub(crate) fn part_status(&self, name: &str, part: &Part, now: Instant) -> PartStatus {
        let process = part.process();
        let waits = part.wanted && matches!(part.state, State::Down);
        PartStatus {
            name: name.to_owned(),
            state: part.public_state(),
            enabled: part.spec.enabled && !part.removed,
            wanted: part.wanted,
            waits_for: self.blockers(part).filter(|_| waits).cloned().collect(),
            pid: process.map(|process| process.pid.as_raw()),
            uptime_ms: process.map(|process| millis(now.duration_since(process.since))),
            restarts: part.starts.saturating_sub(1),
            retry_in_ms: match &part.state {
                State::Backoff { until } => Some(millis(until.saturating_duration_since(now))),
                _ => None,
            },
            memory_bytes: None,
            cpu_ms: None,
            status_text: part.status_text.clone(),
            cause: match &part.state {
                State::Failed { cause } => Some(cause.clone()),
                _ => None,
            },
            last_exit: part.deaths.back().map(|death| death.cause.clone()),
            deaths: part.deaths.iter().cloned().collect(),
        }
    }
}

/// Adds how much memory and processor time a part uses.
pub(crate) fn measure(part: &mut PartStatus) {
    let pid = part.pid.map(Pid::from_raw);
    part.memory_bytes = pid.and_then(memory);
    part.cpu_ms = pid.and_then(processor_time);
}

/// Returns how much memory a process uses, in bytes.
fn memory(pid: Pid) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the processor time that a process has used, in milliseconds. The kernel counts it for programs in hundredths of a second,
/// whatever its own clock is.
fn processor_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program comes before, in parentheses, and can have any character.
    let fields = stat.rsplit(") ").next()?.split(' ');
    let ticks: Option<Vec<u64>> = fields.skip(11).take(2).map(|field| field.parse().ok()).collect();
    Some(ticks?.into_iter().sum::<u64>() * 10)
}
