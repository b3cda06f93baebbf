//! The header `Stream-Cursor`. It keeps caches between client and server from giving the same response to two requests.

use std::time::{SystemTime, UNIX_EPOCH};

use ken_types::Error;
use ken_types::id::random;

/// Cursors count intervals of this length from 2024-10-09T00:00:00Z.
const INTERVAL_SECONDS: u64 = 20;
const EPOCH: u64 = 1_728_432_000;

/// Returns the number of the current interval. If the client has seen this one or a later one, returns a random later
/// one.
pub(crate) fn next_cursor(seen: Option<u64>) -> Result<u64, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let interval = now.saturating_sub(EPOCH) / INTERVAL_SECONDS;
    match seen {
        Some(seen) if seen >= interval => {
            let [byte] = random::<1>()?;
            Ok(seen.saturating_add(1 + u64::from(byte) * 180 / 256))
        }
        _ => Ok(interval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_only_increase() {
        let now = next_cursor(None).unwrap();
        assert_eq!(next_cursor(Some(now - 1)).unwrap(), now);
        for _ in 0..100 {
            let next = next_cursor(Some(now + 5)).unwrap();
            assert!((now + 6..=now + 5 + 180).contains(&next), "{next}");
        }
    }
}
