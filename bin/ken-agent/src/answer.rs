//! Converts the deltas of a model into events.

use std::collections::HashSet;

use ken_text::head;
use ken_types::Timestamp;
use ken_types::event::{Block, Body, EMPTY_ANSWER, Failure, Message, Purpose, StopReason};
use ken_types::limits::EVENT_BYTES;
use ken_types::ops::model::{Delta, Generated};

use crate::envelope::ENVELOPE_BYTES;
use crate::turn_state::{Draft, MessageEnd, MessageState, Turn, TurnState, since};

/// The maximum size of a text delta in an event, in bytes. A longer delta becomes several events, so that each stays
/// within the limit for events however much of its text has to be escaped.
const MAX_DELTA_BYTES: usize = 32 * 1024;

/// The parts of an answer that are recorded only when it is complete.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    calls: Vec<Block>,
    /// Signatures of thoughts, each with the index of its thought.
    seals: Vec<(usize, String)>,
    /// The text of a compaction. It is not a message of the stream.
    summary: String,
}

impl Answer {
    /// Returns the events of one delta, in order. There are none if the delta is kept until the answer ends.
    pub(crate) fn add(&mut self, state: &TurnState, delta: Delta) -> Vec<Body> {
        let Some(turn) = &state.turn else {
            return Vec::new();
        };
        if turn.purpose != Purpose::Agent {
            if let Delta::Text { delta } = delta {
                self.summary.push_str(&delta);
            }
            return Vec::new();
        }
        match delta {
            Delta::Start { provider, model, api } => start(state, turn, Draft::new(api, provider, model)),
            Delta::Text { delta } => stop_thinking(turn).into_iter().chain(text_deltas(&delta)).collect(),
            Delta::Think { delta, opaque } => self.think(turn, delta, opaque),
            Delta::ToolCall { id, name, arguments } => {
                let id = self.own_id(state, id);
                self.calls.push(Block::ToolCall { id, name, arguments });
                stop_thinking(turn).into_iter().collect()
            }
        }
    }

    /// Returns the id of a call, or a new id if the given one is empty or already in use. Some servers number the calls
    /// of every answer from 0, but a result must belong to exactly one call.
    fn own_id(&self, state: &TurnState, id: String) -> String {
        let earlier = state.messages.iter().flat_map(Message::content);
        let taken: HashSet<&str> = earlier
            .chain(&self.calls)
            .filter_map(|block| match block {
                Block::ToolCall { id, .. } => Some(id.as_str()),
                _ => None,
            })
            .collect();
        if !id.is_empty() && !taken.contains(id.as_str()) {
            return id;
        }
        let mut numbered = (1..).map(|number| format!("{id}_{number}"));
        numbered.find(|other| !taken.contains(other.as_str())).unwrap_or(id)
    }

    fn think(&mut self, turn: &Turn, delta: String, opaque: Option<String>) -> Vec<Body> {
        let MessageState::Open(draft) = &turn.message else {
            return Vec::new();
        };
        let start = draft.thinking.is_none().then_some(Body::ThinkingStart);
        // A signature is valid for exactly the thought before it, so another thought may not continue that one.
        let end = opaque.map(|seal| {
            self.seals.push((draft.thoughts.len(), seal));
            Body::ThinkingEnd { content: draft.thinking.clone().unwrap_or_default() + &delta }
        });
        start.into_iter().chain(thinking_deltas(&delta)).chain(end).collect()
    }

    /// Whether everything received so far is recorded text. Only then can the same call be repeated and continue after
    /// that text.
    pub(crate) fn is_text_only(&self, state: &TurnState) -> bool {
        let thought = match state.turn.as_ref().map(|turn| &turn.message) {
            Some(MessageState::Open(draft)) => draft.thinking.is_some() || !draft.thoughts.is_empty(),
            _ => false,
        };
        self.calls.is_empty() && self.summary.is_empty() && !thought
    }

