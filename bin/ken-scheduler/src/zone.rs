//! Time zones, and the conversion of local times when daylight saving time begins or ends.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, tz};
use ken_text::nearest;
use ken_types::Error;

/// Finds a time zone by its IANA name in any case. Returns it with its name in the official spelling. Fails with
/// `invalid` at `/tz` if there is none.
pub(crate) fn zone(name: &str) -> Result<(TimeZone, String), Error> {
    if let Ok(zone) = tz::db().get(name) {
        let name = zone.iana_name().unwrap_or(name).to_owned();
        return Ok((zone, name));
    }
    let error = Error::invalid("/tz", format!("tz: there is no time zone {name:?}"));
    let names: Vec<String> = tz::db().available().map(|known| known.to_string()).collect();
    // People often write only the city, so the hint first looks for a zone of that city.
    let city = |known: &&String| known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
    let near = names.iter().find(city).map(String::as_str);
    Err(match near.or_else(|| nearest(name, names.iter().map(String::as_str))) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint("a name of the IANA database, such as Europe/Zurich or UTC"),
    })
}

/// Returns the instant of a local time. This is the first one if the hour is repeated, and the end of the gap if the
/// local time is skipped.
pub(crate) fn first_instant(zone: &TimeZone, local: DateTime) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { .. } => {
            let inside = ambiguous.later().ok()?;
            let after = inside.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?;
            zone.preceding(after).next().map(|change| change.timestamp())
        }
        _ => ambiguous.earlier().ok(),
    }
}
