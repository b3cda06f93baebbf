//! Durations on the command line.

use std::time::Duration;

/// Parses a number with the unit `ms`, `s` or `m`. Without a unit it is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| String::from("a number with ms, s or m"))?;
    let ms = match text.get(digits.len()..) {
        Some("ms") => Some(number),
        Some("s" | "") => number.checked_mul(1_000),
        Some("m") => number.checked_mul(60_000),
        _ => None,
    };
    match ms {
        Some(ms) if ms <= 600_000 => Ok(Duration::from_millis(ms)),
        _ => Err(String::from("a number with ms, s or m, at most 10m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, ms) in [("500ms", 500), ("5s", 5_000), ("7", 7_000), ("2m", 120_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1h", "-1s", "1.5s", "11m", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
