//! The answer to a call that takes long: a stream of events with how far it has come, or one JSON object for a client that does not
//! read streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ken_http::{Failure, Frames, LongResponse, Request, Response, Shutdown};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{Begun, Client};
use super::message::{Call, INVALID_REQUEST, RpcError, reply, told};
use super::repeat::{End, IDEMPOTENCY_KEY, finish};
use super::stamped;
use super::state::Entered;
use super::version::resumes;
use super::work::{Progress, begin, result, stop, unfinished, wait_for, what};
use crate::app::Gateway;
use crate::chat::Preference;
use crate::idempotency::{KeyName, replayed};

/// How long a call waits for its result. Common clients give up after 60 s, and must have the id by then.
const WAIT: Duration = Duration::from_secs(55);
/// How often a stream says how far its call has come. A client that has gone is noticed when something is written to it.
const INTERVAL: Duration = Duration::from_secs(2);
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// A call that waits for work.
struct Waiting {
    gateway: Arc<Gateway>,
    client: Client,
    call: Call,
    begun: Begun,
    /// The id by which the caller can ask for the result.
    id: String,
    entered: Option<Entered>,
    shutdown: Shutdown,
    /// How long it waits.
    time: Duration,
    /// Whether the end of its event stream means that nobody wants the result.
    stops_with_client: bool,
    _held: LongResponse,
}

/// How a call that waits has ended.
enum Ended {
    /// With this reply, which ends the call in this way once it is delivered.
    Replied(Value, End),
    Cancelled,
    Stopping,
}

/// Answers a call of a tool that takes long.
pub(super) async fn long(
    gateway: Arc<Gateway>,
    request: &Request,
    client: Client,
    call: Call,
) -> Result<Response, Failure> {
    let held = request.hold()?;
    let params = Value::Object(call.params.clone());
    let Some(entered) = gateway.mcp_running.enter(client.request_name(&call.id), params) else {
        let message = format!("the id {} belongs to a request that is not answered yet", call.id);
        return RpcError::new(INVALID_REQUEST, message).response(&call.id);
    };
    let key = KeyName::of(request)?;
    let begun = match begin(&gateway, &client, &call, key.as_ref()).await {
        Ok(begun) => begun,
        Err(error) if error.at.as_deref() == Some(IDEMPOTENCY_KEY) => {
            let status = error.code.http_status();
            return RpcError::new(INVALID_REQUEST, error.message).status(status).response(&call.id);
        }
        Err(error) => {
            let failed = result(&told(&error), json!({"status": "refused"}), true);
            return Response::json(200, &reply(&call.id, stamped(&client, failed)));
        }
    };
    let id = client.id_of(&gateway, &begun.work);
    entered.waits_for(&id);
    let waiting = Waiting {
        id,
        // A client that has sent a key comes back with it.
        stops_with_client: client.modern && begun.key.is_some() && key.is_none(),
        shutdown: request.shutdown(),
        time: Preference::of(request, WAIT).time,
        entered: Some(entered),
        _held: held,
        gateway,
        client,
        call,
        begun,
    };
    let is_replayed = waiting.begun.is_replayed;
    let done = if reads_events(request) { waiting.stream(resumes(request)) } else { waiting.object().await };
    if is_replayed { replayed(done) } else { done }
}

/// Answers a request that resumes an answer from one of its events.
pub(super) fn resume(
    gateway: Arc<Gateway>,
    request: &Request,
    client: Client,
    event: &str,
) -> Result<Response, Failure> {
    let held = request.hold()?;
    let Some((begun, id)) = client.event(&gateway, event) else {
        return RpcError::new(INVALID_REQUEST, "no answer to this caller has such an event")
            .status(404)
            .response(&Value::Null);
    };
    let waiting = Waiting {
        id: client.id_of(&gateway, &begun.work),
        begun,
        call: Call { id, method: "tools/call".to_owned(), params: serde_json::Map::new() },
        entered: None,
        shutdown: request.shutdown(),
        time: Preference::of(request, WAIT).time,
        stops_with_client: false,
        _held: held,
        gateway,
        client,
    };
    waiting.stream(true)
}

fn reads_events(request: &Request) -> bool {
    let accepted = request.headers().get_all("accept").iter();
    accepted.filter_map(|value| value.to_str().ok()).any(|value| value.contains("text/event-stream"))
}

