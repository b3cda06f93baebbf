//! Errors in the form of the original: `{"error": {"message", "type", "param", "code"}}`.

use ken_http::Failure;
use ken_http::http::StatusCode;
use ken_http::http::header::{HeaderName, HeaderValue};
use ken_types::{Code, Error};
use serde_json::{Value, json};

/// Tells the libraries of OpenAI not to repeat a request that has an answer, although that is an error.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The envelope of all errors below `/v1`.
pub(crate) fn envelope(failure: &Failure) -> Vec<u8> {
    body(failure).to_string().into_bytes()
}

/// Returns the error as it stands in a response, or in a stream that has begun.
pub(super) fn body(failure: &Failure) -> Value {
    let error = failure.error();
    let message = match &error.hint {
        Some(hint) => format!("{} ({hint})", error.message),
        None => error.message.clone(),
    };
    let (kind, code) = kind_and_code(failure);
    let param = error.at.as_deref().and_then(param);
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

fn kind_and_code(failure: &Failure) -> (&'static str, Value) {
    let invalid = "invalid_request_error";
    match (failure.code_name(), failure.status_code().as_u16()) {
        (Some(code), status) => (if status < 500 { invalid } else { "server_error" }, json!(code)),
        (None, 401) => (invalid, json!("invalid_api_key")),
        (None, 413) => (invalid, json!("request_too_large")),
        (None, 429) => ("requests", json!("rate_limit_exceeded")),
        (None, 500..) => ("server_error", Value::Null),
        (None, _) => (invalid, Value::Null),
    }
}

/// Returns the parameter that an error is about, as in `messages[0].content`. The place is a JSON pointer, `?name`, or a header.
fn param(at: &str) -> Option<String> {
    let Some(pointer) = at.strip_prefix('/') else {
        let name = at.trim_start_matches('?');
        return (!name.is_empty()).then(|| name.to_owned());
    };
    let mut param = String::new();
    for segment in pointer.split('/') {
        let segment = segment.replace("~1", "/").replace("~0", "~");
        match segment.parse::<u32>() {
            Ok(index) => param.push_str(&format!("[{index}]")),
            Err(_) if param.is_empty() => param = segment,
            Err(_) => param = format!("{param}.{segment}"),
        }
    }
    Some(param)
}

/// The refusal of a parameter that cannot be done here.
pub(super) fn unsupported(at: String, message: impl Into<String>) -> Failure {
    Failure::from(Error::invalid(at, message)).code("unsupported_parameter")
}

/// The failure of a turn, which another request would not mend.
pub(super) fn of_turn(failure: Failure) -> Failure {
    failure.header(SHOULD_RETRY, HeaderValue::from_static("false"))
}

pub(super) fn unknown_model(name: &str) -> Failure {
    let message = format!("The model `{name}` does not exist or you do not have access to it.");
    let failure = Failure::new(StatusCode::NOT_FOUND, Code::NotFound, message).at("/model").code("model_not_found");
    failure.hint("GET /v1/models lists the models")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_the_original() {
        let failure = unsupported("/messages/3/content/0".into(), "no images");
        let expected = json!({"error": {"message": "no images", "type": "invalid_request_error",
            "param": "messages[3].content[0]", "code": "unsupported_parameter"}});
        assert_eq!(body(&failure), expected);
        for (at, name) in [("", None), ("/n", Some("n")), ("?after", Some("after")), ("/a~1b/0", Some("a/b[0]"))] {
            assert_eq!(param(at).as_deref(), name, "{at}");
        }
        for (failure, kind, code) in [
            (Failure::from(Error::busy("full", 1_000)), "requests", json!("rate_limit_exceeded")),
            (Failure::from(Error::unavailable("down")), "server_error", Value::Null),
            (Failure::from(Error::new(Code::Unauthenticated, "no")), "invalid_request_error", json!("invalid_api_key")),
        ] {
            assert_eq!(kind_and_code(&failure), (kind, code));
        }
    }
}
