//! Rates of requests, in the notation of ken.toml and the environment.

use std::str::FromStr;
use std::time::Duration;

use crate::Error;

/// A number of requests per unit of time: `120/minute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
}

impl Rate {
    pub const fn per_minute(count: u32) -> Rate {
        Rate { count, per: Duration::from_secs(60) }
    }

    pub fn per_second(self) -> f64 {
        f64::from(self.count) / self.per.as_secs_f64()
    }
}

impl FromStr for Rate {
    type Err = Error;

    /// Parses `N/second`, `N/minute`, `N/hour` or `N/day`, where N is at least 1.
    fn from_str(text: &str) -> Result<Rate, Error> {
        let wrong = || Error::invalid("", format!("{text:?} is not a rate such as 120/minute"));
        let (count, span) = text.trim().split_once('/').ok_or_else(wrong)?;
        let seconds = match span {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            _ => return Err(wrong()),
        };
        let digits = count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|count| digits && *count > 0).ok_or_else(wrong)?;
        Ok(Rate { count, per: Duration::from_secs(seconds) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!("120/minute".parse(), Ok(Rate::per_minute(120)));
        for (text, seconds) in [("1/second", 1), ("1/hour", 3_600), ("1/day", 86_400)] {
            assert_eq!(text.parse::<Rate>().unwrap().per, Duration::from_secs(seconds));
        }
        for bad in ["", "1", "0/minute", "-1/minute", "+1/minute", "1/week", "a/minute", "1/minute/2", "/minute"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