impl Waiting {
    fn stream(self, resumes: bool) -> Result<Response, Failure> {
        // A client that loses this answer can ask for the rest from the event that it has seen last.
        let event = resumes.then(|| self.client.event_id(&self.gateway, &self.begun, &self.call.id));
        Response::events(|frames| self.send(frames, event)).text_header("x-accel-buffering", "no")
    }

    async fn send(self, mut frames: Frames, event: Option<String>) {
        if let Some(event) = event {
            frames.send(format!("id: {event}\nretry: 500\ndata:\n\n")).await;
        }
        let mut guarded = Guarded(Some(self));
        let Some(waiting) = &guarded.0 else { return };
        let ended = waiting.wait(Some(&mut frames)).await;
        if let Ended::Replied(reply, end) = &ended {
            frames.send(frame(reply)).await;
            waiting.record(*end).await;
        }
        let Some(waiting) = guarded.0.take() else { return };
        if matches!(ended, Ended::Cancelled) {
            waiting.stop_for_certain().await;
        }
    }

    async fn object(self) -> Result<Response, Failure> {
        match self.wait(None).await {
            Ended::Replied(reply, end) => {
                self.record(end).await;
                Response::json(200, &reply)
            }
            Ended::Cancelled => {
                self.stop_for_certain().await;
                Ok(Response::empty(202))
            }
            Ended::Stopping => Err(ken_types::Error::unavailable("the gateway is shutting down").into()),
        }
    }

    async fn wait(&self, mut frames: Option<&mut Frames>) -> Ended {
        let begun = Instant::now();
        loop {
            let left = self.time.saturating_sub(begun.elapsed()).min(INTERVAL);
            let waited = wait_for(&self.gateway, self.shutdown.clone(), &self.begun, &self.id, left);
            let progress = tokio::select! {
                progress = waited => progress,
                () = self.cancelled() => return Ended::Cancelled,
            };
            let status = match progress {
                Ok(Progress::Ended(result)) => return self.replied(result, End::Answered),
                Ok(Progress::Stopping) => return Ended::Stopping,
                Ok(Progress::Goes(status)) => status,
                Err(error) => {
                    let failed = result(&told(&error), json!({"status": "failed", "id": self.id}), true);
                    return self.replied(failed, End::Answered);
                }
            };
            if begun.elapsed() >= self.time || status.as_ref().is_some_and(|status| status.stalled.is_some()) {
                return self.replied(unfinished(status.as_deref(), &self.begun, &self.id), End::Named);
            }
            if let Some(frames) = &mut frames {
                frames.send(self.progress(begun.elapsed(), &what(status.as_deref()))).await;
            }
        }
    }

    fn replied(&self, result: Value, end: End) -> Ended {
        Ended::Replied(reply(&self.call.id, stamped(&self.client, result)), end)
    }

    /// Says how long the call has taken, if the client wants to know; else a comment.
    fn progress(&self, elapsed: Duration, message: &str) -> Bytes {
        let token = self.call.params.get("_meta").and_then(|meta| meta.get("progressToken"));
        let Some(token) = token.filter(|token| token.is_string() || token.is_number()) else { return COMMENT };
        let params =
            json!({"progressToken": token, "progress": elapsed.as_millis() as f64 / 1_000.0, "message": message});
        frame(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).into()
    }

    async fn cancelled(&self) {
        match &self.entered {
            Some(entered) => entered.cancelled().await,
            None => std::future::pending().await,
        }
    }

    async fn record(&self, end: End) {
        if let Some(key) = &self.begun.key {
            finish(&self.gateway, &self.client, &self.call, key, end).await;
        }
    }

    /// Stops the work also if this answer is dropped meanwhile: a client often closes the connection of a call that it has cancelled.
    async fn stop_for_certain(self) {
        _ = tokio::spawn(async move { self.stop().await }).await;
    }

    /// Stops the work that this call has started, unless an equal call waits for it, too.
    async fn stop(&self) {
        let is_shared = self.entered.as_ref().is_some_and(|entered| entered.is_shared(&self.id));
        if self.begun.key.is_some() && !is_shared {
            stop(&self.gateway, &self.client, &self.begun).await;
            self.record(End::Cancelled).await;
        }
    }
}

/// A call whose work is stopped when its client goes away before it has the answer.
struct Guarded(Option<Waiting>);

impl Drop for Guarded {
    fn drop(&mut self) {
        let Some(waiting) = self.0.take() else { return };
        // A gateway that shuts down drops its streams, too. Their clients come back for the answers.
        if waiting.stops_with_client
            && !waiting.shutdown.is_requested()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { waiting.stop().await });
        }
    }
}

fn frame(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}
