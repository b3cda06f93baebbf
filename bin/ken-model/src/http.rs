//! HTTP connections to a provider or a collector. Each call blocks a separate thread. Reads wait in slices of a quarter
//! of a second, so that a cancelled call ends soon.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ken_tls::roots;
use ken_types::Error;
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, DefaultConnector, NextTimeout, Transport, time,
};
use ureq::{Agent, Body, BodyReader, RequestBuilder};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a provider may send nothing, both before its answer begins and during the answer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// How often a waiting call checks whether it has been cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The maximum size of an answer that is not streamed, and of the body of an error, in bytes.
const BODY_BYTES: u64 = 16 * 1024 * 1024;
const ERROR_BYTES: u64 = 64 * 1024;

thread_local! {
    /// Whether the call that runs in this thread has been cancelled.
    static CANCELLED: std::cell::RefCell<Arc<AtomicBool>> = std::cell::RefCell::default();
    /// The time at which [`drain`] stops, while it runs in this thread.
    static DRAIN_UNTIL: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
}

/// Makes the calls of one provider, and keeps its connections open between them.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    agent: Agent,
}

impl Http {
    /// Reads its settings from the environment. A provider may send nothing for `KEN_MODEL_TIMEOUT_MS`, or two minutes
    /// if that is not set. The trusted root certificates are those in `SSL_CERT_FILE`, or else those of Mozilla.
    pub(crate) fn from_environment() -> Result<Http, Error> {
        const TIMEOUT: &str = "KEN_MODEL_TIMEOUT_MS";
        let silence = match std::env::var(TIMEOUT) {
            Ok(text) if !text.is_empty() => {
                let wrong = |_| Error::invalid(TIMEOUT, format!("{text:?} is not a number of milliseconds"));
                Duration::from_millis(text.parse().map_err(wrong)?)
            }
            _ => SILENCE_TIMEOUT,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("ken/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(silence))
            .timeout_per_write(Some(silence))
            .tls_config(TlsConfig::builder().root_certs(roots()?).build())
            .build();
        let connector = Cancellable(DefaultConnector::new());
        Ok(Http { agent: Agent::with_parts(config, connector, DefaultResolver::default()) })
    }

    /// Sends a JSON body. Blocks until the head of the response has arrived.
    pub(crate) fn post(&self, url: &str, headers: &[(&str, &str)], body: &str) -> Result<Response<Body>, Error> {
        let fixed = [("content-type", "application/json"), ("accept", "text/event-stream")];
        let request = with_headers(with_headers(self.agent.post(url), &fixed), headers);
        request.send(body).map_err(|error| unreachable(url, error))
    }

    pub(crate) fn get(&self, url: &str, headers: &[(&str, &str)]) -> Result<Response<Body>, Error> {
        let request = with_headers(self.agent.get(url), headers);
        request.call().map_err(|error| unreachable(url, error))
    }
}

fn with_headers<B>(request: RequestBuilder<B>, headers: &[(&str, &str)]) -> RequestBuilder<B> {
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// Makes the call of this thread end when `cancelled` becomes true.
pub(crate) fn cancel_with(cancelled: Arc<AtomicBool>) {
    CANCELLED.with_borrow_mut(|own| *own = cancelled);
}

/// Returns the whole body as text. Fails if it exceeds the limit for its status.
pub(crate) fn text(response: Response<Body>) -> Result<String, Error> {
    let is_answer = response.status().is_success();
    let limit = if is_answer { BODY_BYTES } else { ERROR_BYTES };
    let mut bytes = Vec::new();
    let mut reader = response.into_body().into_reader().take(limit);
    reader.read_to_end(&mut bytes).map_err(broken)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the next bytes of a stream, or none at its end.
pub(crate) fn read<'a>(reader: &mut BodyReader<'static>, buffer: &'a mut [u8]) -> Result<&'a [u8], Error> {
    loop {
        match reader.read(buffer) {
            Ok(length) => return Ok(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(broken(error)),
        }
    }
}

/// Reads the rest of a response whose content is complete, so that the connection can be used again. Stops after a
/// quarter of a second, because a server may keep the response open.
pub(crate) fn drain(reader: &mut BodyReader<'static>) {
    DRAIN_UNTIL.set(Some(Instant::now() + CANCEL_CHECK_INTERVAL));
    _ = std::io::copy(reader, &mut std::io::sink());
    DRAIN_UNTIL.set(None);
}

fn broken(error: std::io::Error) -> Error {
    match ureq::Error::from(error) {
        ureq::Error::Timeout(_) => Error::unavailable("the provider sent nothing for too long"),
        error => Error::unavailable(format!("the connection to the provider broke: {error}")),
    }
}

/// Returns the error for a server that cannot be reached. It names only the host, because a URL can contain secrets.
fn unreachable(url: &str, error: ureq::Error) -> Error {
    let host = url.split('/').nth(2).unwrap_or(url);
    let host = host.rsplit('@').next().unwrap_or(host);
    match error {
        ureq::Error::Timeout(_) => Error::unavailable(format!("{host} did not answer in time")),
        ureq::Error::HostNotFound => Error::unavailable(format!("{host} has no address")),
        ureq::Error::BadUri(_) => Error::invalid("", format!("{host} is not an http or https address")),
        error => Error::unavailable(format!("cannot reach {host}: {error}")),
    }
}

/// A connection whose reads end when the call is cancelled.
#[derive(Debug)]
struct Cancellable<C>(C);

impl<C: Connector<(), Out = Box<dyn Transport>>> Connector<()> for Cancellable<C> {
    type Out = Sliced;

    fn connect(&self, details: &ConnectionDetails<'_>, chained: Option<()>) -> Result<Option<Sliced>, ureq::Error> {
        Ok(self.0.connect(details, chained)?.map(Sliced))
    }
}

/// Waits for input in slices, so that a cancelled call does not wait for a provider that sends nothing.
#[derive(Debug)]
struct Sliced(Box<dyn Transport>);

impl Transport for Sliced {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        let limit = timeout.for_read();
        let until = DRAIN_UNTIL.get().or(match limit.after {
            time::Duration::Exact(after) => Some(Instant::now() + after),
            time::Duration::NotHappening => None,
        });
        loop {
            let is_drained = DRAIN_UNTIL.get().is_some_and(|until| Instant::now() >= until);
            if is_drained || CANCELLED.with_borrow(|own| own.load(Ordering::Relaxed)) {
                return Err(std::io::Error::from(ErrorKind::ConnectionAborted).into());
            }
            let left = until.map_or(CANCEL_CHECK_INTERVAL, |until| {
                until.saturating_duration_since(Instant::now()).min(CANCEL_CHECK_INTERVAL)
            });
            let slice = NextTimeout { after: time::Duration::Exact(left), per_read: None, ..limit };
            match self.0.await_input(slice) {
                Err(ureq::Error::Timeout(_)) if until.is_none_or(|until| Instant::now() < until) => {}
                other => return other,
            }
        }
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}
