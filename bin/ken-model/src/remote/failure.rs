//! Maps the errors of providers to the error codes of the wire. It distinguishes temporary errors, which are retried,
//! permanent ones, and a context that is too long.

use std::time::SystemTime;

use ken_types::{Code, Error};

/// The maximum part of a provider's own message that is shown, in bytes.
const MAX_SHOWN_BYTES: usize = 400;

/// Phrases with which providers report that a context exceeds the model's window. They have no common error code for
/// it.
const OVERFLOW: [&str; 12] = [
    "context_length_exceeded",
    "context length",
    "context window",
    "context limit",
    "context size",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "too many input tokens",
    "exceed_context_size",
    "exceeds the available context",
    "reduce the length of the messages",
];

/// An answer with an error status, or an error event within a stream.
#[derive(Debug)]
pub(super) struct Refusal<'a> {
    /// `provider/model`.
    pub(super) model: &'a str,
    /// The HTTP status; 0 for an error event.
    pub(super) status: u16,
    /// The provider's own type or code, if the body contains one.
    pub(super) kind: &'a str,
    pub(super) message: &'a str,
    pub(super) retry_after_ms: Option<u64>,
}

impl Refusal<'_> {
    /// Returns the error for the wire. `key` is removed from the message, because some providers repeat it there.
    pub(super) fn error(&self, key: Option<&str>) -> Error {
        let code = self.code();
        let status = match self.status {
            0 => self.kind.to_owned(),
            status => status.to_string(),
        };
        let words = clean(self.message, key);
        let message = if words.is_empty() {
            format!("{} answered {status}", self.model)
        } else {
            format!("{} answered {status}: {words}", self.model)
        };
        let mut error = Error::new(code, message);
        let is_temporary = matches!(code, Code::Busy | Code::Unavailable);
        error.retry_after_ms = self.retry_after_ms.filter(|_| is_temporary);
        if code == Code::Unauthenticated {
            error = error.hint("set the key in secrets.env, then `ken restart model`");
        }
        error
    }

    fn code(&self) -> Code {
        let words = format!("{} {}", self.kind, self.message).to_lowercase();
        let overflows = OVERFLOW.iter().any(|words_of| words.contains(words_of));
        match self.status {
            400 | 422 | 500 if overflows => Code::TooLarge,
            // The account has no money left, so waiting does not help.
            429 if self.kind.contains("insufficient_quota") => Code::Forbidden,
            401 => Code::Unauthenticated,
            402 | 403 => Code::Forbidden,
            404 => Code::NotFound,
            408 => Code::Deadline,
            409 | 429 | 529 => Code::Busy,
            413 => Code::TooLarge,
            400..500 => Code::Invalid,
            0 => kind_code(self.kind, overflows),
            _ => Code::Unavailable,
        }
    }
}

/// Returns the code of an error event, which has no HTTP status.
fn kind_code(kind: &str, overflows: bool) -> Code {
    match kind {
        _ if overflows => Code::TooLarge,
        "overloaded_error" | "rate_limit_error" | "rate_limit_exceeded" | "429" | "529" => Code::Busy,
        "authentication_error" | "401" => Code::Unauthenticated,
        "permission_error" | "billing_error" | "403" => Code::Forbidden,
        "not_found_error" | "404" => Code::NotFound,
        "invalid_request_error" | "400" => Code::Invalid,
        "timeout_error" => Code::Deadline,
        _ => Code::Unavailable,
    }
}

/// Returns the message on one line, shortened, and without the key and control characters.
fn clean(words: &str, key: Option<&str>) -> String {
    // First the key, because a part of it could remain where the text is cut.
    let words = match key.filter(|key| key.len() >= 4) {
        Some(key) => words.replace(key, "[redacted]"),
        None => words.to_owned(),
    };
    let line = ken_text::head(&words, 4 * MAX_SHOWN_BYTES).replace(char::is_control, " ");
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = ken_text::head(&line, MAX_SHOWN_BYTES);
    if cut.len() < line.len() { format!("{cut}…") } else { line }
}

/// The longest wait that is passed on, in milliseconds.
const LONGEST_PAUSE_MS: f64 = 86_400_000.0;

