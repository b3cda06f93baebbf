//! Providers over the network: OpenAI-compatible chat completions and Anthropic messages. Each call runs in a separate
//! thread, which sends its deltas through a channel.

mod anthropic;
mod conversation;
mod embeddings;
mod failure;
mod format;
mod openai;
mod stream;
mod thought;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ken_types::event::ModelName;
use ken_types::ops::model::{Delta, Generate};
use ken_types::{Code, Error};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::generate::{MAX_ANSWER_BYTES, too_long};
use crate::http::{self, Caller, END_TIMEOUT, Http};
use crate::prices::{Model, price, rates};
use crate::provider::{Completion, DeltaSink, Pending, Provider, Rates, Window, full_name};
use crate::usage::{delta_bytes, estimate, request_tokens, thought_tokens};
use conversation::without_images_of_tools;
use failure::{Refusal, retry_after_ms};
use format::{Broken, Ended};
use stream::Stream;

/// The maximum number of simultaneous calls of one provider.
const AT_ONCE: usize = 64;
/// The maximum number of deltas that wait for the caller.
const WAITING: usize = 64;
/// The bytes per token that `estimated_tokens` assumes.
const ESTIMATED_BYTES: u64 = 4;
/// The maximum average number of bytes per token in a text. Current vocabularies reach ten, in scripts with three bytes
/// per letter.
const MAX_TOKEN_BYTES: u64 = 12;

/// The wire formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenAi,
    Anthropic,
}

impl Format {
    pub(crate) fn provider(self) -> &'static str {
        match self {
            Format::OpenAi => "openai",
            Format::Anthropic => "anthropic",
        }
    }

    fn api(self) -> &'static str {
        match self {
            Format::OpenAi => openai::API,
            Format::Anthropic => anthropic::API,
        }
    }

    /// Returns the URL of the public service, and the names of the settings that give another URL and the key.
    fn settings(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Format::OpenAi => ("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
            Format::Anthropic => ("https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
        }
    }
}

/// The address and the key of a provider.
#[derive(Clone)]
pub(crate) struct Endpoint {
    format: Format,
    /// The address, without a slash at its end.
    base: String,
    key: Option<String>,
    http: Http,
}

impl std::fmt::Debug for Endpoint {
    /// Leaves out the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint. `setting` returns the value of a setting, including the key.
    pub(crate) fn new(format: Format, setting: impl Fn(&str) -> Option<String>) -> Result<Endpoint, Error> {
        let (public, base, key) = format.settings();
        let given = setting(base);
        let base_url = given.as_deref().unwrap_or(public).trim().trim_end_matches('/').to_owned();
        if !base_url.starts_with("http://") && !base_url.starts_with("https://") {
            return Err(Error::invalid(base, "it is not an http or https address"));
        }
        let base_url = match format {
            // Users write the address with and without `/v1`. The path of the API, which is added later, contains it.
            Format::Anthropic => base_url.trim_end_matches("/v1").to_owned(),
            Format::OpenAi => base_url,
        };
        Ok(Endpoint {
            format,
            base: base_url,
            key: setting(key).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty()),
            http: Http::from_environment()?,
        })
    }

    /// Returns why the endpoint cannot be called, or `None` if it can. A server other than the public service may need
    /// no key.
    fn missing_key(&self) -> Option<String> {
        let (_, _, key) = self.format.settings();
        (self.key.is_none() && self.is_public()).then(|| format!("{key} is not set"))
    }

    /// Whether it is the public service of the company that defined the format.
    fn is_public(&self) -> bool {
        let (public, ..) = self.format.settings();
        self.base == public.trim_end_matches('/')
    }

    fn url(&self, path: &str) -> String {
        match self.format {
            Format::OpenAi => format!("{}/{path}", self.base),
            Format::Anthropic => format!("{}/v1/{path}", self.base),
        }
    }

    /// Returns the headers that contain the key.
    fn headers(&self) -> Vec<(&'static str, String)> {
        match self.format {
            Format::OpenAi => self.key.iter().map(|key| ("authorization", format!("Bearer {key}"))).collect(),
            Format::Anthropic => {
                let key = self.key.iter().map(|key| ("x-api-key", key.clone()));
                key.chain([("anthropic-version", "2023-06-01".to_owned())]).collect()
            }
        }
    }

    /// Sends a JSON body. Blocks until the head of the response has arrived.
    fn post(&self, caller: &Caller, path: &str, body: &str) -> Result<ureq::http::Response<ureq::Body>, Error> {
        let mut headers = self.headers();
        headers.push(("content-type", "application/json".to_owned()));
        headers.push(("accept", "text/event-stream".to_owned()));
        caller.post(&self.url(path), &headers, body.as_bytes())
    }

    /// Returns the models that the provider offers. Blocks.
    pub(crate) fn list(&self) -> Result<Vec<String>, Error> {
        if let Some(why) = self.missing_key() {
            return Err(Error::new(Code::Unauthenticated, why));
        }
        let connection = self.http.connection();
        let response = connection.caller().get(&self.url("models"), &self.headers())?;
        let who = self.format.provider();
        let text = http::text(self.accepted(who, response)?)?;
        connection.keep();
        let body: Value = serde_json::from_str(&text)
            .map_err(|error| Error::unavailable(format!("{who} sent a list that is not understood: {error}")))?;
        let models = body.get("data").and_then(Value::as_array).into_iter().flatten();
        let ids = models.filter_map(|model| model.get("id")?.as_str().map(str::to_owned));
        Ok(ids.collect())
    }

    /// Returns the response if its status is a success.
    fn accepted(
        &self,
        model: &str,
        response: ureq::http::Response<ureq::Body>,
    ) -> Result<ureq::http::Response<ureq::Body>, Error> {
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(response);
        }
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let retry_after_ms = retry_after_ms(header, SystemTime::now());
        let text = http::text(response).unwrap_or_default();
        let body = serde_json::from_str(&text).unwrap_or(Value::Null);
        let (kind, message) = error_words(&body);
        let refusal = Refusal {
            model,
            status,
            kind: &kind,
            message: if message.is_empty() { &text } else { &message },
            retry_after_ms,
        };
        Err(refusal.error(self.key.as_deref()))
    }

    /// Returns the error for a stream that cannot be read further.
    fn broken(&self, model: &str, broken: Broken) -> Error {
        match broken {
            Broken::Failed(error) => Error { message: format!("{model}: {}", error.message), ..error },
            Broken::Reported(body) => {
                let (kind, message) = error_words(&body);
                let refusal = Refusal { model, status: 0, kind: &kind, message: &message, retry_after_ms: None };
                refusal.error(self.key.as_deref())
            }
        }
    }
}

