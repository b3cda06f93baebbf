//! The time of an event. The parser of jiff would make this program, which starts for each call, 15 % larger.

use jiff::civil::Date;
use serde_json::Value;

/// A time. Only times on the same scale can be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    scale: Scale,
    number: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    /// A number without a known unit.
    Number,
    /// Seconds since midnight.
    Clock,
    /// Seconds since 1970-01-01T00:00:00Z.
    Date,
}

impl Moment {
    /// Parses a number, "10:05", "10:05:30", "2026-11-20", or an RFC 3339 time. A date or time without a zone is in
    /// UTC.
    pub(crate) fn of(value: &Value) -> Option<Moment> {
        match value {
            Value::Number(number) => number.as_f64().map(|number| Moment { scale: Scale::Number, number }),
            Value::String(text) => Moment::read(text.trim()),
            _ => None,
        }
    }

    fn read(text: &str) -> Option<Moment> {
        if let Ok(number) = text.parse::<f64>() {
            return number.is_finite().then_some(Moment { scale: Scale::Number, number });
        }
        if let Some(number) = clock(text) {
            return Some(Moment { scale: Scale::Clock, number });
        }
        let (date, rest) = (text.get(..10)?, text.get(10..)?);
        let start = seconds(date)?;
        if rest.is_empty() {
            return Some(Moment { scale: Scale::Date, number: start });
        }
        let time = rest.strip_prefix(['T', 't', ' '])?;
        let (time, offset) = zone(time)?;
        Some(Moment { scale: Scale::Date, number: start + clock(time)? - offset })
    }

    /// Returns the time from `earlier` to this moment; `None` if the scales differ.
    pub(crate) fn after(self, earlier: Moment) -> Option<f64> {
        (self.scale == earlier.scale).then_some(self.number - earlier.number)
    }

    /// Returns the zero of its scale.
    pub(crate) fn zero(self) -> Moment {
        Moment { number: 0.0, ..self }
    }

    /// Returns the unit of [`Moment::after`], as it is shown to users.
    pub(crate) fn unit(self) -> &'static str {
        if self.scale == Scale::Number { "" } else { " s" }
    }
}

/// Parses `HH:MM` or `HH:MM:SS`. The seconds can have a fraction. Returns seconds since midnight.
fn clock(text: &str) -> Option<f64> {
    let parts: Vec<&str> = text.split(':').collect();
    let (hours, minutes, seconds) = match *parts.as_slice() {
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    let within = |text: &str, max: f64| text.parse::<f64>().ok().filter(|number| (0.0..=max).contains(number));
    Some(within(hours, 24.0)? * 3600.0 + within(minutes, 59.0)? * 60.0 + within(seconds, 60.999)?)
}

/// Returns the time without its zone, and the offset of the zone in seconds east of UTC.
fn zone(time: &str) -> Option<(&str, f64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0.0));
    }
    match time.rfind(['+', '-']) {
        None => Some((time, 0.0)),
        Some(at) => {
            let sign = if time.get(at..)?.starts_with('-') { -1.0 } else { 1.0 };
            Some((time.get(..at)?, sign * clock(time.get(at + 1..)?)?))
        }
    }
}

/// Returns the seconds from 1970-01-01 to a date `YYYY-MM-DD`.
fn seconds(date: &str) -> Option<f64> {
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let date = Date::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?).ok()?;
    Some(Date::constant(1970, 1, 1).duration_until(date).as_secs() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_on_their_scale() {
        let read = |text: &str| Moment::read(text);
        let known = |scale, number| Some(Moment { scale, number });
        assert_eq!(read("3.5"), known(Scale::Number, 3.5));
        assert_eq!(read("10:05"), known(Scale::Clock, 36_300.0));
        assert_eq!(read("1970-01-02"), known(Scale::Date, 86_400.0));
        assert_eq!(read("2026-11-20T10:00:00Z"), read("2026-11-20T11:00:00+01:00"));
        assert_eq!(read("2000-03-01"), known(Scale::Date, 951_868_800.0));
        for bad in ["soon", "25:00", "2026-13-01", "2026-02-29", "2026-04-31", "2026-1", "", "NaN"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read("1").unwrap().after(read("00:00").unwrap()), None);
    }
}
