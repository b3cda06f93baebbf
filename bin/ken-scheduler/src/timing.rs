//! Computes the slots of a schedule and when they fire, without any state. All times are milliseconds since the epoch.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ken_types::Error;
use ken_types::ops::schedules::{NextSlot, ScheduleKind, Settings};
use sha2::{Digest, Sha256};

use crate::cron::Cron;
use crate::zone::{first_instant, zone};

const AT: &str = "/schedule";
/// A cron expression that matches no date within this time, in milliseconds, is refused. Eight years always include a
/// leap day.
const HORIZON_MS: i64 = 8 * 366 * DAY_MS;
const DAY_MS: i64 = 86_400_000;
const MAX_INTERVAL_MS: i64 = 366 * DAY_MS;

/// The rule that determines when a schedule fires.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    slots: Slots,
    /// The id of the schedule, from which the jitter of each slot is derived.
    id: String,
    jitter: i64,
}

#[derive(Debug, Clone)]
enum Slots {
    Cron(Box<Cron>, TimeZone),
    Every { anchor: i64, period: i64 },
    At(i64),
}

impl Timing {
    /// Returns the timing of a schedule, and the name of its time zone in its official spelling. Errors are `invalid`
    /// at `/schedule` or `/tz`.
    pub(crate) fn parse(id: &str, settings: &Settings, anchor: i64) -> Result<(Timing, String), Error> {
        let (zone, name) = zone(&settings.timezone)?;
        let text = settings.schedule.as_str();
        let slots = match settings.kind {
            ScheduleKind::Cron => Slots::Cron(Box::new(Cron::parse(text)?), zone),
            ScheduleKind::Every => Slots::Every { anchor, period: period(text)? },
            ScheduleKind::At => Slots::At(instant(text, &zone)?),
        };
        let timing = Timing { slots, id: id.to_owned(), jitter: settings.jitter_ms };
        Ok((timing, name))
    }