/// Returns type (or code) and message of an error. Servers send it in three forms: `{"error":{…}}`, the inner object
/// alone, or a text.
fn error_words(body: &Value) -> (String, String) {
    let error = body.get("error").unwrap_or(body);
    let word = |name: &str| match error.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let code = word("code");
    let kind = if code.is_empty() { word("type") } else { code };
    let message = error.as_str().map_or_else(|| word("message"), str::to_owned);
    (kind, message)
}

/// A model of a provider.
#[derive(Debug)]
pub(crate) struct Remote {
    name: ModelName,
    endpoint: Endpoint,
    model: Model,
    room: Arc<Semaphore>,
    /// The time at which the provider refused the key, if no call has succeeded since.
    refused: Mutex<Option<Instant>>,
}

const REFUSED_KEY: &str = "the provider refused the key";

/// How long a model is reported as unusable after its key was refused. After that it is tried again.
const REFUSED_PERIOD: Duration = Duration::from_secs(60);

impl Remote {
    pub(crate) fn new(name: &str, endpoint: Endpoint, model: Model) -> Remote {
        Remote {
            name: ModelName { provider: endpoint.format.provider().to_owned(), id: name.to_owned() },
            endpoint,
            model,
            room: Arc::new(Semaphore::new(AT_ONCE)),
            refused: Mutex::default(),
        }
    }

    /// Returns an error if a request certainly exceeds a known context window: even without its thoughts, and with
    /// [`MAX_TOKEN_BYTES`] per token. Such a request is not sent, because some servers would truncate it without an error.
    fn overflow(&self, request: &Generate) -> Option<Error> {
        if !self.model.has_known_window {
            return None;
        }
        let tokens = request_tokens(request) - thought_tokens(request);
        let window = self.model.window;
        let fits = tokens * ESTIMATED_BYTES / MAX_TOKEN_BYTES <= window;
        (!fits).then(|| {
            let model = full_name(self);
            Error::too_large(format!(
                "{model}: the request has about {tokens} tokens, and the context window has {window}"
            ))
        })
    }

    async fn call(&self, request: &Generate, sink: &dyn DeltaSink) -> Result<Completion, Error> {
        if let Some(error) = self.overflow(request) {
            return Err(error);
        }
        let permit = Arc::clone(&self.room).try_acquire_owned();
        let permit = permit.map_err(|_| {
            let message = format!("{AT_ONCE} calls to {} are under way", self.name.provider);
            Error::busy(message, 1_000)
        })?;
        let (deltas, mut received) = mpsc::channel(WAITING);
        let connection = self.endpoint.http.connection();
        let call = Call {
            model: full_name(self),
            endpoint: self.endpoint.clone(),
            caller: connection.caller(),
            body: self.body(request).to_string(),
            deltas,
        };
        let mut running = tokio::task::spawn_blocking(move || {
            let ended = call.run();
            drop(permit);
            ended
        });
        while let Some(delta) = received.recv().await {
            sink.send(delta).await?;
        }
        // After the last delta, the call only reads the end of the response.
        let ended = match timeout(END_TIMEOUT, &mut running).await {
            Ok(ended) => {
                connection.keep();
                ended
            }
            Err(_) => {
                drop(connection);
                running.await
            }
        };
        let ended =
            ended.map_err(|error| Error::internal(format!("a call to a provider ended without an answer: {error}")))?;
        self.note(&ended);
        let (ended, output_bytes) = ended?;
        let mut usage = ended.usage.unwrap_or_else(|| estimate(request, (output_bytes as u64).div_ceil(4)));
        usage.cost = price(&self.model, &usage);
        Ok(Completion { stop_reason: ended.stop_reason, usage })
    }

