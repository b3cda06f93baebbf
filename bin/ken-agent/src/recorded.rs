//! Reads what is recorded of a submission: the state that its events make, and the messages of an earlier one that goes on.

use std::collections::HashMap;

use ken_types::event::{Block, Event, Message};
use ken_types::id::SubmissionId;
use ken_types::ops::store::{Answered, Claim, ReadStream};
use ken_types::{Error, Offset};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::store::Store;
use crate::turn_state::TurnState;

/// The maximum number of submissions that one goes on from. In each, the program of the user has run tools.
const MAX_EARLIER: usize = 64;

/// Returns the state of a submission, from its recorded events.
pub(crate) async fn recorded(store: &impl Store, claim: &Claim) -> Result<TurnState, Error> {
    let mut state = TurnState::default();
    let mut offset = claim.recorded_from;
    while claim.next_event_index > state.next_index {
        let page = ReadStream { stream: claim.stream.clone(), offset, ..ReadStream::default() };
        let page = store.recorded(page).await?;
        for event in events(&page.entries)? {
            if event.place.submission_id == claim.lease.submission_id {
                state.apply(&event);
            }
        }
        if page.next >= page.end {
            break;
        }
        offset = Offset::After(page.next);
    }
    Ok(state)
}

fn events(entries: &[Box<RawValue>]) -> Result<Vec<Event>, Error> {
    let read = entries.iter().map(|entry| serde_json::from_str(entry.get()));
    let unreadable = |error| Error::internal(format!("a recorded event was not understood: {error}"));
    read.collect::<Result<_, _>>().map_err(unreadable)
}

/// What a submission goes on from whose prompt is the results of tools that the program of the user has run.
#[derive(Default)]
pub(crate) struct Continued {
    /// The submissions, which are then no past exchanges.
    pub(crate) ids: Vec<SubmissionId>,
    /// The first of them.
    pub(crate) first: Option<Claim>,
    /// The messages since the prompt of the first one, with these results.
    pub(crate) messages: Vec<Message>,
}

/// Reads what a submission goes on from. If it is no longer stored, the prompt is all that there is.
pub(crate) async fn continued(store: &impl Store, claim: &Claim) -> Continued {
    let mut continued = Continued::default();
    let mut links = Vec::new();
    while let Some(answered) = answered(continued.first.as_ref().unwrap_or(claim)) {
        let found = store.record(answered.of.clone()).await;
        let state = match &found {
            Ok(found) if links.len() < MAX_EARLIER => recorded(store, found).await,
            _ => return Continued::default(),
        };
        let (Ok(found), Ok(state)) = (found, state) else { return Continued::default() };
        links.push(with_results(state.messages, &answered));
        continued.ids.push(answered.of);
        continued.first = Some(found);
    }
    continued.messages = links.into_iter().rev().flatten().collect();
    continued
}

fn answered(claim: &Claim) -> Option<Answered> {
    Answered::deserialize(claim.context.as_ref()?.get(Answered::NAME)?).ok()
}

/// Puts the results of the program in place of the notes that stand for them.
fn with_results(mut messages: Vec<Message>, answered: &Answered) -> Vec<Message> {
    let results = answered.results.iter().map(|result| (result.id.as_str(), result.text.as_str()));
    let results: HashMap<&str, &str> = results.collect();
    for message in &mut messages {
        if let Message::ToolResult { tool_call_id, content, .. } = message
            && let Some(text) = results.get(tool_call_id.as_str())
        {
            *content = vec![Block::text(*text)];
        }
    }
    messages
}
