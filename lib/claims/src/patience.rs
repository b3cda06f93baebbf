//! Calls that wait while the store is away.

use std::time::Duration;

use ken_types::ops::Op;
use ken_types::{Code, Error};
use ken_wire::Pool;
use tokio::time::sleep;

const CALL: Duration = Duration::from_secs(10);
/// Between two tries while the store is away.
const PAUSE: Duration = Duration::from_millis(20);

/// One operation, again and again while the part is away: all of them may be repeated (`ken_types::ops`). An error is
/// its refusal.
pub async fn patiently<O: Op>(pool: &Pool, args: &O::Args) -> Result<O::Reply, Error> {
    loop {
        match pool.call::<O>(args, CALL).await {
            Err(error) if is_away(&error) => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

fn is_away(error: &Error) -> bool {
    matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline)
}
