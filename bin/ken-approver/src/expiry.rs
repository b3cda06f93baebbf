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
            Ok(Expired { next, .. }) => next.map_or(approver.expiry(), until).clamp(MIN_PAUSE, approver.expiry()),
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

/// Returns the time from now until `then`; zero if it has passed.
fn until(then: Timestamp) -> Duration {
    let left = then.millis() - Timestamp::now().millis();
    Duration::from_millis(u64::try_from(left).unwrap_or_default())
}
