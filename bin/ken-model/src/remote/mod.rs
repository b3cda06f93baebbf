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

pub(crate) use format::arguments;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ken_types::event::ModelName;
use ken_types::ops::model::{Delta, Generate};
use ken_types::providers::{CallOptions, Kind, Providers, resolve, secret_name};
use ken_types::uri::host_of;
use ken_types::{Code, Error};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::breaker::{Breakers, Failed, Fault};
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
const MAX_CALLS: usize = 64;
/// The maximum number of deltas that wait for the caller.
const MAX_WAITING: usize = 64;
/// The bytes per token that `estimated_tokens` assumes.
const ESTIMATED_BYTES: u64 = 4;
/// The maximum average number of bytes per token in a text. Current vocabularies reach ten, in scripts with three bytes
/// per letter.
const MAX_TOKEN_BYTES: u64 = 12;

fn api(kind: Kind) -> &'static str {
    match kind {
        Kind::OpenAi => openai::API,
        Kind::Anthropic => anthropic::API,
    }
}

/// The address and the key of a provider.
#[derive(Clone)]
pub(crate) struct Endpoint {
    name: String,
    kind: Kind,
    /// The address, without a slash at its end.
    base: String,
    key: Option<String>,
    missing_key: Option<String>,
    /// Whether it is the service of the company that defined the format.
    is_origin: bool,
    /// Further headers, with their secrets.
    headers: Vec<(String, String)>,
    options: CallOptions,
    context: Option<u64>,
    http: Http,
}

impl std::fmt::Debug for Endpoint {
    /// Leaves out the key and the headers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).field("base", &self.base).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates an endpoint. `setting` returns the value of a setting, including keys.
    pub(crate) fn new(
        provider: &str,
        providers: &Providers,
        setting: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Endpoint, Error> {
        let resolved = resolve(provider, providers, setting)?;
        let secret = |name: &str| setting(name).map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let key = resolved.key.as_deref().and_then(secret);
        let mut missing_key = resolved.key.filter(|_| key.is_none() && resolved.needs_key);
        let mut headers = Vec::new();
        for (header, value) in resolved.table.headers {
            match secret_name(&value).map(|name| (name, secret(name))) {
                None => headers.push((header, value)),
                Some((_, Some(value))) => headers.push((header, value)),
                Some((name, None)) => missing_key = Some(name.to_owned()),
            }
        }
        let base = match resolved.kind {
            // Users write the address with and without `/v1`. The path of the API, which is added later, contains it.
            Kind::Anthropic => resolved.base_url.trim_end_matches("/v1").to_owned(),
            Kind::OpenAi => resolved.base_url,
        };
        let proxy = ken_tls::proxy(&base, setting)?;
        Ok(Endpoint {
            name: resolved.name,
            kind: resolved.kind,
            base,
            key,
            missing_key,
            is_origin: resolved.is_origin,
            headers,
            options: resolved.table.options,
            context: resolved.table.context,
            http: Http::of_provider(resolved.table.timeout_ms, proxy)?,
        })
    }

    /// Returns why the endpoint cannot be called, or `None` if it can. A server other than the public service may need
    /// no key.
    fn missing_key(&self) -> Option<String> {
        self.missing_key.as_ref().map(|key| format!("{key} is not set"))
    }

    /// Whether it can be asked for its models: it has the key that it needs.
    pub(crate) fn is_usable(&self) -> bool {
        self.missing_key.is_none()
    }

    fn url(&self, path: &str) -> String {
        match self.kind {
            Kind::OpenAi => format!("{}/{path}", self.base),
            Kind::Anthropic => format!("{}/v1/{path}", self.base),
        }
    }

    /// Returns the headers that contain the key, and those of the configuration.
    fn headers(&self) -> Vec<(&str, String)> {
        let key = self.key.iter();
        let mut headers: Vec<(&str, String)> = match self.kind {
            Kind::OpenAi => key.map(|key| ("authorization", format!("Bearer {key}"))).collect(),
            Kind::Anthropic => {
                let key = key.map(|key| ("x-api-key", key.clone()));
                key.chain([("anthropic-version", "2023-06-01".to_owned())]).collect()
            }
        };
        // A header of the configuration replaces ken's own, such as another version or form of authorization.
        headers.retain(|(name, _)| !self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name)));
        headers.extend(self.headers.iter().map(|(name, value)| (name.as_str(), value.clone())));
        headers
    }

    /// Sends a JSON body. Blocks until the head of the response has arrived.
    fn post(&self, caller: &Caller, path: &str, body: &str) -> Result<ureq::http::Response<ureq::Body>, Failed> {
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
        let who = &self.name;
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
    ) -> Result<ureq::http::Response<ureq::Body>, Failed> {
        let status = response.status().as_u16();
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        if response.status().is_success() {
            return Ok(response);
        }
        if response.status().is_redirection() {
            // It is not followed, because the key would be sent there, too. Without a host it leads to the same one.
            let to = header("location").filter(|to| to.contains("//"));
            let to = host_of(to.as_deref().unwrap_or(&self.base));
            let error = Error::not_found(format!("{model} answered {status}, a redirect to {to}"));
            return Err(Failed::new(error.hint(self.base_hint()), Fault::Provider));
        }
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
        let fault = match status {
            // 401 is not here: a model whose key is refused is not offered for a while, for everybody to see (`unusable`).
            403 | 404 => Fault::Model,
            500 | 502 | 504 => Fault::Server,
            _ => Fault::Request,
        };
        Err(Failed::new(refusal.error(self.key.as_deref()), fault))
    }

    /// Returns the error for a stream that cannot be read further, with its cause. A web page, or JSON that is no answer, comes from a proxy
    /// that asks for a login, or from a server with another address for its API.
    fn failed(&self, model: &str, broken: Broken) -> Failed {
        let is_no_answer = matches!(&broken, Broken::Failed(error) if error.code == Code::NotFound);
        let error = self.broken(model, broken);
        if !is_no_answer {
            return error.into();
        }
        Failed::new(error.hint(self.base_hint()), Fault::Provider)
    }

    fn base_hint(&self) -> String {
        format!("is base_url right? {} was called; an address often ends in /v1", self.base)
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
    breakers: Arc<Breakers>,
    room: Arc<Semaphore>,
    /// The time at which the provider refused the key, if no call has succeeded since.
    refused: Mutex<Option<Instant>>,
}

