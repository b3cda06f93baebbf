//! The state of a running listener that its connections and requests need.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::header::HeaderValue;
use ken_types::{Error, Timestamp, id};

use crate::access::Access;
use crate::connection::Resources;
use crate::failure::Envelope;
use crate::rate::Limiter;
use crate::routes::Routes;

/// State that all connections share.
pub(crate) struct Listener<S> {
    pub routes: Routes<S>,
    pub state: Arc<S>,
    pub access: Access,
    pub wrong_secrets: Limiter,
    pub limit_loopback: bool,
    /// Replaces the envelopes of the areas.
    pub envelope: Option<Envelope>,
    pub resources: Arc<Resources>,
    pub ids: RequestIds,
}

/// Generates ULIDs for requests without an id: the time, 48 random bits of the listener, and a counter.
pub(crate) struct RequestIds {
    seed: u128,
    count: AtomicU32,
}

impl RequestIds {
    pub(crate) fn new() -> Result<RequestIds, Error> {
        let random: [u8; 16] = id::random()?;
        Ok(RequestIds { seed: u128::from_be_bytes(random) << 32, count: AtomicU32::new(0) })
    }

    pub(crate) fn next(&self) -> HeaderValue {
        let count = self.count.fetch_add(1, Relaxed);
        let ms = u64::try_from(Timestamp::now().millis()).unwrap_or_default();
        let id = ulid::Ulid::from_parts(ms, self.seed | u128::from(count));
        let mut text = [0; ulid::ULID_LEN];
        // Letters and digits are valid in a header.
        HeaderValue::from_str(id.array_to_str(&mut text)).unwrap_or(HeaderValue::from_static("-"))
    }
}
