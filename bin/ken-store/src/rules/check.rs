//! Checks arguments against the limits of the API. Other parts have checked them before, but what is stored must be valid in any case.

use ken_types::Error;
use ken_types::limits::{
    APPEND_BYTES, EVENT_BYTES, INSTANCE_BYTES, KNOWLEDGE_CONTENT_BYTES, KNOWLEDGE_TAG_CHARACTERS, KNOWLEDGE_TAGS,
    KNOWLEDGE_TITLE_CHARACTERS, NAME_CHARACTERS, PRODUCER_ID_BYTES, STREAM_PATH_BYTES,
};
use ken_types::ops::store::PutKnowledge;
use ken_types::ops::streams::{AppendStream, Payload, is_json};
use serde_json::value::RawValue;

/// The maximum number of items in a page of sessions, exchanges, entries or hits.
pub(crate) const PAGE: u32 = 100;
/// The text with which every event begins.
const EVENT: &str = r#"{"v":1,"type":""#;

/// Returns the type of an event; empty if the text is not an event.
pub(crate) fn event_type(event: &str) -> &str {
    event.strip_prefix(EVENT).and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

pub(crate) fn events(events: &[Box<RawValue>]) -> Result<(), Error> {
    for (number, event) in events.iter().enumerate() {
        let at = || format!("/events/{number}");
        if event.get().len() > EVENT_BYTES {
            let message = format!("the event has {} bytes, at most {EVENT_BYTES} are kept", event.get().len());
            return Err(Error::too_large(message).at(at()));
        }
        if !event.get().starts_with(EVENT) {
            return Err(Error::invalid(at(), format!("an event begins with {EVENT}…")));
        }
    }
    Ok(())
}

/// Checks an explicit session name, and returns it trimmed.
pub(crate) fn name(name: &str, at: &str) -> Result<String, Error> {
    let trimmed = name.trim();
    if (1..=NAME_CHARACTERS).contains(&trimmed.chars().count()) && !trimmed.chars().any(char::is_control) {
        return Ok(trimmed.to_owned());
    }
    let message = format!("a name has 1 to {NAME_CHARACTERS} characters, none of them control characters");
    Err(Error::invalid(at, message))
}

/// Checks the name of a stream below `streams/`.
pub(crate) fn stream(name: &str) -> Result<(), Error> {
    let path = name.strip_prefix("streams/").unwrap_or_default();
    if (1..=STREAM_PATH_BYTES).contains(&path.len()) && !path.chars().any(char::is_control) {
        return Ok(());
    }
    let message =
        format!("a stream is streams/ and a path of 1 to {STREAM_PATH_BYTES} bytes, without control characters");
    Err(Error::invalid("/stream", message))
}

pub(crate) fn append(args: &AppendStream) -> Result<(), Error> {
    stream(&args.stream)?;
    let wrong = |at: &str, message: &str| Err(Error::invalid(at, message));
    if let Some(producer) = &args.producer
        && !(1..=PRODUCER_ID_BYTES).contains(&producer.id.len())
    {
        return wrong("/producer/id", &format!("the id of a producer has 1 to {PRODUCER_ID_BYTES} bytes"));
    }
    let bytes = match &args.payload {
        None if !args.close => return wrong("/payload", "there is nothing to append"),
        None => 0,
        Some(payload) if payload.is_empty() => return wrong("/payload", "the append is empty"),
        Some(payload) => {
            if matches!(payload, Payload::Messages(_)) != is_json(&args.content_type) {
                return wrong("/payload", "messages are for JSON, bytes for every other type");
            }
            length(payload)
        }
    };
    if bytes > APPEND_BYTES {
        let message = format!("an append has at most {APPEND_BYTES} bytes, this one {bytes}");
        return Err(Error::too_large(message).at("/payload"));
    }
    match &args.producer {
        Some(producer) if producer.id.is_empty() => wrong("/producer/id", "the producer has no name"),
        Some(producer) if producer.epoch.max(producer.seq) >= 1 << 53 => {
            wrong("/producer", "epoch and seq are below 2^53")
        }
        _ => Ok(()),
    }
}

fn length(payload: &Payload) -> usize {
    match payload {
        Payload::Bytes(bytes) => bytes.0.len(),
        Payload::Messages(messages) => messages.iter().map(|message| message.get().len()).sum(),
    }
}

pub(crate) fn instance(instance: &str) -> Result<(), Error> {
    if (1..=INSTANCE_BYTES).contains(&instance.len()) && !instance.chars().any(char::is_control) {
        return Ok(());
    }
    let message = format!("an instance has 1 to {INSTANCE_BYTES} bytes, without control characters");
    Err(Error::invalid("/instance", message))
}

/// Checks that the length of a page is from 1 to `max`.
pub(crate) fn limit(limit: u32, max: u32) -> Result<(), Error> {
    if (1..=max).contains(&limit) {
        return Ok(());
    }
    Err(Error::invalid("/limit", format!("limit is 1 to {max}")))
}

pub(crate) fn knowledge(args: &PutKnowledge) -> Result<(), Error> {
    let sized = |at: &str, length: usize, max: usize| {
        if (1..=max).contains(&length) {
            return Ok(());
        }
        Err(Error::invalid(at, format!("{length} characters; 1 to {max} are allowed")))
    };
    sized("/title", args.title.chars().count(), KNOWLEDGE_TITLE_CHARACTERS)?;
    if args.content.len() > KNOWLEDGE_CONTENT_BYTES {
        let message =
            format!("the content has {} bytes, at most {KNOWLEDGE_CONTENT_BYTES} are kept", args.content.len());
        return Err(Error::too_large(message).at("/content"));
    }
    sized("/content", args.content.len(), KNOWLEDGE_CONTENT_BYTES)?;
    if args.tags.len() > KNOWLEDGE_TAGS {
        return Err(Error::invalid("/tags", format!("at most {KNOWLEDGE_TAGS} tags")));
    }
    for (number, tag) in args.tags.iter().enumerate() {
        sized(&format!("/tags/{number}"), tag.chars().count(), KNOWLEDGE_TAG_CHARACTERS)?;
    }
    Ok(())
}
