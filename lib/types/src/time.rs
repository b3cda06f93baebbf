//! Timestamps in the format of the HTTP contract: RFC 3339, UTC, milliseconds.

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::clock;

/// Milliseconds since 1970-01-01T00:00:00Z, written as `2027-02-03T04:05:06.789Z`. As text, the year must be between
/// 0000 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, SerializeDisplay, DeserializeFromStr)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the current time of the wall clock.
    pub fn now() -> Timestamp {
        Timestamp(clock::shown(Timestamp::of_system().0))
    }

    /// Returns the current time of the system's clock, which differs from the wall clock in some tests only.
    pub fn of_system() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Parses any timestamp of RFC 3339, with any offset and fraction. Digits after the milliseconds are dropped.
    pub fn from_rfc3339(text: &str) -> Result<Timestamp, NotATimestamp> {
        // jiff also accepts other forms of ISO 8601, such as a time without seconds.
        if has_rfc3339_form(text.as_bytes()) { Timestamp::read(text) } else { Err(NotATimestamp) }
    }

    fn read(text: &str) -> Result<Timestamp, NotATimestamp> {
        let instant: jiff::Timestamp = text.parse().map_err(|_| NotATimestamp)?;
        Ok(Timestamp(instant.as_millisecond()))
    }

    pub const fn from_millis(ms: i64) -> Timestamp {
        Timestamp(ms)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Returns this time plus a number of milliseconds, which can be negative.
    pub const fn plus_millis(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Returns the day in UTC, as `2027-02-03`.
    pub fn day(self) -> String {
        let mut text = self.to_string();
        text.truncate("2027-02-03".len());
        text
    }
}

/// Whether a text has the form of RFC 3339, section 5.6. It checks no values except the hours of the offset, where jiff
/// accepts more than RFC 3339 allows.
fn has_rfc3339_form(text: &[u8]) -> bool {
    let fits = |form: &[u8], text: &[u8]| {
        let fits_one = |(form, byte): (&u8, &u8)| match form {
            b'0' => byte.is_ascii_digit(),
            b'T' | b'Z' => byte.eq_ignore_ascii_case(form),
            b'+' => matches!(byte, b'+' | b'-'),
            _ => byte == form,
        };
        form.len() == text.len() && form.iter().zip(text).all(fits_one)
    };
    let Some((local, rest)) = text.split_at_checked(b"0000-00-00T00:00:00".len()) else {
        return false;
    };
    let zone = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            match fraction.split_at(digits) {
                ([], _) => return false,
                (_, zone) => zone,
            }
        }
    };
    fits(b"0000-00-00T00:00:00", local) && (fits(b"Z", zone) || fits(b"+00:00", zone) && zone.get(1..3) < Some(b"24"))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.clamp(jiff::Timestamp::MIN.as_millisecond(), jiff::Timestamp::MAX.as_millisecond());
        let instant = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
        write!(f, "{instant:.3}")
    }
}

/// The error for a text that is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotATimestamp;

impl fmt::Display for NotATimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a timestamp of the form 2027-02-03T04:05:06.789Z")
    }
}

impl FromStr for Timestamp {
    type Err = NotATimestamp;

    /// Parses exactly the form that [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Timestamp, NotATimestamp> {
        let instant = Timestamp::read(text)?;
        if instant.to_string() == text { Ok(instant) } else { Err(NotATimestamp) }
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
            assert_eq!(Timestamp(ms).day(), text[..10]);
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in
            ["", "2027-02-03", "2027-02-30T00:00:00.000Z", "2027-02-03 04:05:06.789Z", "2027-13-01T00:00:00.000Z"]
        {
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
            "", "tomorrow", "2027-02-03T04:05:06", "2027-02-03T04:05:06.Z", "2027-02-30T04:05:06Z",
            "2027-02-03T04:05:06+5:30", "2027-02-03T04:05:06+24:00", "2027-02-03T04:05:06Zx", "2027-02-03 04:05:06Z",
            "2027-02-03T04:05Z", "2027-02-03T04:05:06+05", "2027-02-03T04:05:06+0530", "+002027-02-03T04:05:06Z",
            "2027-02-03T04:05:06Z[UTC]",
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
