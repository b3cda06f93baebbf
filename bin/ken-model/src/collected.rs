//! Collects a complete answer, for a caller that does not need its pieces.

use std::sync::{Mutex, PoisonError};

use ken_types::Error;
use ken_types::event::Block;
use ken_types::ops::model::Delta;

use crate::provider::{DeltaSink, Pending};

/// The answer of a provider.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) text: String,
    pub(crate) tool_calls: Vec<Block>,
}

/// Collects the deltas of an answer.
#[derive(Debug, Default)]
pub(crate) struct Collector(Mutex<Collected>);

impl Collector {
    pub(crate) fn into_collected(self) -> Collected {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, delta: Delta) {
        let mut collected = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match delta {
            Delta::Text { delta } => collected.text.push_str(&delta),
            Delta::ToolCall { id, name, arguments } => {
                collected.tool_calls.push(Block::ToolCall { id, name, arguments })
            }
            Delta::Start { .. } | Delta::Think { .. } => {}
        }
    }
}

impl DeltaSink for Collector {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        self.keep(delta);
        Box::pin(std::future::ready(Ok(())))
    }
}
