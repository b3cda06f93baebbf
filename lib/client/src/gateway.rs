//! The connection to a gateway: requests, responses, and the repetition of requests.

use std::fmt;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ken_types::id::Mint;
use ken_types::{Code, Error, Outcome, json};
use serde_json::Value;
pub use ureq::http::Method;
use ureq::http::{HeaderMap, Request, Response};
use ureq::{Agent, Body};

use crate::endpoint::Endpoint;

/// The maximum size of a response, in bytes. The largest responses of the gateway are pages of a transcript.
const MAX_ANSWER_BYTES: u64 = 64 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The read timeout. It is longer than any pause of a working gateway: a long poll takes 30 s, and a stream has a
/// heartbeat every 15 s.
const READ_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a request is repeated by default.
const RETRY_TIME: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

type Locate = dyn Fn() -> Result<Endpoint, Error> + Send + Sync;
type OnRetry = dyn Fn(&Error, Duration) + Send + Sync;

/// A connection to a gateway. Clones share their connections. The errors of its requests are those of [`Gateway::call`].
#[derive(Clone)]
pub struct Gateway {
    agent: Agent,
    endpoint: Endpoint,
    locate: Arc<Locate>,
    retry_time: Duration,
    notice: Option<Arc<OnRetry>>,
    reach: Arc<Reach>,
}

/// What is known of the address so far.
#[derive(Debug, Default)]
struct Reach {
    has_answered: AtomicBool,
    /// Whether the last connection was refused.
    is_refused: AtomicBool,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Creates a gateway whose address does not change.
    ///
    /// # Errors
    /// None at present. The signature is that of [`Gateway::located`].
    pub fn at(endpoint: Endpoint) -> Result<Gateway, Error> {
        Gateway::located(move || Ok(endpoint.clone()))
    }

    /// Creates a gateway whose address can change with a restart. `locate` is called again before a request is
    /// repeated.
    ///
    /// # Errors
    /// Those of `locate`.
    pub fn located(locate: impl Fn() -> Result<Endpoint, Error> + Send + Sync + 'static) -> Result<Gateway, Error> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(READ_TIMEOUT))
            .proxy(None);
        Ok(Gateway {
            agent: config.build().into(),
            endpoint: locate()?,
            locate: Arc::new(locate),
            retry_time: RETRY_TIME,
            notice: None,
            reach: Arc::default(),
        })
    }

    /// Sets how long a request is repeated before its error is returned. The default is 60 s.
    #[must_use]
    pub fn retry_for(mut self, time: Duration) -> Gateway {
        self.retry_time = time;
        self
    }

    /// Sets a function that is called with the error before a request is repeated, and with the time since its first failure.
    #[must_use]
    pub fn on_retry(mut self, notice: impl Fn(&Error, Duration) + Send + Sync + 'static) -> Gateway {
        self.notice = Some(Arc::new(notice));
        self
    }

