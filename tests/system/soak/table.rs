//! The tables of what was measured.

use super::is_long;
use super::rest::{Rest, mib, ms};

/// What was measured, beside its goal.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) figure: String,
    pub(crate) goal: &'static str,
    pub(crate) is_met: bool,
    /// Whether a short run says nothing about it.
    pub(crate) takes_long: bool,
}

impl Row {
    pub(crate) fn is_missed(&self) -> bool {
        !self.is_met && (is_long() || !self.takes_long)
    }
}

pub(crate) fn print(rows: &[Row]) {
    eprintln!("\n{:<58}{:<52}{:<29}", "what", "figure", "goal");
    for row in rows {
        let state = match (row.is_met, row.is_missed()) {
            (true, _) => "met",
            (false, true) => "MISSED",
            (false, false) => "not judged in a short run",
        };
        eprintln!("{:<58}{:<52}{:<29}{state}", row.what, row.figure, row.goal);
    }
}

/// The times of the system stand before those of a fresh one.
pub(crate) fn head(first: &Rest) {
    eprintln!(
        "{:>9}{:>10}{:>12}{:>12}{:>13}{:>15}{:>15}{:>15}",
        "events", "MiB", "bytes/event", "private KiB", "descriptors", "turn ms", "page ms", "append ms"
    );
    line(0, f64::NAN, first);
}

/// Prints what the last leg has left.
pub(crate) fn leg(rests: &[Rest]) {
    let [.., before, last] = rests else { return };
    line(rests.iter().map(|rest| rest.events).sum(), last.bytes_per_event(before), last);
}

fn line(events: u64, bytes: f64, rest: &Rest) {
    let [turn, page, append] = rest.latency.map(|[own, fresh]| format!("{:.2}/{:.2}", ms(own), ms(fresh)));
    let (private, descriptors): (u64, u64) = (rest.private.values().sum(), rest.descriptors.values().sum());
    eprintln!(
        "{events:>9}{:>10.1}{bytes:>12.0}{private:>12}{descriptors:>13}{turn:>15}{page:>15}{append:>15}",
        mib(rest.database)
    );
}
