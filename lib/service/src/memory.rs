//! Keeps a daemon small while it is idle.

use std::time::Duration;

use ken_trim::trim;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// The time between the start and the first look. It is later than what a daemon still does right after it is ready, and later than
/// what it does in whole intervals from then on.
const FIRST_LOOK: Duration = Duration::from_secs(2);
const INTERVAL: Duration = Duration::from_secs(30);
/// A daemon that has computed for longer than this since the last look is in use. Its timers alone take a tenth of that.
const IDLE: Duration = Duration::from_millis(20);

/// Gives memory back after the start, and then whenever the daemon has been idle. Never returns.
pub(crate) async fn stay_small() -> ! {
    tokio::time::sleep(FIRST_LOOK).await;
    let mut before = None;
    loop {
        let now = processor_time();
        if before.is_none_or(|before| now.saturating_sub(before) < IDLE) {
            trim();
        }
        before = Some(now);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What all threads of this process have computed so far.
fn processor_time() -> Duration {
    let microseconds = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or_default();
    let used = getrusage(UsageWho::RUSAGE_SELF);
    used.map_or(Duration::MAX, |used| {
        Duration::from_micros(microseconds(used.user_time()) + microseconds(used.system_time()))
    })
}
