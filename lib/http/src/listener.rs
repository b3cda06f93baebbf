//! A listener before it runs, and what its connections and requests need of a running one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use http::header::HeaderValue;
use ken_types::{Error, Rate, Timestamp, id};

use crate::access::Access;
use crate::connection::Resources;
use crate::failure::Envelope;
use crate::limits::Limits;
use crate::rate::Limiter;
use crate::routes::Routes;
use crate::shutdown::Shutdown;

/// A listener before it runs: its route table, shared state, authentication and limits.
pub struct Server<S> {
    pub routes: Routes<S>,
    pub state: Arc<S>,
    pub access: Access,
    pub limits: Limits,
    /// Limits wrong secrets per address.
    pub wrong_secrets: Limiter,
    /// Whether local callers are rate limited like others.
    pub limit_loopback: bool,
    /// The envelope of all errors: those of all areas, of unknown paths and of the listener itself.
    pub envelope: Option<Envelope>,
}

impl<S> Server<S> {
    /// A listener with the limits of the contract that admits local requests only, and 20 wrong secrets a minute from an address.
    pub fn new(routes: Routes<S>, state: Arc<S>) -> Server<S> {
        Server {
            routes,
            state,
            access: Access::new(None),
            limits: Limits::default(),
            wrong_secrets: Limiter::new(Rate::per_minute(20)),
            limit_loopback: false,
            envelope: None,
        }
    }
}

/// State that all connections share.
pub(crate) struct Listener<S> {
    pub server: Server<S>,
    pub resources: Arc<Resources>,
    pub ids: RequestIds,
}

impl<S> Listener<S> {
    pub(crate) fn of(mut server: Server<S>, shutdown: Shutdown) -> Result<Listener<S>, Error> {
        server.routes.check()?;
        let resources = Arc::new(Resources::new(server.limits.clone(), shutdown));
        Ok(Listener { server, resources, ids: RequestIds::new()? })
    }
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