    /// Returns the last events of the answer, after the model has ended it.
    pub(crate) fn end(self, state: &TurnState, generated: &Generated, at: Timestamp) -> Vec<Body> {
        let Some(turn) = &state.turn else {
            return Vec::new();
        };
        if turn.purpose != Purpose::Agent {
            return vec![self.summary_turn(turn, generated, at)];
        }
        let MessageState::Open(draft) = &turn.message else {
            return Vec::new();
        };
        let thought = stop_thinking(turn);
        let mut draft = draft.clone();
        draft.thoughts.extend(draft.thinking.take());
        let stop = self.stop(&draft, generated);
        let message = draft.message(self.blocks(&draft), Some(stop), at);
        let arguments = long_arguments(&message);
        thought.into_iter().chain(arguments).chain([Body::MessageEnd { message }]).collect()
    }

    /// An answer without a text and without a call is a failure, so that no client takes it for the final text.
    fn stop(&self, draft: &Draft, generated: &Generated) -> MessageEnd {
        let reason = self.stop_reason(generated.stop_reason);
        let usage = generated.usage;
        if reason.is_final() && draft.text.trim().is_empty() {
            let error = Failure::new(EMPTY_ANSWER, "The answer is empty.");
            return MessageEnd { reason: StopReason::Error, usage, error: Some(error) };
        }
        MessageEnd { reason, usage, error: None }
    }

    /// An answer with tool calls always waits for their results, even if the provider gave another stop reason.
    fn stop_reason(&self, given: StopReason) -> StopReason {
        match (given, self.calls.is_empty()) {
            (_, false) => StopReason::ToolUse,
            (StopReason::ToolUse, true) => StopReason::Stop,
            (given, true) => given,
        }
    }

    fn blocks(self, draft: &Draft) -> Vec<Block> {
        let mut blocks = draft.blocks();
        let thoughts = blocks.iter_mut().filter_map(|block| match block {
            Block::Thinking { opaque, .. } => Some(opaque),
            _ => None,
        });
        for (index, opaque) in thoughts.enumerate() {
            *opaque = self.seals.iter().find(|(thought, _)| *thought == index).map(|(_, seal)| seal.clone());
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
            // A compaction offers no tools. If the model calls one nevertheless, the stop reason must not ask for its
            // result, or the model would be called again and again.
            stop_reason: match generated.stop_reason {
                StopReason::ToolUse => StopReason::Stop,
                given => given,
            },
            is_error: false,
            error: None,
        }
    }
}

/// Returns `message_start`. If an earlier message was cut off, its text follows, because the new message contains the
/// whole text.
fn start(state: &TurnState, turn: &Turn, draft: Draft) -> Vec<Body> {
    if !matches!(turn.message, MessageState::NotStarted) {
        return Vec::new(); // the same call, repeated after ken-model died
    }
    let message: Message = draft.message(Vec::new(), None, state.last_timestamp);
    std::iter::once(Body::MessageStart { message }).chain(text_deltas(&state.cut_text)).collect()
}

fn stop_thinking(turn: &Turn) -> Option<Body> {
    match &turn.message {
        MessageState::Open(draft) => draft.thinking.clone().map(|content| Body::ThinkingEnd { content }),
        _ => None,
    }
}

/// Returns the arguments of all calls of a message as deltas, if the event that ends the message cannot contain it whole.
/// Its calls are run with these arguments after a crash, too.
fn long_arguments(message: &Message) -> Vec<Body> {
    let fits = serde_json::to_string(message).is_ok_and(|text| text.len() + ENVELOPE_BYTES <= EVENT_BYTES);
    let calls = message.content().iter().filter(|_| !fits).filter_map(|block| match block {
        Block::ToolCall { id, arguments, .. } => Some((id, arguments.to_string())),
        _ => None,
    });
    let deltas = calls.flat_map(|(id, arguments)| {
        let delta = |part: &str| Body::ToolCallDelta { tool_call_id: id.clone(), delta: part.to_owned() };
        parts(&arguments).map(delta).collect::<Vec<_>>()
    });
    deltas.collect()
}

fn text_deltas(text: &str) -> impl Iterator<Item = Body> {
    parts(text).map(|part| Body::TextDelta { text: part.to_owned() })
}

