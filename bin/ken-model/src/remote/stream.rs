//! Parses the byte stream of an answer in either format into deltas.

use ken_types::ops::model::Delta;

use super::anthropic::Events;
use super::format::{Broken, Ended};
use super::openai::Chunks;
use ken_types::sse::{Event, Parser};

/// A stream in one of the two formats.
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
    fn new(format: Format) -> Stream {
        let parser = Parser::default();
        Stream { parser, format }
    }

    pub(super) fn openai() -> Stream {
        Stream::new(Format::OpenAi(Chunks::default()))
    }

    pub(super) fn anthropic() -> Stream {
        Stream::new(Format::Anthropic(Events::default()))
    }

    /// Takes the next bytes, which can end anywhere. Returns the deltas that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Delta>, Broken> {
        let mut deltas = Vec::new();
        for event in self.parser.push(bytes)? {
            deltas.extend(self.format.take(&event)?);
        }
        Ok(deltas)
    }

    /// Takes a complete answer from a server that does not stream it.
    pub(super) fn whole(&mut self, text: &str) -> Result<Vec<Delta>, Broken> {
        self.format.take(&Event { name: String::new(), data: text.to_owned() })
    }

    /// Whether the last event has arrived. A server may keep the connection open after it.
    pub(super) fn is_complete(&self) -> bool {
        match &self.format {
            Format::OpenAi(chunks) => chunks.is_done(),
            Format::Anthropic(events) => events.is_done(),
        }
    }

    /// The size of everything that is held until it is a complete delta, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.format {
            Format::OpenAi(chunks) => chunks.held_bytes(),
            Format::Anthropic(events) => events.held_bytes(),
        }
    }

    /// Called at the end of the stream. Returns the last deltas and how the answer ended, or `None` if the
    /// answer is incomplete.
    pub(super) fn end(mut self) -> Option<(Vec<Delta>, Ended)> {
        let mut deltas = Vec::new();
        if let Some(event) = self.parser.finish() {
            // If the last event was cut off, it cannot be parsed. The check of the end below then finds the
            // answer incomplete.
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