    /// Fails with `invalid` if the schedule never fires after `now`.
    pub(crate) fn check(&self, now: i64) -> Result<(), Error> {
        let next = self.slot_after(now);
        match &self.slots {
            Slots::At(at) if next.is_none() => {
                let then = ken_types::Timestamp::from_millis(*at);
                Err(Error::invalid(AT, format!("schedule: {then} is in the past")))
            }
            Slots::Cron(..) if next.is_none_or(|next| next - now > HORIZON_MS) => {
                Err(Error::invalid(AT, "schedule: it never fires: no date in the next eight years matches"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the first slot after a time; `None` if there is none.
    pub(crate) fn slot_after(&self, after: i64) -> Option<i64> {
        match &self.slots {
            Slots::At(at) => (*at > after).then_some(*at),
            Slots::Every { anchor, period } => {
                let passed = (after - anchor).div_euclid(*period).max(0);
                (passed + 1).checked_mul(*period)?.checked_add(*anchor)
            }
            Slots::Cron(cron, zone) => {
                let after = Timestamp::from_millisecond(after).ok()?;
                let next = if cron.every_hour {
                    next_by_elapsed_time(cron, zone, after)
                } else {
                    next_by_wall_clock(cron, zone, after)
                };
                next.map(Timestamp::as_millisecond)
            }
        }
    }

    /// Returns the first slot after a time, and when it fires; `None` if there is none.
    pub(crate) fn next(&self, after: i64) -> Option<NextSlot> {
        let slot = self.slot_after(after)?;
        Some(NextSlot { slot, fire: self.fire(slot) })
    }

    /// Returns when a slot fires: at its time plus its jitter, but always before the next slot.
    pub(crate) fn fire(&self, slot: i64) -> i64 {
        if self.jitter == 0 {
            return slot;
        }
        let room = self.slot_after(slot).map_or(i64::MAX, |next| next - slot);
        let mut hash = Sha256::new();
        hash.update(self.id.as_bytes());
        hash.update(slot.to_le_bytes());
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(hash.finalize());
        let random = u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 1;
        slot + random.cast_signed() % (self.jitter + 1).min(room)
    }

    /// Returns the newest slots after `after`, up to and including `until`, in order. These are at least `max` slots
    /// if there are that many.
    pub(crate) fn newest(&self, after: i64, until: i64, max: usize) -> Vec<i64> {
        const FIRST_WINDOW_MS: i64 = 3_600_000;
        let mut window = FIRST_WINDOW_MS;
        loop {
            let from = after.max(until.saturating_sub(window));
            let slots = std::iter::successors(self.slot_after(from), |slot| self.slot_after(*slot));
            let slots: Vec<i64> = slots.take_while(|slot| *slot <= until).collect();
            if from == after || slots.len() >= max {
                return slots;
            }
            window = window.saturating_mul(4);
        }
    }
}

/// Returns the next slot if the hour field is neither `*` nor `*/n`. Each matching local time then has one slot, even
/// if its hour is repeated.
fn next_by_wall_clock(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut local = local(zone, after).checked_add(SECOND).ok()?;
    loop {
        let matching = cron.at_or_after(local)?;
        // A local time in a repeated hour means its first occurrence. During the second occurrence, that has already
        // passed.
        let instant = first_instant(zone, matching)?;
        if instant > after {
            return Some(instant);
        }
        local = matching.checked_add(SECOND).ok()?;
    }
}

/// Returns the next slot if the hour field is `*` or `*/n`. The local time is compared at each moment that really
/// occurs, so a skipped hour has no slot and a repeated hour has its slots twice.
fn next_by_elapsed_time(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut from = after.checked_add(SECOND).ok()?;
    loop {
        let offset = zone.to_offset(from);
        let matching = cron.at_or_after(whole(offset.to_datetime(from)))?;
        let instant = offset.to_timestamp(matching).ok()?;
        match zone.following(from).next().map(|change| change.timestamp()) {
            Some(change) if instant >= change => from = change,
            _ => return Some(instant),
        }
    }
}

const SECOND: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// Returns the local time without the fraction of a second.
fn local(zone: &TimeZone, at: Timestamp) -> DateTime {
    whole(zone.to_datetime(at))
}

fn whole(time: DateTime) -> DateTime {
    time.with().subsec_nanosecond(0).build().unwrap_or(time)
}

/// Parses an interval, such as `90m`: a number and `s`, `m`, `h` or `d`. Returns milliseconds, from a second to 366
/// days.
fn period(text: &str) -> Result<i64, Error> {
    let wrong = |message: String| {
        Error::invalid(AT, format!("schedule: {message}")).hint("a number and s, m, h or d, such as 90m")
    };
    let unit = match text.chars().last() {
        Some('s') => 1_000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => DAY_MS,
        _ => return Err(wrong(format!("{text:?} is not an interval"))),
    };
    let digits = text.get(..text.len() - 1).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(wrong(format!("{text:?} is not an interval")));
    }
    let period = digits.parse::<i64>().ok().and_then(|number| number.checked_mul(unit));
    match period {
        Some(period) if (1_000..=MAX_INTERVAL_MS).contains(&period) => Ok(period),
        _ => Err(wrong(format!("{text} is not between 1s and 366d"))),
    }
}

/// Parses a time with an offset (RFC 3339), or a local time in the zone. Returns milliseconds since the epoch.
fn instant(text: &str, zone: &TimeZone) -> Result<i64, Error> {
    if let Ok(instant) = ken_types::Timestamp::from_rfc3339(text) {
        return Ok(instant.millis());
    }
    // jiff would drop an offset or a zone behind the time, which would then be that of another zone.
    let is_local = text
        .get("2027-02-03".len()..)
        .is_some_and(|time| !time.is_empty() && !time.contains(['+', '-', 'z', 'Z', '[']));
    let local = text.parse::<DateTime>().ok().filter(|_| is_local);
    let instant = local.and_then(|local| first_instant(zone, local));
    instant.map(Timestamp::as_millisecond).ok_or_else(|| {
        Error::invalid(AT, format!("schedule: {text:?} is neither an instant nor a local time"))
            .hint("2027-02-03T09:00:00+01:00, or 2027-02-03T09:00 in the time zone of the schedule")
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use ken_types::ops::schedules::{Missed, Overlap};

    use super::*;

    pub(crate) fn settings(kind: ScheduleKind, schedule: &str, zone: &str) -> Settings {
        Settings {
            kind,
            schedule: schedule.into(),
            timezone: zone.into(),
            target_agent: "orchestrator".into(),
            max_attempts: 3,
            delete_after_run: false,
            missed: Missed::Last,
            grace_ms: 60_000,
            overlap: Overlap::Skip,
            timeout_ms: 600_000,
            jitter_ms: 0,
            deliver_to: None,
            disable_after_failures: None,
        }
    }

    pub(crate) fn timing(settings: &Settings) -> Timing {
        Timing::parse("01K2", settings, 0).unwrap().0
    }

    fn ms(text: &str) -> i64 {
        ken_types::Timestamp::from_rfc3339(text).unwrap().millis()
    }

    fn slots(schedule: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let timing = timing(&settings(ScheduleKind::Cron, schedule, zone));
        let first = timing.slot_after(ms(from) - 1);
        std::iter::successors(first, |slot| timing.slot_after(*slot))
            .take(count)
            .map(|slot| Timestamp::from_millisecond(slot).unwrap().to_string())
            .collect()
    }

    /// In Zurich, the clock goes forward at 01:00 UTC on 28 March 2027, and back at 01:00 UTC on 31 October 2027.
    #[test]
    fn a_fixed_hour_fires_once_when_the_clock_is_changed() {
        for (schedule, from, expected) in [
            ("30 2 * * *", "2027-03-27T12:00:00Z", ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]),
            ("*/15 2 * * *", "2027-03-28T00:00:00Z", ["2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"]),
            ("0 2,3 * * *", "2027-03-28T00:00:00Z", ["2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"]),
            ("30 2 * * *", "2027-10-30T12:00:00Z", ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]),
            ("0 3 * * *", "2027-10-31T00:00:00Z", ["2027-10-31T02:00:00Z", "2027-11-01T02:00:00Z"]),
        ] {
            assert_eq!(slots(schedule, "Europe/Zurich", from, 2), expected, "{schedule}");
        }
        let quarters = ["2027-10-31T00:00:00Z", "2027-10-31T00:30:00Z", "2027-11-01T01:00:00Z"];
        assert_eq!(slots("*/30 2 * * *", "Europe/Zurich", "2027-10-30T22:00:00Z", 3), quarters);
    }

    #[test]
    fn an_hour_of_every_hour_follows_real_time() {
        let hourly = |from: &str, count| slots("30 * * * *", "Europe/Zurich", from, count);
        assert_eq!(
            hourly("2027-10-30T23:00:00Z", 4),
            ["2027-10-30T23:30:00Z", "2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-10-31T02:30:00Z"]
        );
        assert_eq!(hourly("2027-03-28T00:00:00Z", 2), ["2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z"]);
        // Every second hour: 02:00 occurs twice in October and not at all in March.
        let even = |from: &str, count| slots("0 */2 * * *", "Europe/Zurich", from, count);
        assert_eq!(
            even("2027-10-30T22:00:00Z", 4),
            ["2027-10-30T22:00:00Z", "2027-10-31T00:00:00Z", "2027-10-31T01:00:00Z", "2027-10-31T03:00:00Z"]
        );
        assert_eq!(even("2027-03-27T23:00:00Z", 2), ["2027-03-27T23:00:00Z", "2027-03-28T02:00:00Z"]);
    }

    #[test]
    fn half_an_hour_and_midnight_are_changed_too() {
        // In Lord Howe, the clock changes by half an hour. In Cairo, midnight does not exist on 30 April 2027.
        assert_eq!(slots("15 2 * * *", "Australia/Lord_Howe", "2027-10-02T12:00:00Z", 1), ["2027-10-02T15:30:00Z"]);
        assert_eq!(slots("30 0 * * *", "Africa/Cairo", "2027-04-29T12:00:00Z", 1), ["2027-04-29T22:00:00Z"]);
    }

    #[test]
    fn an_interval_counts_from_its_anchor() {
        let every = settings(ScheduleKind::Every, "90m", "UTC");
        let timing = Timing::parse("x", &every, 1_000).unwrap().0;
        assert_eq!(timing.slot_after(0), Some(5_401_000));
        assert_eq!(timing.slot_after(5_401_000), Some(10_801_000));
        for text in ["1.5h", "h", "", "90", "90 m", "-1s", "+1s", "5µ"] {
            assert_eq!(period(text).unwrap_err().message, format!("schedule: {text:?} is not an interval"));
        }
        for text in ["0s", "367d", "99999999999999999999d"] {
            assert_eq!(period(text).unwrap_err().message, format!("schedule: {text} is not between 1s and 366d"));
        }
        assert_eq!((period("1s").unwrap(), period("366d").unwrap()), (1_000, MAX_INTERVAL_MS));
    }

    #[test]
    fn an_instant_or_a_local_time() {
        for (text, same) in [
            ("2027-02-03T09:00:00+01:00", "2027-02-03T08:00:00Z"),
            ("2027-02-03T09:00:00Z", "2027-02-03T09:00:00Z"),
            ("2027-02-03T09:00", "2027-02-03T08:00:00Z"),
            ("2027-02-03 09:00:30", "2027-02-03T08:00:30Z"),
            ("2027-03-28T02:30", "2027-03-28T01:00:00Z"),
            ("2027-10-31T02:30", "2027-10-31T00:30:00Z"),
        ] {
            let zone = zone("Europe/Zurich").unwrap().0;
            assert_eq!(instant(text, &zone), Ok(ms(same)), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "2027-02-03",
            "2027-02-30T09:00",
            "2027-02-03T25:00",
            "09:00",
            "2027-02-03T09:00Z",
            "2027-02-03T09:00z",
            "2027-02-03T09:00+01:00",
            "2027-02-03T09:00[Europe/Zurich]",
            "2027-02-03T09:00:00+01:00[Europe/Zurich]",
        ] {
            assert!(instant(text, &TimeZone::UTC).is_err(), "{text}: {:?}", instant(text, &TimeZone::UTC));
        }
        let at = timing(&settings(ScheduleKind::At, "2027-02-03T09:00", "UTC"));
        let slot = ms("2027-02-03T09:00:00Z");
        assert_eq!([slot - 1, slot].map(|after| at.slot_after(after)), [Some(slot), None]);
    }

    #[test]
    fn what_never_fires_is_refused() {
        let now = ms("2027-02-03T09:00:00Z");
        let check = |kind, text| timing(&settings(kind, text, "UTC")).check(now);
        assert!(check(ScheduleKind::Cron, "0 0 30 2 *").unwrap_err().message.contains("never fires"));
        assert!(check(ScheduleKind::Cron, "0 0 31 4,6,9,11 *").is_err());
        assert!(check(ScheduleKind::Cron, "0 0 29 2 *").is_ok());
        assert!(check(ScheduleKind::At, "2027-02-03T08:59:59Z").unwrap_err().message.contains("in the past"));
        assert!(check(ScheduleKind::At, "2027-02-03T09:00:01Z").is_ok());
    }

    #[test]
    fn a_zone_is_found_in_any_case_and_the_nearest_is_named() {
        assert_eq!(zone("europe/zurich").unwrap().1, "Europe/Zurich");
        for (name, near) in [("Europe/Zurch", "Europe/Zurich"), ("zurich", "Europe/Zurich")] {
            let hint = zone(name).unwrap_err().hint;
            assert_eq!(hint, Some(format!("did you mean {near}?")), "{name}");
        }
    }

    #[test]
    fn jitter_is_fixed_for_a_slot_and_keeps_the_order() {
        let jittered = |kind, text: &str, jitter| {
            let settings = Settings { jitter_ms: jitter, ..settings(kind, text, "UTC") };
            timing(&settings)
        };
        let every = jittered(ScheduleKind::Every, "1s", 3_600_000);
        let mut last = 0;
        for slot in (1..200).map(|number| number * 1_000) {
            let fire = every.fire(slot);
            assert!((slot..slot + 1_000).contains(&fire) && fire > last);
            assert_eq!(fire, every.fire(slot));
            last = fire;
        }
        let daily = jittered(ScheduleKind::Cron, "@daily", 600_000);
        let fires: Vec<i64> = (1..50).map(|day| daily.fire(day * DAY_MS) - day * DAY_MS).collect();
        assert!(fires.iter().all(|late| (0..=600_000).contains(late)));
        assert!(fires.iter().max().unwrap() - fires.iter().min().unwrap() > 300_000);
    }
}
