//! What the environment says. A value that cannot be read ends the start, and names its variable.

use std::str::FromStr;

use ken_http::Rate;
use ken_types::Error;

/// Settings of the server itself; those of workflows are read by the engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// The configured admin key.
    pub(crate) key: Option<String>,
    pub(crate) body_bytes: u64,
    /// Requests a minute of one key; `None`: as many as it likes.
    pub(crate) quota: Option<Rate>,
    pub(crate) rates: Rates,
    pub(crate) metrics_public: bool,
}

/// How often one caller may ask for what; `None`: as often as it likes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) execute: Option<Rate>,
    pub(crate) protocols: Option<Rate>,
    pub(crate) templates: Option<Rate>,
    pub(crate) session: Option<Rate>,
    pub(crate) metrics: Option<Rate>,
}

const BODY_BYTES: u64 = 1 << 20;
/// A body is held in memory as a whole.
const MAX_BODY_BYTES: u64 = 64 << 20;

impl Settings {
    /// From variables by name; an empty one is one that is not there.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let text = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let rate = |name: &str| -> Result<Option<Rate>, Error> {
            let rate = text(name).map(|text| text.parse::<Rate>());
            rate.transpose().map_err(|error| error.at(name))
        };
        Ok(Settings {
            key: text("MCP_API_KEY").map(|key| key.trim().to_owned()),
            body_bytes: number(&text, "MAX_BODY_BYTES", 1..=MAX_BODY_BYTES)?.unwrap_or(BODY_BYTES),
            quota: number(&text, "API_KEY_QUOTA_PER_MINUTE", 0..=u64::from(u32::MAX))?
                .and_then(|count| u32::try_from(count).ok())
                .filter(|count| *count > 0)
                .map(Rate::per_minute),
            rates: Rates {
                execute: rate("RATE_LIMIT_EXECUTE")?,
                protocols: rate("RATE_LIMIT_PROTOCOLS")?,
                templates: rate("RATE_LIMIT_TEMPLATES")?,
                session: rate("RATE_LIMIT_SESSION")?,
                metrics: rate("RATE_LIMIT_METRICS")?,
            },
            metrics_public: flag(&text, "METRICS_PUBLIC")?.unwrap_or(false),
        })
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
            Err(Error::invalid(
                name,
                format!("{name} is {text:?}, it must be a number from {low} to {high}"),
            ))
        }
    }
}

/// `true`, `1`, `yes`, `on` and their opposites.
fn flag(text: &impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<bool>, Error> {
    let Some(text) = text(name) else {
        return Ok(None);
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(Some(true)),
        "false" | "0" | "no" | "off" => Ok(Some(false)),
        _ => Err(Error::invalid(
            name,
            format!("{name} is {text:?}, it must be true or false"),
        )),
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
    fn nothing_set_is_the_default() {
        let settings = read(&[("RATE_LIMIT_EXECUTE", " "), ("MCP_API_KEY", "")]).unwrap();
        assert_eq!(settings.key, None);
        assert_eq!(settings.body_bytes, 1_048_576);
        assert_eq!((settings.quota, settings.rates), (None, Rates::default()));
        assert!(!settings.metrics_public);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (name, value) in [
            ("MAX_BODY_BYTES", "1MB"),
            ("MAX_BODY_BYTES", "0"),
            ("API_KEY_QUOTA_PER_MINUTE", "-1"),
            ("RATE_LIMIT_EXECUTE", "20"),
            ("RATE_LIMIT_METRICS", "0/second"),
            ("METRICS_PUBLIC", "maybe"),
        ] {
            assert_eq!(
                read(&[(name, value)]).unwrap_err().at.as_deref(),
                Some(name),
                "{value}"
            );
        }
    }

    #[test]
    fn values() {
        let settings = read(&[
            ("MCP_API_KEY", " secret\n"),
            ("API_KEY_QUOTA_PER_MINUTE", "60"),
            ("RATE_LIMIT_SESSION", "3/hour"),
            ("METRICS_PUBLIC", "TRUE"),
        ])
        .unwrap();
        assert_eq!(settings.key.as_deref(), Some("secret"));
        assert_eq!(settings.quota, Some(Rate::per_minute(60)));
        assert_eq!(settings.rates.session, Some("3/hour".parse().unwrap()));
        assert!(settings.metrics_public);
        assert_eq!(read(&[("API_KEY_QUOTA_PER_MINUTE", "0")]).unwrap().quota, None);
    }
}
