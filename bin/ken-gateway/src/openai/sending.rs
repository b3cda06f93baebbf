//! What all answers have in common: their headers, and the note that they were sent to their end.

use ken_http::http::header::HeaderValue;
use ken_http::{Failure, Response};
use serde_json::Value;

use super::accept::delivered;
use super::turn::Turn;

const IGNORED: &str = "x-ken-ignored";

/// Names the parameters of a request that have no effect. `shortened` says that a new session lacks the oldest messages.
pub(super) fn named_ignored(
    response: Response,
    mut ignored: Vec<String>,
    shortened: bool,
) -> Result<Response, Failure> {
    if shortened {
        ignored.push("messages (the oldest)".to_owned());
    }
    if ignored.is_empty() { Ok(response) } else { response.text_header(IGNORED, &ignored.join(", ")) }
}

/// Returns a response with a whole answer. It is sent as a stream, which tells when it has been sent to its end.
pub(super) fn sent_whole(turn: Turn, body: &Value) -> Response {
    let body = body.to_string();
    Response::stream(200, HeaderValue::from_static("application/json"), |mut frames| async move {
        frames.send(body).await;
        delivered(&turn.gateway, &turn.event).await;
    })
}