/// Returns the wait that `retry-after-ms` requests, or `Retry-After` in seconds or as a date (RFC 9110, section
/// 10.2.3). A date in the past means no wait.
pub(super) fn retry_after_ms(header: impl Fn(&str) -> Option<String>, now: SystemTime) -> Option<u64> {
    let number = |name: &str| {
        let number: f64 = header(name)?.trim().parse().ok()?;
        (number >= 0.0).then_some(number)
    };
    let until = || {
        let date = httpdate::parse_http_date(header("retry-after")?.trim()).ok()?;
        Some(date.duration_since(now).unwrap_or_default().as_secs_f64())
    };
    let seconds = || number("retry-after").or_else(until);
    let ms = number("retry-after-ms").or_else(|| Some(seconds()? * 1_000.0))?;
    Some(ms.min(LONGEST_PAUSE_MS) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(status: u16, kind: &str, message: &str) -> Error {
        let refusal = Refusal { model: "openai/m", status, kind, message, retry_after_ms: Some(3_000) };
        refusal.error(Some("sk-secret"))
    }

    #[test]
    fn each_status_has_its_code() {
        for (status, kind, message, code) in [
            (400, "", "bad", Code::Invalid),
            (400, "context_length_exceeded", "", Code::TooLarge),
            (400, "invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum", Code::TooLarge),
            (401, "", "", Code::Unauthenticated),
            (402, "", "", Code::Forbidden),
            (403, "", "", Code::Forbidden),
            (404, "", "", Code::NotFound),
            (408, "", "", Code::Deadline),
            (409, "", "", Code::Busy),
            (413, "", "", Code::TooLarge),
            (422, "", "", Code::Invalid),
            (429, "", "", Code::Busy),
            (429, "insufficient_quota", "", Code::Forbidden),
            (500, "", "", Code::Unavailable),
            (500, "", "the request exceeds the available context size", Code::TooLarge),
            (500, "server_error", "This model's maximum context length is 4096 tokens", Code::TooLarge),
            (502, "", "", Code::Unavailable),
            (503, "", "", Code::Unavailable),
            (504, "", "", Code::Unavailable),
            (529, "", "", Code::Busy),
            (0, "overloaded_error", "", Code::Busy),
            (0, "api_error", "", Code::Unavailable),
            (0, "invalid_request_error", "", Code::Invalid),
        ] {
            assert_eq!(error(status, kind, message).code, code, "{status} {kind} {message}");
        }
    }

    #[test]
    fn the_words_hold_neither_the_key_nor_control_characters() {
        let error = error(401, "", "Incorrect key sk-secret\u{1b}[2J\nprovided");
        assert_eq!(error.message, "openai/m answered 401: Incorrect key [redacted] [2J provided");
        assert!(error.hint.is_some() && error.retry_after_ms.is_none());
    }

    #[test]
    fn every_occurrence_of_the_key_is_removed() {
        let message = |words: &str| error(401, "", words).message;
        assert_eq!(message("sk-secret, sk-secret").matches("[redacted]").count(), 2);
        assert!(!message("use sk-secret or sk-secretsk-secret").contains("sk-secret"));
        // The text is cut within the key.
        let long = format!("{}sk-secret", " ".repeat(4 * MAX_SHOWN_BYTES - 4));
        assert!(!message(&long).contains("sk-s"), "{}", message(&long));
    }

    #[test]
    fn the_wait_that_a_provider_asks_for_is_read() {
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_792_567_650); // 21 October 2026, 07:27:30
        let of = |name: &'static str, value: &'static str| {
            retry_after_ms(|header| (header == name).then(|| value.to_owned()), now)
        };
        assert_eq!(of("retry-after", "7"), Some(7_000));
        assert_eq!(of("retry-after", "0.5"), Some(500));
        assert_eq!(of("retry-after-ms", "250"), Some(250));
        assert_eq!(of("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), Some(30_000));
        assert_eq!(of("retry-after", "Wednesday, 21-Oct-26 07:28:00 GMT"), Some(30_000));
        assert_eq!(of("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"), Some(0));
        assert_eq!(of("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT"), Some(86_400_000));
        for text in ["-1", "soon", "Wed, 21 Oct 2026 07:28:00", "Wed, 32 Oct 2026 07:28:00 GMT", "NaN"] {
            assert_eq!(of("retry-after", text), None, "{text}");
        }
    }
}
