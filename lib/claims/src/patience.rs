//! Calls of the store that are repeated while the store cannot be reached.

use std::time::Duration;

use ken_types::ops::Op;
use ken_types::{Code, Error};
use ken_wire::Pool;
use tokio::time::sleep;

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Repeats an operation until the store answers. This is harmless, because every operation can be repeated without
/// changing its effect (`ken_types::ops`). An error means that the store refused the operation.
pub async fn call_until_answered<O: Op>(pool: &Pool, args: &O::Args) -> Result<O::Reply, Error> {
    loop {
        match pool.call::<O>(args, CALL_TIMEOUT).await {
            Err(error) if cannot_be_reached(&error) => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

fn cannot_be_reached(error: &Error) -> bool {
    matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline)
}
