//! Settings of the engine and of single runs.

use std::collections::BTreeMap;
use std::time::Duration;

use ken_types::Error;

use crate::definition::MAX_TIMEOUT_MS;

/// Timeouts and settings of governance, for an engine or for one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Time limit of a step, from the moment at which it has its place among `max_parallel`, including the wait for a process.
    pub timeout: Duration,
    /// Time limit of the wait for that place.
    pub queue_timeout: Duration,
    /// Time limits of single protocols.
    pub timeouts: BTreeMap<String, Duration>,
    /// Maximum number of tools that one run uses at the same time.
    pub max_parallel: usize,
    pub governance: Governance,
}

/// Settings of governance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Governance {
    pub is_enabled: bool,
    /// From 0 to 1. A step of lower quality causes a warning.
    pub min_quality: f64,
    /// Whether a run is aborted when its results disagree even after a retry.
    pub requires_coherence: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            timeout: Duration::from_secs(10),
            queue_timeout: Duration::from_secs(30),
            timeouts: BTreeMap::new(),
            max_parallel: 4,
            governance: Governance { is_enabled: true, min_quality: 0.6, requires_coherence: false },
        }
    }
}

impl Settings {
    /// Reads `PROTOCOL_TIMEOUT_MS`, `PROTOCOL_TIMEOUTS_MS` (`NAME:MS,…`), `PROTOCOL_QUEUE_MS`, `MAX_PARALLEL_PROTOCOLS`,
    /// `GOV_ENABLE`, `GOV_MIN_QUALITY` and `GOV_REQUIRE_COHERENCE`, each with its default if it is unset or empty. Returns `invalid`
    /// with the name of the variable as `at`.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let mut settings = Settings::default();
        let get = |name: &'static str| Variable::of(name, variable(name));
        if let Some(set) = get("PROTOCOL_TIMEOUT_MS") {
            settings.timeout = set.milliseconds(&set.value)?;
        }
        if let Some(set) = get("PROTOCOL_TIMEOUTS_MS") {
            settings.timeouts = set.pairs()?;
        }
        if let Some(set) = get("PROTOCOL_QUEUE_MS") {
            settings.queue_timeout = set.milliseconds(&set.value)?;
        }
        if let Some(set) = get("MAX_PARALLEL_PROTOCOLS") {
            let number: Option<usize> = set.value.parse().ok().filter(|number| (1..=64).contains(number));
            settings.max_parallel = number.ok_or_else(|| set.wrong("a whole number from 1 to 64"))?;
        }
        if let Some(set) = get("GOV_ENABLE") {
            settings.governance.is_enabled = set.flag()?;
        }
        if let Some(set) = get("GOV_MIN_QUALITY") {
            let number: Option<f64> = set.value.parse().ok().filter(|number| (0.0..=1.0).contains(number));
            settings.governance.min_quality = number.ok_or_else(|| set.wrong("a number from 0 to 1"))?;
        }
        if let Some(set) = get("GOV_REQUIRE_COHERENCE") {
            settings.governance.requires_coherence = set.flag()?;
        }
        Ok(settings)
    }

    /// The default timeout of a protocol's steps.
    pub(crate) fn timeout_of(&self, protocol: &str) -> Duration {
        self.timeouts.get(protocol).copied().unwrap_or(self.timeout)
    }
}

struct Variable {
    name: &'static str,
    value: String,
}

impl Variable {
    fn of(name: &'static str, value: Option<String>) -> Option<Variable> {
        let value = value?.trim().to_owned();
        (!value.is_empty()).then_some(Variable { name, value })
    }

    fn wrong(&self, expected: &str) -> Error {
        Error::invalid(self.name, format!("{}: {:?} is not {expected}", self.name, self.value))
    }

    fn flag(&self) -> Result<bool, Error> {
        match self.value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(self.wrong("true or false")),
        }
    }

    fn milliseconds(&self, text: &str) -> Result<Duration, Error> {
        let number: Option<u64> = text.trim().parse().ok();
        let number = number.filter(|number| (1..=MAX_TIMEOUT_MS).contains(number));
        let number =
            number.ok_or_else(|| self.wrong(&format!("a number of milliseconds from 1 to {MAX_TIMEOUT_MS}")))?;
        Ok(Duration::from_millis(number))
    }

    fn pairs(&self) -> Result<BTreeMap<String, Duration>, Error> {
        let mut pairs = BTreeMap::new();
        for pair in self.value.split(',') {
            let named = pair.split_once(':').filter(|(name, _)| !name.trim().is_empty());
            let (name, time) = named.ok_or_else(|| self.wrong("a list of NAME:MS pairs, separated by commas"))?;
            pairs.insert(name.trim().to_owned(), self.milliseconds(time)?);
        }
        Ok(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Settings, Error> {
        let find = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::read(find)
    }

    #[test]
    fn variables_override_the_defaults() {
        assert_eq!(read(&[("GOV_ENABLE", " ")]).unwrap(), Settings::default());
        let settings = read(&[
            ("PROTOCOL_TIMEOUT_MS", "200"),
            ("PROTOCOL_TIMEOUTS_MS", "REP:50, MODEL:60000"),
            ("PROTOCOL_QUEUE_MS", "700"),
            ("MAX_PARALLEL_PROTOCOLS", "2"),
            ("GOV_MIN_QUALITY", "0.9"),
            ("GOV_REQUIRE_COHERENCE", "TRUE"),
        ])
        .unwrap();
        assert_eq!(settings.timeout_of("ESL"), Duration::from_millis(200));
        assert_eq!(settings.timeout_of("REP"), Duration::from_millis(50));
        assert_eq!(settings.queue_timeout, Duration::from_millis(700));
        assert_eq!((settings.max_parallel, settings.governance.min_quality), (2, 0.9));
        assert!(settings.governance.requires_coherence && settings.governance.is_enabled);
    }

    #[test]
    fn a_wrong_variable_is_named() {
        for (name, value) in [
            ("PROTOCOL_TIMEOUT_MS", "0"),
            ("PROTOCOL_TIMEOUT_MS", "soon"),
            ("PROTOCOL_TIMEOUTS_MS", "REP"),
            ("PROTOCOL_TIMEOUTS_MS", "REP:x"),
            ("PROTOCOL_TIMEOUTS_MS", ":5"),
            ("PROTOCOL_QUEUE_MS", "-1"),
            ("MAX_PARALLEL_PROTOCOLS", "0"),
            ("GOV_ENABLE", "maybe"),
            ("GOV_MIN_QUALITY", "1.5"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert_eq!(error.at.as_deref(), Some(name), "{value}");
        }
    }
}
