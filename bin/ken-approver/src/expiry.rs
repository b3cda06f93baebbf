//! A timer that marks undecided requests as expired and wakes the callers that wait for their decision. It is not
//! needed for correctness, because the store refuses a late decision in any case.

use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::Timestamp;
use ken_types::ops::Nothing;
use ken_types::ops::approvals::{ApprovalsExpire, Expired};

use crate::approver::Approver;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a failed call of the store, and the shortest pause between two calls.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const MIN_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause while a request is pending. Requests expire by the wall clock, which can be set and which runs while the machine is
/// suspended. A pause is measured by the monotonic clock, which does neither.
const MAX_PAUSE: Duration = Duration::from_secs(10);

pub(crate) async fn run(approver: Arc<Approver>, mut stop: Stop) {
    loop {
        let pause = match approver.store.call::<ApprovalsExpire>(&Nothing {}, CALL_TIMEOUT).await {
            Ok(Expired { next, .. }) => pause(next.map(until), approver.expiry()),
            Err(error) => {
                tracing::warn!("requests cannot be let expire: {}", error.message);
                RETRY_PAUSE
            }
        };
        tokio::select! {
            () = stop.stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Returns how long to wait if the next request ends after `next`. Without one it is the time for which a request is pending: one that is
/// stored meanwhile expires later than that.
fn pause(next: Option<Duration>, expiry: Duration) -> Duration {
    next.map_or(expiry, |next| next.clamp(MIN_PAUSE, MAX_PAUSE.min(expiry)))
}

/// Returns the time from now until `then`; zero if it has passed.
fn until(then: Timestamp) -> Duration {
    let left = then.millis() - Timestamp::now().millis();
    Duration::from_millis(u64::try_from(left).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_with_the_next_request_and_before_one_that_is_stored_meanwhile() {
        let ms = Duration::from_millis;
        for (next, expiry, expected) in [
            (None, 1_000, 1_000),
            (Some(0), 1_000, 5),
            (Some(5), 1_000, 5),
            (Some(700), 1_000, 700),
            (Some(9_000), 1_000, 1_000),
            (None, 900_000, 900_000),
            (Some(10_000), 900_000, 10_000),
            (Some(10_001), 900_000, 10_000),
        ] {
            assert_eq!(pause(next.map(ms), ms(expiry)), ms(expected), "{next:?} of {expiry}");
        }
    }
}
