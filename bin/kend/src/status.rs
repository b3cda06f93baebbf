//! The status of the system and its parts, as `ken status` shows it.

use std::time::Instant;

use ken_types::ops::kend::{ConfigStatus, PartStatus, SystemStatus};

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
        }
    }

    pub(crate) fn part_status(&self, name: &str, part: &Part, now: Instant) -> PartStatus {
        let waits = part.wanted && matches!(part.state, State::Down);
        let blockers = self.blockers(part).filter(|_| waits).cloned();
        PartStatus { waits_for: blockers.collect(), ..part.status(name, now) }
    }
}

impl Part {
    fn status(&self, name: &str, now: Instant) -> PartStatus {
        let process = self.process();
        PartStatus {
            name: name.to_owned(),
            state: self.public_state(),
            enabled: self.spec.enabled && !self.removed,
            wanted: self.wanted,
            waits_for: Vec::new(),
            pid: process.map(|process| process.pid.as_raw()),
            uptime_ms: process.map(|process| millis(now.duration_since(process.since))),
            restarts: self.starts.saturating_sub(1),
            retry_in_ms: match &self.state {
                State::Backoff { until } => Some(millis(until.saturating_duration_since(now))),
                _ => None,
            },
            status_text: self.status_text.clone(),
            cause: match &self.state {
                State::Failed { cause } => Some(cause.clone()),
                _ => None,
            },
            last_exit: self.deaths.back().map(|death| death.cause.clone()),
            deaths: self.deaths.iter().cloned().collect(),
        }
    }
}
