//! Calls to the other parts, and how their failures are reported to HTTP clients.

use std::time::Duration;

use ken_http::http::header::HeaderValue;
use ken_http::{Failure, Response};
use ken_types::limits::PIECE_BYTES;
use ken_types::ops::Op;
use ken_types::ops::blobs::BlobPiece;
use ken_types::{Code, Error};
use ken_wire::Pool;

use crate::images;

/// The timeout of one call to another part. It is shorter than the timeout of most clients and longer than the restart
/// of a part.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to try to find out whether a change was made, before the client gets the reply that this is unknown.
pub(crate) const CHANGE: Duration = Duration::from_secs(30);

/// Calls to one part for the routes.
#[derive(Debug)]
pub(crate) struct Part(pub(crate) Pool);

impl Part {
    /// Calls an operation that only reads, or whose outcome no client needs; see [`Pool::call`].
    pub(crate) async fn call<O: Op>(&self, args: &O::Args) -> Result<O::Reply, Error> {
        self.call_within::<O>(args, CALL_TIMEOUT).await
    }

    /// As [`Part::call`], with another timeout.
    pub(crate) async fn call_within<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.call::<O>(args, time).await.map_err(deadline_as_unavailable)
    }

    /// Makes a change whose ids are in `args`; see [`Pool::change`]. An `unavailable` error means that nothing was changed.
    pub(crate) async fn change<O: Op>(&self, args: &O::Args) -> Result<O::Reply, Error> {
        self.change_within::<O>(args, CHANGE).await
    }

    /// As [`Part::change`], but tries for `time` to find out whether the change was made.
    pub(crate) async fn change_within<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.change::<O>(args, CALL_TIMEOUT, time).await.map_err(change_failed)
    }

    /// Makes a change that has no id, so that repeating the call could change more; see [`Pool::call`]. An
    /// `unavailable` error means that nothing was changed.
    pub(crate) async fn change_once<O: Op>(&self, args: &O::Args) -> Result<O::Reply, Error> {
        self.change_once_within::<O>(args, CALL_TIMEOUT).await
    }

    /// As [`Part::change_once`], with another timeout.
    pub(crate) async fn change_once_within<O: Op>(&self, args: &O::Args, time: Duration) -> Result<O::Reply, Error> {
        self.0.call::<O>(args, time).await.map_err(change_failed)
    }

    /// Answers with the content of a blob: an image if the blob has the type of one, otherwise text. `piece` returns the arguments of a call
    /// for an offset and a limit. A blob has at most 16 MiB. It is read completely before the answer begins, so that the answer has a
    /// length, and a failure has a status.
    pub(crate) async fn blob<O: Op<Reply = BlobPiece>>(
        &self,
        piece: impl Fn(u64, u32) -> O::Args,
    ) -> Result<Response, Error> {
        let limit = u32::try_from(PIECE_BYTES).unwrap_or(u32::MAX);
        let mut bytes = Vec::new();
        loop {
            let BlobPiece { length, bytes: found, mime_type } =
                self.call::<O>(&piece(bytes.len() as u64, limit)).await?;
            bytes.extend_from_slice(&found.0);
            if found.0.is_empty() || bytes.len() as u64 >= length {
                return Ok(Response::bytes(200, content_type(mime_type.as_deref()), bytes));
            }
        }
    }
}

/// What a browser takes for anything else than an image, it must not display.
fn content_type(image: Option<&str>) -> HeaderValue {
    match image {
        None => HeaderValue::from_static("text/plain; charset=utf-8"),
        Some(image) => {
            let known = images::TYPES.into_iter().find(|known| *known == image);
            HeaderValue::from_static(known.unwrap_or("application/octet-stream"))
        }
    }
}

/// Reports a part that does not reply in time as unavailable (503). The status 504 is reserved for work that exceeded
/// its own time limit, and for changes whose outcome is unknown.
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

/// Returns the error of a failed change: 504 if it may have been made, 503 only if it certainly was not.
pub(crate) fn change_failed(error: Error) -> Error {
    if error.is_outcome_unknown() {
        Error {
            code: Code::Deadline,
            hint: Some("a request with an Idempotency-Key can be repeated until its outcome is known".to_owned()),
            ..error
        }
    } else {
        deadline_as_unavailable(error)
    }
}

/// Returns the failure for a failed change. If its outcome is unknown, the reply contains the id by which the client
/// can look for it.
pub(crate) fn failed_change(error: Error, field: &str, id: &str) -> Failure {
    if error.is_outcome_unknown() { Failure::from(error).with(field, id) } else { error.into() }
}
