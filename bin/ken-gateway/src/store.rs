//! The store as the routes call it, and what a call that failed means for the caller of a route.

use std::time::Duration;

use ken_http::Failure;
use ken_types::ops::Op;
use ken_types::{Code, Error};
use ken_wire::Pool;

/// How long one call to another part may take. It is less than a client's timeout and more than a part's restart.
pub(crate) const CALL: Duration = Duration::from_secs(10);
/// How long to find out what became of a change before its caller is told that this is unknown.
pub(crate) const CHANGE: Duration = Duration::from_secs(30);

/// The store, as routes call it.
#[derive(Debug)]
pub(crate) struct Store(Pool);

impl Store {
    pub(crate) fn new(pool: Pool) -> Store {
        Store(pool)
    }

    /// Reads, or changes what no caller is told of; as [`Pool::call`].
    pub(crate) async fn call<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0
            .call::<O>(args, time)
            .await
            .map_err(deadline_as_unavailable)
    }

    /// Changes, under ids that `args` holds; as [`Pool::change`]. `unavailable` says that nothing was done.
    pub(crate) async fn change<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.change::<O>(args, CALL, time).await.map_err(change_failed)
    }

    /// Changes that have no id, so that asking again could change more: as [`Pool::call`]. `unavailable` says that nothing was
    /// done.
    pub(crate) async fn change_once<O: Op>(&self, args: &O::Args) -> Result<O::Reply, Error> {
        self.0.call::<O>(args, CALL).await.map_err(change_failed)
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0
    }
}

/// A part that does not answer in time is down for the caller: 503. A deadline (504) is that of the caller's own work, or
/// of a change whose outcome is unknown.
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

/// 504 for a change that may have been made; 503 only for one that certainly was not.
pub(crate) fn change_failed(error: Error) -> Error {
    match error.is_outcome_unknown() {
        true => Error {
            code: Code::Deadline,
            hint: Some(
                "a request with an Idempotency-Key can be repeated until its outcome is known".to_owned(),
            ),
            ..error
        },
        false => deadline_as_unavailable(error),
    }
}

/// A failed change, with the id that its caller can look for where the outcome is unknown.
pub(crate) fn failed_change(error: Error, field: &str, id: &str) -> Failure {
    match error.is_outcome_unknown() {
        true => Failure::from(error).with(field, id),
        false => error.into(),
    }
}
