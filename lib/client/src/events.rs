//! Reads a stream of JSON as server-sent events. A separate thread reads, so that the caller can wait with a timeout.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use ken_types::sse::{Event, Parser};
use ken_types::{Code, Error, json};
use serde_json::Value;

use crate::gateway::{Attempts, Gateway};

/// The maximum number of batches that wait for the caller. While there are as many, the connection is not read.
const MAX_BATCHES: usize = 16;

/// The events of a stream after an offset, as they arrive. Reading continues after lost connections and restarts of the
/// gateway.
#[derive(Debug)]
pub struct Events {
    batches: Receiver<Result<Batch, Error>>,
    offset: String,
    ended: bool,
}

#[derive(Debug, Default)]
struct Batch {
    events: Vec<Value>,
    /// The offset after these events.
    next: Option<String>,
    closed: bool,
}

impl Gateway {
    /// Returns the events of the stream at a path, after an offset (`-1` for all, `now` only for new ones).
    pub fn events(&self, target: &str, offset: &str) -> Events {
        let (sender, batches) = sync_channel(MAX_BATCHES);
        let subscription =
            Subscription { gateway: self.clone(), target: target.to_owned(), offset: offset.to_owned(), to: sender };
        std::thread::spawn(move || subscription.run());
        Events { batches, offset: offset.to_owned(), ended: false }
    }
}

impl Events {
    /// Returns the next events, in order, or `None` at the end of a closed stream. A batch is empty after a heartbeat
    /// of the gateway, or when `wait` has passed.
    ///
    /// # Errors
    /// As [`Gateway::call`]. There are no more events after an error.
    pub fn next(&mut self, wait: Option<Duration>) -> Result<Option<Vec<Value>>, Error> {
        if self.ended {
            return Ok(None);
        }
        let received = match wait {
            Some(wait) => self.batches.recv_timeout(wait),
            None => self.batches.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(batch) => {
                let batch = batch.inspect_err(|_| self.ended = true)?;
                self.ended = batch.closed;
                if let Some(next) = batch.next {
                    self.offset = next;
                }
                Ok(Some(batch.events))
            }
            Err(RecvTimeoutError::Timeout) => Ok(Some(Vec::new())),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
        }
    }

    /// Returns the offset after the events that were returned so far.
    pub fn offset(&self) -> &str {
        &self.offset
    }
}

/// The reading thread. It ends with the stream, after a permanent error, or when the receiver has been dropped.
struct Subscription {
    gateway: Gateway,
    target: String,
    offset: String,
    to: SyncSender<Result<Batch, Error>>,
}

/// How reading a connection ended.
enum End {
    /// The stream is closed, or the receiver has been dropped.
    Finished,
    /// The connection was lost, and there is more to read.
    Broken,
}

impl Subscription {
    fn run(mut self) {
        let mut attempts = Attempts::new();
        loop {
            let error = match self.read(&mut attempts) {
                Ok(End::Finished) => return,
                Ok(End::Broken) => Error::unavailable(format!("the stream {} broke off", self.target)),
                Err(error) => error,
            };
            if let Err(error) = attempts.wait(&mut self.gateway, error) {
                _ = self.to.send(Err(error));
                return;
            }
        }
    }

    /// Reads one connection until it ends.
    fn read(&mut self, attempts: &mut Attempts) -> Result<End, Error> {
        let target = format!("{}?offset={}&live=sse", self.target, self.offset);
        let lines = self.gateway.lines(&target)?;
        let mut parser = Parser::default();
        // Events whose offset is not known yet. If the connection is lost now, the gateway sends them again.
        let mut held = Vec::new();
        for line in lines {
            let Ok(line) = line else { return Ok(End::Broken) };
            let batch = match parser.push(format!("{line}\n").as_bytes())?.pop() {
                Some(event) => read_event(event, &mut held)?,
                None if line.starts_with(':') => Some(Batch::default()),
                None => None,
            };
            let Some(batch) = batch else { continue };
            *attempts = Attempts::new();
            if let Some(next) = &batch.next {
                self.offset.clone_from(next);
            }
            let closed = batch.closed;
            if self.to.send(Ok(batch)).is_err() || closed {
                return Ok(End::Finished);
            }
        }
        Ok(End::Broken)
    }
}

/// Returns a batch as soon as the offset after its events is known. The offset is its id, or is in the
/// control event after it.
fn read_event(event: Event, held: &mut Vec<Value>) -> Result<Option<Batch>, Error> {
    let data = json::parse_own(event.data.as_bytes())?;
    if event.name != "control" {
        let Value::Array(events) = data else {
            return Err(Error::new(Code::Internal, "a data frame of the stream is not an array"));
        };
        held.extend(events);
        return Ok(event.id.map(|id| Batch { events: std::mem::take(held), next: Some(id), closed: false }));
    }
    let next = data.get("streamNextOffset").and_then(Value::as_str);
    Ok(Some(Batch {
        events: std::mem::take(held),
        next: next.map(str::to_owned),
        closed: data.get("streamClosed").and_then(Value::as_bool).unwrap_or_default(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batches(text: &str) -> Vec<(Vec<Value>, Option<String>, bool)> {
        let mut held = Vec::new();
        let events = Parser::default().push(text.as_bytes()).unwrap().into_iter();
        let batches = events.filter_map(|event| read_event(event, &mut held).unwrap());
        batches.map(|batch| (batch.events, batch.next, batch.closed)).collect()
    }

    #[test]
    fn events_wait_until_it_is_known_where_they_end() {
        let control = "event: control\ndata:{\"streamNextOffset\":\"0_2\",\"streamClosed\":true}\n\n";
        let without_id = "event: data\ndata:[1,2]\n\n";
        assert_eq!(batches(without_id), []);
        let whole = (vec![1.into(), 2.into()], Some("0_2".to_owned()), true);
        assert_eq!(batches(&format!(": heartbeat\n\n{without_id}{control}")), [whole]);
        let with_id = format!("id: 0_2\n{without_id}");
        let at_once = (vec![1.into(), 2.into()], Some("0_2".to_owned()), false);
        assert_eq!(batches(&with_id), [at_once]);
    }

    #[test]
    fn data_of_several_lines_is_one_text() {
        assert_eq!(batches("data:[1,\ndata: 2]\nid:x\n\n")[0].0, [1, 2]);
    }

    #[test]
    fn a_stored_text_with_nul_is_read() {
        assert_eq!(batches("data:[\"a\\u0000b\"]\nid:x\n\n")[0].0, ["a\0b"]);
    }
}
