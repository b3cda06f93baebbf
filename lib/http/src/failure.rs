//! Error responses: the error, its status, and how its body is written.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use ken_types::{Code, Error};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// An error response: a [`ken_types::Error`] with the fields that only HTTP has.
///
/// Every `Error` turns into one with `?`; its status is the code's unless [`Failure::status`] says otherwise.
#[derive(Debug, Clone)]
pub struct Failure(Box<FailureFields>);

#[derive(Debug, Clone)]
struct FailureFields {
    error: Error,
    status: StatusCode,
    kind: Option<&'static str>,
    code: Option<&'static str>,
    fields: Map<String, Value>,
    headers: HeaderMap,
    close: bool,
    common: bool,
}

/// Writes the body of an error response. Each area of the route table has one.
pub type Envelope = fn(&Failure) -> Vec<u8>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = StatusCode::from_u16(error.code.http_status());
        let outcome = error.outcome.map(|outcome| ("outcome".to_owned(), json!(outcome)));
        Failure(Box::new(FailureFields {
            status: status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            error,
            kind: None,
            code: None,
            fields: outcome.into_iter().collect(),
            headers: HeaderMap::new(),
            close: false,
            common: false,
        }))
    }
}

impl Failure {
    /// An error with a status that no error code maps to (405, 408, 410, 415, 431, 502, …).
    pub fn new(status: StatusCode, code: Code, message: impl Into<String>) -> Failure {
        Failure::from(Error::new(code, message)).status(status)
    }

    /// 408: the request arrived too slowly.
    pub fn too_slow(message: &str) -> Failure {
        Failure::new(StatusCode::REQUEST_TIMEOUT, Code::Deadline, message).closing().common()
    }

    /// 415.
    pub(crate) fn media_type(message: &str) -> Failure {
        Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Code::Invalid, message).at("content-type")
    }

    pub fn status(mut self, status: StatusCode) -> Failure {
        self.0.status = status;
        self
    }

    /// Sets the `type` of the typed envelope, if it is not that of the status.
    pub fn kind(mut self, kind: &'static str) -> Failure {
        self.0.kind = Some(kind);
        self
    }

    /// Sets the `code` of the plain envelope, for codes that only the HTTP contract has.
    pub fn code(mut self, code: &'static str) -> Failure {
        self.0.code = Some(code);
        self
    }

    /// Sets the place of the error: a JSON pointer, `?name` or the name of a header.
    pub fn at(mut self, at: impl Into<String>) -> Failure {
        self.0.error.at = Some(at.into());
        self
    }

    /// Sets the hint, which says what to do about the error.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.0.error.hint = Some(hint.into());
        self
    }

    /// Adds a field: to the body in the plain envelope, to `meta` in the typed one.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Failure {
        self.0.fields.insert(name.to_owned(), value.into());
        self
    }

    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Failure {
        self.0.headers.insert(name, value);
        self
    }

    /// Closes the connection after the response.
    pub fn closing(mut self) -> Failure {
        self.0.close = true;
        self
    }

    /// Marks an error of the listener, which has the plain envelope in every area.
    pub fn common(mut self) -> Failure {
        self.0.common = true;
        self
    }

    pub fn error(&self) -> &Error {
        &self.0.error
    }

    pub fn status_code(&self) -> StatusCode {
        self.0.status
    }

    /// The fields added by [`Failure::with`].
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0.fields
    }

    /// The `code` that was set, if it is not that of the error.
    pub fn code_name(&self) -> Option<&'static str> {
        self.0.code
    }

    pub(crate) fn closes(&self) -> bool {
        self.0.close
    }

    /// The body of the response, in the envelope of an area or in the common one. For a defect it contains only the request id,
    /// which the line in the log has too.
    pub fn body(&self, envelope: Envelope, request_id: &str) -> Vec<u8> {
        if self.error().code != Code::Internal {
            return self.written(envelope);
        }
        let mut hidden = self.clone();
        hidden.0.error.message = format!("internal error; see the log line of request {request_id}");
        hidden.0.error.hint = None;
        hidden.0.error.at = None;
        hidden.written(envelope)
    }

    fn written(&self, envelope: Envelope) -> Vec<u8> {
        if self.0.common { plain(self) } else { envelope(self) }
    }

    /// Undoes [`Failure::common`], for a listener with one envelope everywhere.
    pub(crate) fn of_area(mut self) -> Failure {
        self.0.common = false;
        self
    }

    /// The headers that were added to this error.
    pub fn headers(&self) -> &HeaderMap {
        &self.0.headers
    }
}

