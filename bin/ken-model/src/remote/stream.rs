//! What the two formats share: from bytes to deltas, and how a stream ends.

use ken_types::Error;
use ken_types::event::{StopReason, Usage};
use ken_types::ops::model::Delta;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::anthropic::Events;
use super::openai::Chunks;
use super::sse::{Event, Parser};

/// How an answer ended. Usage is absent when the provider has not counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ended {
    pub(super) stop_reason: StopReason,
    pub(super) usage: Option<Usage>,
}

/// Why a stream cannot be read on.
#[derive(Debug)]
pub(super) enum Broken {
    /// The provider sent an error event.
    Said(Value),
    Failed(Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        Broken::Failed(error)
    }
}

/// A stream of one of the two formats.
#[derive(Debug)]
pub(super) struct Stream {
    parser: Parser,
    format: Format,
}

#[derive(Debug)]
enum Format {
    OpenAi(Chunks),
    Anthropic(Events),
}

impl Stream {
    pub(super) fn openai() -> Stream {
        Stream {
            parser: Parser::default(),
            format: Format::OpenAi(Chunks::default()),
        }
    }

    pub(super) fn anthropic() -> Stream {
        Stream {
            parser: Parser::default(),
            format: Format::Anthropic(Events::default()),
        }
    }

    /// Takes the next bytes, cut anywhere; returns the deltas that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, Broken> {
        let mut deltas = Vec::new();
        for event in self.parser.push(bytes)? {
            deltas.extend(self.format.take(&event)?);
        }
        Ok(deltas)
    }

    /// Takes an answer that came whole instead of as a stream.
    pub(super) fn whole(&mut self, text: &str) -> Result<Vec<Delta>, Broken> {
        self.format.take(&Event {
            name: String::new(),
            data: text.to_owned(),
        })
    }

    /// The stream has ended: returns the last deltas and how the answer ended, or `None` when it is incomplete.
    pub(super) fn end(mut self) -> Option<(Vec<Delta>, Ended)> {
        let mut deltas = Vec::new();
        if let Some(event) = self.parser.finish() {
            // A last event that was cut in its middle cannot be parsed; what it lacks shows below.
            deltas.extend(self.format.take(&event).unwrap_or_default());
        }
        let (last, ended) = match self.format {
            Format::OpenAi(chunks) => chunks.end(),
            Format::Anthropic(events) => events.end(),
        }?;
        deltas.extend(last);
        Some((deltas, ended))
    }
}

impl Format {
    fn take(&mut self, event: &Event) -> Result<Vec<Delta>, Broken> {
        match self {
            Format::OpenAi(chunks) => chunks.take(event),
            Format::Anthropic(events) => events.take(event),
        }
    }
}

pub(super) fn parse<T: DeserializeOwned>(data: &str) -> Result<T, Broken> {
    serde_json::from_str(data).map_err(|error| {
        let message = format!("the provider's stream holds an event that is not understood: {error}");
        Broken::Failed(Error::unavailable(message))
    })
}

/// The arguments of a call. None at all are an empty object; what is no JSON is kept as the text that it is, and the tool
/// is not run with it.
pub(super) fn arguments(text: &str) -> Value {
    match text.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    }
}

/// A tool without a schema takes an object.
pub(super) fn parameters(schema: &Value) -> Value {
    match schema {
        Value::Object(_) => schema.clone(),
        _ => json!({"type": "object", "properties": {}}),
    }
}
