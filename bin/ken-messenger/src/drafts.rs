//! Puts the answers of running turns into the outbox while they are being written, if `MESSENGER_STREAM` is set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ken_service::Stop;
use ken_types::Error;
use ken_types::id::SubmissionId;
use ken_types::ops::messenger::{Draft, MessengerDrafts, ReadTurns, ReadUpTo};
use ken_types::ops::outbox::PutMessage;
use tokio::time::sleep;

use crate::app::{App, READ_TIMEOUT, on_each_turn};

/// The interval between two reads of the texts.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The maximum length of a text that is shown while it is being written, in bytes.
const DRAFT_BYTES: usize = 64 * 1024;

/// The turns that are being written, as far as they are read.
pub(crate) type Turns = BTreeMap<SubmissionId, Turn>;

#[derive(Default)]
pub(crate) struct Turn {
    read: ReadUpTo,
    text: String,
    /// Whether the outbox may lack the text.
    has_changed: bool,
}

/// Reads the texts of the running turns, from the beginning of a turn until none is running.
pub(crate) async fn run(app: Arc<App>, stop: Stop) {
    on_each_turn(&app.drafts, stop, || put_drafts(&app)).await;
}

async fn put_drafts(app: &App) {
    let mut turns = Turns::new();
    loop {
        sleep(READ_INTERVAL).await;
        match put_new(app, &mut turns).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => tracing::debug!("a text is not shown while it is being written: {error}"),
        }
    }
}

/// Reads what the turns have written since the last call, and puts the texts that have changed into the outbox. Returns the number of
/// turns that may write more.
pub(crate) async fn put_new(app: &App, turns: &mut Turns) -> Result<u64, Error> {
    loop {
        let args = ReadTurns { read: turns.iter().map(|(id, turn)| (id.clone(), turn.read)).collect() };
        let found = app.store.call::<MessengerDrafts>(&args, READ_TIMEOUT).await?;
        turns.retain(|id, _| found.drafts.iter().any(|draft| draft.submission_id == *id));
        let has_more = found.drafts.iter().any(|draft| draft.has_more);
        for draft in found.drafts {
            let turn = turns.entry(draft.submission_id.clone()).or_default();
            turn.apply(&draft);
            if turn.has_changed && !draft.has_more {
                let text = ken_text::head(&turn.text, DRAFT_BYTES).to_owned();
                app.put(&PutMessage { text, draft: true, ..draft.answer }).await?;
                turn.has_changed = false;
            }
        }
        if !has_more {
            return Ok(found.turns);
        }
    }
}

impl Turn {
    fn apply(&mut self, draft: &Draft) {
        self.read = draft.read;
        if draft.begins {
            self.text.clear();
        }
        self.text.push_str(&draft.text);
        let has_text = !self.text.trim().is_empty();
        self.has_changed = has_text && (self.has_changed || draft.begins || !draft.text.is_empty());
    }
}
