//! Calls of the platform's Bot API: one HTTP request each, in a thread of its own.

use std::io::{self, Cursor, Read};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;
use ureq::{Agent, SendBody};

use crate::settings::Settings;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of a call, from its beginning to the end of the answer.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection that was idle for longer is not used again: the platform may be closing it, and then nobody knows whether a
/// message that was written into it arrived.
const MAX_IDLE: Duration = Duration::from_secs(5);
const ANSWER_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallOutcome {
    /// `ok:true`, with the result.
    Done(Value),
    /// `ok:false`.
    Refused(Refusal),
    /// There was no connection, or the call was cancelled before its body was sent: the platform has not done it.
    NotSent(String),
    /// The request was sent, and no answer came: the platform may have done it.
    NoResponse(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: i64,
    pub(crate) description: String,
    /// In seconds.
    pub(crate) retry_after: Option<u64>,
}

impl CallOutcome {
    /// The error, if there was one.
    pub(crate) fn error(&self) -> Option<String> {
        match self {
            CallOutcome::Done(_) => None,
            CallOutcome::Refused(refusal) => Some(format!("{} ({})", refusal.description, refusal.code)),
            CallOutcome::NotSent(why) | CallOutcome::NoResponse(why) => Some(why.clone()),
        }
    }
}

/// The Bot API, with the token.
#[derive(Clone)]
pub(crate) struct Api {
    agent: Agent,
    base: Arc<str>,
    token: Arc<str>,
}

impl Api {
    /// None without a token.
    pub(crate) fn new(settings: &Settings) -> Option<Api> {
        let keys = settings.keys.as_ref()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("ken/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(ken_tls::RESOLVE_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .proxy(settings.proxy.clone())
            .max_idle_age(MAX_IDLE)
            .build();
        Some(Api {
            agent: Agent::new_with_config(config),
            base: format!("{}/bot{}/", settings.api_url, keys.token).into(),
            token: keys.token.as_str().into(),
        })
    }

    /// Calls a method with a JSON object.
    pub(crate) async fn call(&self, method: &'static str, fields: Value, time: Duration) -> CallOutcome {
        self.call_after(method, fields, time, std::future::ready(true)).await
    }

    /// The same, but between connecting and sending the body it waits for `mark`, and cancels the call if that is false. A process
    /// that is killed before `mark` is true has sent no byte of the body, and so nothing that the platform could act on.
    pub(crate) async fn call_after(
        &self,
        method: &'static str,
        fields: Value,
        time: Duration,
        mark: impl Future<Output = bool> + Send,
    ) -> CallOutcome {
        let (answer, mut answered) = oneshot::channel();
        let (connected, is_connected) = oneshot::channel();
        let (go, may_go) = mpsc::sync_channel(1);
        let body = Body {
            text: Cursor::new(fields.to_string()),
            connected: Some(connected),
            may_send: may_go,
            is_begun: false,
        };
        let api = self.clone();
        let begun = thread::Builder::new().name(method.to_owned()).spawn(move || {
            _ = answer.send(api.ask(method, body, time));
        });
        if let Err(error) = begun {
            return CallOutcome::NotSent(format!("no thread: {error}"));
        }
        let ended = |_| CallOutcome::NoResponse("the call ended without an answer".to_owned());
        let waited = tokio::select! {
            connected = is_connected => connected,
            answer = &mut answered => return answer.unwrap_or_else(ended),
        };
        // Dropping `go` without sending cancels the request.
        if waited.is_ok() && mark.await {
            _ = go.send(());
        }
        drop(go);
        answered.await.unwrap_or_else(ended)
    }

    fn ask(&self, method: &str, mut body: Body, time: Duration) -> CallOutcome {
        let request = self.agent.post(format!("{}{method}", self.base));
        let request = request
            .header("content-type", "application/json")
            .header("content-length", body.text.get_ref().len().to_string())
            .config()
            .timeout_global(Some(time))
            .build();
        let mut text = Vec::new();
        let sent = request.send(SendBody::from_reader(&mut body));
        let received = sent.and_then(|response| {
            let status = response.status().as_u16();
            let body = response.into_body().into_reader();
            body.take(ANSWER_BYTES).read_to_end(&mut text)?;
            Ok(status)
        });
        match received {
            Ok(status) => read(status, &text),
            Err(error) if !body.is_begun => CallOutcome::NotSent(self.describe(&error)),
            Err(error) => CallOutcome::NoResponse(self.describe(&error)),
        }
    }

    /// An error without the address, because the address contains the token.
    fn describe(&self, error: &ureq::Error) -> String {
        let proxy = self.agent.config().proxy();
        let through = proxy.map(|proxy| format!(" through the proxy {}", ken_tls::address(proxy))).unwrap_or_default();
        let why = match error {
            ureq::Error::Timeout(ureq::Timeout::Resolve) => "no name server answers".to_owned(),
            error => error.to_string().replace(&*self.token, "***"),
        };
        format!("the platform cannot be reached{through}: {why}")
    }
}

/// The body of a request. Its first byte is read only once `may_send` says so.
struct Body {
    text: Cursor<String>,
    connected: Option<oneshot::Sender<()>>,
    may_send: mpsc::Receiver<()>,
    /// Whether a byte of it may have been sent.
    is_begun: bool,
}

impl Read for Body {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(connected) = self.connected.take() {
            _ = connected.send(());
            let cancelled = |_| io::Error::other("the request was cancelled before it was sent");
            self.may_send.recv().map_err(cancelled)?;
            self.is_begun = true;
        }
        self.text.read(to)
    }
}

/// A chat, message or thread as the platform takes it: an id as a number, the name of a channel as a string.
pub(crate) fn id(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
}

/// Reads the platform's answer.
fn read(status: u16, text: &[u8]) -> CallOutcome {
    #[derive(Deserialize)]
    struct Reply {
        ok: bool,
        #[serde(default)]
        result: Value,
        #[serde(default)]
        error_code: Option<i64>,
        #[serde(default)]
        description: Option<String>,
        #[serde(default)]
        parameters: Option<Parameters>,
    }
    #[derive(Deserialize)]
    struct Parameters {
        retry_after: Option<u64>,
    }
    match serde_json::from_slice::<Reply>(text) {
        Ok(reply) if reply.ok => CallOutcome::Done(reply.result),
        Ok(reply) => CallOutcome::Refused(Refusal {
            code: reply.error_code.unwrap_or_else(|| i64::from(status)),
            description: reply.description.unwrap_or_else(|| "the platform gives no reason".to_owned()),
            retry_after: reply.parameters.and_then(|parameters| parameters.retry_after),
        }),
        Err(_) => CallOutcome::NoResponse(format!("the platform answered {status} without a JSON object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let done = read(200, br#"{"ok":true,"result":{"message_id":7}}"#);
        assert_eq!(done, CallOutcome::Done(serde_json::json!({"message_id": 7})));
        let busy = read(
            429,
            br#"{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":3}}"#,
        );
        assert!(
            matches!(&busy, CallOutcome::Refused(refusal) if refusal.code == 429 && refusal.retry_after == Some(3))
        );
        assert_eq!(busy.error().unwrap(), "Too Many Requests (429)");
        assert!(matches!(read(502, b"<html>"), CallOutcome::NoResponse(_)));
        assert!(matches!(read(500, br#"{"ok":false}"#), CallOutcome::Refused(refusal) if refusal.code == 500));
    }
}
