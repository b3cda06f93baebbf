//! The state of the part.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ken_service::Stop;
use ken_types::ops::messenger::{Connector, Fault, MessengerFault};
use ken_types::ops::model::ModelInfo;
use ken_types::ops::outbox::{OutboxPut, PutMessage};
use ken_types::ops::{Nothing, Op};
use ken_types::{Code, Error};
use ken_wire::{Daemon, Pool};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::api::Api;
use crate::settings::Settings;

/// The name of the connector in the scopes of sessions.
pub(crate) const NAME: &str = "messenger";
/// How long one attempt of a change may wait in the store's queue, and how long its outcome is awaited.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const CHANGE_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the platform waits for the list of models before its update is stored.
const MODEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause before a failed call to the store is retried.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct App {
    pub(crate) settings: Settings,
    /// `None` while the connector is off.
    pub(crate) api: Option<Api>,
    pub(crate) store: Pool,
    pub(crate) model: Pool,
    /// Notified when a turn begins or continues after an approval was decided.
    pub(crate) typing: Notify,
    pub(crate) polling: AtomicBool,
}

impl Daemon for App {
    fn stats(&self) -> Map<String, Value> {
        let polling = self.polling.load(Ordering::Relaxed);
        let stats = [("enabled", self.api.is_some()), ("poller_running", polling)];
        stats.map(|(name, is)| (name.to_owned(), is.into())).into_iter().collect()
    }
}

impl App {
    /// Checks that the connector is on and that the secret is its own.
    pub(crate) fn admit(&self, secret: Option<&str>) -> Result<(), Error> {
        let Some(keys) = &self.settings.keys else {
            let hint = "put MESSENGER_BOT_TOKEN and MESSENGER_WEBHOOK_SECRET_TOKEN into secrets.env";
            return Err(Error::unavailable("the messenger is off: MESSENGER_BOT_TOKEN is not set").hint(hint));
        };
        // Digests have one length, so comparing them does not reveal the length of the secret.
        let digest = |text: &str| Sha256::digest(text.as_bytes());
        let given = digest(secret.unwrap_or_default());
        if given.ct_eq(&digest(&keys.secret)).into() {
            Ok(())
        } else {
            Err(Error::new(ken_types::Code::Unauthenticated, "the webhook secret is wrong or missing")
                .at("x-telegram-bot-api-secret-token"))
        }
    }

    /// Returns what to answer if a model is chosen that is not configured. While ken-model cannot be reached, nobody knows, and the
    /// model is taken.
    pub(crate) async fn refusal_of_model(&self, model: &str) -> Option<String> {
        let state = self.model.call::<ModelInfo>(&Nothing {}, MODEL_TIMEOUT).await.ok()?;
        if state.has(model) {
            return None;
        }
        let known: Vec<&str> = state.choices().collect();
        Some(format!("No model `{model}` is configured. Configured: {}.", known.join(", ")))
    }

    pub(crate) fn state(&self) -> Connector {
        Connector {
            enabled: self.api.is_some(),
            poller_running: self.polling.load(Ordering::Relaxed),
            configured_users: self.settings.users.clone(),
        }
    }

    /// Makes a change, and retries for as long as the store is away, so that the known outcome of a message is not lost.
    pub(crate) async fn change_until_done<O: Op>(&self, args: &O::Args, stop: &Stop) -> Result<O::Reply, Error> {
        loop {
            match self.store.change::<O>(args, ATTEMPT_TIMEOUT, CHANGE_TIMEOUT).await {
                Err(error) if is_retryable(&error) && !stop.is_stopped() => sleep(RETRY_PAUSE).await,
                result => return result,
            }
        }
    }

    /// Puts a message into the outbox.
    pub(crate) async fn put(&self, message: &PutMessage) -> Result<(), Error> {
        self.store.change::<OutboxPut>(message, ATTEMPT_TIMEOUT, CHANGE_TIMEOUT).await.map(drop)
    }

    /// Logs and counts an error that belongs to no message.
    pub(crate) async fn record_fault(&self, message: String) {
        tracing::warn!("{message}");
        _ = self.store.call::<MessengerFault>(&Fault { message: Some(message) }, READ_TIMEOUT).await;
    }

    /// Records that what failed before works again.
    pub(crate) async fn record_recovery(&self) {
        _ = self.store.call::<MessengerFault>(&Fault { message: None }, READ_TIMEOUT).await;
    }
}

/// Whether a failed call to the store may succeed if it is retried.
pub(crate) fn is_retryable(error: &Error) -> bool {
    matches!(error.code, Code::Unavailable | Code::Deadline | Code::Busy | Code::Cancelled)
}
