//! The wall clock of tests. A build with debug assertions takes it from the environment, so that a day passes in minutes and a clock can
//! be set forwards and back; any other build has that of the system.

use std::sync::LazyLock;

/// The variable: `FROM=SHOWN*RATE`, or several of these, separated by commas. From the time `FROM` of the system's clock on, the clock
/// shows `SHOWN` and runs `RATE` times as fast. Times are milliseconds since the epoch.
pub const VARIABLE: &str = "KEN_CLOCK";

/// How long a clock that may be set at any time is not looked at, in milliseconds.
const LOOK_MS: i64 = 20;

struct Piece {
    from: i64,
    shown: i64,
    rate: i64,
}

static PIECES: LazyLock<Vec<Piece>> = LazyLock::new(|| {
    let text = std::env::var(VARIABLE).unwrap_or_default();
    text.split(',').filter_map(piece).collect()
});

fn piece(text: &str) -> Option<Piece> {
    let (from, rest) = text.split_once('=')?;
    let (shown, rate) = rest.split_once('*')?;
    Some(Piece { from: from.parse().ok()?, shown: shown.parse().ok()?, rate: rate.parse().ok()? })
}

fn at(pieces: &[Piece], system: i64) -> Option<&Piece> {
    pieces.iter().rev().find(|piece| piece.from <= system)
}

fn shown_by(pieces: &[Piece], system: i64) -> i64 {
    at(pieces, system).map_or(system, |piece| piece.shown + (system - piece.from) * piece.rate)
}

/// What the clock shows when the system's clock shows this.
pub(crate) fn shown(system: i64) -> i64 {
    if cfg!(debug_assertions) { shown_by(&PIECES, system) } else { system }
}

/// The time of the system's clock at which to look again whether the clock has reached a time. It may be too early.
pub fn next_look(time: i64, system: i64) -> i64 {
    if !cfg!(debug_assertions) || PIECES.is_empty() {
        return time;
    }
    let rate = at(&PIECES, system).map_or(1, |piece| piece.rate.max(1));
    system + ((time - shown(system)) / rate).clamp(0, LOOK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_that_of_the_system_until_it_is_set_and_then_runs_at_its_rate() {
        let pieces: Vec<Piece> = "1000=5000*24,2000=100*1".split(',').filter_map(piece).collect();
        let times = [999, 1_000, 1_010, 1_999, 2_000, 2_007].map(|system| shown_by(&pieces, system));
        assert_eq!(times, [999, 5_000, 5_240, 28_976, 100, 107]);
        assert_eq!(shown_by(&[], 7), 7);
        assert!(["", "1", "1=2", "x=1*1", "1=2*"].iter().all(|text| piece(text).is_none()));
    }
}
