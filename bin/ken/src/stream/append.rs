//! `ken stream append`: appends each line of standard input once, in order.
//!
//! A thread reads lines while a request is in progress. The lines that arrive during that time form the next request.
//! Each request carries the producer's next sequence number, so that a repeated request is not written twice.

use std::io::{BufRead, BufReader, IsTerminal, Read, stdin};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use ken_client::{Gateway, Method, is_json};
use ken_types::id::Mint;
use ken_types::{Error, json};

use super::Append;

const MAX_APPEND_BYTES: usize = 1024 * 1024;
/// The maximum number of lines that wait while a request is in progress.
const MAX_LINES: usize = 1_024;

pub(super) fn run(gateway: &mut Gateway, append: &Append) -> Result<(), Error> {
    if stdin().is_terminal() {
        let error = Error::invalid("-", "standard input is a terminal; lines are expected there");
        return Err(error.hint("tail -f FILE | ken stream append NAME"));
    }
    let target = append.name.target();
    let content_type = open(gateway, append, &target)?;
    let (sender, lines) = sync_channel(MAX_LINES);
    // The thread is not joined, because it may block in a read of a pipe that nobody closes.
    std::thread::spawn(move || read_lines(&sender));
    let mut producer = Producer {
        gateway,
        target,
        is_json: is_json(&content_type),
        content_type,
        id: Mint::fresh()?.ulid(),
        sequence: 0,
    };
    producer.append_all(&lines)?;
    if append.close {
        super::close(producer.gateway, &producer.target)?;
    }
    Ok(())
}

/// Creates the stream if it does not exist. Returns the content type for the appends.
fn open(gateway: &mut Gateway, append: &Append, target: &str) -> Result<String, Error> {
    match gateway.call(&Method::HEAD, target, &[], &[]) {
        Ok(found) => {
            let own = found.header("content-type").unwrap_or("application/octet-stream");
            Ok(append.form.explicit_type().unwrap_or(own).to_owned())
        }
        Err(error) if error.code == ken_types::Code::NotFound => {
            let content_type = append.form.content_type();
            gateway.call(&Method::PUT, target, &[("content-type", content_type)], &[])?;
            Ok(content_type.to_owned())
        }
        Err(error) => Err(error),
    }
}

/// A line with its line end, or the error that ends the input.
type Line = Result<Vec<u8>, Error>;

fn read_lines(to: &SyncSender<Line>) {
    let mut input = BufReader::with_capacity(64 * 1024, stdin());
    for number in 1.. {
        let mut line = Vec::new();
        let limit = MAX_APPEND_BYTES as u64 + 1;
        let line = match (&mut input).take(limit).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(bytes) if bytes as u64 == limit => {
                let message = format!("line {number} has more than {MAX_APPEND_BYTES} bytes");
                Err(Error::too_large(message))
            }
            Ok(_) => Ok(line),
            Err(error) => Err(Error::invalid("-", format!("standard input: {error}"))),
        };
        let ends = line.is_err();
        if to.send(line).is_err() || ends {
            return;
        }
    }
}

struct Producer<'a> {
    gateway: &'a mut Gateway,
    target: String,
    content_type: String,
    is_json: bool,
    id: String,
    sequence: u64,
}

impl Producer<'_> {
    fn append_all(&mut self, lines: &Receiver<Line>) -> Result<(), Error> {
        let mut number = 0;
        let mut next = lines.recv().ok();
        while let Some(line) = next.take() {
            let mut batch = Batch::new(self.is_json);
            let mut wrong = batch.add(line, &mut number).err();
            while wrong.is_none() {
                match lines.try_recv() {
                    Ok(Ok(line)) if !batch.has_room(&line) => {
                        next = Some(Ok(line));
                        break;
                    }
                    Ok(line) => wrong = batch.add(line, &mut number).err(),
                    Err(_) => break,
                }
            }
            // Append the lines before the bad one, then report the error.
            self.send(batch)?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            if next.is_none() {
                next = lines.recv().ok();
            }
        }
        Ok(())
    }

    fn send(&mut self, batch: Batch) -> Result<(), Error> {
        let Some(body) = batch.into_body() else {
            return Ok(());
        };
        let sequence = self.sequence.to_string();
        let headers = [
            ("content-type", self.content_type.as_str()),
            ("producer-id", self.id.as_str()),
            ("producer-epoch", "0"),
            ("producer-seq", sequence.as_str()),
        ];
        self.gateway.call(&Method::POST, &self.target, &headers, &body)?;
        self.sequence += 1;
        Ok(())
    }
}

/// The lines of one append: JSON values as an array, anything else unchanged.
struct Batch {
    is_json: bool,
    body: Vec<u8>,
}

impl Batch {
    fn new(is_json: bool) -> Batch {
        Batch { is_json, body: Vec::new() }
    }

    fn has_room(&self, line: &[u8]) -> bool {
        self.body.len() + line.len() + 2 <= MAX_APPEND_BYTES
    }

    fn add(&mut self, line: Line, number: &mut u64) -> Result<(), Error> {
        let line = line?;
        *number += 1;
        if !self.is_json {
            self.body.extend_from_slice(&line);
            return Ok(());
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        json::parse(text, json::MAX_DEPTH)
            .map_err(|error| Error { message: format!("line {number}: {}", error.message), ..error })?;
        self.body.push(if self.body.is_empty() { b'[' } else { b',' });
        self.body.extend_from_slice(text);
        Ok(())
    }

    /// Returns the body of the request, or `None` if there is nothing to append.
    fn into_body(mut self) -> Option<Vec<u8>> {
        if self.body.is_empty() {
            return None;
        }
        if self.is_json {
            self.body.push(b']');
        }
        Some(self.body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(is_json: bool, lines: &[&str]) -> (Option<String>, Option<String>) {
        let mut batch = Batch::new(is_json);
        let mut number = 0;
        let wrong = lines.iter().find_map(|line| batch.add(Ok(line.as_bytes().to_vec()), &mut number).err());
        let body = batch.into_body().map(|body| String::from_utf8(body).unwrap());
        (body, wrong.map(|error| error.message))
    }

    #[test]
    fn lines_of_text_stay_as_they_are_and_those_of_json_become_an_array() {
        assert_eq!(batch(false, &["a\n", "\n", "b"]), (Some("a\n\nb".into()), None));
        // An array on a line is one message, because the protocol splits only the outer array.
        assert_eq!(batch(true, &["{\"n\":1}\n", " \n", "[1,2]\r\n", "3"]), (Some("[{\"n\":1},[1,2],3]".into()), None));
        assert_eq!(batch(true, &["\n"]), (None, None));
        let (body, wrong) = batch(true, &["1\n", "{x\n", "2\n"]);
        assert_eq!(body.as_deref(), Some("[1]"));
        assert!(wrong.unwrap().starts_with("line 2: "));
    }
}
