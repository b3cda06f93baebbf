//! What `ken status` shows.

use std::time::{Duration, Instant};

use ken_types::ops::kend::{ConfigStatus, PartStatus, SystemStatus};

use crate::part::{Part, State};
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
            parts: self
                .parts
                .iter()
                .map(|(name, part)| part.status(name, now))
                .collect(),
        }
    }
}

impl Part {
    pub(crate) fn status(&self, name: &str, now: Instant) -> PartStatus {
        let process = self.process();
        PartStatus {
            name: name.to_owned(),
            state: self.shown(),
            wanted: self.wanted,
            pid: process.map(|process| process.pid.as_raw()),
            uptime_ms: process.map(|process| millis(now.duration_since(process.since))),
            restarts: self.starts.saturating_sub(1),
            retry_in_ms: match &self.state {
                State::Backoff { until } => Some(millis(until.saturating_duration_since(now))),
                _ => None,
            },
            says: self.says.clone(),
            cause: match &self.state {
                State::Failed { cause } => Some(cause.clone()),
                _ => None,
            },
            last_exit: self.deaths.back().map(|death| death.cause.clone()),
            deaths: self.deaths.iter().cloned().collect(),
        }
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