fn thinking_deltas(text: &str) -> impl Iterator<Item = Body> {
    parts(text).map(|part| Body::ThinkingDelta { delta: part.to_owned() })
}

/// Splits a text into parts of at most [`MAX_DELTA_BYTES`], between characters.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let part = head(rest, MAX_DELTA_BYTES);
        let after = rest.get(part.len()..).unwrap_or_default();
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Envelope, written};
    use crate::testing::claim;
    use ken_types::event::{Event, ModelName, Usage};
    use ken_types::id::Mint;
    use serde_json::{Value, json};

    /// The state after an answer: of the holder that received it, and of one that reads its events.
    fn states(deltas: Vec<Delta>) -> (TurnState, TurnState) {
        let mut envelope = Envelope::of(&claim("hello"), Mint::of(Timestamp::from_millis(0), &[1; 16]));
        let (mut live, mut read) = (TurnState::default(), TurnState::default());
        let mut record = |live: &mut TurnState, body: Body| {
            let event = envelope.wrap(live, body, None, Timestamp::from_millis(5));
            let stored = written(&event).unwrap();
            assert!(stored.get().len() <= EVENT_BYTES);
            read.apply(&serde_json::from_str::<Event>(stored.get()).unwrap());
            live.apply(&event);
        };
        record(&mut live, Body::TurnStart { purpose: Purpose::Agent, outside: Default::default() });
        let mut answer = Answer::default();
        for delta in deltas {
            for body in answer.add(&live, delta) {
                record(&mut live, body);
            }
        }
        let generated = Generated {
            model: ModelName::default(),
            api: String::new(),
            stop_reason: StopReason::ToolUse,
            usage: Usage::default(),
        };
        for body in answer.end(&live, &generated, Timestamp::from_millis(6)) {
            record(&mut live, body);
        }
        (live, read)
    }

    #[test]
    fn a_later_holder_has_the_same_calls_with_all_of_their_arguments() {
        let call = |id: &str, arguments: Value| Delta::ToolCall { id: id.into(), name: "write_file".into(), arguments };
        let long = json!({"path": "a", "content": "é\"\n".repeat(400_000)});
        let many: Value = (0..20_000).map(|number| json!({"number": number, "text": "x"})).collect();
        for calls in [
            vec![call("a", long), call("b", json!({"path": "b"}))],
            vec![call("a", json!({"many": many}))],
            (0..100).map(|number| call(&number.to_string(), json!({"text": "y".repeat(20_000)}))).collect(),
            vec![call("a", "not an object".repeat(30_000).into())],
        ] {
            let start = Delta::Start { provider: "p".into(), model: "m".into(), api: "a".into() };
            let deltas = [start, Delta::Think { delta: "t".repeat(300_000), opaque: None }];
            let (live, read) = states(deltas.into_iter().chain(calls).collect());
            let (live, read) = (live.turn.unwrap(), read.turn.unwrap());
            let of = |turn: &Turn| {
                turn.calls.iter().map(|call| (call.id.clone(), call.arguments.clone())).collect::<Vec<_>>()
            };
            assert!(!live.calls.is_empty() && of(&live) == of(&read), "{} calls", read.calls.len());
            let (MessageState::Ended(live), MessageState::Ended(read)) = (live.message, read.message) else { panic!() };
            assert!(live.content() == read.content());
        }
    }

    #[test]
    fn a_later_holder_has_the_whole_arguments_of_a_call_just_below_the_limit() {
        for less in (0..1_500).step_by(50) {
            let arguments = json!({"content": "x".repeat(EVENT_BYTES - less)});
            let call = Delta::ToolCall { id: "a".into(), name: "write_file".into(), arguments };
            let start = Delta::Start { provider: "p".into(), model: "m".into(), api: "a".into() };
            let (live, read) = states(vec![start, call]);
            let of = |state: TurnState| state.turn.map(|turn| turn.calls[0].arguments.clone());
            assert!(of(live) == of(read), "{less} bytes less");
        }
    }
}
