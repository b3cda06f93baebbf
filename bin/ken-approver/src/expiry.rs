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
/// The pause after a failed call of the store, and the shortest pause between two calls. The longest is the time for which
/// a request is pending: one that is stored meanwhile expires later than that.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
const MIN_PAUSE: Duration = Duration::from_millis(5);

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

/// Returns how long to wait if the next request ends after `next`.
fn pause(next: Option<Duration>, expiry: Duration) -> Duration {
    next.unwrap_or(expiry).clamp(MIN_PAUSE, expiry)
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
        for (next, expected) in [(None, 1_000), (Some(0), 5), (Some(5), 5), (Some(700), 700), (Some(9_000), 1_000)] {
            assert_eq!(pause(next.map(ms), ms(1_000)), ms(expected), "{next:?}");
        }
    }
}