    pub fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// Sends a request, and repeats it while its outcome is unknown. It must be a request that may be repeated. It is not
    /// repeated while an address that has never answered refuses connections: a gateway that starts or restarts accepts
    /// them, because its socket is held, so nothing is there that could answer later.
    ///
    /// # Errors
    /// The gateway's own error for a status of 400 and above; `unavailable` if the gateway cannot be reached.
    pub fn call(
        &mut self,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<CompleteResponse, Error> {
        let mut attempts = Attempts::new();
        loop {
            let error = match self.send(method, target, headers, body) {
                Ok(answer) if answer.status < 400 => return Ok(answer),
                Ok(answer) if answer.is_final() => return Err(answer.refusal()),
                Ok(answer) => answer.refusal(),
                Err(error) => error,
            };
            attempts.wait(self, error)?;
        }
    }

    /// Sends a GET request and returns the JSON of the response.
    pub fn get(&mut self, target: &str) -> Result<Value, Error> {
        self.call(&Method::GET, target, &[], &[])?.json()
    }

    /// Sends a DELETE request and returns the JSON of the response.
    pub fn delete(&mut self, target: &str) -> Result<Value, Error> {
        self.call(&Method::DELETE, target, &[], &[])?.json()
    }

    /// Sends a PATCH request and returns the JSON of the response.
    pub fn patch(&mut self, target: &str, body: &Value) -> Result<Value, Error> {
        let headers = [("content-type", "application/json")];
        self.call(&Method::PATCH, target, &headers, body.to_string().as_bytes())?.json()
    }

    /// Sends a POST request and returns the JSON of the response. The request has an `Idempotency-Key` of its own, so that it takes
    /// effect only once, however often it is repeated.
    pub fn post(&mut self, target: &str, body: &Value) -> Result<Value, Error> {
        self.post_with_key(target, &Mint::fresh()?.ulid(), body)
    }

    /// Sends a POST request with this `Idempotency-Key`. The header `Prefer: respond-async` tells the gateway not to wait for
    /// work that it starts.
    pub(crate) fn post_with_key(&mut self, target: &str, key: &str, body: &Value) -> Result<Value, Error> {
        let headers = [("content-type", "application/json"), ("prefer", "respond-async"), ("idempotency-key", key)];
        self.call(&Method::POST, target, &headers, body.to_string().as_bytes())?.json()
    }

    /// Sends one request and returns its response, whatever the status.
    ///
    /// # Errors
    /// `unavailable` if there is no response, `invalid` if the arguments do not form a valid request.
    pub fn send(
        &self,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<CompleteResponse, Error> {
        let response = self.request(method, target, headers, body)?;
        self.read_answer(response)
    }

    /// Sends a POST request and has its response read as it arrives. Repeats both while `read` fails with an error that may pass,
    /// for instance because the response has broken off. It must be a request that may be repeated.
    ///
    /// # Errors
    /// Those of `read`; `unavailable` if the gateway cannot be reached.
    pub fn exchange<T>(
        &mut self,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        mut read: impl FnMut(OpenResponse) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new();
        loop {
            let done = self.request(&Method::POST, target, headers, body).and_then(|response| {
                let (head, body) = response.into_parts();
                let lines = BufReader::new(body.into_reader()).lines();
                read(OpenResponse { status: head.status.as_u16(), headers: head.headers, lines: Box::new(lines) })
            });
            match done {
                Ok(done) => return Ok(done),
                Err(error) => attempts.wait(self, error)?,
            }
        }
    }

    /// Returns the lines of a response as they arrive.
    pub(crate) fn lines(&self, target: &str) -> Result<impl Iterator<Item = io::Result<String>> + use<>, Error> {
        let response = self.request(&Method::GET, target, &[], &[])?;
        match response.status().as_u16() {
            200 => Ok(BufReader::new(response.into_body().into_reader()).lines()),
            _ => Err(self.read_answer(response)?.refusal()),
        }
    }

    /// Sends a request and reads the head of the response.
    fn request(
        &self,
        method: &Method,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response<Body>, Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{target}", self.endpoint.url()));
        let secret = self.endpoint.secret().map(|secret| ("x-api-secret", secret));
        for (name, value) in headers.iter().copied().chain(secret) {
            request = request.header(name, value);
        }
        let wrong = |error| Error::invalid("", format!("not a request: {error}"));
        let sent = if [Method::POST, Method::PUT, Method::PATCH].contains(method) {
            self.agent.run(request.body(body).map_err(wrong)?)
        } else {
            self.agent.run(request.body(()).map_err(wrong)?)
        };
        let is_refused = sent.as_ref().is_err_and(is_refusal);
        self.reach.is_refused.store(is_refused, Ordering::Relaxed);
        if sent.is_ok() {
            self.reach.has_answered.store(true, Ordering::Relaxed);
        }
        sent.map_err(|error| self.unreachable(&error))
    }

    /// Whether nothing listens at the address, and nothing ever has.
    fn is_nobody_there(&self) -> bool {
        self.reach.is_refused.load(Ordering::Relaxed) && !self.reach.has_answered.load(Ordering::Relaxed)
    }

    fn read_answer(&self, response: Response<Body>) -> Result<CompleteResponse, Error> {
        let (head, body) = response.into_parts();
        let body = body.into_with_config().limit(MAX_ANSWER_BYTES).read_to_vec();
        Ok(CompleteResponse {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.map_err(|error| self.unreachable(&error))?,
        })
    }

    fn unreachable(&self, error: &ureq::Error) -> Error {
        let unreachable =
            |why: &dyn fmt::Display| Error::unavailable(format!("cannot reach the gateway at {}: {why}", self.url()));
        if is_refusal(error) {
            return unreachable(&"nothing listens there").hint("`ken up` on that machine starts it");
        }
        unreachable(error).hint("`ken status` shows whether it runs")
    }
}

fn is_refusal(error: &ureq::Error) -> bool {
    matches!(error, ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// The attempts at a request. Their time begins with the first failure: a connection that has died in silence fails only after the read
/// timeout, which is longer.
pub(crate) struct Attempts {
    pause: Duration,
    failing_since: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new() -> Attempts {
        Attempts { pause: FIRST_PAUSE, failing_since: None }
    }

    /// Waits before the next attempt, and locates the gateway again. Returns the error if it is permanent or the time
    /// for attempts has passed.
    pub(crate) fn wait(&mut self, gateway: &mut Gateway, error: Error) -> Result<(), Error> {
        let may_pass = matches!(error.code, Code::Unavailable | Code::Busy | Code::Deadline);
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let left = gateway.retry_time.saturating_sub(since.elapsed());
        if !may_pass || left.is_zero() || gateway.is_nobody_there() {
            return Err(error);
        }
        if let Some(notice) = &gateway.notice {
            notice(&error, since.elapsed());
        }
        let requested_pause = error.retry_after_ms.map_or(Duration::ZERO, Duration::from_millis);
        sleep(self.pause.max(requested_pause).min(left));
        self.pause = MAX_PAUSE.min(self.pause * 2);
        if let Ok(endpoint) = (gateway.locate)() {
            gateway.endpoint = endpoint;
        }
        Ok(())
    }
}

/// A response whose body is read as it arrives.
pub struct OpenResponse {
    pub status: u16,
    headers: HeaderMap,
    /// The lines of the body. An error means that the connection was lost.
    pub lines: Box<dyn Iterator<Item = io::Result<String>>>,
}

impl OpenResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl fmt::Debug for OpenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A complete response.
#[derive(Debug)]
pub struct CompleteResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl CompleteResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns its body.
    ///
    /// # Errors
    /// `invalid` if the body is not JSON.
    pub fn json(&self) -> Result<Value, Error> {
        json::parse_own(&self.body)
    }

    /// Whether it refuses a prompt because no model is configured, or says how a run has failed. Unlike other responses with the same
    /// status, these are permanent.
    fn is_final(&self) -> bool {
        let body = self.json().unwrap_or_default();
        let mut names = ["/reason", "/error/type"].into_iter();
        let lacks_model =
            names.any(|pointer| body.pointer(pointer).and_then(Value::as_str) == Some("model_not_configured"));
        lacks_model || self.status == 502 && body.get("runId").is_some()
    }

    /// Returns the error of a response with a status of 400 and above, in either of the gateway's formats.
    pub fn refusal(&self) -> Error {
        let body = self.json().unwrap_or_default();
        let text = |pointers: [&str; 2]| {
            let mut found = pointers.into_iter().filter_map(|pointer| body.pointer(pointer));
            found.find_map(Value::as_str).map(str::to_owned)
        };
        let message = text(["/error/message", "/error"]);
        let unauthenticated = "give the gateway's API_SECRET: in secrets.env beside ken.toml, in KEN_API_SECRET, \
                               or in a file with --secret-file";
        let hint = (self.status == 401).then(|| unauthenticated.to_owned());
        let seconds = self.header("retry-after").and_then(|text| text.parse::<u64>().ok());
        Error {
            code: code(self.status),
            message: message.unwrap_or_else(|| format!("the gateway answered with {}", self.status)),
            hint: text(["/error/meta/hint", "/hint"]).or(hint),
            at: text(["/error/meta/at", "/at"]),
            retry_after_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
            outcome: text(["/error/meta/outcome", "/outcome"]).map(|_| Outcome::Unknown),
        }
    }
}

/// Returns the code that ken-wire(5) assigns to a status.
fn code(status: u16) -> Code {
    match status {
        401 => Code::Unauthenticated,
        403 => Code::Forbidden,
        404 => Code::NotFound,
        409 => Code::Conflict,
        410 => Code::Gone,
        413 => Code::TooLarge,
        408 | 504 => Code::Deadline,
        429 => Code::Busy,
        499 => Code::Cancelled,
        502 | 503 => Code::Unavailable,
        500.. => Code::Internal,
        _ => Code::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request on a connection that has died in silence fails after the read timeout, when the time for attempts would be over.
    #[test]
    fn the_time_for_attempts_begins_with_the_first_failure() {
        let endpoint = Endpoint::new("http://127.0.0.1:1");
        let mut gateway = Gateway::at(endpoint).unwrap().retry_for(Duration::from_millis(200));
        let mut attempts = Attempts::new();
        sleep(Duration::from_millis(250));
        let failure = || Error::unavailable("timeout: per read");
        assert_eq!(attempts.wait(&mut gateway, failure()), Ok(()));
        sleep(Duration::from_millis(250));
        assert_eq!(attempts.wait(&mut gateway, failure()), Err(failure()));
        let permanent = Error::invalid("/a", "no");
        assert_eq!(Attempts::new().wait(&mut gateway, permanent.clone()), Err(permanent));
    }
}
