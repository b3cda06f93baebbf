//! Parses the bytes of an answer in either format into deltas. A server that does not stream its answer sends it as one
//! JSON document, whatever content type it gives.

use ken_types::Error;
use ken_types::ops::model::Delta;

use super::anthropic::Events;
use super::format::{Broken, Ended};
use super::openai::Chunks;
use ken_types::sse::{Event, Parser};

/// The maximum size of an answer that is not streamed, in bytes.
const MAX_WHOLE_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Stream {
    body: Body,
    format: Format,
}

/// What the server sends, which its first byte tells.
#[derive(Debug)]
enum Body {
    Unknown,
    Events(Parser),
    Whole(Vec<u8>),
}

#[derive(Debug)]
enum Format {
    OpenAi(Chunks),
    Anthropic(Events),
}

impl Stream {
    pub(super) fn openai() -> Stream {
        Stream { body: Body::Unknown, format: Format::OpenAi(Chunks::default()) }
    }

    pub(super) fn anthropic() -> Stream {
        Stream { body: Body::Unknown, format: Format::Anthropic(Events::default()) }
    }

    /// Takes the next bytes, which can end anywhere. Adds the deltas that they complete, those before an error too: what
    /// is passed on must not depend on where the network cuts the stream.
    pub(super) fn push(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> Result<(), Broken> {
        if let Body::Unknown = self.body {
            self.body = match bytes.trim_ascii_start().first() {
                None => return Ok(()),
                Some(b'{') => Body::Whole(Vec::new()),
                Some(b'<') => return Err(no_answer("a web page")),
                Some(_) => Body::Events(Parser::default()),
            };
        }
        match &mut self.body {
            Body::Whole(whole) if whole.len() + bytes.len() > MAX_WHOLE_BYTES => {
                let mib = MAX_WHOLE_BYTES / (1024 * 1024);
                Err(Error::invalid("", format!("the answer is longer than {mib} MiB")).into())
            }
            Body::Whole(whole) => {
                whole.extend_from_slice(bytes);
                Ok(())
            }
            Body::Events(parser) => {
                for event in parser.push(bytes)? {
                    deltas.extend(self.format.take(&event)?);
                }
                Ok(())
            }
            Body::Unknown => Ok(()),
        }
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
    pub(super) fn end(mut self) -> Result<Option<(Vec<Delta>, Ended)>, Broken> {
        let mut deltas = Vec::new();
        match self.body {
            Body::Unknown => {}
            Body::Events(parser) => {
                // If the last event was cut off, it cannot be parsed. The check of the end below then finds the
                // answer incomplete.
                let last = parser.finish().and_then(|event| self.format.take(&event).ok());
                deltas.extend(last.unwrap_or_default());
            }
            Body::Whole(whole) => {
                let data = String::from_utf8_lossy(&whole).into_owned();
                deltas.extend(self.format.take(&Event { data, ..Event::default() })?);
                let is_answer = match &mut self.format {
                    Format::OpenAi(chunks) => chunks.end_document(),
                    Format::Anthropic(events) => events.is_done(),
                };
                if !is_answer {
                    return Err(no_answer("JSON that holds no answer"));
                }
            }
        }
        let end = match self.format {
            Format::OpenAi(chunks) => chunks.end(),
            Format::Anthropic(events) => events.end(),
        };
        Ok(end.map(|(last, ended)| {
            deltas.extend(last);
            (deltas, ended)
        }))
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

/// Returns the error for a server that accepts the request and answers with something else. Nothing but another address
/// helps, so the call is not repeated.
fn no_answer(what: &str) -> Broken {
    let error = Error::not_found(format!("the server answered with {what} instead of a model's answer"));
    error.hint("check the address of the provider; that of an OpenAI-compatible server usually ends in /v1").into()
}
