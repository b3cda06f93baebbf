//! Finds out whether the store writes, for `/ready`.

use std::time::{Duration, Instant};

use ken_types::Error;
use ken_types::ops::Nothing;
use ken_types::ops::store::StoreProbe;
use ken_wire::Pool;
use tokio::sync::Mutex;

pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the outcome of a probe is used.
const INTERVAL: Duration = Duration::from_secs(1);

/// The outcome of the last write probe of the store, shared by all callers of `/ready`.
#[derive(Debug, Default)]
pub(crate) struct WriteProbe(Mutex<Option<(Instant, Result<(), Error>)>>);

impl WriteProbe {
    /// Writes, unless that was done in the last second.
    pub(crate) async fn outcome(&self, store: &Pool) -> Result<(), Error> {
        // The lock is held while the store is called: callers that come meanwhile wait for this outcome, and do not add to the
        // work of a store that is slow. Nobody waits longer than the timeout of two probes.
        let mut last = self.0.lock().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < INTERVAL
        {
            return outcome.clone();
        }
        let outcome = store.call::<StoreProbe>(&Nothing {}, PROBE_TIMEOUT).await.map(drop);
        *last = Some((Instant::now(), outcome.clone()));
        outcome
    }
}