const REFUSED_KEY: &str = "the provider refused the key";

/// How long a model is reported as unusable after its key was refused. After that it is tried again.
const REFUSED_PERIOD: Duration = Duration::from_secs(60);

impl Remote {
    pub(crate) fn new(name: &str, endpoint: Endpoint, mut model: Model, breakers: Arc<Breakers>) -> Remote {
        model.window = endpoint.context.or(model.window);
        Remote {
            name: ModelName { provider: endpoint.name.clone(), id: name.to_owned() },
            endpoint,
            model,
            breakers,
            room: Arc::new(Semaphore::new(MAX_CALLS)),
            refused: Mutex::default(),
        }
    }

    /// Returns an error if a request certainly exceeds a known context window: even without its thoughts, and with
    /// [`MAX_TOKEN_BYTES`] per token. Such a request is not sent, because some servers would truncate it without an error.
    fn overflow(&self, request: &Generate) -> Option<Error> {
        let window = self.model.window?;
        let tokens = request_tokens(request) - thought_tokens(request);
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
            let message = format!("{MAX_CALLS} calls to {} are under way", self.name.provider);
            Error::busy(message, 1_000)
        })?;
        self.breakers.admit(&self.name.provider, &full_name(self), request.chosen, Instant::now())?;
        let (deltas, mut received) = mpsc::channel(MAX_WAITING);
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
        // A model that is in no list is called by name, such as by an evaluation. That it does not exist concerns no other call.
        let ended = ended.map_err(|failed| match failed.fault {
            Fault::Model if request.unlisted => Failed::new(failed.error, Fault::Request),
            _ => failed,
        });
        let (ended, output_bytes) = self.noted(ended)?;
        let mut usage = ended.usage.unwrap_or_else(|| estimate(request, (output_bytes as u64).div_ceil(4)));
        usage.cost = price(&self.model, &usage);
        Ok(Completion { stop_reason: ended.stop_reason, usage })
    }

    fn body(&self, request: &Generate) -> Value {
        let blind = if self.model.images { None } else { without_images_of_tools(request) };
        let request = blind.as_ref().unwrap_or(request);
        let options = &self.endpoint.options;
        let max_output = request.max_output.into_iter().chain(options.max_tokens).min();
        let mut body = match self.endpoint.kind {
            Kind::OpenAi => {
                let mut body = openai::body(&self.name.id, request);
                if let Some(max) = max_output {
                    // OpenAI's newer models refuse the older name. Many other servers know only the older name.
                    let name = if self.endpoint.is_origin { "max_completion_tokens" } else { "max_tokens" };
                    body[name] = json!(max);
                }
                // It has the calls of one conversation go to the same servers, where the cache is. Other servers may refuse it.
                if let Some(session) = request.session.as_ref().filter(|_| self.endpoint.is_origin) {
                    body["prompt_cache_key"] = json!(session);
                }
                body
            }
            Kind::Anthropic => {
                let max = max_output.unwrap_or(u64::MAX).min(self.model.output());
                anthropic::body(&self.name.id, request, max)
            }
        };
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body[name] = value;
            }
        };
        // What a caller asks for, such as a judge that needs the same answer again, outranks the configuration.
        set("temperature", request.temperature.or(options.temperature).map(Value::from));
        set("top_p", options.top_p.map(Value::from));
        set("reasoning_effort", options.reasoning_effort.clone().map(Value::from));
        set("seed", options.seed.map(Value::from));
        body
    }

    /// Records how a call ended, for the calls after it and for `model.info`.
    fn noted<T>(&self, ended: Result<T, Failed>) -> Result<T, Error> {
        let mut refused = self.refused.lock();
        let name = full_name(self);
        match ended {
            Ok(ended) => {
                *refused = None;
                self.breakers.succeed(&self.name.provider, &name);
                Ok(ended)
            }
            Err(failed) => {
                if failed.error.code == Code::Unauthenticated && refused.replace(Instant::now()).is_none() {
                    tracing::warn!(model = self.name.id, "model not configured: {REFUSED_KEY}");
                }
                Err(self.breakers.fail(&self.name.provider, &name, failed, Instant::now()))
            }
        }
    }
}

impl Provider for Remote {
    fn api(&self) -> &'static str {
        api(self.endpoint.kind)
    }

    fn name(&self) -> &ModelName {
        &self.name
    }

    fn window(&self) -> Window {
        self.model.window()
    }

    fn rates(&self) -> Rates {
        rates(&self.model)
    }

    fn unusable(&self) -> Option<String> {
        let refused = *self.refused.lock();
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
    fn run(self) -> Result<(Ended, usize), Failed> {
        let (path, mut stream) = match self.endpoint.kind {
            Kind::OpenAi => ("chat/completions", Stream::openai()),
            Kind::Anthropic => ("messages", Stream::anthropic()),
        };
        let broken = |broken| self.endpoint.failed(&self.model, broken);
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
                return Err(too_long().into());
            }
        }
        let Some((deltas, ended)) = stream.end().map_err(broken)? else {
            let message = format!("{}: the stream ended before the answer was complete", self.model);
            return Err(Error::unavailable(message).into());
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
