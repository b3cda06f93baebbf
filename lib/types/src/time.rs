//! Instants as the contract writes them: RFC 3339, UTC, milliseconds.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MS_PER_DAY: i64 = 86_400_000;

/// Milliseconds since 1970-01-01T00:00:00Z, written `2027-02-03T04:05:06.789Z`. Years 0000 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The wall clock now.
    pub fn now() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Any instant of RFC 3339: seconds with or without a fraction, of which milliseconds count, and any offset.
    pub fn from_rfc3339(text: &str) -> Result<Timestamp, NotATimestamp> {
        let (local, rest) = text.split_at_checked(19).ok_or(NotATimestamp)?;
        let digits = rest.strip_prefix('.').unwrap_or_default();
        let digits = digits
            .split(|byte: char| !byte.is_ascii_digit())
            .next()
            .unwrap_or_default();
        let fraction = if rest.starts_with('.') {
            digits.len() + 1
        } else {
            0
        };
        if fraction == 1 {
            return Err(NotATimestamp);
        }
        let zone = rest.get(fraction..).unwrap_or_default();
        let ms: String = digits.chars().chain("000".chars()).take(3).collect();
        let local = format!("{}.{ms}Z", local.to_ascii_uppercase()).parse::<Timestamp>()?;
        Ok(local.plus_millis(-zone_minutes(zone)? * 60_000))
    }

    pub const fn from_millis(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Later by so many milliseconds (earlier, if negative).
    pub const fn plus_millis(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }
}

/// `Z` or `+hh:mm`, in minutes east.
fn zone_minutes(zone: &str) -> Result<i64, NotATimestamp> {
    if zone.eq_ignore_ascii_case("z") {
        return Ok(0);
    }
    let (sign, digits) = match zone.split_at_checked(1) {
        Some(("+", digits)) => (1, digits),
        Some(("-", digits)) => (-1, digits),
        _ => return Err(NotATimestamp),
    };
    let number = |text: &str, below: i64| -> Result<i64, NotATimestamp> {
        let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| plain && *number < below);
        number.ok_or(NotATimestamp)
    };
    let (hours, minutes) = digits.split_once(':').ok_or(NotATimestamp)?;
    Ok(sign * (number(hours, 24)? * 60 + number(minutes, 60)?))
}

/// Year, month and day of a day number since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0.div_euclid(MS_PER_DAY));
        let ms = self.0.rem_euclid(MS_PER_DAY);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        let ms = ms % 1_000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

/// Text that is not an instant in the form that ken writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotATimestamp;

impl fmt::Display for NotATimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an instant of the form 2027-02-03T04:05:06.789Z")
    }
}

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    /// Reads exactly the form that [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Timestamp, NotATimestamp> {
        let part = |from: usize, to: usize| -> Result<i64, NotATimestamp> {
            let digits = text
                .get(from..to)
                .filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|part| part.parse().ok()).ok_or(NotATimestamp)
        };
        let days = days(part(0, 4)?, part(5, 7)?, part(8, 10)?);
        let ms = part(11, 13)? * 3_600_000 + part(14, 16)? * 60_000 + part(17, 19)? * 1_000 + part(20, 23)?;
        let instant = Timestamp(days * MS_PER_DAY + ms);
        // Writing it again catches wrong separators, a 13th month and a 31st of February alike.
        if instant.to_string() == text {
            Ok(instant)
        } else {
            Err(NotATimestamp)
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_801_627_506_789, "2027-02-03T04:05:06.789Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Timestamp(ms)));
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "2027-02-03",
            "2027-02-30T00:00:00.000Z",
            "2027-02-03 04:05:06.789Z",
            "2027-13-01T00:00:00.000Z",
        ] {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATimestamp), "{text}");
        }
    }

    #[test]
    fn any_offset_and_fraction_are_read() {
        for (text, same) in [
            ("2027-02-03T04:05:06Z", "2027-02-03T04:05:06.000Z"),
            ("2027-02-03t04:05:06.7z", "2027-02-03T04:05:06.700Z"),
            ("2027-02-03T04:05:06.789999+05:30", "2027-02-02T22:35:06.789Z"),
            ("2027-02-03T04:05:06-00:00", "2027-02-03T04:05:06.000Z"),
        ] {
            let instant = Timestamp::from_rfc3339(text).map(|instant| instant.to_string());
            assert_eq!(instant.as_deref(), Ok(same), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "2027-02-03T04:05:06",
            "2027-02-03T04:05:06.Z",
            "2027-02-30T04:05:06Z",
            "2027-02-03T04:05:06+5:30",
            "2027-02-03T04:05:06+24:00",
            "2027-02-03T04:05:06Zx",
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), Err(NotATimestamp), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(ms in 0i64..253_402_300_799_999) {
            proptest::prop_assert_eq!(Timestamp(ms).to_string().parse(), Ok(Timestamp(ms)));
        }
    }
}
