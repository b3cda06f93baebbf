//! Calls to the store, and how their failures are reported to HTTP clients.

use std::time::Duration;

use ken_http::Failure;
use ken_types::ops::Op;
use ken_types::{Code, Error};
use ken_wire::Pool;

/// The timeout of one call to another part: shorter than the timeout of most clients, longer than the restart of a part.
pub(crate) const CALL: Duration = Duration::from_secs(10);
/// How long to try to find out whether a change was made, before the client is told that this is unknown.
pub(crate) const CHANGE: Duration = Duration::from_secs(30);

/// The store, as the routes call it.
#[derive(Debug)]
pub(crate) struct Store(Pool);

impl Store {
    pub(crate) fn new(pool: Pool) -> Store {
        Store(pool)
    }

    /// Calls an operation that reads, or one whose outcome no client is told; see [`Pool::call`].
    pub(crate) async fn call<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.call::<O>(args, time).await.map_err(deadline_as_unavailable)
    }

    /// Makes a change whose ids are in `args`; see [`Pool::change`]. An `unavailable` error means that nothing was changed.
    pub(crate) async fn change<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.change::<O>(args, CALL, time).await.map_err(change_failed)
    }

    /// Makes a change that has no id, so that asking again could change more; see [`Pool::call`]. An `unavailable` error means
    /// that nothing was changed.
    pub(crate) async fn change_once<O: Op>(&self, args: &O::Args) -> Result<O::Reply, Error> {
        self.0.call::<O>(args, CALL).await.map_err(change_failed)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0
    }
}

/// Reports a part that does not answer in time as unavailable (503). The status 504 is kept for work that passed its own
/// time limit, and for changes whose outcome is unknown.
pub(crate) fn deadline_as_unavailable(error: Error) -> Error {
    Error {
        code: match error.code {
            Code::Deadline => Code::Unavailable,
            code => code,
        },
        outcome: None,
        ..error
    }
}

/// The error of a failed change: 504 if it may have been made, 503 only if it certainly was not.
pub(crate) fn change_failed(error: Error) -> Error {
    match error.is_outcome_unknown() {
        true => Error {
            code: Code::Deadline,
            hint: Some("a request with an Idempotency-Key can be repeated until its outcome is known".to_owned()),
            ..error
        },
        false => deadline_as_unavailable(error),
    }
}

/// A failed change. If its outcome is unknown, the answer contains the id that the client can look for.
pub(crate) fn failed_change(error: Error, field: &str, id: &str) -> Failure {
    match error.is_outcome_unknown() {
        true => Failure::from(error).with(field, id),
        false => error.into(),
    }
}
