//! Settings from the environment. An invalid value is an error at start that names its variable.

use std::str::FromStr;

use ken_http::Rate;
use ken_types::Error;

/// The settings of the server. Those of workflows are read by the engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The admin key, if one is configured.
    pub(crate) key: Option<String>,
    pub(crate) body_bytes: u64,
    /// The rate of requests of one key over all routes; `None` for no limit.
    pub(crate) quota: Option<Rate>,
    /// The rate of requests of one caller in each of [`GROUPS`]; `None` for no limit.
    pub(crate) rates: Vec<Option<Rate>>,
    pub(crate) metrics_public: bool,
}

/// The groups of routes that have a limit: the name in metrics, the variable, and the default for a minute.
pub(crate) const GROUPS: [(&str, &str, u32); 5] = [
    ("execute", "RATE_LIMIT_EXECUTE", 20),
    ("protocols", "RATE_LIMIT_PROTOCOLS", 60),
    ("templates", "RATE_LIMIT_TEMPLATES", 60),
    ("session", "RATE_LIMIT_SESSION", 30),
    ("metrics", "RATE_LIMIT_METRICS", 10),
];
const BODY_BYTES: u64 = 1 << 20;
/// The upper limit of `MAX_BODY_BYTES`, because a body is held in memory.
const MAX_BODY_BYTES: u64 = 64 << 20;

impl Settings {
    /// Reads variables by name. An empty variable counts as unset. An `invalid` error has the name of the variable as
    /// `at`.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let text = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let rate = |(_, name, default): (&str, &str, u32)| match text(name) {
            None => Ok(Some(Rate::per_minute(default))),
            Some(text) => rate(name, &text),
        };
        Ok(Settings {
            key: text("MCP_API_KEY").map(|key| key.trim().to_owned()),
            body_bytes: number(&text, "MAX_BODY_BYTES", 1..=MAX_BODY_BYTES)?.unwrap_or(BODY_BYTES),
            quota: number(&text, "API_KEY_QUOTA_PER_MINUTE", 0..=u64::from(u32::MAX))?
                .and_then(|count| u32::try_from(count).ok())
                .filter(|count| *count > 0)
                .map(Rate::per_minute),
            rates: GROUPS.into_iter().map(rate).collect::<Result<_, _>>()?,
            metrics_public: flag(&text, "METRICS_PUBLIC")?.unwrap_or(false),
        })
    }
}

/// Parses a rate. Returns `None` for `0`.
fn rate(name: &str, text: &str) -> Result<Option<Rate>, Error> {
    match text.trim() {
        "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let message = format!("{name}: {text:?} is not a rate");
            Error::invalid(name, message).hint("N/second, N/minute, N/hour or N/day; 0 for no limit")
        }),
    }
}

fn number(
    text: &impl Fn(&str) -> Option<String>,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Result<Option<u64>, Error> {
    let Some(text) = text(name) else {
        return Ok(None);
    };
    match u64::from_str(text.trim()) {
        Ok(number) if range.contains(&number) => Ok(Some(number)),
        _ => {
            let (low, high) = range.into_inner();
            Err(Error::invalid(name, format!("{name}: {text:?} is not a number from {low} to {high}")))
        }
    }
}

/// Parses `true`, `1`, `yes`, `on` and their opposites.
fn flag(text: &impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<bool>, Error> {
    let Some(text) = text(name) else {
        return Ok(None);
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(Some(true)),
        "false" | "0" | "no" | "off" => Ok(Some(false)),
        _ => Err(Error::invalid(name, format!("{name}: {text:?} is not true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::read(|name| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_defaults() {
        let settings = read(&[("RATE_LIMIT_EXECUTE", " "), ("MCP_API_KEY", "")]).unwrap();
        assert_eq!(settings.key, None);
        assert_eq!(settings.body_bytes, 1_048_576);
        assert_eq!(settings.quota, None);
        assert_eq!(settings.rates, [20, 60, 60, 30, 10].map(|count| Some(Rate::per_minute(count))));
        assert!(!settings.metrics_public);
    }

    #[test]
    fn values() {
        let settings = read(&[
            ("MCP_API_KEY", " secret\n"),
            ("API_KEY_QUOTA_PER_MINUTE", "60"),
            ("RATE_LIMIT_SESSION", "3/hour"),
            ("RATE_LIMIT_METRICS", "0"),
            ("METRICS_PUBLIC", "TRUE"),
        ])
        .unwrap();
        assert_eq!(settings.key.as_deref(), Some("secret"));
        assert_eq!(settings.quota, Some(Rate::per_minute(60)));
        assert_eq!(settings.rates[3..], [Some("3/hour".parse().unwrap()), None]);
        assert!(settings.metrics_public);
        assert_eq!(read(&[("API_KEY_QUOTA_PER_MINUTE", "0")]).unwrap().quota, None);
    }
}