/// The `type` that each status has in agents-and-streams' table of errors.
fn kind_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "invalid_request",
        401 => "unauthenticated",
        403 => "forbidden",
        404 => "route_not_found",
        405 => "method_not_allowed",
        408 | 504 => "deadline",
        409 => "conflict",
        410 => "stream_gone",
        413 | 431 => "payload_too_large",
        415 => "unsupported_media_type",
        429 => "queue_full",
        499 => "cancelled",
        502 | 503 => "unavailable",
        _ => "internal_error",
    }
}

/// `{"error","code","at"?,"hint"?,"retry_after_ms"?,…fields}`.
pub fn plain(failure: &Failure) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        error: &'a str,
        code: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
        #[serde(flatten)]
        fields: &'a Map<String, Value>,
    }
    let error = failure.error();
    written(&Body {
        error: &error.message,
        code: failure.0.code.unwrap_or_else(|| error.code.name()),
        at: error.at.as_deref(),
        hint: error.hint.as_deref(),
        retry_after_ms: error.retry_after_ms,
        fields: failure.fields(),
    })
}

/// `{"error":{"type","message","details","meta"}}`; `meta` holds the fields, and `at` where there is one.
pub fn typed(failure: &Failure) -> Vec<u8> {
    let error = failure.error();
    let mut meta = failure.fields().clone();
    if let Some(at) = &error.at {
        meta.entry("at").or_insert_with(|| at.as_str().into());
    }
    written(&serde_json::json!({"error": {
        "type": failure.0.kind.unwrap_or_else(|| kind_of(failure.0.status)),
        "message": error.message,
        "details": error.hint.as_deref().unwrap_or_default(),
        "meta": meta,
    }}))
}

fn written(body: &impl Serialize) -> Vec<u8> {
    // Serialising text, numbers and maps with text keys cannot fail.
    serde_json::to_vec(body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_body() {
        let failure = Failure::from(Error::invalid("/text", "text is missing")).with("eventId", "tui:1");
        let text = String::from_utf8(plain(&failure)).unwrap();
        assert_eq!(text, r#"{"error":"text is missing","code":"invalid","at":"/text","eventId":"tui:1"}"#);
    }

    #[test]
    fn a_defect_names_only_its_log_line() {
        let defect = Failure::from(Error::internal("inside out").at("/x").hint("look inside"));
        for envelope in [plain as Envelope, typed] {
            let text = String::from_utf8(defect.body(envelope, "01K2")).unwrap();
            assert!(text.contains("01K2") && !text.contains("inside") && !text.contains("/x"), "{text}");
        }
    }

    #[test]
    fn an_unknown_outcome_is_reported_in_both_envelopes() {
        let failure = Failure::from(Error::deadline("too late").outcome_unknown());
        let body = |envelope: Envelope| serde_json::from_slice::<Value>(&envelope(&failure)).unwrap();
        assert_eq!(body(plain)["outcome"], "unknown");
        assert_eq!(body(typed)["error"]["meta"]["outcome"], "unknown");
    }

    #[test]
    fn the_typed_body() {
        let failure = Failure::from(Error::not_found("No stream x.")).kind("stream_not_found");
        let body: Value = serde_json::from_slice(&typed(&failure)).unwrap();
        let expected = serde_json::json!({"error":
            {"type": "stream_not_found", "message": "No stream x.", "details": "", "meta": {}}});
        assert_eq!(body, expected);
    }
}