    fn body(&self, request: &Generate) -> Value {
        let blind = if self.model.images { None } else { without_images_of_tools(request) };
        let request = blind.as_ref().unwrap_or(request);
        let mut body = match self.endpoint.format {
            Format::OpenAi => {
                let mut body = openai::body(&self.name.id, request);
                if let Some(max) = request.max_output {
                    // OpenAI's newer models refuse the older name. Many other servers know only the older name.
                    let name = match self.endpoint.is_public() {
                        true => "max_completion_tokens",
                        false => "max_tokens",
                    };
                    body[name] = json!(max);
                }
                // It has the calls of one conversation go to the same servers, where the cache is. Other servers may refuse it.
                if let Some(session) = request.session.as_ref().filter(|_| self.endpoint.is_public()) {
                    body["prompt_cache_key"] = json!(session);
                }
                body
            }
            Format::Anthropic => {
                let max = request.max_output.unwrap_or(u64::MAX).min(self.model.output);
                anthropic::body(&self.name.id, request, max)
            }
        };
        if let Some(temperature) = request.temperature {
            body["temperature"] = json!(temperature);
        }
        body
    }

    /// Records whether the key was refused, for `model.info`.
    fn note<T>(&self, ended: &Result<T, Error>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Ok(_) => *refused = None,
            Err(error) if error.code == Code::Unauthenticated => {
                if refused.replace(Instant::now()).is_none() {
                    tracing::warn!(model = self.name.id, "model not configured: {REFUSED_KEY}");
                }
            }
            Err(_) => {}
        }
    }
}

impl Provider for Remote {
    fn api(&self) -> &'static str {
        self.endpoint.format.api()
    }

    fn name(&self) -> &ModelName {
        &self.name
    }

    fn window(&self) -> Window {
        Window { tokens: self.model.window, reserve: self.model.output.min(self.model.window / 4) }
    }

    fn rates(&self) -> Rates {
        rates(&self.model)
    }

    fn unusable(&self) -> Option<String> {
        let refused = *self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_refused = refused.is_some_and(|refused| refused.elapsed() < REFUSED_PERIOD);
        self.endpoint.missing_key().or_else(|| is_refused.then(|| REFUSED_KEY.to_owned()))
    }

    fn answer<'a>(&'a self, request: &'a Generate, sink: &'a dyn DeltaSink) -> Pending<'a, Result<Completion, Error>> {
        Box::pin(self.call(request, sink))
    }
}

/// One call, which runs in a separate thread.
struct Call {
    /// The model, as `provider/model`.
    model: String,
    endpoint: Endpoint,
    caller: Caller,
    body: String,
    deltas: mpsc::Sender<Delta>,
}

impl Call {
    /// Returns how the answer ended, and the number of bytes that were passed on.
    fn run(self) -> Result<(Ended, usize), Error> {
        let (path, mut stream) = match self.endpoint.format {
            Format::OpenAi => ("chat/completions", Stream::openai()),
            Format::Anthropic => ("messages", Stream::anthropic()),
        };
        let broken = |broken| self.endpoint.broken(&self.model, broken);
        let response = self.endpoint.post(&self.caller, path, &self.body)?;
        let response = self.endpoint.accepted(&self.model, response)?;
        let mut reader = response.into_body().into_reader();
        let mut buffer = vec![0; 16 * 1024];
        let mut passed = 0;
        while !stream.is_complete() {
            let bytes = http::read(&mut reader, &mut buffer).map_err(|error| broken(Broken::Failed(error)))?;
            if bytes.is_empty() {
                break;
            }
            let mut deltas = Vec::new();
            let pushed = stream.push(bytes, &mut deltas);
            self.pass(deltas, &mut passed)?;
            pushed.map_err(broken)?;
            let held = stream.held_bytes();
            if held > 0 && passed + held > MAX_ANSWER_BYTES {
                return Err(too_long());
            }
        }
        let Some((deltas, ended)) = stream.end().map_err(broken)? else {
            let message = format!("{}: the stream ended before the answer was complete", self.model);
            return Err(Error::unavailable(message));
        };
        self.pass(deltas, &mut passed)?;
        // Whoever waits for the answer learns that it is complete, and gives the end of the response only a short time.
        drop(self.deltas);
        http::drain(&mut reader);
        Ok((ended, passed))
    }

    fn pass(&self, deltas: Vec<Delta>, passed: &mut usize) -> Result<(), Error> {
        for delta in deltas {
            *passed += delta_bytes(&delta);
            if self.deltas.blocking_send(delta).is_err() {
                return Err(Error::new(Code::Cancelled, "nobody waits for the answer any more"));
            }
        }
        Ok(())
    }
}
