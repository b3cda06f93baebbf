//! Builds exchanges, as transcripts show them, from the events of a submission.

use ken_types::Error;

use crate::rules::exchange::{Exchange, Fold, Prompt};
use crate::tables::{LogRow, PromptRow, SubmissionRow, Tables};

/// Builds the exchange of a submission from its prompt and its events, and passes each event to `also`.
pub(super) fn fold(
    tables: &dyn Tables,
    found: &SubmissionRow,
    log: &LogRow,
    prompt: Option<PromptRow>,
    also: &mut dyn FnMut(&str),
) -> Result<Exchange, Error> {
    let mut fold = Fold::of(found.id.clone());
    // A submission that was never claimed has only one event, its end.
    if found.lease > 0 {
        tables.entries(log.key, found.recorded_from, log.entries, &mut |event| {
            fold.add_event(event);
            also(event);
            true
        })?;
    }
    let prompt =
        prompt.filter(|_| !found.hidden).map(|event| Prompt::visible(event.id.0, event.text, event.received_at));
    let mut exchange = fold.exchange(found.state, prompt);
    exchange.complete_approvals(|id| Ok(tables.approval(id)?.map(|row| row.record)))?;
    Ok(exchange)
}
