//! The body of error responses: `{"error":{"code","message","at"?,"hint"?,"retry_after_ms"?},"detail":message}`.

use ken_http::Failure;
use ken_types::{Code, Error};
use serde::Serialize;
use serde_json::{Map, Value};

/// Returns the body of an error response. `detail` repeats the message for older clients.
pub(crate) fn envelope(failure: &Failure) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a Error,
        detail: &'a str,
        #[serde(flatten)]
        fields: &'a Map<String, Value>,
    }
    let error = failure.error();
    let body = Body { error, detail: &error.message, fields: failure.fields() };
    // Serialising text, numbers and maps with text keys cannot fail.
    serde_json::to_vec(&body).unwrap_or_default()
}

/// Returns a failure 422: the body is JSON but has a wrong field.
pub(crate) fn unprocessable(error: Error) -> Failure {
    let failure = Failure::from(error);
    match failure.error().code {
        Code::Invalid => failure.status(ken_http::http::StatusCode::UNPROCESSABLE_ENTITY),
        _ => failure,
    }
}
