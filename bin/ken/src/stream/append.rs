//! `ken stream append`: appends each line of standard input once, in order.
//!
//! A thread reads lines while a request is in progress. The lines that arrive during that time form the next request.
//! Each request carries the producer's next sequence number, so that a repeated request is not written twice.

use std::io::{BufRead, BufReader, IsTerminal, Read, stdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Thread};

use ken_client::{Gateway, Method, is_json};
use ken_types::id::Mint;
use ken_types::{Error, json};

use super::Append;

const MAX_APPEND_BYTES: usize = 1024 * 1024;
/// The maximum number of lines that wait while a request is in progress.
const MAX_LINES: usize = 1_024;
/// No further line is read while so many bytes wait. A line that is longer waits alone.
const MAX_WAITING_BYTES: usize = 2 * MAX_APPEND_BYTES;

pub(super) fn run(gateway: &mut Gateway, append: &Append) -> Result<(), Error> {
    if stdin().is_terminal() {
        let error = Error::invalid("-", "standard input is a terminal; lines are expected there");
        return Err(error.hint("tail -f FILE | ken stream append NAME"));
    }
    let target = append.name.target();
    let content_type = open(gateway, append, &target)?;
    let lines = Lines::read(stdin());
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

/// The lines that wait.
struct Lines {
    queue: Receiver<Line>,
    bytes: Arc<AtomicUsize>,
    reader: Thread,
}

impl Lines {
    fn read(input: impl Read + Send + 'static) -> Lines {
        let (sender, queue) = sync_channel(MAX_LINES);
        let bytes = Arc::new(AtomicUsize::new(0));
        let waiting = bytes.clone();
        // The thread is not joined, because it may block in a read of a pipe that nobody closes.
        let reader = thread::spawn(move || read_lines(input, &sender, &waiting)).thread().clone();
        Lines { queue, bytes, reader }
    }

    /// Waits for the next line.
    fn next(&self) -> Option<Line> {
        self.queue.recv().ok().map(|line| self.taken(line))
    }

    /// Returns the next line if it has been read.
    fn ready(&self) -> Option<Line> {
        self.queue.try_recv().ok().map(|line| self.taken(line))
    }

    fn taken(&self, line: Line) -> Line {
        self.bytes.fetch_sub(line.as_ref().map_or(0, Vec::len), Ordering::Release);
        self.reader.unpark();
        line
    }
}

fn read_lines(input: impl Read, to: &SyncSender<Line>, waiting: &AtomicUsize) {
    let mut input = BufReader::with_capacity(64 * 1024, input);
    for number in 1.. {
        while waiting.load(Ordering::Acquire) >= MAX_WAITING_BYTES {
            thread::park();
        }
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
        waiting.fetch_add(line.as_ref().map_or(0, Vec::len), Ordering::Relaxed);
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
    fn append_all(&mut self, lines: &Lines) -> Result<(), Error> {
        let mut number = 0;
        let mut next = lines.next();
        while let Some(line) = next.take() {
            let mut batch = Batch::new(self.is_json);
            let mut wrong = batch.add(line, &mut number).err();
            while wrong.is_none() {
                match lines.ready() {
                    Some(Ok(line)) if !batch.has_room(&line) => {
                        next = Some(Ok(line));
                        break;
                    }
                    Some(line) => wrong = batch.add(line, &mut number).err(),
                    None => break,
                }
            }
            // Append the lines before the bad one, then report the error.
            self.send(batch)?;
            if let Some(wrong) = wrong {
                return Err(wrong);
            }
            if next.is_none() {
                next = lines.next();
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

    /// An input of lines of the maximum length, which counts what has been read of it.
    struct Long(Arc<AtomicUsize>);

    impl Read for Long {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let at = self.0.load(Ordering::Relaxed);
            let length = buffer.len().min(MAX_APPEND_BYTES - at % MAX_APPEND_BYTES).min((64 << 20) - at);
            buffer[..length].fill(b'x');
            self.0.store(at + length, Ordering::Relaxed);
            if length > 0 && (at + length).is_multiple_of(MAX_APPEND_BYTES) {
                buffer[length - 1] = b'\n';
            }
            Ok(length)
        }
    }

    #[test]
    fn few_long_lines_wait_and_none_is_lost() {
        let count = Arc::new(AtomicUsize::new(0));
        let lines = Lines::read(Long(count.clone()));
        let mut taken = 0;
        while let Some(line) = lines.next() {
            // The reader has all the time that it needs to go too far.
            thread::sleep(std::time::Duration::from_millis(5));
            taken += line.unwrap().len();
            let ahead = count.load(Ordering::Relaxed) - taken;
            assert!(ahead <= MAX_WAITING_BYTES + MAX_APPEND_BYTES + 64 * 1024, "{ahead}");
        }
        assert_eq!((taken, lines.ready().is_none()), (64 << 20, true));
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
