//! The date and time that a model is told, in the time zone of this system: that of `TZ`, otherwise that of /etc/localtime.

use jiff::tz::TimeZone;
use ken_types::Timestamp;

pub(crate) struct Clock {
    zone: TimeZone,
    /// The format of strftime(3). It contains the name of the zone, because a history has many times.
    format: String,
}

impl Clock {
    pub(crate) fn system() -> Clock {
        Clock::of(TimeZone::system())
    }

    fn of(zone: TimeZone) -> Clock {
        let name = zone.iana_name().map(|name| format!(", {name}")).unwrap_or_default();
        Clock { format: format!("%A, %-d %B %Y, %H:%M{name} (UTC%:z)"), zone }
    }

    /// Returns the weekday, date, time, zone and offset, for instance `Wednesday, 3 February 2027, 09:04, Europe/Zurich (UTC+01:00)`.
    pub(crate) fn told(&self, at: Timestamp) -> String {
        let instant = jiff::Timestamp::from_millisecond(at.millis()).unwrap_or_default();
        instant.to_zoned(self.zone.clone()).strftime(&self.format).to_string()
    }
}

/// Returns the IANA name of the zone of this system; `None` for UTC. Fails if the zone has none, as with a copy in the place of the link
/// /etc/localtime, or a rule in `TZ`: a schedule in UTC would fire at another time than the one that the model is told.
pub(crate) fn zone() -> Result<Option<String>, String> {
    name(&TimeZone::system(), jiff::Timestamp::now())
}

fn name(zone: &TimeZone, now: jiff::Timestamp) -> Result<Option<String>, String> {
    let half_a_year = jiff::SignedDuration::from_hours(183 * 24);
    let is_zero = |at: jiff::Timestamp| zone.to_offset(at) == jiff::tz::Offset::UTC;
    match zone.iana_name() {
        Some(name) => Ok(Some(name.to_owned())),
        // In winter some are as UTC.
        _ if is_zero(now) && is_zero(now.saturating_add(half_a_year).unwrap_or(now)) => Ok(None),
        _ => Err("tz: the time zone of this system has no name; give an IANA name".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_has_a_name_or_is_utc() {
        let winter = jiff::Timestamp::UNIX_EPOCH;
        let of = |zone: &TimeZone| name(zone, winter);
        let posix = |rule| TimeZone::posix(rule).unwrap();
        assert_eq!(of(&TimeZone::get("Europe/London").unwrap()), Ok(Some("Europe/London".to_owned())));
        for utc in [TimeZone::unknown(), posix("UTC0"), posix("GMT0")] {
            assert_eq!(of(&utc), Ok(None), "{utc:?}");
        }
        for rule in ["CET-1CEST,M3.5.0,M10.5.0/3", "GMT0BST,M3.5.0/1,M10.5.0", "<+03>-3"] {
            assert!(of(&posix(rule)).is_err(), "{rule}");
        }
    }

    #[test]
    fn the_time_is_told_as_people_of_the_zone_say_it() {
        let told = |zone: TimeZone, text: &str| Clock::of(zone).told(Timestamp::from_rfc3339(text).unwrap());
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        assert_eq!(
            told(berlin.clone(), "2026-12-31T23:30:00Z"),
            "Friday, 1 January 2027, 00:30, Europe/Berlin (UTC+01:00)"
        );
        assert_eq!(told(berlin, "2027-07-04T07:05:59Z"), "Sunday, 4 July 2027, 09:05, Europe/Berlin (UTC+02:00)");
        let unnamed = TimeZone::fixed(jiff::tz::offset(-3));
        assert_eq!(told(unnamed, "2027-02-03T02:00:00Z"), "Tuesday, 2 February 2027, 23:00 (UTC-03:00)");
    }
}
