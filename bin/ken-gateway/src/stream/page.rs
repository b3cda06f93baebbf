//! One page of a stream, read from the store.

use std::time::Duration;

use bytes::Bytes;
use ken_http::Failure;
use ken_types::Code;
use ken_types::ops::store::{ReadStream, StreamPage, StreamsRead};

use super::subject::Subject;
use crate::part::{CALL_TIMEOUT, Part};

/// How long to wait before the next attempt while the store restarts.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

pub(crate) async fn page(store: &Part, subject: &Subject, args: &ReadStream) -> Result<StreamPage, Failure> {
    let time = CALL_TIMEOUT + Duration::from_millis(args.wait_ms);
    let page = store.call_within::<StreamsRead>(args, time).await;
    page.map_err(|error| match error.code {
        Code::NotFound if error.at.as_deref() == Some("/offset") => Subject::too_old(error),
        Code::NotFound => subject.missing(),
        Code::Conflict | Code::Gone => Subject::gone(error),
        _ => error.into(),
    })
}

/// Returns the entries as one JSON array, or their bytes joined.
pub(crate) fn body(page: &mut StreamPage) -> Bytes {
    let bytes = page.public.as_mut().and_then(|public| public.bytes.take());
    match bytes {
        Some(bytes) => bytes.0.into(),
        // The entries are JSON already, so this cannot fail.
        None => serde_json::to_vec(&page.entries).unwrap_or_default().into(),
    }
}
