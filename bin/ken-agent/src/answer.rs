//! What a model says, turned into events.

use ken_text::head;
use ken_types::Timestamp;
use ken_types::event::{Block, Body, Message, Purpose, StopReason};
use ken_types::ops::model::{Delta, Generated};

use crate::course::{Course, Draft, Ended, Speech, Turn, since};

/// A text delta is cut at this size, so that its event stays within the limit however it is escaped.
const DELTA_BYTES: usize = 32 * 1024;

/// The parts of an answer that are recorded only when it is complete.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    calls: Vec<Block>,
    /// Signatures of thoughts, by the number of the thought.
    seals: Vec<(usize, String)>,
    /// Of a compaction, whose text is no message of the stream.
    summary: String,
    api: String,
}

impl Answer {
    /// The events of one delta, in order; none for what is kept until the end.
    pub(crate) fn hear(&mut self, course: &Course, delta: Delta) -> Vec<Body> {
        let Some(turn) = &course.turn else {
            return Vec::new();
        };
        if turn.purpose != Purpose::Agent {
            self.keep(delta);
            return Vec::new();
        }
        match delta {
            Delta::Start { provider, model, api } => start(course, turn, Draft::new(api, provider, model)),
            Delta::Text { delta } => stop_thinking(turn)
                .into_iter()
                .chain(text_deltas(&delta))
                .collect(),
            Delta::Think { delta, opaque } => self.think(turn, delta, opaque),
            Delta::ToolCall { id, name, arguments } => {
                self.calls.push(Block::ToolCall { id, name, arguments });
                stop_thinking(turn).into_iter().collect()
            }
        }
    }

    fn keep(&mut self, delta: Delta) {
        match delta {
            Delta::Text { delta } => self.summary.push_str(&delta),
            Delta::Start { api, .. } => self.api = api,
            _ => {}
        }
    }

    fn think(&mut self, turn: &Turn, delta: String, opaque: Option<String>) -> Vec<Body> {
        let Speech::Open(draft) = &turn.speech else {
            return Vec::new();
        };
        if let Some(seal) = opaque {
            self.seals.push((draft.thoughts.len(), seal));
        }
        let start = draft.thinking.is_none().then_some(Body::ThinkingStart);
        start.into_iter().chain(thinking_deltas(&delta)).collect()
    }

    /// Whether all that was heard is recorded text, so that the same call can be made again after it.
    pub(crate) fn is_text_only(&self, course: &Course) -> bool {
        let thought = match course.turn.as_ref().map(|turn| &turn.speech) {
            Some(Speech::Open(draft)) => draft.thinking.is_some() || !draft.thoughts.is_empty(),
            _ => false,
        };
        self.calls.is_empty() && self.summary.is_empty() && !thought
    }

    /// The last events of the answer, when the model has ended it.
    pub(crate) fn end(self, course: &Course, generated: &Generated, at: Timestamp) -> Vec<Body> {
        let Some(turn) = &course.turn else {
            return Vec::new();
        };
        if turn.purpose != Purpose::Agent {
            return vec![self.summary_turn(turn, generated, at)];
        }
        let Speech::Open(draft) = &turn.speech else {
            return Vec::new();
        };
        let thought = stop_thinking(turn);
        let mut draft = draft.clone();
        draft.thoughts.extend(draft.thinking.take());
        let ended = Ended {
            stop_reason: self.stop_reason(generated.stop_reason),
            usage: generated.usage,
            error: None,
        };
        let message = draft.message(self.blocks(&draft), Some(ended), at);
        thought
            .into_iter()
            .chain([Body::MessageEnd { message }])
            .collect()
    }

    /// An answer with calls waits for their results, whatever the provider says.
    fn stop_reason(&self, said: StopReason) -> StopReason {
        match (said, self.calls.is_empty()) {
            (_, false) => StopReason::ToolUse,
            (StopReason::ToolUse, true) => StopReason::Stop,
            (said, true) => said,
        }
    }

    fn blocks(self, draft: &Draft) -> Vec<Block> {
        let mut blocks = draft.blocks();
        let thoughts = blocks.iter_mut().filter_map(|block| match block {
            Block::Thinking { opaque, .. } => Some(opaque),
            _ => None,
        });
        for (index, opaque) in thoughts.enumerate() {
            *opaque = self
                .seals
                .iter()
                .rev()
                .find(|(thought, _)| *thought == index)
                .map(|(_, seal)| seal.clone());
        }
        blocks.extend(self.calls);
        blocks
    }

    fn summary_turn(self, turn: &Turn, generated: &Generated, at: Timestamp) -> Body {
        Body::Turn {
            purpose: turn.purpose,
            duration_ms: since(turn.started, at),
            model: generated.model.id.clone(),
            provider: generated.model.provider.clone(),
            api: generated.api.clone(),
            output: vec![Block::Text { text: self.summary }],
            usage: generated.usage,
            stop_reason: generated.stop_reason,
            is_error: false,
            error: None,
        }
    }
}

/// `message_start`, and what a cut message has said already: the new one holds the whole text.
fn start(course: &Course, turn: &Turn, draft: Draft) -> Vec<Body> {
    if !matches!(turn.speech, Speech::Ahead) {
        return Vec::new(); // the same call, made again
    }
    let message: Message = draft.message(Vec::new(), None, course.last_timestamp);
    std::iter::once(Body::MessageStart { message })
        .chain(text_deltas(&course.cut_text))
        .collect()
}

fn stop_thinking(turn: &Turn) -> Option<Body> {
    match &turn.speech {
        Speech::Open(draft) => draft
            .thinking
            .clone()
            .map(|content| Body::ThinkingEnd { content }),
        _ => None,
    }
}

fn text_deltas(text: &str) -> impl Iterator<Item = Body> {
    parts(text).map(|part| Body::TextDelta {
        text: part.to_owned(),
    })
}

fn thinking_deltas(text: &str) -> impl Iterator<Item = Body> {
    parts(text).map(|part| Body::ThinkingDelta {
        delta: part.to_owned(),
    })
}

/// Pieces of at most [`DELTA_BYTES`], cut between characters.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let part = head(rest, DELTA_BYTES);
        let after = rest.get(part.len()..).unwrap_or_default();
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}
