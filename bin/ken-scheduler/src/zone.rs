//! Time zones, and the instants of local times when the clock is changed.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, tz};
use ken_types::Error;

use crate::nearest::nearest;

/// A time zone by its IANA name, in any case, and the name as it is written.
pub(crate) fn zone(name: &str) -> Result<(TimeZone, String), Error> {
    if let Ok(zone) = tz::db().get(name) {
        let name = zone.iana_name().unwrap_or(name).to_owned();
        return Ok((zone, name));
    }
    let error = Error::invalid("/tz", format!("tz: there is no time zone {name:?}"));
    let names: Vec<String> = tz::db().available().map(|known| known.to_string()).collect();
    // People often write the city alone, so it is accepted for the whole name.
    let city = |known: &&String| known.rsplit('/').next().is_some_and(|city| city.eq_ignore_ascii_case(name));
    let near = names.iter().find(city).map(String::as_str);
    Err(match near.or_else(|| nearest(name, names.iter().map(String::as_str))) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint("a name of the IANA database, such as Europe/Zurich or UTC"),
    })
}

/// The instant of a local time: the first of two in a repeated hour, or the first valid one after a gap.
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
