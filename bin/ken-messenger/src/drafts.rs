//! Puts the answers of running turns into the outbox while they are being written, if `MESSENGER_STREAM` is set.

use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::ops::Nothing;
use ken_types::ops::messenger::{Drafts, MessengerDrafts};
use tokio::time::sleep;

use crate::app::{App, READ, at_turns};

/// The interval between two reads of the texts.
const AGAIN: Duration = Duration::from_secs(1);

/// Reads the texts of the running turns, from the beginning of a turn until none is running.
pub(crate) async fn run(app: Arc<App>, stop: Stop) {
    at_turns(&app.drafts, stop, || while_written(&app)).await;
}

async fn while_written(app: &App) {
    let mut before = Vec::new();
    loop {
        sleep(AGAIN).await;
        let Ok(Drafts { drafts, turns }) = app.store.call::<MessengerDrafts>(&Nothing {}, READ).await else {
            continue;
        };
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
