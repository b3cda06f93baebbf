//! Polls the platform for updates, for machines that the platform cannot reach.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ken_service::Stop;
use ken_types::ops::Nothing;
use ken_types::ops::hosts::{Duties, HostsDuties};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::api::{Api, CALL_TIMEOUT, CallOutcome};
use crate::app::{App, READ_TIMEOUT, RETRY_PAUSE, is_retryable};
use crate::receive::take;

pub(crate) const UPDATE_KINDS: [&str; 5] =
    ["message", "edited_message", "channel_post", "business_message", "callback_query"];
/// How long the platform waits for an update, in seconds, and how long to wait for its answer.
const WAIT_S: u64 = 50;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(WAIT_S + 15);
/// The platform says so if a webhook is registered, and also if another program polls.
const CONFLICT: i64 = 409;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The pause after an answer without an update that came at once: not every server waits for one.
const EMPTY_PAUSE: Duration = Duration::from_millis(250);

/// Polls until it is told to stop.
pub(crate) async fn run(app: Arc<App>, api: Api, mut stop: Stop) {
    tokio::select! {
        () = stop.stopped() => {}
        () = poll(&app, &api) => {}
    }
    app.polling.store(false, Ordering::Relaxed);
}

async fn poll(app: &App, api: &Api) {
    wait_for_duty(app).await;
    // The platform refuses polling while a webhook is registered. It may be out of reach now, and another program may register one later.
    let mut has_webhook = true;
    // Without an offset the platform starts at the first unconfirmed update. The store recognises those that it already has.
    let mut offset: Option<u64> = None;
    let mut pause = FIRST_PAUSE;
    let mut has_failed = false;
    loop {
        if wait_for_duty(app).await {
            // Another host has confirmed some of them meanwhile.
            offset = None;
        }
        if has_webhook {
            let removed = api.call("deleteWebhook", json!({"drop_pending_updates": false}), CALL_TIMEOUT).await;
            has_webhook = !matches!(removed, CallOutcome::Done(_));
        }
        let mut fields = json!({"timeout": WAIT_S, "limit": 100, "allowed_updates": UPDATE_KINDS});
        if let Some(offset) = offset {
            fields["offset"] = offset.into();
        }
        let started = Instant::now();
        let answer = api.call("getUpdates", fields, ANSWER_TIMEOUT).await;
        app.polling.store(matches!(answer, CallOutcome::Done(_)), Ordering::Relaxed);
        let wait = match &answer {
            CallOutcome::Done(updates) => {
                (pause, has_webhook) = (FIRST_PAUSE, false);
                if std::mem::take(&mut has_failed) {
                    app.record_recovery().await;
                }
                let updates = updates.as_array().map(Vec::as_slice).unwrap_or_default();
                if updates.is_empty() && started.elapsed() < EMPTY_PAUSE {
                    sleep(EMPTY_PAUSE).await;
                }
                let before = offset;
                for update in updates {
                    receive_until_stored(app, update).await;
                    let next = update.get("update_id").and_then(Value::as_u64).map(|id| id.saturating_add(1));
                    offset = next.max(offset);
                }
                if offset == before && !updates.is_empty() {
                    // None of them has an id, so none can be confirmed, and the platform repeats them.
                    sleep(FIRST_PAUSE).await;
                }
                continue;
            }
            CallOutcome::Refused(refusal) => {
                has_webhook |= refusal.code == CONFLICT && refusal.description.contains("webhook");
                refusal.retry_after.map(Duration::from_secs)
            }
            _ => None,
        };
        has_failed = true;
        app.record_fault(format!("updates cannot be asked for: {}", answer.error().unwrap_or_default())).await;
        sleep(wait.unwrap_or(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Waits until no other host asks the platform, which refuses two at a time. Returns whether it had to wait.
async fn wait_for_duty(app: &App) -> bool {
    let mut has_waited = false;
    loop {
        let duties = app.store.call::<HostsDuties>(&Nothing {}, READ_TIMEOUT).await;
        if !matches!(duties, Ok(Duties { here: false })) {
            return has_waited;
        }
        has_waited = true;
        app.polling.store(false, Ordering::Relaxed);
        sleep(FIRST_PAUSE).await;
    }
}

/// Takes an update, and retries for as long as the store is away, because asking for the next updates confirms this one.
async fn receive_until_stored(app: &App, update: &Value) {
    while let Err(error) = take(app, update.clone()).await {
        if !is_retryable(&error) {
            app.record_fault(format!("an update is passed over: {error}")).await;
            return;
        }
        sleep(RETRY_PAUSE).await;
    }
}
