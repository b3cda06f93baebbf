//! Server-sent events, frame by frame.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::Client;

/// How long a frame or an event of a kind is waited for. The timeout of the connection is no bound, because an idle stream has
/// comments for ever.
const TIMEOUT: Duration = Duration::from_secs(120);

/// An open event stream.
pub struct Stream {
    client: Client,
    buffer: String,
    ended: bool,
}

/// A raw frame, without the blank line that ends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame(pub String);

impl Stream {
    /// Opens an event stream. Fails the test unless the status is 200.
    pub fn open(address: SocketAddr, target: &str) -> Stream {
        Stream::open_with(address, target, &[])
    }

    /// Like [`Stream::open`], with additional headers.
    pub fn open_with(address: SocketAddr, target: &str, headers: &[(&str, &str)]) -> Stream {
        Stream::over(Client::connect(address), target, headers).expect("an event stream")
    }

    /// Opens an event stream over a connection. Returns an error if the connection breaks or the status is not 200.
    pub fn over(mut client: Client, target: &str, headers: &[(&str, &str)]) -> std::io::Result<Stream> {
        let request = client.request("GET", target);
        headers.iter().fold(request, |request, (name, value)| request.header(name, value)).try_start()?;
        let (status, headers) = client.head()?;
        if status != 200 {
            return Err(std::io::Error::other(format!("{target}: status {status}")));
        }
        assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{headers:?}");
        Ok(Stream { client, buffer: String::new(), ended: false })
    }

    pub fn set_timeout(&mut self, timeout: Duration) {
        self.client.set_timeout(timeout);
    }

    /// Reads the next frame; `None` if the stream has ended properly.
    pub fn frame(&mut self) -> Option<Frame> {
        self.try_frame().expect("a frame")
    }

    /// Like `frame`, but returns an error if the connection has broken.
    pub fn try_frame(&mut self) -> std::io::Result<Option<Frame>> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                let frame = self.buffer.drain(..end + 2).collect::<String>();
                return Ok(Some(Frame(frame.trim_end_matches('\n').to_owned())));
            }
            if self.ended {
                return Ok(None);
            }
            let chunk = self.client.chunk()?;
            self.ended = chunk.is_empty();
            self.buffer += std::str::from_utf8(&chunk).expect("UTF-8");
        }
    }

    /// Reads until the next control frame, and returns its data. Adds the events of all data frames before it to
    /// `events`.
    pub fn until_control(&mut self, events: &mut Vec<Value>) -> Value {
        let end = Instant::now() + TIMEOUT;
        loop {
            let frame = self.frame().expect("a control frame before the end");
            assert!(Instant::now() < end, "no control frame, but {frame:?}");
            match frame.kind() {
                "data" => events.extend(frame.data().as_array().expect("an array").iter().cloned()),
                "control" => return frame.data(),
                _ => {}
            }
        }
    }

    /// Reads until an event of this type, and returns all events so far.
    pub fn until_event(&mut self, kind: &str) -> Vec<Value> {
        let end = Instant::now() + TIMEOUT;
        let mut events = Vec::new();
        while !events.iter().any(|event: &Value| event.get("type").is_some_and(|found| found == kind)) {
            self.until_control(&mut events);
            assert!(Instant::now() < end, "no {kind} in {events:#?}");
        }
        events
    }
}

impl Frame {
    /// The text after `event: `; empty for a comment.
    pub fn kind(&self) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix("event: ")).unwrap_or_default()
    }

    /// The text after `id: `.
    pub fn id(&self) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix("id: "))
    }

    pub fn data(&self) -> Value {
        let data = self.0.lines().find_map(|line| line.strip_prefix("data:")).unwrap_or_default();
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error} in {data}"))
    }
}
