//! Puts the answers of running turns into the outbox while they are being written, if `MESSENGER_STREAM` is set.

use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{Drafts, MessengerDrafts};
use tokio::time::sleep;

use crate::app::{App, READ};

/// The interval between two reads of the texts.
const AGAIN: Duration = Duration::from_secs(1);

/// Reads the texts of the running turns, from the beginning of a turn until none is running.
pub(crate) async fn run(app: Arc<App>, mut stop: Stop) {
    // Turns that began before this process did.
    app.drafts.notify_one();
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            () = app.drafts.notified() => {}
        }
        tokio::select! {
            () = stop.stopped() => return,
            () = while_written(&app) => {}
        }
    }
}

async fn while_written(app: &App) {
    let mut before = Vec::new();
    loop {
        sleep(AGAIN).await;
        let Ok(now) = app.store.call::<MessengerDrafts>(&Nothing {}, READ).await else {
            continue;
        };
        let Drafts { drafts, turns } = now;
        for draft in drafts.iter().filter(|draft| !before.contains(*draft)) {
            if let Err(error) = app.put(draft).await {
                tracing::debug!("a text is not shown while it is being written: {error}");
            }
        }
        if turns == 0 {
            return;
        }
        before = drafts;
    }
}
