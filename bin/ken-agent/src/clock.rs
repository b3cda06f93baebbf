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

/// Returns the IANA name of the zone, if the system says it.
pub(crate) fn zone() -> Option<String> {
    TimeZone::system().iana_name().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

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
